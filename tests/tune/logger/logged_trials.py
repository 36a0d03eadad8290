"""Trials for tests of loggers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from syncline.train.config import CheckpointConfig
from syncline.train.storage.context import StorageContext
from syncline.tune.callback import CallbackList
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.experiment.trial import Trial


def make_trial(
    directory: Path, trial_id: str = "1a2b_00000", *, elsewhere: bool = False, **config: Any
) -> Trial:
    """A trial in `directory/search`, which is said to be on another machine if `elsewhere`."""
    filesystem = SubTreeFileSystem(str(directory), LocalFileSystem()) if elsewhere else None
    storage = StorageContext("search" if elsewhere else directory / "search", trial_id, filesystem)
    return Trial(
        trial_id=trial_id,
        index=0,
        trainable_name="train",
        config=config,
        evaluated_params=dict(config),
        experiment_tag="0",
        placement_group_factory=PlacementGroupFactory([{"CPU": 1}]),
        storage=storage,
        checkpoint_config=CheckpointConfig(),
    )


class Search:
    """Calls callbacks as a controller does."""

    def __init__(self, *callbacks: Any) -> None:
        self.callbacks = CallbackList(list(callbacks))
        self.steps = 0

    def start(self, trial: Trial, iteration: int = 0) -> None:
        trial.restored_iteration = iteration
        self.callbacks.on_trial_start(iteration=self.steps, trials=[trial], trial=trial)

    def report(self, trial: Trial, iterations: Any, **metrics: Any) -> None:
        """A result for each of `iterations`, with a loss of the same number."""
        for iteration in iterations:
            self.steps += 1
            result = {
                "loss": float(iteration),
                "training_iteration": iteration,
                **metrics,
                "config": trial.config,
            }
            self.callbacks.on_trial_result(
                iteration=self.steps, trials=[trial], trial=trial, result=result
            )

    def save(self, trial: Trial) -> None:
        self.callbacks.on_trial_save(iteration=self.steps, trials=[trial], trial=trial)

    def complete(self, trial: Trial) -> None:
        self.callbacks.on_trial_complete(iteration=self.steps, trials=[trial], trial=trial)

    def fail(self, trial: Trial) -> None:
        self.callbacks.on_trial_error(iteration=self.steps, trials=[trial], trial=trial)

    def end(self) -> None:
        self.callbacks.on_experiment_end(trials=[])
