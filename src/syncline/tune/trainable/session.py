"""`TrialSession`: what `report` and its relatives reach inside a function that is a trial;
`Exchange` carries reports to who trains it.

A trial is a training run of one worker in the eyes of `syncline.train`, so the callbacks and
helpers for training functions work in it.
"""

from __future__ import annotations

import os
import queue
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from syncline.core import api
from syncline.core.lifecycle import is_initialized
from syncline.train import filesystem as files
from syncline.train import metrics as metric_values
from syncline.train.checkpoint import (
    Checkpoint,
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    ReportedCheckpoint,
)
from syncline.train.config import ValidationTaskConfig
from syncline.train.errors import PreemptionInfo
from syncline.train.readers import Readers
from syncline.train.session import TrainSession, UploadFunction, current_session, set_session
from syncline.train.storage import StorageContext
from syncline.tune.trainable.facts import TrialFacts


class TrialStopped(SystemExit):
    """Raised inside `report` where the trial has been ended: the function unwinds, past every
    `except Exception`.
    """


@dataclass(frozen=True, kw_only=True)
class Reported:
    """The function has reported."""

    metrics: dict[str, Any]
    """In plain values."""
    checkpoint: Checkpoint | None = None
    """Which came with it; its directory may be temporary."""
    in_place: bool = False
    """Whether it is to stay where it lies."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The function has returned, or raised."""

    error: BaseException | None = None


class Exchange:
    """The hand-over between the function's thread and the one that trains it: one of the two is at
    work at any time.
    """

    def __init__(self) -> None:
        self._said: queue.SimpleQueue[Reported | Ended] = queue.SimpleQueue()
        self._go_on: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._stopped = False

    # -- who trains

    def hear(self) -> Reported | Ended:
        """Wait for what the function says next."""
        return self._said.get()

    def go_on(self) -> None:
        """Let the function continue after its report."""
        self._go_on.put(None)

    def stop(self) -> None:
        """The function ends at its next report, or at the one where it waits."""
        self._stopped = True
        self._go_on.put(None)

    # -- the function

    def say(self, message: Ended) -> None:
        """The last word."""
        self._said.put(message)

    def report(self, message: Reported) -> None:
        """Hand over, and wait until the function may continue. TrialStopped where it may not."""
        if self._stopped:
            raise TrialStopped
        self._said.put(message)
        self._go_on.get()
        if self._stopped:
            raise TrialStopped


class TrialSession(TrainSession):
    """The session of a function that is a trial."""

    may_contain_runs = True

    def __init__(self, facts: TrialFacts, exchange: Exchange) -> None:
        self.facts = facts
        self.world_rank = 0
        self.world_size = 1
        self.local_rank = 0
        self.local_world_size = 1
        self.node_rank = 0
        self.gpu_ids = (
            tuple(str(gpu_id) for gpu_id in api.get_gpu_ids()) if is_initialized() else ()
        )
        self.use_gpu = bool(self.gpu_ids)
        self.local_mode = False
        self.experiment_name = facts.experiment_name
        self.communication_meters = []
        self.readers = Readers(rank=0, world_size=1)
        self.latest: Checkpoint | None = None
        """What `get_checkpoint` returns."""
        self._exchange = exchange
        self._process = os.getpid()
        self._inside: TrainSession | None = self
        self._outer: TrainSession | None = None

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """While its function is at work, this is the process's session, or the one that a trainer
        inside has put in its place.

        Several trials may take turns in one process, as in local mode, and the program may have a
        session of its own. A trainer's stays between the turns, because its workers go on
        meanwhile.
        """
        current = current_session()
        if current is not self._inside:
            self._outer = current
            set_session(self._inside)
        try:
            yield
        finally:
            self._inside = current_session()
            if self._inside is self:
                set_session(self._outer)

    def move_in(self) -> None:
        """Be the process's session between the turns, too, for threads that the function leaves at
        work: the process is the trial's own.
        """
        self._outer = self
        set_session(self)

    def move_out(self) -> None:
        """The trial is over."""
        if current_session() is self:
            set_session(None if self._outer is self else self._outer)

    @property
    def storage(self) -> StorageContext:
        if self.facts.storage is None:
            raise RuntimeError(
                "This trial has no storage of its own: report a checkpoint, and the search keeps it."
            )
        return self.facts.storage

    def report(
        self,
        metrics: Mapping[str, Any],
        checkpoint: Checkpoint | None,
        *,
        dir_name: str | None,
        upload_mode: CheckpointUploadMode,
        delete_local: bool | None,
        upload_fn: UploadFunction | None,
        validation: bool | ValidationTaskConfig,
    ) -> None:
        for argument, value in {
            "checkpoint_dir_name": dir_name,
            "checkpoint_upload_fn": upload_fn,
            "validation": validation,
        }.items():
            if value:
                raise ValueError(
                    f"report({argument}=…) is for the workers of a trainer; in a trial the search keeps checkpoints: leave it out."
                )
        in_place = upload_mode is CheckpointUploadMode.NO_UPLOAD
        self.hand_over(metrics, checkpoint, in_place=in_place)
        delete = upload_mode.deletes_source_by_default if delete_local is None else delete_local
        if (
            checkpoint is not None
            and delete
            and not in_place
            and files.is_local(checkpoint.filesystem)
        ):
            shutil.rmtree(checkpoint.path, ignore_errors=True)

    def hand_over(
        self, metrics: Mapping[str, Any], checkpoint: Checkpoint | None, *, in_place: bool = False
    ) -> None:
        """Report, and wait until the search wants the next result; from any thread of the trial's
        process, one at a time.
        """
        if os.getpid() != self._process:
            raise RuntimeError(
                "report() was called in a process that the trial has forked, which the search does not hear: report from the trial's own "
                "process, and let the others return what is to be reported."
            )
        if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
            raise TypeError(
                f"report(checkpoint={checkpoint!r}): a Checkpoint is needed, not a {type(checkpoint).__name__}: write the files into a "
                "directory and pass `Checkpoint.from_directory(directory)`."
            )
        self.latest = checkpoint or self.latest
        self._exchange.report(
            Reported(metrics=metric_values.clean(metrics), checkpoint=checkpoint, in_place=in_place)
        )

    def get_checkpoint(self) -> Checkpoint | None:
        return self.latest

    def get_all_reported_checkpoints(
        self, consistency_mode: CheckpointConsistencyMode, timeout_s: float | None
    ) -> list[ReportedCheckpoint]:
        raise RuntimeError(
            "get_all_reported_checkpoints() is for the workers of a trainer; in a trial use `get_checkpoint()`."
        )

    def get_dataset_shard(self, name: str) -> Any:
        raise RuntimeError(
            f"get_dataset_shard({name!r}): a trial has no shards, which trainers make for their workers: pass the dataset with "
            "`tune.with_parameters(function, data=dataset)`."
        )

    def get_preemption_info(self) -> PreemptionInfo | None:
        return None

    def barrier(self, data: Any) -> Any:
        return data
