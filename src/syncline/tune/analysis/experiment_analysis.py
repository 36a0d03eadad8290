"""`ExperimentAnalysis`: results of a search, from its trials or from its directory."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyarrow import fs as pyarrow_fs

from syncline.storage import filesystem as directories
from syncline.train import metric_values
from syncline.train.checkpoint import Checkpoint
from syncline.tune.analysis import trial_result
from syncline.tune.console.trial_selection import group_trials
from syncline.tune.controller.search_store import load_trials
from syncline.tune.experiment.trial import Trial
from syncline.tune.logger.write_files import write_files
from syncline.tune.plots import Kind, plot
from syncline.tune.result import (
    CONFIG,
    DEFAULT_METRIC,
    TIME_TOTAL_S,
    TRAINING_ITERATION,
    Config,
    Metrics,
)
from syncline.tune.results_file import read_results
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
    """Access to the results of a search.

    Args:
        experiment_checkpoint_path: Directory of the search, a file in it, or its URI.
        storage_filesystem: Filesystem of the path; derived from the path by default.
        trials: The trials; read from the directory by default.
        default_metric: Default metric of the methods and of the `best_…` properties.
        default_mode: Default mode, "min" or "max".

    Raises:
        ValueError: `default_mode` is neither "min" nor "max".
        FileNotFoundError: The directory contains no search.
    """

    trials: list[Trial]
    """All trials in order of creation."""

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
        self._tables = self._make_tables()

    # -- the search as a whole

    @property
    def experiment_path(self) -> str:
        """Directory of the search, a path on `filesystem`."""
        return self._path

    @property
    def filesystem(self) -> pyarrow_fs.FileSystem:
        """Filesystem of the directory."""
        return self._filesystem

    @property
    def results(self) -> dict[str, Metrics]:
        """Last result of each trial by trial id."""
        return {trial.trial_id: trial.last_result for trial in self.trials}

    @property
    def results_df(self) -> pandas.DataFrame:
        """Last results, a row per trial with the trial id as index and the configuration in columns
        `config/…`.
        """
        return trial_result.table(
            (trial_result.with_config(trial.last_result, trial) for trial in self.trials),
            index="trial_id",
        )

    @property
    def trial_dataframes(self) -> Mapping[str, pandas.DataFrame]:
        """All results of each trial by trial id, read on first access; empty for a trial without
        results.
        """
        return self._tables

    def dataframe(self, metric: str | None = None, mode: str | None = None) -> pandas.DataFrame:
        """Return one result of each trial that reported, with the configuration in columns
        `config/…` and the trial's directory in `logdir`.

        Args:
            metric: Selects the result with the best value of this metric; the last result by
                default.
            mode: "min" or "max".

        Raises:
            ValueError: `mode` is given without `metric` or is unknown, or no trial reported the
                metric.
        """
        check_mode(mode, "dataframe(…)")
        if mode and not metric:
            raise ValueError(
                f"dataframe(mode={mode!r}) has no metric: give `metric` as well, or neither."
            )
        if metric and mode:
            self._check_known(metric)
        rows = []
        for trial in self.trials:
            row = self._best_row(trial, metric, mode) if metric and mode else trial.last_result
            if row:
                rows.append({**trial_result.with_config(row, trial), "logdir": trial.path})
        return trial_result.table(rows)

    def write_files(self) -> None:
        """Write the files of trials whose results are in `results.jsonl` of the search, because
        they ended within their batch (`isolation="worker"`): result.json, progress.csv,
        params.json, params.pkl and the events for TensorBoard, in the directory of each trial.

        Raises:
            OSError: They cannot be written.
        """
        for trial in self.trials:
            results = read_results(trial.storage.storage_filesystem, trial.path)
            if results is not None:
                write_files(trial, results)

    def get_all_configs(self, prefix: bool = False) -> dict[str, Config]:
        """Return the configuration of each trial by trial id; with `prefix`, flattened with keys
        `config/…`.
        """
        return {
            trial.trial_id: metric_values.flatten({CONFIG: trial.config})
            if prefix
            else trial.config
            for trial in self.trials
        }

    def stats(self) -> Metrics:
        """Return the number of trials, also per status, and their total time in seconds."""
        times = [float(trial.last_result.get(TIME_TOTAL_S) or 0.0) for trial in self.trials]
        return {
            "trials": len(self.trials),
            **group_trials(self.trials).counts,
            TIME_TOTAL_S: sum(times),
        }

    def set_filetype(self, file_type: FileType | None = None) -> bool:
        """Read result.json ("json", the default) or progress.csv ("csv"); return True, for older
        programs.

        Raises:
            ValueError: `file_type` is neither.
        """
        if file_type not in (None, "json", "csv"):
            raise ValueError(f'set_filetype({file_type!r}): give "json" or "csv".')
        self._file_type = file_type or "json"
        self._tables = self._make_tables()
        return True

    # -- the best trial

    def get_best_trial(
        self,
        metric: str | None = None,
        mode: str | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> Trial | None:
        """Return the best trial; log a warning and return None if no trial has a value. The only
        trial of a search is always the best.

        Args:
            metric: Metric to compare, `a/b` if nested; `default_metric` by default.
            mode: "min" or "max"; `default_mode` by default.
            scope: Value of a trial: its "last" one, the average ("avg"), the best ("all"),
                "last-5-avg" or "last-10-avg".
            filter_nan_and_inf: Ignore values that are infinite or NaN.

        Raises:
            ValueError: Metric or mode is missing, or an argument is unknown.
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
    ) -> Config | None:
        """Return the configuration of the best trial; see `get_best_trial`."""
        best = self.get_best_trial(metric, mode, scope)
        return best.config if best is not None else None

    def get_best_logdir(
        self, metric: str | None = None, mode: str | None = None, scope: str = "last"
    ) -> str | None:
        """Return the directory of the best trial; see `get_best_trial`."""
        best = self.get_best_trial(metric, mode, scope)
        return best.path if best is not None else None

    @property
    def best_trial(self) -> Trial:
        """Best trial by the last value.

        Raises:
            ValueError: Metric or mode is missing, or no trial has a value.
        """
        metric, mode = self._metric(None), self._mode(None)
        best = self.get_best_trial(metric, mode)
        if best is None:
            raise ValueError(no_best_trial(metric, self.trials, filter_nan_and_inf=True))
        return best

    @property
    def best_config(self) -> Config:
        """Configuration of `best_trial`."""
        return self.best_trial.config

    @property
    def best_result(self) -> Metrics:
        """Last result of `best_trial`."""
        return self.best_trial.last_result

    @property
    def best_result_df(self) -> pandas.DataFrame:
        """Last result of `best_trial` as a table with one row."""
        best = self.best_trial
        return trial_result.table(
            [trial_result.with_config(best.last_result, best)], index="trial_id"
        )

    @property
    def best_dataframe(self) -> pandas.DataFrame:
        """All results of `best_trial`."""
        return self.trial_dataframes[self.best_trial.trial_id]

    @property
    def best_logdir(self) -> str:
        """Directory of `best_trial`."""
        return self.best_trial.path

    @property
    def best_checkpoint(self) -> Checkpoint | None:
        """Best available checkpoint of `best_trial`; None if there is none."""
        return self.get_best_checkpoint(self.best_trial)

    # -- checkpoints

    def get_trial_checkpoints_paths(
        self, trial: Trial | str, metric: str | None = None
    ) -> list[tuple[str, object]]:
        """Return path and metric of each available checkpoint of a trial. The metric is by default
        `default_metric`, else the iteration.
        """
        key = metric or self.default_metric or TRAINING_ITERATION
        kept = self._find(trial).checkpoints.registered
        return [(entry.checkpoint.path, metric_values.lookup(entry.metrics, key)) for entry in kept]

    def get_best_checkpoint(
        self, trial: Trial | str, metric: str | None = None, mode: str | None = None
    ) -> Checkpoint | None:
        """Return the best available checkpoint of a trial, the latest of equal ones; log a warning
        and return None if there is none.

        Args:
            trial: A trial, its id or its directory.
            metric: Metric to compare; by default `default_metric`, else the iteration.
            mode: "min" or "max"; `default_mode` by default.

        Raises:
            ValueError: The mode is missing, or the trial does not exist.
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
                "%s has no best checkpoint: no available checkpoint has a number %r.", found, key
            )
            return None
        return best[1]

    def get_last_checkpoint(
        self, trial: Trial | str | None = None, metric: str = TRAINING_ITERATION, mode: str = "max"
    ) -> Checkpoint | None:
        """Return the last checkpoint of a trial, by default of the best trial by `metric` and
        `mode`.
        """
        found = self.get_best_trial(metric, mode) if trial is None else self._find(trial)
        return found.checkpoint if found is not None else None

    # -- figures

    def plot(
        self,
        kind: Kind = "learning_curves",
        *,
        path: str | os.PathLike[str] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **options: object,
    ) -> plotly.graph_objects.Figure:
        """Draw a figure of the search; see `syncline.tune.plots.plot`. A notebook displays the
        returned figure.

        Args:
            kind: "learning_curves", "parallel_coordinates" or "parameter_importance".
            path: Save the figure also as a self-contained HTML file.
            metric: Metric to show; `default_metric` by default.
            mode: "min" or "max"; `default_mode` by default.
            options: Arguments of the function for `kind`.

        Raises:
            ImportError: plotly, or Optuna if needed, is not installed.
            ValueError: Metric or mode is missing, `kind` is unknown, or there is no data.
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
        return (
            f"ExperimentAnalysis({len(self.trials)} trials in {self._path!r}, "
            f"metric={self.default_metric!r}, mode={self.default_mode!r})"
        )

    def _metric(self, metric: str | None) -> str:
        found = metric or self.default_metric
        if not found:
            raise ValueError(
                "There is no metric to compare trials by: give `metric` here or in TuneConfig."
            )
        return found

    def _mode(self, mode: str | None) -> str:
        check_mode(mode, "ExperimentAnalysis")
        found = mode or self.default_mode
        if not found:
            raise ValueError(
                'There is no mode to compare trials by: give `mode="min"` or `mode="max"` '
                "here or in TuneConfig."
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
            f"{trial!r} is not the id, name or directory of any of the {len(self.trials)} trials "
            f"in {self._path!r}: give one of `trials`."
        )

    def _best_row(self, trial: Trial, metric: str, mode: str) -> Metrics | None:
        rows = (
            read_history(trial.storage.storage_filesystem, trial.path, self._file_type)
            if trial.last_result
            else None
        )
        return trial_result.best_row(rows or [], metric, mode) or trial.last_result

    def _make_tables(self) -> trial_result.TrialTables:
        by_id = {trial.trial_id: trial for trial in self.trials}

        def read(trial_id: str) -> pandas.DataFrame:
            trial = by_id[trial_id]
            return trial_result.table(
                read_history(trial.storage.storage_filesystem, trial.path, self._file_type) or []
            )

        return trial_result.TrialTables(by_id, read)
