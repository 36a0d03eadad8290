"""`LiveReporter`: the table of a search at the bottom of a terminal, redrawn in place below the
program's own output.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from syncline.core.live_region import REDRAW_INTERVAL_S, LiveRegion
from syncline.train.console.formatting import duration
from syncline.tune.console.reporter import DefaultReporter
from syncline.tune.console.snapshot import (
    Snapshot,
    View,
    best_text,
    closing_lines,
    failure_text,
    status_text,
)
from syncline.tune.console.tables import errors_table, trials_table
from syncline.tune.experiment.trial import Trial

MAX_ROWS = 20
_MAX_ERRORS = 3
_LINES_PER_ERROR = 8
"""Lines of the screen per displayed error."""
_OTHER_LINES = 10
"""Lines besides trials and errors: three above the table, four of its frame, two notes, cursor."""


class LiveReporter(DefaultReporter):
    """The default reporter in terminals.

    A thread redraws the last snapshot, so that the displayed duration advances between reports.

    Args:
        verbose: See `EndedTrials`; its lines are printed above the table.
        experiment_path: Displayed directory of the results.
        console: The terminal; standard error by default.
        clock: Returns seconds since the epoch.
    """

    def __init__(
        self,
        *,
        verbose: int = 1,
        experiment_path: str = "",
        console: Console | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(View(sort_by_metric=True), verbose, experiment_path, clock)
        self._console = console or Console(file=sys.stderr, highlight=False)
        self._next = 0.0
        self._snapshot: Snapshot | None = None
        self._sys_info: Sequence[str] = ()
        self._region = LiveRegion(self._console)

    def should_report(self, trials: Sequence[Trial], done: bool = False) -> bool:
        """Return True at most twice a second, and at the end."""
        return done or self._clock() >= self._next

    def report(self, trials: Sequence[Trial], done: bool, *sys_info: str) -> None:
        """Take a new snapshot; at the end, replace the live table with a summary."""
        now = self._clock()
        self._next = now + REDRAW_INTERVAL_S
        self._sys_info = sys_info
        for line in self._ended_trials.lines(trials, now):
            self._region.print(line)
        if done:
            self._finish(self._view.take(trials, rows=MAX_ROWS, errors=MAX_ROWS))
            return
        errors = max(1, min(_MAX_ERRORS, self._console.height // _LINES_PER_ERROR))
        self._snapshot = self._view.take(trials, rows=self._row_limit(), errors=errors)
        if not self._region.is_started:
            self._region.start(self._render)

    def close(self) -> None:
        """Stop the redraw thread; the last table stays on the screen."""
        self._region.close()

    def _row_limit(self) -> int:
        failures = len(self._snapshot.failures) if self._snapshot is not None else 0
        return min(MAX_ROWS, max(1, self._console.height - _OTHER_LINES - failures))

    def _finish(self, snapshot: Snapshot) -> None:
        """Replace the live table with the final table and the summary."""
        self._region.transient = True
        self._region.close()
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
            self._region.print(line)

    def _render(self) -> RenderableType:
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
