"""`TrialSession`: the session behind `report` in a function that is a trial; `ReportQueue` passes
its reports to the thread that trains it.

For `syncline.train` a trial is a training run with one worker, so callbacks and helpers for
training functions work in it.
"""

from __future__ import annotations

import os
import queue
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from syncline.core import api
from syncline.core.lifecycle import is_initialized
from syncline.storage import filesystem as files
from syncline.train import metric_values
from syncline.train.checkpoint import (
    Checkpoint,
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    ReportedCheckpoint,
)
from syncline.train.errors import PreemptionInfo
from syncline.train.resume_state import Readers
from syncline.train.session import ReportCall, TrainSession, current_session, set_session
from syncline.train.storage.context import StorageContext
from syncline.tune.result import Metrics
from syncline.tune.trainable.trainable_state import TrialInfo

_T = TypeVar("_T")


class TrialStopped(SystemExit):
    """Raised in `report` after the trial was stopped; `except Exception` does not catch it."""


@dataclass(frozen=True, kw_only=True)
class Reported:
    """The function reported."""

    metrics: Metrics
    """Plain values."""
    checkpoint: Checkpoint | None = None
    """Checkpoint of the report, possibly in a temporary directory."""
    in_place: bool = False
    """Leave the checkpoint where it is."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The function returned, or raised `error`."""

    error: BaseException | None = None


class ReportQueue:
    """Passes reports from the function's thread to the training thread. Only one of the two runs at
    a time.
    """

    def __init__(self) -> None:
        self._messages: queue.SimpleQueue[Ended | None] = queue.SimpleQueue()
        self._resume: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._take: Callable[[Reported], bool] = lambda message: False
        self._stopped = False

    # -- training thread

    def expect(self, take: Callable[[Reported], bool]) -> None:
        """Call `take` with each report, on the function's thread, while the training thread
        waits in `receive`. The function continues if it returns True: a change of threads takes
        longer than most reports.
        """
        self._take = take

    def receive(self) -> Ended | None:
        """Wait until the function waits at a report, or for its last message."""
        return self._messages.get()

    def resume(self) -> None:
        """Let the function continue after its report."""
        self._resume.put(None)

    def stop(self) -> None:
        """End the function at its current or next report."""
        self._stopped = True
        self._resume.put(None)

    # -- function's thread

    def end(self, message: Ended) -> None:
        """Send the last message."""
        self._messages.put(message)

    def report(self, message: Reported) -> None:
        """Send a report and wait until the function may continue.

        Raises:
            TrialStopped: The trial was stopped.
        """
        if self._stopped:
            raise TrialStopped
        if not self._take(message):
            self._messages.put(None)
            self._resume.get()
        if self._stopped:
            raise TrialStopped


def _gpu_ids(info: TrialInfo) -> tuple[str, ...]:
    """Return the ids of the GPUs of a trial."""
    resources = info.resources
    # The engine takes a tenth of the time of a short trial to answer.
    if resources is not None and not any("GPU" in bundle for bundle in resources.bundles):
        return ()
    return tuple(str(gpu_id) for gpu_id in api.get_gpu_ids()) if is_initialized() else ()


class TrialSession(TrainSession):
    """Session of a function that is a trial."""

    may_contain_runs = True

    def __init__(self, info: TrialInfo, reports: ReportQueue) -> None:
        self.info = info
        self.world_rank = 0
        self.world_size = 1
        self.local_rank = 0
        self.local_world_size = 1
        self.node_rank = 0
        self.gpu_ids = _gpu_ids(info)
        self.use_gpu = bool(self.gpu_ids)
        self.local_mode = False
        self.experiment_name = info.experiment_name
        self.communication_meters = []
        self.readers = Readers(rank=0, world_size=1)
        self.latest: Checkpoint | None = None
        """Checkpoint that `get_checkpoint` returns."""
        self._reports = reports
        self._process = os.getpid()
        self._inside: TrainSession | None = self
        self._outer: TrainSession | None = None

    @contextmanager
    def active(self) -> Iterator[None]:
        """Install the session, or that of a trainer inside, while the function runs.

        Local mode runs several trials in one process, and the program may have its own session. A
        trainer's session stays installed between two steps, because its workers continue.
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

    def install(self) -> None:
        """Install the session also between two steps, for threads that the function started. The
        process belongs to the trial.
        """
        self._outer = self
        set_session(self)

    def uninstall(self) -> None:
        """Remove the session at the end of the trial."""
        if current_session() is self:
            set_session(None if self._outer is self else self._outer)

    @property
    def storage(self) -> StorageContext:
        if self.info.storage is None:
            raise RuntimeError(
                "This trainable runs without a search, so it has no storage: use `Tuner`."
            )
        return self.info.storage

    def report(self, call: ReportCall) -> None:
        for argument, value in {
            "checkpoint_dir_name": call.dir_name,
            "checkpoint_upload_fn": call.upload_fn,
            "validation": call.validation,
        }.items():
            if value:
                raise ValueError(
                    f"report({argument}=…) is for workers of a trainer. In a trial the search "
                    f"keeps the checkpoints: omit `{argument}`."
                )
        checkpoint, mode, delete = call.checkpoint, call.upload_mode, call.delete_local
        in_place = mode is CheckpointUploadMode.NO_UPLOAD
        self.send(call.metrics, checkpoint, in_place=in_place)
        if delete is None:
            delete = mode.deletes_source_by_default
        if (
            checkpoint is not None
            and delete
            and not in_place
            and files.is_local(checkpoint.filesystem)
        ):
            shutil.rmtree(checkpoint.path, ignore_errors=True)

    def send(
        self,
        metrics: Mapping[str, object],
        checkpoint: Checkpoint | None,
        *,
        in_place: bool = False,
    ) -> None:
        """Report, and wait until the search wants the next result. Any thread of the trial's
        process may call it, one at a time.
        """
        if os.getpid() != self._process:
            raise RuntimeError(
                "report() was called in a process forked by the trial, from which reports do not "
                "reach the search: report from the trial's own process."
            )
        if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
            raise TypeError(
                f"report(checkpoint={checkpoint!r}): a {type(checkpoint).__name__} is no "
                "Checkpoint: write the files into a directory and pass "
                "`Checkpoint.from_directory(directory)`."
            )
        self.latest = checkpoint or self.latest
        self._reports.report(
            Reported(metrics=metric_values.clean(metrics), checkpoint=checkpoint, in_place=in_place)
        )

    def get_checkpoint(self) -> Checkpoint | None:
        return self.latest

    def get_all_reported_checkpoints(
        self, consistency_mode: CheckpointConsistencyMode, timeout_s: float | None
    ) -> list[ReportedCheckpoint]:
        raise RuntimeError(
            "get_all_reported_checkpoints() is for workers of a trainer: use `get_checkpoint()` in "
            "a trial."
        )

    def get_dataset_shard(self, name: str) -> NoReturn:
        raise RuntimeError(
            f"get_dataset_shard({name!r}) is for workers of a trainer, a trial has no shards: pass "
            "the dataset with `tune.with_parameters(function, data=dataset)`."
        )

    def get_preemption_info(self) -> PreemptionInfo | None:
        return None

    def barrier(self, data: _T) -> _T:
        return data
