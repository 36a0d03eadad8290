"""`NotebookPanel`: a run as HTML in the output of a notebook's cell, updated by a thread.

All text from the program is escaped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from html import escape

from syncline.core.live_region import CellOutput, print_line, repeat
from syncline.train.console.display import LiveDisplay
from syncline.train.console.rows import PROGRESS, closing_lines, rows, title
from syncline.train.console.snapshot import Snapshot

INTERVAL_S = 1.0
"""Seconds between updates, each of which is a message to the browser."""

_STYLE = """<style>
.syncline-train { font-family: sans-serif; font-size: 12px; overflow-x: auto; }
.syncline-train table { border-collapse: collapse; margin: 6px 0; font-size: 12px; }
.syncline-train th { text-align: left; font-weight: normal; opacity: 0.6;
  padding: 2px 12px 2px 0; vertical-align: top; }
.syncline-train td { text-align: left; padding: 2px 0; font-variant-numeric: tabular-nums; }
.syncline-train progress { width: 240px; margin-right: 8px; vertical-align: middle; }
</style>"""


def snapshot_html(snapshot: Snapshot) -> str:
    """Return the rows of a snapshot as a table; the summary if the run has ended."""
    if snapshot.phase.is_end:
        return _framed("".join(f"<div>{escape(line)}</div>" for line in closing_lines(snapshot)))
    made = []
    for row in rows(snapshot):
        text = escape(", ".join(row.parts))
        if row.label == PROGRESS and snapshot.progress is not None:
            text = f'<progress value="{snapshot.progress.share:.4f}" max="1"></progress>{text}'
        made.append(f"<tr><th>{escape(row.label)}</th><td>{text}</td></tr>")
    return _framed(f"<div><b>{escape(title(snapshot))}</b></div><table>{''.join(made)}</table>")


def _framed(content: str) -> str:
    return f'{_STYLE}<div class="syncline-train">{content}</div>'


class NotebookPanel(LiveDisplay):
    """Panel that is shown from the first snapshot on. Events are printed below it.

    Args:
        clock: Monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._output = CellOutput()
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def print_event(self, text: str) -> None:
        """Print to the cell's output."""
        print_line(text)

    def start(self) -> None:
        """Start to draw."""
        self._draw(self.current())
        repeat(self._update, INTERVAL_S, self._ended)

    def close(self, *, interrupted: bool = False) -> None:
        """Stop the updates. The last state stays visible, as a summary if the run has ended."""
        with self._lock:
            if not self._output.is_shown or self._ended.is_set():
                return
            self._ended.set()
            self._draw(self.final(interrupted=interrupted))

    def _update(self) -> None:
        with self._lock:
            if not self._ended.is_set():
                self._draw(self.current())

    def _draw(self, snapshot: Snapshot | None) -> None:
        if snapshot is not None:
            self._output.show(snapshot_html(snapshot))
