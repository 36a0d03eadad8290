"""`ResultGrid`: what a search gives back, a `Result` for each trial."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from pyarrow import fs as pyarrow_fs

from syncline.tune.analysis import ExperimentAnalysis
from syncline.tune.analysis.trial_result import Result
from syncline.tune.experiment.trial import Trial
from syncline.tune.outcomes.choosing import best_trial, check_mode, nothing_best
from syncline.tune.plots import Kind

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects

__all__ = ["Result", "ResultGrid"]

_SHOWN = 10
"""So many results are printed."""


class ResultGrid(Sequence[Result]):
    """The results of a search in the order in which its trials were made, also of those that failed
    or have not ended.

    Args:
        experiment_analysis: The search.
    """

    def __init__(self, experiment_analysis: ExperimentAnalysis) -> None:
        self._analysis = experiment_analysis
        self._results = [Result.from_trial(trial) for trial in experiment_analysis.trials]

    @property
    def experiment_path(self) -> str:
        """The directory of the search, a path on `filesystem`."""
        return self._analysis.experiment_path

    @property
    def filesystem(self) -> pyarrow_fs.FileSystem:
        """Where it lies."""
        return self._analysis.filesystem

    @property
    def errors(self) -> list[Exception]:
        """What trials have failed with."""
        return [result.error for result in self._results if result.error is not None]

    @property
    def num_errors(self) -> int:
        """How many trials have failed."""
        return sum(trial.status == Trial.ERROR for trial in self._analysis.trials)

    @property
    def num_terminated(self) -> int:
        """How many trials have ended well."""
        return sum(trial.status == Trial.TERMINATED for trial in self._analysis.trials)

    def get_best_result(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> Result:
        """The result of the best trial. A single trial is the best one without a metric, too.

        Args:
            metric: What is compared, `a/b` if nested; that of TuneConfig if not given. mode: "min"
            or "max"; that of TuneConfig if not given. scope: Which values count: "last", "avg",
            "all" (the best there ever was), "last-5-avg" or "last-10-avg". filter_nan_and_inf:
            Leave trials out whose value is infinite or not a number.

        Raises:
            ValueError: Neither the call nor TuneConfig names a metric and a mode, or one of the
            arguments is unknown. RuntimeError: No trial has a value of that metric; the message
            names the metric that may be meant.
        """
        trials = self._analysis.trials
        check_mode(mode, "get_best_result")
        if len(trials) == 1 and not metric:
            return self._results[0]
        wanted, order = metric or self._analysis.default_metric, mode or self._analysis.default_mode
        if not wanted:
            raise ValueError(
                "get_best_result() does not know what to compare: give `metric`, here or in the TuneConfig of the search."
            )
        if not order and len(trials) > 1:
            raise ValueError(
                'get_best_result() does not know what is better: give `mode="min"` or "max", here or in TuneConfig.'
            )
        best = best_trial(
            trials, wanted, order or "max", scope, filter_nan_and_inf=filter_nan_and_inf
        )
        if best is None:
            raise RuntimeError(nothing_best(wanted, trials, filter_nan_and_inf=filter_nan_and_inf))
        return self._results[trials.index(best)]

    def get_dataframe(
        self, filter_metric: str | None = None, filter_mode: str | None = None
    ) -> pandas.DataFrame:
        """A pandas table with a row for each trial that has reported: its latest result, its
        configuration in columns `config/…`.

        Args:
            filter_metric: Take the result with the best value of this instead of the latest.
            filter_mode: "min" or "max": what is best.

        Raises:
            ValueError: No trial has reported that metric, or `filter_mode` is neither.
        """
        return self._analysis.dataframe(filter_metric, filter_mode)

    def plot(
        self,
        kind: Kind = "learning_curves",
        *,
        path: str | os.PathLike[str] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **options: Any,
    ) -> plotly.graph_objects.Figure:
        """A picture of the search; see `ExperimentAnalysis.plot`."""
        return self._analysis.plot(kind, path=path, metric=metric, mode=mode, **options)

    def __len__(self) -> int:
        return len(self._results)

    @overload
    def __getitem__(self, position: int) -> Result: ...

    @overload
    def __getitem__(self, position: slice) -> Sequence[Result]: ...

    def __getitem__(self, position: int | slice) -> Result | Sequence[Result]:
        """The result of the trial of that number."""
        return self._results[position]

    def __repr__(self) -> str:
        shown = [f"  {result!r}".replace("\n", "\n  ") for result in self._results[:_SHOWN]]
        if len(self) > _SHOWN:
            shown.append(f"  ... and {len(self) - _SHOWN} more")
        return "ResultGrid<[\n" + ",\n".join(shown) + "\n]>"
