"""`ExperimentAnalysis`: everything that one may want to know of a search, from its trials or from
its directory.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyarrow import fs as pyarrow_fs

from syncline.storage import filesystem as directories
from syncline.train import metric_values
from syncline.train.checkpoint import Checkpoint
from syncline.tune.analysis import tables
from syncline.tune.console.trial_selection import group_trials
from syncline.tune.controller.search_store import load_trials
from syncline.tune.experiment.trial import Trial
from syncline.tune.plots import Kind, plot
from syncline.tune.result import CONFIG, DEFAULT_METRIC, TIME_TOTAL_S, TRAINING_ITERATION
from syncline.tune.trial_history import (
    FileType,
    best_trial,
    check_mode,
    no_best_trial,
    read_history,
)

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects

logger = logging.getLogger("syncline")


class ExperimentAnalysis:
    """A search, to be looked at.

    Args:
        experiment_checkpoint_path: The directory of the search, or a file in it, or its URI.
        storage_filesystem: The filesystem that it is a path on; found from it if not given.
        trials: The trials, where the program has them; read from the directory if not given.
        default_metric: What `best_…` and the methods compare, unless they are told something else.
        default_mode: "min" or "max", likewise.

    Raises:
        ValueError: `default_mode` is neither.
        FileNotFoundError: There is no search in that directory.
    """

    trials: list[Trial]
    """All trials, in the order in which they were made."""

    def __init__(
        self,
        experiment_checkpoint_path: str | os.PathLike[str],
        *,
        storage_filesystem: pyarrow_fs.FileSystem | None = None,
        trials: Sequence[Trial] | None = None,
        default_metric: str | None = None,
        default_mode: str | None = None,
    ) -> None:
        check_mode(default_mode, "ExperimentAnalysis(default_mode=…)")
        self.default_metric = (
            DEFAULT_METRIC
            if default_metric is None and default_mode is not None
            else default_metric
        )
        self.default_mode = default_mode
        path = os.fspath(experiment_checkpoint_path)
        self._filesystem, self._path = directories.resolve(
            os.path.dirname(path) if path.endswith((".json", ".jsonl", ".pkl")) else path,
            storage_filesystem,
        )
        self.trials = list(load_trials(self._path, self._filesystem) if trials is None else trials)
        self._file_type: FileType = "json"
        self._frames = self._make_frames()

    # -- the search as a whole

    @property
    def experiment_path(self) -> str:
        """The directory of the search, a path on `filesystem`."""
        return self._path

    @property
    def filesystem(self) -> pyarrow_fs.FileSystem:
        """Where it lies."""
        return self._filesystem

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """The latest result of each trial, by trial id."""
        return {trial.trial_id: trial.last_result for trial in self.trials}

    @property
    def results_df(self) -> pandas.DataFrame:
        """The latest results as a table with a row for each trial, its index the trial ids, the
        configuration in columns `config/…`.
        """
        return tables.table(
            (tables.with_config(trial.last_result, trial) for trial in self.trials),
            index="trial_id",
        )

    @property
    def trial_dataframes(self) -> Mapping[str, pandas.DataFrame]:
        """All results of each trial as a table, by trial id; read when one is asked for. Empty for
        a trial that has written none.
        """
        return self._frames

    def dataframe(self, metric: str | None = None, mode: str | None = None) -> pandas.DataFrame:
        """A table with one result of each trial that has reported, its configuration in columns
        `config/…`, its directory in `logdir`.

        Args:
            metric: Which result it is: the one with the best value of this. If not given, the
                latest.
            mode: "min" or "max": what is best.

        Raises:
            ValueError: Only one of the two is given, or `mode` is none, or no trial has reported
            that metric.
        """
        check_mode(mode, "dataframe(…)")
        if mode and not metric:
            raise ValueError(
                f"dataframe(mode={mode!r}) does not say of which metric: give `metric`, too, or neither."
            )
        if metric and mode:
            self._check_known(metric)
        rows = []
        for trial in self.trials:
            row = self._best_row(trial, metric, mode) if metric and mode else trial.last_result
            if row:
                rows.append({**tables.with_config(row, trial), "logdir": trial.path})
        return tables.table(rows)

    def get_all_configs(self, prefix: bool = False) -> dict[str, dict[str, Any]]:
        """The configuration of each trial, by trial id; with `prefix`, flat, under keys
        `config/…`.
        """
        return {
            trial.trial_id: metric_values.flatten({CONFIG: trial.config})
            if prefix
            else trial.config
            for trial in self.trials
        }

    def stats(self) -> dict[str, Any]:
        """How many trials there are in each state, and how long they have taken in all, in
        seconds.
        """
        times = [float(trial.last_result.get(TIME_TOTAL_S) or 0.0) for trial in self.trials]
        return {
            "trials": len(self.trials),
            **group_trials(self.trials).counts,
            TIME_TOTAL_S: sum(times),
        }

    def set_filetype(self, file_type: FileType | None = None) -> bool:
        """Read "json" (result.json, the default) or "csv" (progress.csv) where a trial has both;
        True, for older programs.

        Raises:
            ValueError: It is neither.
        """
        if file_type not in (None, "json", "csv"):
            raise ValueError(
                f'set_filetype({file_type!r}): results are written as "json" and as "csv": give one of them.'
            )
        self._file_type = file_type or "json"
        self._frames = self._make_frames()
        return True

    # -- the best trial

    def get_best_trial(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> Trial | None:
        """The best trial; None, with a warning that says why, if no trial has a value. A single
        trial is the best in any case.

        Args:
            metric: What is compared, `a/b` if nested; `default_metric` if not given.
            mode: "min" or "max"; `default_mode` if not given.
            scope: Which values count: "last", "avg", "all" (the best there ever was), "last-5-avg"
                or "last-10-avg".
            filter_nan_and_inf: Leave trials out whose value is infinite or not a number.

        Raises:
            ValueError: Neither the call nor the search names a metric and a mode, or one of the
            arguments is unknown.
        """
        if len(self.trials) == 1:
            return self.trials[0]
        metric, mode = self._metric(metric), self._mode(mode)
        best = best_trial(self.trials, metric, mode, scope, filter_nan_and_inf=filter_nan_and_inf)
        if best is None:
            logger.warning(
                "%s", no_best_trial(metric, self.trials, filter_nan_and_inf=filter_nan_and_inf)
            )
        return best

    def get_best_config(
        self, metric: str | None = None, mode: str | None = None, scope: str = "last"
    ) -> dict[str, Any] | None:
        """The configuration of the best trial; see `get_best_trial`."""
        best = self.get_best_trial(metric, mode, scope)
        return best.config if best is not None else None

    def get_best_logdir(
        self, metric: str | None = None, mode: str | None = None, scope: str = "last"
    ) -> str | None:
        """The directory of the best trial; see `get_best_trial`."""
        best = self.get_best_trial(metric, mode, scope)
        return best.path if best is not None else None

    @property
    def best_trial(self) -> Trial:
        """The best trial by its latest value.

        Raises:
            ValueError: The search has no metric or no mode, or no trial has a value.
        """
        metric, mode = self._metric(None), self._mode(None)
        best = self.get_best_trial(metric, mode)
        if best is None:
            raise ValueError(no_best_trial(metric, self.trials, filter_nan_and_inf=True))
        return best

    @property
    def best_config(self) -> dict[str, Any]:
        """The configuration of `best_trial`."""
        return self.best_trial.config

    @property
    def best_result(self) -> dict[str, Any]:
        """The latest result of `best_trial`."""
        return self.best_trial.last_result

    @property
    def best_result_df(self) -> pandas.DataFrame:
        """The latest result of `best_trial`, a table of one row."""
        best = self.best_trial
        return tables.table([tables.with_config(best.last_result, best)], index="trial_id")

    @property
    def best_dataframe(self) -> pandas.DataFrame:
        """All results of `best_trial`."""
        return self.trial_dataframes[self.best_trial.trial_id]

    @property
    def best_logdir(self) -> str:
        """The directory of `best_trial`."""
        return self.best_trial.path

    @property
    def best_checkpoint(self) -> Checkpoint | None:
        """The best checkpoint that `best_trial` has kept; None if it has kept none."""
        return self.get_best_checkpoint(self.best_trial)

    # -- checkpoints

    def get_trial_checkpoints_paths(
        self, trial: Trial | str, metric: str | None = None
    ) -> list[tuple[str, Any]]:
        """Path and metric of each checkpoint that a trial has kept; the metric is `default_metric`,
        else the iteration, if not given.
        """
        key = metric or self.default_metric or TRAINING_ITERATION
        kept = self._find(trial).checkpoints.registered
        return [(entry.checkpoint.path, metric_values.lookup(entry.metrics, key)) for entry in kept]

    def get_best_checkpoint(
        self, trial: Trial | str, metric: str | None = None, mode: str | None = None
    ) -> Checkpoint | None:
        """The best checkpoint that a trial has kept, the later of equal ones; None, with a warning,
        if there is none.

        Args:
            trial: A trial, its id or its directory.
            metric: What is compared; `default_metric` if not given, and the iteration if there is
                none.
            mode: "min" or "max"; `default_mode` if not given.

        Raises:
            ValueError: There is no mode, or no such trial.
        """
        found = self._find(trial)
        key, order = metric or self.default_metric or TRAINING_ITERATION, self._mode(mode)
        best: tuple[float, Checkpoint] | None = None
        for entry in found.checkpoints.registered:
            value = metric_values.score(entry.metrics, key, "max" if order == "max" else "min")
            if value is not None and (best is None or value >= best[0]):
                best = value, entry.checkpoint
        if best is None:
            logger.warning(
                "%s has kept no checkpoint with a number under %r, so it has no best one.",
                found,
                key,
            )
            return None
        return best[1]

    def get_last_checkpoint(
        self, trial: Trial | str | None = None, metric: str = TRAINING_ITERATION, mode: str = "max"
    ) -> Checkpoint | None:
        """The latest checkpoint of a trial; of the best one by `metric` and `mode` if none is
        given.
        """
        found = self.get_best_trial(metric, mode) if trial is None else self._find(trial)
        return found.checkpoint if found is not None else None

    # -- pictures

    def plot(
        self,
        kind: Kind = "learning_curves",
        *,
        path: str | os.PathLike[str] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **options: Any,
    ) -> plotly.graph_objects.Figure:
        """A picture of the search; see `syncline.tune.plots.plot`. In a notebook, the figure that
        is returned shows itself.

        Args:
            kind: "learning_curves", "parallel_coordinates" or "parameter_importance".
            path: Also save it as an HTML file that needs nothing else.
            metric: What is shown; `default_metric` if not given.
            mode: "min" or "max"; `default_mode` if not given.
            options: Of the kind.

        Raises:
            ImportError: plotly, or Optuna where it is needed, is not installed.
            ValueError: No metric or mode, an unknown kind, or nothing to show.
        """
        return plot(
            self.trials,
            kind,
            metric=self._metric(metric),
            mode=self._mode(mode),
            path=path,
            **options,
        )

    def __repr__(self) -> str:
        return f"ExperimentAnalysis({len(self.trials)} trials in {self._path!r}, metric={self.default_metric!r}, mode={self.default_mode!r})"

    def _metric(self, metric: str | None) -> str:
        found = metric or self.default_metric
        if not found:
            raise ValueError(
                "No metric says which trial is better: give `metric`, here or in the TuneConfig of the search."
            )
        return found

    def _mode(self, mode: str | None) -> str:
        check_mode(mode, "ExperimentAnalysis")
        found = mode or self.default_mode
        if not found:
            raise ValueError(
                'No mode says whether high or low values are better: give `mode="min"` or "max", here or in TuneConfig.'
            )
        return found

    def _check_known(self, metric: str) -> None:
        if all(trial.summary(metric) is None for trial in self.trials) and any(
            trial.last_result for trial in self.trials
        ):
            raise ValueError(no_best_trial(metric, self.trials, filter_nan_and_inf=False))

    def _find(self, trial: Trial | str) -> Trial:
        if isinstance(trial, Trial):
            return trial
        for found in self.trials:
            if trial in (found.trial_id, str(found)) or os.path.normpath(trial) == os.path.normpath(
                found.path
            ):
                return found
        raise ValueError(
            f"{trial!r} is neither id nor name nor directory of one of the {len(self.trials)} trials in {self._path!r}, so nothing is "
            "known of it: give one of `trials`."
        )

    def _best_row(self, trial: Trial, metric: str, mode: str) -> Mapping[str, Any] | None:
        rows = (
            read_history(trial.storage.storage_filesystem, trial.path, self._file_type)
            if trial.last_result
            else None
        )
        return tables.best_row(rows or [], metric, mode) or trial.last_result

    def _make_frames(self) -> tables.Frames:
        by_id = {trial.trial_id: trial for trial in self.trials}

        def read(trial_id: str) -> pandas.DataFrame:
            trial = by_id[trial_id]
            return tables.table(
                read_history(trial.storage.storage_filesystem, trial.path, self._file_type) or []
            )

        return tables.Frames(by_id, read)
