"""`CometLoggerCallback`: each trial, or a training run, as an experiment of Comet."""

from __future__ import annotations

import os
from typing import Any

from syncline.optional import load
from syncline.train.metric_values import flatten
from syncline.tune.logger.tracker import (
    LibraryRun,
    Outcome,
    TrackedRun,
    TrackerCallback,
    is_key_under,
)
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
    Metrics,
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
"""Comet's automatic logs, which make its server throttle programs with many experiments."""


class CometLoggerCallback(TrackerCallback):
    """Logs each trial, or a training run, as an experiment of Comet: its configuration as
    parameters, its results as metrics.

    The API key comes from `COMET_API_KEY` or the argument `api_key`. A resumed training run
    continues its experiment.

    Args:
        online: Send results; False writes them to files that can be uploaded later.
        tags: Tags of every experiment.
        save_checkpoints: Log checkpoints as artifacts; those of trials only if they are local.
        experiment_kwargs: Arguments of `comet_ml.Experiment` or `OfflineExperiment`: `api_key`,
            `workspace`, `project_name`, …. Comet's automatic logs (output, git, CPU, GPU) are off
            unless enabled here.

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
    def destination(self) -> str:
        return str(self.experiment_kwargs.get("project_name") or "")

    def _begin_run(self, tracked: TrackedRun, run: LibraryRun | None) -> LibraryRun:
        if run is None:
            run = self._experiment(tracked)
            # Otherwise Comet ends this experiment when the next trial begins one.
            load(
                "comet_ml.config", purpose="CometLoggerCallback", install="comet_ml"
            ).set_global_experiment(None)
        run.set_name(tracked.name)
        run.add_tags(list(self.tags or ()))
        run.log_other("Created from", "syncline")
        run.log_parameters(flatten(tracked.config))
        return run

    def _experiment(self, tracked: TrackedRun) -> LibraryRun:
        comet = _comet()
        if tracked.key is not None:
            kind = comet.ExistingExperiment if self.online else comet.ExistingOfflineExperiment
            return kind(**{**self.experiment_kwargs, "previous_experiment": tracked.key})
        return (comet.Experiment if self.online else comet.OfflineExperiment)(
            **self.experiment_kwargs
        )

    def _run_key(self, run: LibraryRun, tracked: TrackedRun) -> str:
        return str(run.get_key())

    def _log_result(self, run: LibraryRun, tracked: TrackedRun, result: Metrics, step: int) -> None:
        config = result.get(CONFIG)
        if config:
            run.log_parameters(
                flatten({key: value for key, value in config.items() if key != "callbacks"}),
                step=step,
            )
        metrics, others = {}, {}
        for key, value in flatten(result).items():
            if is_key_under(key, _LEFT_OUT):
                continue
            if is_key_under(key, _OTHERS):
                others[key] = value
            elif is_key_under(key, _SYSTEM):
                run.log_system_info(key, value)
            elif is_key_under(key, _CURVES):
                run.log_curve(key, x=list(range(len(value))), y=value, step=step)
            else:
                metrics[key] = value
        run.log_others(others)
        run.log_metrics(metrics, step=step)

    def _log_checkpoint(self, run: LibraryRun, tracked: TrackedRun, directory: str) -> None:
        artifact = _comet().Artifact(name=tracked.artifact_name, artifact_type="model")
        for folder, _, names in os.walk(directory):
            for name in names:
                path = os.path.join(folder, name)
                artifact.add(path, logical_path=os.path.relpath(path, directory))
        run.log_artifact(artifact)

    def _end_run(self, run: LibraryRun, tracked: TrackedRun, outcome: Outcome) -> None:
        run.end()


def _comet() -> Any:
    """Return the library, configured not to patch the frameworks that the program uses."""
    os.environ.setdefault("COMET_DISABLE_AUTO_LOGGING", "1")
    return load("comet_ml", purpose="CometLoggerCallback", install="comet_ml")
