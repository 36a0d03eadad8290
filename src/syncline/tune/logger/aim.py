"""`AimLoggerCallback`: each trial as a run of Aim."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from syncline.data.optional import load, require
from syncline.train.metrics import flatten
from syncline.tune.logger.rows import flat_result
from syncline.tune.logger.tracker import Outcome, TrackedTrial, TrackerCallback
from syncline.tune.result import CONFIG, PID, TIME_TOTAL_S, TIMESTAMP, TIMESTEPS_TOTAL, TRAINING_ITERATION

_PREFIX = "ray/tune/"
_LEFT_OUT = frozenset({CONFIG, PID, TIMESTAMP, TIME_TOTAL_S, TRAINING_ITERATION, "context", "epoch"})
_NUMBERS = (int, float, np.floating, np.integer)


class AimLoggerCallback(TrackerCallback):
    """Logs each trial as a run of Aim: the finite numbers of its results, and its hyperparameters.

    A result's values `context` and `epoch` are passed to Aim as what it calls so.

    Args:
        repo: Aim's repository: a directory or an `aim.Repo`; the search's directory by default.
        experiment_name: Aim's name of the experiment; the search's name by default.
        metrics: Which metrics are logged; all by default.
        aim_run_kwargs: For `aim.Run`.

    Raises:
        ImportError: aim is not installed.
        ValueError: `metrics` is empty.
    """

    def __init__(
        self, repo: Any = None, experiment_name: str | None = None, metrics: list[str] | None = None, **aim_run_kwargs: Any
    ) -> None:
        require("aim", purpose="AimLoggerCallback", install="aim")
        if metrics is not None and not metrics:
            raise ValueError("metrics=[] would log nothing to Aim: name at least one metric, or leave it out for all.")
        super().__init__("Aim")
        self._repo_path = repo
        self._experiment_name = experiment_name
        self._metrics = metrics
        self._aim_run_kwargs = aim_run_kwargs

    def _begin_run(self, trial: TrackedTrial, run: Any) -> Any:
        if run is not None:
            run.close()
        aim = load("aim", purpose="AimLoggerCallback", install="aim")
        repo = self._repo_path or trial.experiment_path
        run = aim.Run(repo=repo, experiment=self._experiment_name or trial.experiment, **self._aim_run_kwargs)
        run["trial_id"] = trial.trial_id
        run["trial_log_dir"] = trial.path
        if trial.location:
            run["trial_ip"] = trial.location.rpartition(":")[0]
        if trial.evaluated_params:
            run["hparams"] = {key: _hyperparameter(value) for key, value in flatten(trial.evaluated_params).items()}
        return run

    def _log_result(self, run: Any, trial: TrackedTrial, result: dict[str, Any]) -> None:
        step = result.get(TIMESTEPS_TOTAL) or result.get(TRAINING_ITERATION)
        for key, value in flat_result(result, _LEFT_OUT).items():
            if isinstance(value, _NUMBERS) and math.isfinite(value) and (self._metrics is None or key in self._metrics):
                run.track(value=value, name=_PREFIX + key, epoch=result.get("epoch"), step=step, context=result.get("context"))

    def _end_run(self, run: Any, trial: TrackedTrial, outcome: Outcome) -> None:
        run.close()


def _hyperparameter(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, (str, bool, int, float, list, type(None))) else str(value)
