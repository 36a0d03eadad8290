"""Reporters that programs give to a search, and the one that it uses by itself.

`CLIReporter` prints the table as plain text again and again, `JupyterNotebookReporter` keeps one in
the output of a cell up to date; both choose and name their columns, rows and sorting as the program
says. `default_reporter` draws a live table in terminals, keeps one up to date in notebooks and
writes a few plain lines elsewhere.
"""

from __future__ import annotations

import importlib
import math
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich import box

from syncline.core.terminals import is_watched
from syncline.train.console.values import duration, located, moment
from syncline.tune.console.lines import LinesReporter
from syncline.tune.console.live import LiveReporter
from syncline.tune.console.pages import page
from syncline.tune.console.reporter import ProgressReporter
from syncline.tune.console.snapshot import FAMILIAR_METRICS, PROGRESS, Snapshot, View
from syncline.tune.console.summary import best_text, closing_lines, hidden_text
from syncline.tune.console.tables import as_text, errors_table, trials_table
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
"""Keys, or keys with headings."""


class TuneReporterBase(ProgressReporter):
    """What the reporters have in common: which columns and rows there are, and how often.

    Args:
        metric_columns: Keys of results (`a/b` if nested) that get a column, or `{key: heading}`. If
        not given, well-known ones, up to
            `infer_limit` numbers that trials report, iterations and time.
        parameter_columns: Keys of the configuration that get a column, or `{key: heading}`;
        everything that was searched if not given. total_samples: How many trials there will be.
        max_progress_rows: So many trials are shown at most while the search runs. At its end all
        are. max_error_rows: So many errors, likewise. max_column_length: Characters of a heading or
        a value. max_report_frequency: Seconds between two reports. infer_limit: So many metrics are
        found by themselves. print_intermediate_tables: Whether the tables are shown before the end,
        too. metric: What decides which trial is best, if the search does not say it. mode: "min" or
        "max". sort_by_metric: Of the trials that have ended, show the best ones, best first; needs
        a metric and a mode. clock: Seconds since the epoch.

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
            raise ValueError(f'{type(self).__name__}(mode={mode!r}): give "min" or "max".')
        self._metric_columns = (
            metric_columns if metric_columns is None else _columns(metric_columns)
        )
        self._names_metrics_only = metric_columns is not None and not isinstance(
            metric_columns, Mapping
        )
        self._parameter_columns = _columns(parameter_columns or {})
        self._names_parameters_only = parameter_columns is not None and not isinstance(
            parameter_columns, Mapping
        )
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
            parameters=self._parameter_columns,
            metrics=self._metric_columns,
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
        **kwargs: Any,
    ) -> None:
        """See `ProgressReporter`. ValueError where the search and this reporter both name a metric
        or a mode.
        """
        self.set_start_time(start_time)
        self.set_total_samples(total_samples)
        self.set_search_properties(metric, mode)

    def set_search_properties(self, metric: str | None, mode: str | None) -> bool:
        """Take what the search optimises; True, for older programs.

        Raises:
            ValueError: This reporter was made with a metric or a mode of its own.
        """
        view = self._view
        if (view.metric and metric) or (view.mode and mode):
            raise ValueError(
                f"{type(self).__name__} was made with metric={view.metric!r} and mode={view.mode!r}, and the search has metric={metric!r} "
                f"and mode={mode!r}: give them in one place only, best in TuneConfig."
            )
        view.metric, view.mode = metric or view.metric, mode or view.mode
        if view.mode and view.metric is None:
            view.metric = DEFAULT_METRIC
        return True

    def set_total_samples(self, total_samples: int | float | None) -> None:
        """So many trials will be made; None leaves it as it is."""
        self._total_samples = self._total_samples if total_samples is None else total_samples

    def set_start_time(self, timestamp: float | None = None) -> None:
        """When the search began, in seconds since the epoch; now if not given."""
        self._start_time = self._clock() if timestamp is None else timestamp

    def should_report(self, trials: Sequence[Trial], done: bool = False) -> bool:
        """Every `max_report_frequency` seconds, and at the end."""
        now = self._clock()
        if now - self._last_report_time < self._max_report_frequency:
            return done
        self._last_report_time = now
        return True

    def add_metric_column(self, metric: str, representation: str | None = None) -> None:
        """Show a further metric. With it, none is found by itself any more.

        Args:
            metric: Its key in results.
            representation: Its heading, if that is not the key.

        Raises:
            ValueError: It has a column already, or this reporter was made with a list, which has no
            headings.
        """
        if self._metric_columns is None:
            self._view.metrics = self._metric_columns = dict(self.DEFAULT_COLUMNS)
        _add_column(
            self._metric_columns,
            metric,
            representation,
            names_only=self._names_metrics_only,
            argument="metric_columns",
        )

    def add_parameter_column(self, parameter: str, representation: str | None = None) -> None:
        """Show a further parameter; see `add_metric_column`."""
        _add_column(
            self._parameter_columns,
            parameter,
            representation,
            names_only=self._names_parameters_only,
            argument="parameter_columns",
        )

    def _snapshot(self, trials: Sequence[Trial], done: bool) -> Snapshot:
        return self._view.take(
            trials,
            rows=None if done else self._max_progress_rows,
            errors=None if done else self._max_error_rows,
        )

    def _lines(
        self, snapshot: Snapshot, trials: Sequence[Trial], sys_info: Sequence[str]
    ) -> list[str]:
        """What stands above the tables."""
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
    """Prints the state of the search to standard output, every few seconds and at the end. For its
    arguments see `TuneReporterBase`.
    """

    def report(self, trials: Sequence[Trial], done: bool, *sys_info: str) -> None:
        """Print everything."""
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
    """Keeps the state of the search up to date in the output of a notebook's cell.

    Args:
        overwrite: Whether it takes the place of what the cell has shown so far.
        options: See `TuneReporterBase`.
    """

    def __init__(self, *, overwrite: bool = True, **options: Any) -> None:
        super().__init__(**options)
        if not is_watched(None):
            warnings.warn(
                "JupyterNotebookReporter shows nothing readable here, because this program does not run in a notebook: "
                "leave `progress_reporter` out, or give a CLIReporter.",
                stacklevel=2,
            )
        self._overwrite = overwrite
        self._handle: Any = None

    def report(self, trials: Sequence[Trial], done: bool, *sys_info: str) -> None:
        """Show everything anew."""
        snapshot = self._snapshot(trials, done)
        lines = [
            *self._lines(snapshot, trials, sys_info),
            *(self._closing(snapshot) if done else ()),
        ]
        self.display(page(snapshot, lines))

    def display(self, string: str) -> None:
        """Show HTML in the place of what this reporter showed before."""
        shown = importlib.import_module("IPython.display")
        if self._handle is not None:
            self._handle.update(shown.HTML(string))
            return
        if self._overwrite:
            shown.clear_output(wait=True)
        self._handle = shown.display(shown.HTML(string), display_id=True)


def default_reporter(
    verbose: int | None = None, *, experiment_path: str = "", clock: Callable[[], float] = time.time
) -> ProgressReporter | None:
    """The reporter of a search whose program gives none.

    Args:
        verbose: 0 shows nothing: there is no reporter. 1, the default, shows the table of trials
        where a person watches, elsewhere a few
            lines. 2 also names trials that have ended, a line every few seconds; 3 names each of
            them.
        experiment_path: Where the results lie, for people.
        clock: Seconds since the epoch.
    """
    level = 1 if verbose is None else int(verbose)
    if level <= 0:
        return None
    if is_watched(None):
        return JupyterNotebookReporter(
            overwrite=False, max_report_frequency=1, infer_limit=4, sort_by_metric=True, clock=clock
        )
    if is_watched(sys.stderr):
        return LiveReporter(verbose=level, experiment_path=experiment_path, clock=clock)
    return LinesReporter(verbose=level, experiment_path=experiment_path, clock=clock)


def _columns(given: Columns) -> dict[str, str]:
    return dict(given) if isinstance(given, Mapping) else {key: key for key in given}


def _add_column(
    columns: dict[str, str], key: str, heading: str | None, *, names_only: bool, argument: str
) -> None:
    if key in columns:
        raise ValueError(f"{key!r} has a column already: the columns are {list(columns)}.")
    if names_only and heading not in (None, key):
        raise ValueError(
            f"{key!r} cannot be shown as {heading!r}, because the reporter was made with a list: give `{argument}` as a dictionary."
        )
    columns[key] = heading or key
