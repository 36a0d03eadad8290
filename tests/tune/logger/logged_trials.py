"""Trials for tests of loggers, and what is written of them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
from tensorboardX.crc32c import crc32c
from tensorboardX.proto.event_pb2 import Event

from syncline.train.config import CheckpointConfig
from syncline.train.storage import StorageContext
from syncline.tune.callback import CallbackList
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.experiment.trial import Trial


def make_trial(directory: Path, trial_id: str = "1a2b_00000", *, elsewhere: bool = False, **config: Any) -> Trial:
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
        trial.begin_at(iteration)
        self.callbacks.on_trial_start(iteration=self.steps, trials=[trial], trial=trial)

    def report(self, trial: Trial, iterations: Any, **metrics: Any) -> None:
        """A result for each of `iterations`, with a loss of the same number."""
        for iteration in iterations:
            self.steps += 1
            result = {"loss": float(iteration), "training_iteration": iteration, **metrics, "config": trial.config}
            self.callbacks.on_trial_result(iteration=self.steps, trials=[trial], trial=trial, result=result)

    def save(self, trial: Trial) -> None:
        self.callbacks.on_trial_save(iteration=self.steps, trials=[trial], trial=trial)

    def complete(self, trial: Trial) -> None:
        self.callbacks.on_trial_complete(iteration=self.steps, trials=[trial], trial=trial)

    def fail(self, trial: Trial) -> None:
        self.callbacks.on_trial_error(iteration=self.steps, trials=[trial], trial=trial)

    def end(self) -> None:
        self.callbacks.on_experiment_end(trials=[])


def events(content: bytes) -> list[Any]:
    """The messages of an event file, as tensorboardX defines them; AssertionError where a checksum is wrong."""
    found, start = [], 0
    while start < len(content):
        (size,) = struct.unpack_from("<Q", content, start)
        data = content[start + 12 : start + 12 + size]
        assert struct.unpack_from("<I", content, start + 8)[0] == _masked(content[start : start + 8])
        assert struct.unpack_from("<I", content, start + 12 + size)[0] == _masked(data)
        found.append(Event.FromString(data))
        start += size + 16
    return found


def _masked(data: bytes) -> int:
    checksum = crc32c(data)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF
