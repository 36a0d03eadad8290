"""Progress of running executions in terminals and notebooks: one line per operator.

All executions of a program share one display. Nothing is written elsewhere.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from syncline.core.host import is_interactive
from syncline.core.live_region import LiveRegion
from syncline.data.context import DataContext
from syncline.data.execute.scheduler import Counts
from syncline.data.execute.stats import ExecutionStats, size_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

SHOW_AFTER_S = 0.5
"""Executions that end earlier show nothing."""
_NAME_WIDTH = 32


class ProgressLines:
    """Progress lines of one execution."""

    def __init__(self, display: Display, context: DataContext, name: str) -> None:
        self._display = display
        self._lines = partial(
            lines,
            name=name,
            per_operator=context.enable_operator_progress_bars
            and context.execution_options.verbose_progress,
            truncate=context.enable_progress_bar_name_truncation,
        )
        self._began = time.monotonic()

    @classmethod
    def on_terminal(cls, context: DataContext, name: str) -> ProgressLines | None:
        """Return progress lines if standard error is a terminal or a notebook; else None."""
        if not is_interactive(sys.stderr):
            return None
        return cls(_shared_display(), context, name)

    def show(self, stats: ExecutionStats, counts: Counts) -> None:
        """Redraw the lines."""
        if time.monotonic() - self._began >= SHOW_AFTER_S:
            self._display.update(self, self._lines(stats, counts))

    def close(self, stats: ExecutionStats, counts: Counts) -> None:
        """Draw the lines for the last time; they stay on the screen."""
        self._display.remove(self, self._lines(stats, counts))


def lines(
    stats: ExecutionStats,
    counts: Counts,
    *,
    name: str = "",
    per_operator: bool = True,
    truncate: bool = True,
) -> list[str]:
    """Return a summary line, then one line per operator."""
    rate = stats.rows / stats.wall_s if stats.wall_s else 0.0
    made = [f"{name or 'dataset'}: {stats.rows:,} rows, {rate:,.0f} rows/s, {stats.wall_s:.0f} s"]
    if not per_operator:
        return made
    titles = [
        _shortened(operator.name) if truncate else operator.name for operator in stats.operators
    ]
    width = max(map(len, titles), default=0)
    for title, operator, stage in zip(titles, stats.operators, counts.stages, strict=True):
        made.append(
            f"  {title.ljust(width)} {operator.rows:>10,} rows {operator.rows_per_s:>8,.0f}/s"
            f" {stage.queued_rows:>7,} queued {size_text(stage.held_bytes):>7}"
        )
    return made


def _shortened(name: str) -> str:
    return name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 3]}..."


class Display:
    """Live display of the lines of all executions. Thread-safe."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._region: LiveRegion | None = None
        self._shown: dict[ProgressLines, Sequence[str]] = {}
        self._text = ""

    def update(self, progress: ProgressLines, text: Sequence[str]) -> None:
        """Replace the lines of an execution."""
        with self._lock:
            self._shown[progress] = text
            self._join()
            if self._region is None:
                # Leave standard error alone: other progress bars write there.
                self._region = LiveRegion(self._console, interval_s=None, redirect=("stdout",))
                self._region.start(self._render)
            else:
                self._region.refresh()

    def remove(self, progress: ProgressLines, text: Sequence[str]) -> None:
        """Draw the last lines of an execution; ignored if the execution never showed any."""
        with self._lock:
            if progress not in self._shown or self._region is None:
                return
            self._shown[progress] = text
            self._join()
            self._region.refresh()
            del self._shown[progress]
            if not self._shown:
                self._region.close()
                self._region = None

    def _join(self) -> None:
        self._text = "\n".join(line for lines in self._shown.values() for line in lines)

    def _render(self) -> Text:
        from rich.text import Text

        return Text(self._text, no_wrap=True, overflow="ellipsis")


_lock = threading.Lock()
_display: Display | None = None


def _shared_display() -> Display:
    from rich.console import Console

    global _display
    with _lock:
        if _display is None:
            _display = Display(Console(stderr=True))
        return _display
