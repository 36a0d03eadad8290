"""`LiveReporter`: the table of a search at the bottom of a terminal, drawn in place; what the
program prints goes above it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from syncline.train.console.streams import redirected
from syncline.train.console.values import duration
from syncline.tune.console.endings import Endings
from syncline.tune.console.reporter import ProgressReporter
from syncline.tune.console.snapshot import Snapshot, View
from syncline.tune.console.summary import best_text, closing_lines, failure_text, status_text
from syncline.tune.console.tables import errors_table, trials_table
from syncline.tune.experiment.trial import Trial

INTERVAL_S = 0.5
"""The trials are looked at, and the screen is drawn, this often."""
MAX_ROWS = 20
"""So many trials are shown at most."""
_FEW_ERRORS = 3
_LINES_PER_ERROR = 8
"""A screen of so many lines shows one error."""
_AROUND_ROWS = 10
"""Lines that are neither trials nor errors: three above the table, four of its frame, two of notes
below, and the one of the cursor.
"""


class LiveReporter(ProgressReporter):
    """The default in terminals. The screen is drawn by a thread, from what `report` has left, so
    that the time goes on between events.
    """

    def __init__(
        self,
        *,
        verbose: int = 1,
        experiment_path: str = "",
        console: Console | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """verbose: 2 also says which trial has ended, and how, above the table, every few seconds;
        3 says it of every trial. experiment_path: Where results lie, for people. console: Where to
        draw; standard error by default. clock: Seconds since the epoch.
        """
        self._experiment_path = experiment_path
        # Not the stream that is `sys.stderr` at each moment, which is a stand-in while the display
        # is drawn.
        self._console = console or Console(file=sys.stderr, highlight=False)
        self._clock = clock
        self._view = View(sort_by_metric=True)
        self._endings = Endings(self._view, verbose)
        self._start_time = clock()
        self._expected: int | float | None = None
        self._next = 0.0
        self._snapshot: Snapshot | None = None
        self._sys_info: Sequence[str] = ()
        self._screen = ExitStack()
        self._live: Live | None = None

    def setup(
        self,
        start_time: float | None = None,
        total_samples: int | float | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        """See `ProgressReporter`."""
        self._start_time = self._clock() if start_time is None else start_time
        self._expected = total_samples
        self._view.metric, self._view.mode = metric, mode
        self._endings.pass_over(kwargs.get("trials", ()))

    def should_report(self, trials: Sequence[Trial], done: bool = False) -> bool:
        """At most twice a second, and at the end."""
        return done or self._clock() >= self._next

    def report(self, trials: Sequence[Trial], done: bool, *sys_info: str) -> None:
        """Take a new picture; at the end, leave the last one and a summary on the screen."""
        now = self._clock()
        self._next = now + INTERVAL_S
        self._sys_info = sys_info
        for line in self._endings.lines(trials, now):
            self._console.print(Text(line), soft_wrap=True)
        if done:
            self._end(self._view.take(trials, rows=MAX_ROWS, errors=MAX_ROWS))
            return
        errors = max(1, min(_FEW_ERRORS, self._console.height // _LINES_PER_ERROR))
        self._snapshot = self._view.take(trials, rows=self._rows_that_fit(), errors=errors)
        if self._live is None:
            self._start()

    def close(self) -> None:
        """Stop drawing; the last picture stays."""
        self._screen.close()
        self._live = None

    def _rows_that_fit(self) -> int:
        failures = len(self._snapshot.failures) if self._snapshot is not None else 0
        return min(MAX_ROWS, max(1, self._console.height - _AROUND_ROWS - failures))

    def _start(self) -> None:
        self._live = Live(
            get_renderable=self._picture,
            console=self._console,
            refresh_per_second=1 / INTERVAL_S,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._screen.enter_context(redirected(self._console))
        self._screen.enter_context(self._live)

    def _end(self, snapshot: Snapshot) -> None:
        """In the place of the live table: all that is left to say."""
        if self._live is not None:
            self._live.transient = True
        self.close()
        if snapshot.rows:
            self._console.print(trials_table(snapshot, self._console.width))
        if snapshot.failures:
            self._console.print(
                errors_table(snapshot.failures, snapshot.failed, self._console.width)
            )
        lines = closing_lines(snapshot, self._clock() - self._start_time)
        if self._experiment_path:
            lines.append(f"Results: {self._experiment_path}")
        for line in lines:
            self._console.print(Text(line), soft_wrap=True)

    def _picture(self) -> RenderableType:
        snapshot = self._snapshot
        if snapshot is None:
            return ""
        running_for = duration(self._clock() - self._start_time)
        above = [
            f"Tune: {status_text(snapshot, self._expected)}",
            ". ".join((f"Running for {running_for}", *self._sys_info)),
        ]
        if snapshot.best is not None:
            above.append(f"Best trial: {best_text(snapshot.best)}")
        parts: list[RenderableType] = [
            Text(line, no_wrap=True, overflow="ellipsis") for line in above
        ]
        if snapshot.rows:
            parts.append(trials_table(snapshot, self._console.width))
        parts += [
            Text(failure_text(failure), style="red", no_wrap=True, overflow="ellipsis")
            for failure in snapshot.failures
        ]
        return Group(*parts)
