"""Progress for people: one line per operator while executions run, in terminals and notebooks;
elsewhere nothing is written.

Executions of one program share one display, each with its own lines. What lines say is in `lines`,
which knows no display.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from syncline.core.terminals import is_terminal, is_watched
from syncline.data.context import DataContext
from syncline.data.execute.scheduler import Counts
from syncline.data.execute.stats import ExecutionStats, size_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

SHOW_AFTER_S = 0.5
"""Executions that end before that show nothing."""
_NAME_WIDTH = 32


class Progress:
    """The lines of one execution."""

    def __init__(self, display: Display, context: DataContext, name: str) -> None:
        self._display = display
        self._per_operator = (
            context.enable_operator_progress_bars and context.execution_options.verbose_progress
        )
        self._truncate = context.enable_progress_bar_name_truncation
        self._name = name
        self._began = time.monotonic()

    @classmethod
    def where_people_look(cls, context: DataContext, name: str) -> Progress | None:
        """Progress on standard error if that is a terminal, or in a notebook; else None."""
        if not is_watched(sys.stderr):
            return None
        return cls(_shared_display(), context, name)

    def show(self, stats: ExecutionStats, counts: Counts) -> None:
        """Bring the lines up to date."""
        if time.monotonic() - self._began >= SHOW_AFTER_S:
            self._display.update(self, self._lines(stats, counts))

    def close(self, stats: ExecutionStats, counts: Counts) -> None:
        """The execution has ended: its last lines stay."""
        self._display.remove(self, self._lines(stats, counts))

    def _lines(self, stats: ExecutionStats, counts: Counts) -> list[str]:
        return lines(
            stats, counts, name=self._name, per_operator=self._per_operator, truncate=self._truncate
        )


def lines(
    stats: ExecutionStats,
    counts: Counts,
    *,
    name: str = "",
    per_operator: bool = True,
    truncate: bool = True,
) -> list[str]:
    """The whole in one line, then a line for each operator."""
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
    """The lines of all executions, drawn again and again in the same place. Thread-safe."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._live: Live | None = None
        self._shown: dict[Progress, Sequence[str]] = {}

    def update(self, progress: Progress, text: Sequence[str]) -> None:
        """Draw the lines of one execution anew."""
        from rich.live import Live

        with self._lock:
            self._shown[progress] = text
            if self._live is None:
                # What the program prints goes above the lines; not so on standard error, where
                # other progress bars draw theirs.
                on_screen = self._console.is_terminal and is_terminal(sys.stdout)
                self._live = Live(
                    console=self._console,
                    auto_refresh=False,
                    redirect_stdout=on_screen,
                    redirect_stderr=False,
                )
                self._live.start()
            self._draw()

    def remove(self, progress: Progress, text: Sequence[str]) -> None:
        """The last lines of an execution; those of executions that were never drawn are not drawn
        now.
        """
        with self._lock:
            if progress not in self._shown or self._live is None:
                return
            self._shown[progress] = text
            self._draw()
            del self._shown[progress]
            if not self._shown:
                self._live.stop()
                self._live = None

    def _draw(self) -> None:
        from rich.text import Text

        assert self._live is not None
        text = "\n".join(line for lines in self._shown.values() for line in lines)
        self._live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)


_lock = threading.Lock()
_display: Display | None = None


def _shared_display() -> Display:
    from rich.console import Console

    global _display
    with _lock:
        if _display is None:
            _display = Display(Console(stderr=True))
        return _display
