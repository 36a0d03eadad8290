"""Displays for programs to pass to a search, and its default display.

`CLIReporter` prints tables as plain text, `JupyterNotebookReporter` updates a table in the output
of a cell; both have options for columns, rows and sorting. `default_reporter` returns a live table
for terminals, an updated table for notebooks, and plain lines otherwise.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich import box

from syncline.core.host import is_interactive
from syncline.core.live_region import CellOutput
from syncline.train.console.formatting import duration, located, moment
from syncline.tune.console.live_table import LiveReporter
from syncline.tune.console.reporter import LineReporter, ProgressReporter
from syncline.tune.console.snapshot import (
    FAMILIAR_METRICS,
    PROGRESS,
    Snapshot,
    View,
    best_text,
    closing_lines,
    hidden_text,
)
from syncline.tune.console.tables import as_text, errors_table, page, trials_table
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import DEFAULT_METRIC

__all__ = [
    "CLIReporter",
    "JupyterNotebookReporter",
    "ProgressReporter",
    "TuneReporterBase",
    "default_reporter",
]

Columns = Sequence[str] | Mapping[str, str]
"""Keys, or headings by key."""


class TuneReporterBase(ProgressReporter):
    """Common options: columns, rows and frequency.

    Args:
        metric_columns: Keys of results (`a/b` if nested), or `{key: heading}`. By default
            well-known metrics, up to `infer_limit` other numbers, iterations and time.
        parameter_columns: Keys of the configuration, or `{key: heading}`; all searched parameters
            by default.
        total_samples: Expected number of trials.
        max_progress_rows: Maximum number of trials while the search runs. At the end all are shown.
        max_error_rows: Maximum number of errors while the search runs.
        max_column_length: Maximum characters of a heading or value.
        max_report_frequency: Seconds between two reports.
        infer_limit: Maximum number of metrics to find automatically.
        print_intermediate_tables: Show tables also before the end.
        metric: Metric of the best trial, unless the search has one.
        mode: "min" or "max".
        sort_by_metric: Show the best of the ended trials, best first. Needs metric and mode.
        clock: Returns seconds since the epoch.

    Raises:
        ValueError: `mode` is neither "min" nor "max".
    """

    DEFAULT_COLUMNS: Mapping[str, str] = {**FAMILIAR_METRICS, **PROGRESS}

    def __init__(
        self,
        *,
        metric_columns: Columns | None = None,
        parameter_columns: Columns | None = None,
        total_samples: int | float | None = None,
        max_progress_rows: int = 20,
        max_error_rows: int = 20,
        max_column_length: int = 20,
        max_report_frequency: float = 5,
        infer_limit: int = 3,
        print_intermediate_tables: bool | None = None,
        metric: str | None = None,
        mode: str | None = None,
        sort_by_metric: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if mode is not None and mode not in ("min", "max"):
            raise ValueError(f'{type(self).__name__}(mode={mode!r}): pass "min" or "max".')
        given = {"metric_columns": metric_columns, "parameter_columns": parameter_columns}
        self._lists = {
            argument
            for argument, columns in given.items()
            if columns is not None and not isinstance(columns, Mapping)
        }
        """Arguments that are lists of keys, without headings."""
        self._total_samples = total_samples
        self._max_progress_rows = max_progress_rows
        self._max_error_rows = max_error_rows
        self._max_report_frequency = max_report_frequency
        self._print_intermediate_tables = print_intermediate_tables is not False
        self._clock = clock
        self._start_time = clock()
        self._last_report_time = float("-inf")
        self._view = View(
            metric=metric,
            mode=mode,
            parameters=_columns(parameter_columns or {}),
            metrics=None if metric_columns is None else _columns(metric_columns),
            found_metrics=infer_limit,
            length=max_column_length,
            sort_by_metric=sort_by_metric,
        )

    def setup(
        self,
        start_time: float | None = None,
        total_samples: int | float | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: object,
    ) -> None:
        """See `ProgressReporter`.

        Raises:
            ValueError: Search and reporter both have a metric or a mode.
        """
        self.set_start_time(start_time)
        self.set_total_samples(total_samples)
        self.set_search_properties(metric, mode)

    def set_start_time(self, timestamp: float | None = None) -> None:
        """Set the start of the search in seconds since the epoch; now by default."""
        self._start_time = self._clock() if timestamp is None else timestamp

    def set_total_samples(self, total_samples: int | float | None) -> None:
        """Set the expected number of trials; None has no effect."""
        self._total_samples = self._total_samples if total_samples is None else total_samples

    def set_search_properties(self, metric: str | None, mode: str | None) -> bool:
        """Set metric and mode of the search; return True, for older programs.

        Raises:
            ValueError: The reporter has its own metric or mode.
        """
        view = self._view
        if (view.metric and metric) or (view.mode and mode):
            raise ValueError(
                f"{type(self).__name__} has metric={view.metric!r} and mode={view.mode!r}, and the "
                f"search has metric={metric!r} and mode={mode!r}: set them only in TuneConfig."
            )
        view.metric, view.mode = metric or view.metric, mode or view.mode
        if view.mode and view.metric is None:
            view.metric = DEFAULT_METRIC
        return True

    def should_report(self, trials: Sequence[Trial], done: bool = False) -> bool:
        """Return True every `max_report_frequency` seconds and at the end."""
        now = self._clock()
        if now - self._last_report_time < self._max_report_frequency:
            return done
        self._last_report_time = now
        return True

    def add_metric_column(self, metric: str, representation: str | None = None) -> None:
        """Add a column for a metric. Metrics are then no longer found automatically.

        Args:
            metric: Key in results.
            representation: Heading; the key by default.

        Raises:
            ValueError: The metric has a column, or the columns are a list, which has no headings.
        """
        if self._view.metrics is None:
            self._view.metrics = dict(self.DEFAULT_COLUMNS)
        self._add_column(self._view.metrics, metric, representation, "metric_columns")

    def add_parameter_column(self, parameter: str, representation: str | None = None) -> None:
        """Add a column for a parameter; see `add_metric_column`."""
        self._add_column(self._view.parameters, parameter, representation, "parameter_columns")

    def _add_column(
        self, columns: dict[str, str], key: str, heading: str | None, argument: str
    ) -> None:
        if key in columns:
            raise ValueError(f"{key!r} already has a column: the columns are {list(columns)}.")
        if argument in self._lists and heading not in (None, key):
            raise ValueError(
                f"{key!r} cannot get the heading {heading!r}, because `{argument}` is a list: pass "
                "a dictionary."
            )
        columns[key] = heading or key

    def _snapshot(self, trials: Sequence[Trial], done: bool) -> Snapshot:
        return self._view.take(
            trials,
            rows=None if done else self._max_progress_rows,
            errors=None if done else self._max_error_rows,
        )

    def _lines(
        self, snapshot: Snapshot, trials: Sequence[Trial], sys_info: Sequence[str]
    ) -> list[str]:
        """Return the lines above the tables."""
        now = self._clock()
        lines = [
            f"Current time: {moment(now)} (running for {duration(now - self._start_time)})",
            *sys_info,
        ]
        if snapshot.best is not None:
            lines.append(f"Current best trial: {best_text(snapshot.best)}")
        if trials:
            storage = trials[0].storage
            path = located(
                storage.storage_fs_path,
                local=storage.local,
                scheme=storage.storage_filesystem.type_name,
            )
            lines.append(f"Result directory: {path}")
        of = (
            ""
            if self._total_samples is None
            else f"/{'infinite' if math.isinf(self._total_samples) else int(self._total_samples)}"
        )
        states = ", ".join(f"{count} {status}" for status, count in snapshot.counts.items())
        return [*lines, f"Number of trials: {snapshot.total}{of}{f' ({states})' if states else ''}"]

    def _closing(self, snapshot: Snapshot) -> list[str]:
        return closing_lines(snapshot, self._clock() - self._start_time)


class CLIReporter(TuneReporterBase):
    """Prints the state of the search every few seconds and at the end. Arguments: see
    `TuneReporterBase`.
    """

    def report(self, trials: Sequence[Trial], done: bool, *sys_info: str) -> None:
        """Print lines and tables."""
        print(self._progress_str(trials, done, *sys_info), flush=True)

    def _progress_str(self, trials: Sequence[Trial], done: bool, *sys_info: str) -> str:
        snapshot = self._snapshot(trials, done)
        parts = ["== Status ==", *self._lines(snapshot, trials, sys_info)]
        if snapshot.rows and (done or self._print_intermediate_tables):
            parts.append(as_text(trials_table(snapshot, None, border=box.ASCII2)))
        elif snapshot.hidden:
            parts.append(hidden_text(snapshot))
        if snapshot.failures:
            parts.append(
                as_text(errors_table(snapshot.failures, snapshot.failed, None, border=box.ASCII2))
            )
        return "\n".join([*parts, *(self._closing(snapshot) if done else ()), ""])


class JupyterNotebookReporter(TuneReporterBase):
    """Updates the state of the search in the output of a notebook cell.

    Args:
        overwrite: Replace earlier output of the cell.
        options: See `TuneReporterBase`.
    """

    def __init__(self, *, overwrite: bool = True, **options: Any) -> None:
        super().__init__(**options)
        if not is_interactive(None):
            warnings.warn(
                "JupyterNotebookReporter has no readable output outside of a notebook: omit "
                "`progress_reporter`, or pass a CLIReporter.",
                stacklevel=2,
            )
        self._output = CellOutput(clear=overwrite)

    def report(self, trials: Sequence[Trial], done: bool, *sys_info: str) -> None:
        """Show lines and tables."""
        snapshot = self._snapshot(trials, done)
        lines = [
            *self._lines(snapshot, trials, sys_info),
            *(self._closing(snapshot) if done else ()),
        ]
        self.display(page(snapshot, lines))

    def display(self, string: str) -> None:
        """Show HTML instead of the previous output of this reporter."""
        self._output.show(string)


def default_reporter(
    verbose: int | None = None, *, experiment_path: str = "", clock: Callable[[], float] = time.time
) -> ProgressReporter | None:
    """Return the default display of a search; None for no display.

    Args:
        verbose: 0 for no display. 1, the default, for the table of trials in terminals and
            notebooks, and a few lines otherwise. 2 also lists ended trials, one line every few
            seconds; 3 has a line for each of them.
        experiment_path: Displayed location of the results.
        clock: Returns seconds since the epoch.
    """
    level = 1 if verbose is None else int(verbose)
    if level <= 0:
        return None
    if is_interactive(None):
        return JupyterNotebookReporter(
            overwrite=False, max_report_frequency=1, infer_limit=4, sort_by_metric=True, clock=clock
        )
    if is_interactive(sys.stderr):
        return LiveReporter(verbose=level, experiment_path=experiment_path, clock=clock)
    return LineReporter(verbose=level, experiment_path=experiment_path, clock=clock)


def _columns(given: Columns) -> dict[str, str]:
    return dict(given) if isinstance(given, Mapping) else {key: key for key in given}
