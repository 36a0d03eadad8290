"""`AimLoggerCallback`: each trial, or a training run, as a run of Aim."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from syncline.optional import load, require
from syncline.train.metric_values import flatten
from syncline.tune.logger.logger import flat_result
from syncline.tune.logger.tensorboardx import LEFT_OUT, NUMBERS, PREFIX
from syncline.tune.logger.tracker import LibraryRun, Outcome, TrackedRun, TrackerCallback
from syncline.tune.result import TIMESTEPS_TOTAL, TRAINING_ITERATION, Metrics

_LEFT_OUT = LEFT_OUT | {"context", "epoch"}


class AimLoggerCallback(TrackerCallback):
    """Logs each trial, or a training run, as a run of Aim: the finite numbers of its results, and
    its hyperparameters.

    The values `context` and `epoch` of a result are passed to Aim under these names.

    Args:
        repo: Aim's repository, a directory or an `aim.Repo`; by default the directory of the search
            or training run.
        experiment_name: Aim's experiment; by default the name of the search or training run.
        metrics: Metrics to log; all by default.
        aim_run_kwargs: Arguments of `aim.Run`.

    Raises:
        ImportError: aim is not installed.
        ValueError: `metrics` is empty.
    """

    step_keys = (TIMESTEPS_TOTAL, TRAINING_ITERATION)

    def __init__(
        self,
        repo: object = None,
        experiment_name: str | None = None,
        metrics: list[str] | None = None,
        **aim_run_kwargs: Any,
    ) -> None:
        require("aim", purpose="AimLoggerCallback", install="aim")
        if metrics is not None and not metrics:
            raise ValueError(
                "metrics=[] would log nothing to Aim: name at least one metric, "
                "or leave out the argument to log all."
            )
        super().__init__("Aim")
        self._repo_path = repo
        self._experiment_name = experiment_name
        self._metrics = metrics
        self._aim_run_kwargs = aim_run_kwargs

    @property
    def destination(self) -> str:
        return self._experiment_name or ""

    def _begin_run(self, tracked: TrackedRun, run: LibraryRun | None) -> LibraryRun:
        if run is not None:
            run.close()
        aim = load("aim", purpose="AimLoggerCallback", install="aim")
        known = {} if tracked.key is None else {"run_hash": tracked.key}
        experiment = self._experiment_name or tracked.experiment or tracked.name
        run = aim.Run(
            repo=self._repo_path or tracked.experiment_path,
            experiment=experiment,
            **{**known, **self._aim_run_kwargs},
        )
        if tracked.kind == "trial":
            run["trial_id"] = tracked.id
        run[f"{tracked.kind}_log_dir"] = tracked.path
        if tracked.location:
            run["trial_ip"] = tracked.location.rpartition(":")[0]
        if tracked.evaluated_params:
            run["hparams"] = {
                key: _hyperparameter(value)
                for key, value in flatten(tracked.evaluated_params).items()
            }
        return run

    def _run_key(self, run: LibraryRun, tracked: TrackedRun) -> str:
        return str(run.hash)

    def _log_result(self, run: LibraryRun, tracked: TrackedRun, result: Metrics, step: int) -> None:
        for key, value in flat_result(result, _LEFT_OUT).items():
            if (
                isinstance(value, NUMBERS)
                and math.isfinite(value)
                and (self._metrics is None or key in self._metrics)
            ):
                run.track(
                    value=value,
                    name=PREFIX + key,
                    epoch=result.get("epoch"),
                    step=step,
                    context=result.get("context"),
                )

    def _end_run(self, run: LibraryRun, tracked: TrackedRun, outcome: Outcome) -> None:
        run.close()


def _hyperparameter(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, (str, bool, int, float, list, type(None))) else str(value)
