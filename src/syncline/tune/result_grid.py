"""`ResultGrid`: the results of a search, one `Result` per trial."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from pyarrow import fs as pyarrow_fs

from syncline.tune.analysis import ExperimentAnalysis
from syncline.tune.analysis.trial_result import Result
from syncline.tune.experiment.trial import Trial
from syncline.tune.plots import Kind
from syncline.tune.trial_history import best_trial, check_mode, no_best_trial

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects

__all__ = ["Result", "ResultGrid"]

_SHOWN = 10
"""Number of results in the representation."""


class ResultGrid(Sequence[Result]):
    """Results of all trials of a search, also of failed and unfinished ones, in the order of their
    creation.

    Args:
        experiment_analysis: Analysis of the search.
    """

    def __init__(self, experiment_analysis: ExperimentAnalysis) -> None:
        self._analysis = experiment_analysis
        self._results = [Result.from_trial(trial) for trial in experiment_analysis.trials]

    @property
    def experiment_path(self) -> str:
        """Experiment directory, a path on `filesystem`."""
        return self._analysis.experiment_path

    @property
    def filesystem(self) -> pyarrow_fs.FileSystem:
        """Filesystem of the experiment directory."""
        return self._analysis.filesystem

    @property
    def errors(self) -> list[Exception]:
        """Exceptions of failed trials."""
        return [result.error for result in self._results if result.error is not None]

    @property
    def num_errors(self) -> int:
        """Number of failed trials."""
        return sum(trial.status == Trial.ERROR for trial in self._analysis.trials)

    @property
    def num_terminated(self) -> int:
        """Number of terminated trials."""
        return sum(trial.status == Trial.TERMINATED for trial in self._analysis.trials)

    def get_best_result(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> Result:
        """Return the result of the best trial. A single trial needs no metric.

        Args:
            metric: Metric to compare, `a/b` if nested; that of TuneConfig by default.
            mode: "min" or "max"; that of TuneConfig by default.
            scope: Values to compare: "last", "avg", "all" (the best value), "last-5-avg" or
                "last-10-avg".
            filter_nan_and_inf: Ignore trials with an infinite value or NaN.

        Raises:
            ValueError: Neither the call nor TuneConfig has a metric and a mode, or an argument is
                unknown.
            RuntimeError: No trial has a value of the metric; the message has the closest name.
        """
        trials = self._analysis.trials
        check_mode(mode, "get_best_result")
        if len(trials) == 1 and not metric:
            return self._results[0]
        wanted, order = metric or self._analysis.default_metric, mode or self._analysis.default_mode
        if not wanted:
            raise ValueError(
                "get_best_result() needs a metric: pass `metric`, or set it in the TuneConfig of "
                "the search."
            )
        if not order and len(trials) > 1:
            raise ValueError(
                'get_best_result() needs a mode: pass `mode="min"` or "max", or set it in the '
                "TuneConfig of the search."
            )
        best = best_trial(
            trials, wanted, order or "max", scope, filter_nan_and_inf=filter_nan_and_inf
        )
        if best is None:
            raise RuntimeError(no_best_trial(wanted, trials, filter_nan_and_inf=filter_nan_and_inf))
        return self._results[trials.index(best)]

    def get_dataframe(
        self, filter_metric: str | None = None, filter_mode: str | None = None
    ) -> pandas.DataFrame:
        """Return a pandas table with one row per trial that reported: its latest result, and its
        configuration in columns `config/…`.

        Args:
            filter_metric: Use the result with the best value of this metric instead of the latest.
            filter_mode: "min" or "max".

        Raises:
            ValueError: No trial reported the metric, or `filter_mode` is invalid.
        """
        return self._analysis.dataframe(filter_metric, filter_mode)

    def write_files(self) -> None:
        """Write the files of short trials; see `ExperimentAnalysis.write_files`."""
        self._analysis.write_files()

    def plot(
        self,
        kind: Kind = "learning_curves",
        *,
        path: str | os.PathLike[str] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **options: Any,
    ) -> plotly.graph_objects.Figure:
        """Return a figure of the search; see `ExperimentAnalysis.plot`."""
        return self._analysis.plot(kind, path=path, metric=metric, mode=mode, **options)

    def __len__(self) -> int:
        return len(self._results)

    @overload
    def __getitem__(self, position: int) -> Result: ...

    @overload
    def __getitem__(self, position: slice) -> Sequence[Result]: ...

    def __getitem__(self, position: int | slice) -> Result | Sequence[Result]:
        """Return the result of a trial by its number."""
        return self._results[position]

    def __repr__(self) -> str:
        shown = [f"  {result!r}".replace("\n", "\n  ") for result in self._results[:_SHOWN]]
        if len(self) > _SHOWN:
            shown.append(f"  ... and {len(self) - _SHOWN} more")
        return "ResultGrid<[\n" + ",\n".join(shown) + "\n]>"
