"""`CometLoggerCallback`: each trial, or a training run, as an experiment of Comet."""

from __future__ import annotations

import os
from typing import Any

from syncline.optional import load
from syncline.train.metric_values import flatten
from syncline.tune.logger.tracker import Outcome, Tracked, TrackerCallback, is_below
from syncline.tune.result import (
    CONFIG,
    DATE,
    DONE,
    EXPERIMENT_TAG,
    HOSTNAME,
    NODE_IP,
    PID,
    SHOULD_CHECKPOINT,
    TRIAL_ID,
)

_LEFT_OUT = (DONE, SHOULD_CHECKPOINT, CONFIG)
_SYSTEM = (NODE_IP, HOSTNAME, PID, DATE)
_OTHERS = (TRIAL_ID, "experiment_id", EXPERIMENT_TAG)
_CURVES = ("hist_stats/episode_reward", "hist_stats/episode_lengths")
_AUTOMATIC = (
    "auto_output_logging",
    "log_git_metadata",
    "log_git_patch",
    "log_env_cpu",
    "log_env_gpu",
)
"""What Comet would log by itself for every experiment, until its server throttles the program."""


class CometLoggerCallback(TrackerCallback):
    """Logs each trial, or a training run, as an experiment of Comet: its configuration as
    parameters, its results as metrics.

    Comet takes its key from `COMET_API_KEY`, or from the argument `api_key`. A training run that is
    started again goes on in its experiment.

    Args:
        online: Whether results are sent, or kept in files to be uploaded later.
        tags: Tags of every experiment.
        save_checkpoints: Whether checkpoints are logged as artifacts; those of trials if they are
            on this machine. experiment_kwargs: For `comet_ml.Experiment`, or `OfflineExperiment`:
            `api_key`, `workspace`, `project_name`, …. What Comet logs by itself (output, git, CPU,
            GPU) is off unless it is turned on here.

    Raises:
        ImportError: comet_ml is not installed.
    """

    def __init__(
        self,
        online: bool = True,
        tags: list[str] | None = None,
        save_checkpoints: bool = False,
        **experiment_kwargs: Any,
    ) -> None:
        _comet()
        super().__init__("Comet")
        self.online = online
        self.tags = tags
        self.save_checkpoints = save_checkpoints
        self.experiment_kwargs = {**dict.fromkeys(_AUTOMATIC, False), **experiment_kwargs}

    @property
    def logs_checkpoints(self) -> bool:
        return self.save_checkpoints

    @property
    def place(self) -> str:
        return str(self.experiment_kwargs.get("project_name") or "")

    def _begin_run(self, tracked: Tracked, run: Any) -> Any:
        if run is None:
            run = self._experiment_of(tracked)
            # Otherwise Comet ends this experiment when the next trial begins one.
            load(
                "comet_ml.config", purpose="CometLoggerCallback", install="comet_ml"
            ).set_global_experiment(None)
        run.set_name(tracked.name)
        run.add_tags(list(self.tags or ()))
        run.log_other("Created from", "syncline")
        run.log_parameters(flatten(tracked.config))
        return run

    def _experiment_of(self, tracked: Tracked) -> Any:
        comet = _comet()
        if tracked.key is not None:
            kind = comet.ExistingExperiment if self.online else comet.ExistingOfflineExperiment
            return kind(**{**self.experiment_kwargs, "previous_experiment": tracked.key})
        return (comet.Experiment if self.online else comet.OfflineExperiment)(
            **self.experiment_kwargs
        )

    def _key_of(self, run: Any, tracked: Tracked) -> str:
        return str(run.get_key())

    def _log_result(self, run: Any, tracked: Tracked, result: dict[str, Any], step: int) -> None:
        config = result.get(CONFIG)
        if config:
            run.log_parameters(
                flatten({key: value for key, value in config.items() if key != "callbacks"}),
                step=step,
            )
        metrics, others = {}, {}
        for key, value in flatten(result).items():
            if is_below(key, _LEFT_OUT):
                continue
            if is_below(key, _OTHERS):
                others[key] = value
            elif is_below(key, _SYSTEM):
                run.log_system_info(key, value)
            elif is_below(key, _CURVES):
                run.log_curve(key, x=list(range(len(value))), y=value, step=step)
            else:
                metrics[key] = value
        run.log_others(others)
        run.log_metrics(metrics, step=step)

    def _log_checkpoint(self, run: Any, tracked: Tracked, directory: str) -> None:
        artifact = _comet().Artifact(name=tracked.artifact_name, artifact_type="model")
        for folder, _, names in os.walk(directory):
            for name in names:
                path = os.path.join(folder, name)
                artifact.add(path, logical_path=os.path.relpath(path, directory))
        run.log_artifact(artifact)

    def _end_run(self, run: Any, tracked: Tracked, outcome: Outcome) -> None:
        run.end()


def _comet() -> Any:
    """The library, told before its import not to patch the frameworks that the program uses."""
    os.environ.setdefault("COMET_DISABLE_AUTO_LOGGING", "1")
    return load("comet_ml", purpose="CometLoggerCallback", install="comet_ml")
