"""The session behind `report` and its relatives in a training worker."""

from __future__ import annotations

import errno
import functools
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

import cloudpickle

from syncline import faults, settings
from syncline.train import datasets
from syncline.train import metrics as metric_values
from syncline.train.checkpoint import (
    Checkpoint,
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    ReportedCheckpoint,
)
from syncline.train.config import ValidationTaskConfig
from syncline.train.errors import PreemptionInfo
from syncline.train.filesystem import Listing, list_directory
from syncline.train.readers import Readers
from syncline.train.session import TrainSession, UploadFunction
from syncline.train.step_times import StepTimes
from syncline.train.storage import StorageContext, checked_name, checkpoint_dir_name
from syncline.train.workers.messages import (
    BarrierReached,
    BarrierReleased,
    CheckpointPart,
    Checkpoints,
    CheckpointsAsked,
    Committed,
    Consumed,
    ControllerMessage,
    PreemptionNoticed,
    Reported,
    Terminating,
    Uploaded,
)
from syncline.train.workers.outbox import Outbox
from syncline.train.workers.spec import WorkerSpec
from syncline.train.workers.uploads import Uploader

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class _Upload:
    """How one checkpoint comes into the run directory."""

    checkpoint: Checkpoint
    index: int
    dir_name: str
    mode: CheckpointUploadMode
    delete_source: bool
    upload_fn: UploadFunction | None
    validation: bool | ValidationTaskConfig
    files: Listing | None
    """What there was to copy at the call; None where nothing is copied here."""
    states: bytes
    """Where the readers were at the call."""


_forks = 0
"""Grows in a process that is forked: asked at every report, where the process's number would take a
call of the system.
"""


def _after_fork_in_child() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_after_fork_in_child)


def _counted(
    call: Callable[Concatenate[WorkerSession, P], R],
) -> Callable[Concatenate[WorkerSession, P], R]:
    """The same method; the time that it takes is time for reporting."""

    @functools.wraps(call)
    def counted(self: WorkerSession, /, *args: P.args, **kwargs: P.kwargs) -> R:
        began = time.perf_counter()
        try:
            return call(self, *args, **kwargs)
        finally:
            self.reported_s += time.perf_counter() - began

    return counted


class WorkerSession(TrainSession):
    """One worker's end of the conversation with the controller: what it says goes to `outbox`, what
    it hears comes to `deliver`.
    """

    def __init__(
        self, spec: WorkerSpec, outbox: Outbox, fail: Callable[[BaseException], None]
    ) -> None:
        """`fail` ends the worker with an error, from any thread."""
        place = spec.worker
        self.world_rank = place.rank
        self.world_size = spec.world_size
        self.local_rank = place.local_rank
        self.local_world_size = place.local_world_size
        self.node_rank = place.node_rank
        self.gpu_ids = tuple(place.gpu_ids)
        self.use_gpu = spec.use_gpu
        self.local_mode = False
        self.experiment_name = spec.run_name
        self.readers = Readers(
            rank=place.rank,
            world_size=spec.world_size,
            saved=spec.latest_checkpoint if spec.resumes else None,
        )
        self.communication_meters = []
        self._began = time.perf_counter()
        self.reported_s = 0.0
        """How long the training function was in `report`, waited in a barrier, or for a checkpoint
        to be registered, in seconds.
        """
        self._spec = spec
        self._outbox = outbox
        self._fail = fail
        self._process = os.getpid()
        self._forks = _forks
        self._next_index = spec.first_index
        self._latest = spec.latest_checkpoint
        # Rank 0 is the one that gives files where only one does; whoever gives none must say where
        # it was, for the sake of those that do.
        self._gives_files = place.rank == 0
        self._uncommitted: set[int] = (
            set()
        )  # reports of this rank whose checkpoints are not registered yet
        self._meetings = 0
        self._released: dict[int, bytes | None] = {}
        self._questions = 0
        self._answers: dict[int, tuple[ReportedCheckpoint, ...]] = {}
        self._preemption: PreemptionInfo | None = None
        self._heard = threading.Condition()
        self._uploader = Uploader(self._upload_later, fail)

    @property
    def storage(self) -> StorageContext:
        return self._spec.storage

    @property
    def hang_limit_s(self) -> float:
        """How long this rank may be in one collective operation."""
        return self._spec.hang_limit_s

    def begin(self) -> None:
        """The training function begins now."""
        self._began = time.perf_counter()

    def spent(self) -> StepTimes:
        """Where the time since then has gone."""
        return StepTimes(
            total_s=time.perf_counter() - self._began,
            data_s=self.readers.waited_s,
            report_s=self.reported_s,
            communication_s=sum(meter() for meter in self.communication_meters),
        )

    # -- reports

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
        if checkpoint is None and not validation:
            self._report_metrics(metrics)
        else:
            self._report_checkpoint(
                metrics, checkpoint, dir_name, upload_mode, delete_local, upload_fn, validation
            )

    def _report_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Every step of a training may do this, and finds the processor's caches empty: each
        function that is called costs microseconds.
        """
        began = time.perf_counter()
        try:
            self._check_process("report")
            plain = metric_values.clean(metrics)
            faults.reach("train.report")
            states = None if self._gives_files or self.readers.is_idle else self.readers.capture()
            index = self._next_index
            self._next_index = index + 1
            self._outbox.gather((index, plain, time.time(), states))
        finally:
            self.reported_s += time.perf_counter() - began

    @_counted
    def _report_checkpoint(
        self,
        metrics: Mapping[str, Any],
        checkpoint: Checkpoint | None,
        dir_name: str | None,
        upload_mode: CheckpointUploadMode,
        delete_local: bool | None,
        upload_fn: UploadFunction | None,
        validation: bool | ValidationTaskConfig,
    ) -> None:
        self._check_process("report")
        plain = metric_values.clean(metrics)
        if checkpoint is None:
            raise ValueError(
                "report(validation=…) without a checkpoint leaves nothing to validate: pass `checkpoint=` too."
            )
        if validation and not self._spec.has_validation:
            raise ValueError(
                "report(validation=…) needs a function to validate with: give the trainer a `validation_config`."
            )
        faults.reach("train.report")
        index = self._next_index
        if not isinstance(checkpoint, Checkpoint):
            raise TypeError(
                f"report(checkpoint=…) got a {type(checkpoint).__name__}, which is no checkpoint: save the files in a directory and pass "
                "`Checkpoint.from_directory(directory)`."
            )
        mode = CheckpointUploadMode(upload_mode)
        copies = upload_fn is None and mode is not CheckpointUploadMode.NO_UPLOAD
        upload = _Upload(
            checkpoint=checkpoint,
            index=index,
            dir_name=_checked_name(dir_name) or self._checkpoint_name(index),
            mode=mode,
            delete_source=mode.deletes_source_by_default if delete_local is None else delete_local,
            upload_fn=upload_fn,
            validation=validation,
            files=_listed(checkpoint) if copies else None,
            states=self.readers.capture(),
        )
        part = None if mode is CheckpointUploadMode.ASYNC else self._upload(upload)
        has_more_to_do = part is None or self.storage.local
        self._next_index += 1
        self._gives_files = True
        with self._heard:
            self._uncommitted.add(index)
        self._outbox.put(
            Reported(
                index=index,
                metrics=plain,
                time=time.time(),
                part=None if has_more_to_do else part,
                uploading=has_more_to_do,
            )
        )
        if has_more_to_do:
            self._uploader.submit((upload, part))

    def finish_uploads(self, limit_s: float | None = None) -> None:
        """Wait until everything reported is in the run directory, or for so long."""
        self._uploader.finish(limit_s)

    def _checkpoint_name(self, index: int) -> str:
        """Where files go to their final place at once, a name that no worker of an earlier attempt
        has: one whose node was cut off may still be writing the report of this number.
        """
        name = checkpoint_dir_name(index)
        may_have_predecessors = self._spec.attempt > 1 or self._spec.first_index > 0
        return (
            f"{name}-{self._spec.token}"
            if may_have_predecessors and not self.storage.local
            else name
        )

    def _upload_later(self, job: tuple[_Upload, CheckpointPart | None]) -> None:
        """In the upload thread: upload what is not yet, and wait for the disk."""
        upload, part = job
        part = part or self._upload_what_stayed(upload)
        self.storage.force(part.staged or part.dir_name)
        self._outbox.put(Uploaded(index=upload.index, part=part))

    def _upload_what_stayed(self, upload: _Upload) -> CheckpointPart:
        try:
            return self._upload(upload)
        except FileNotFoundError as error:
            if upload.files is None:
                raise
            raise FileNotFoundError(
                errno.ENOENT,
                "the files of a checkpoint reported with ASYNC were changed before they were uploaded; leave them alone after `report`, "
                "without a `with tempfile.TemporaryDirectory()` around it: syncline deletes them itself",
                error.filename,
            ) from error

    def _upload(self, upload: _Upload) -> CheckpointPart:
        """Bring the files of one report to the storage, and the states with them; where they are
        then.
        """
        storage, dir_name, staged = self._spec.storage, upload.dir_name, None
        goes = (
            upload.delete_source
            and upload.mode is not CheckpointUploadMode.NO_UPLOAD
            and storage.is_apart_from(upload.checkpoint)
        )
        if upload.upload_fn is not None:
            uploaded = upload.upload_fn(upload.checkpoint, dir_name)
            if not isinstance(uploaded, Checkpoint):
                raise ValueError(
                    f"`checkpoint_upload_fn` returned {type(uploaded).__name__!r}, not a Checkpoint: return one for where it put the files."
                )
            dir_name = storage.name_of(uploaded)
            storage.write_states(dir_name, self.world_rank, upload.states)
        elif upload.mode is CheckpointUploadMode.NO_UPLOAD:
            dir_name = storage.name_of(upload.checkpoint)
            storage.write_states(dir_name, self.world_rank, upload.states)
        else:
            token = f"{self._spec.token}-{upload.index:06d}"
            staged = storage.stage(
                upload.checkpoint,
                dir_name,
                rank=self.world_rank,
                token=token,
                listing=upload.files,
                states=upload.states,
                take=goes,
            )
        faults.reach("train.uploaded")
        if goes:
            shutil.rmtree(upload.checkpoint.path, ignore_errors=True)
        return CheckpointPart(dir_name=dir_name, staged=staged, validation=upload.validation)

    # -- what is asked and heard

    @_counted
    def get_checkpoint(self) -> Checkpoint | None:
        with self._heard:
            if self._forks == _forks:  # a forked process hears nothing more
                self._heard.wait_for(lambda: not self._uncommitted)
            return self._latest

    @_counted
    def get_all_reported_checkpoints(
        self, consistency_mode: CheckpointConsistencyMode, timeout_s: float | None
    ) -> list[ReportedCheckpoint]:
        self._check_process("get_all_reported_checkpoints")
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        validated = (
            CheckpointConsistencyMode(consistency_mode) is CheckpointConsistencyMode.VALIDATED
        )
        with self._heard:
            in_time = self._heard.wait_for(lambda: not self._uncommitted, _left(deadline))
        answer = self._ask(validated=validated, deadline=deadline) if in_time else None
        if answer is None:
            answer = self._ask(validated=False, deadline=None)
        return list(answer or ())

    def _ask(
        self, *, validated: bool, deadline: float | None
    ) -> tuple[ReportedCheckpoint, ...] | None:
        with self._heard:
            question = self._questions
            self._questions += 1
        self._outbox.put(CheckpointsAsked(request=question, validated=validated))
        with self._heard:
            self._heard.wait_for(lambda: question in self._answers, _left(deadline))
            return self._answers.pop(question, None)

    def get_dataset_shard(self, name: str) -> Any:
        return datasets.shard(self._spec.shares, name, self)

    def close_shares(self) -> None:
        """The training function has ended: other ranks need not wait for this one to read on."""
        datasets.resign(self._spec.shares)

    def get_preemption_info(self) -> PreemptionInfo | None:
        return self._preemption

    def terminating(self) -> None:
        """SIGTERM has come to this process: the controller tells all ranks. On any thread."""
        notice_s = settings.termination_notice_s()
        deadline_ms = int((time.time() + notice_s) * 1000)
        self._outbox.put(
            Terminating(
                node_id=self._spec.worker.node_id, deadline_ms=deadline_ms, seconds_left=notice_s
            )
        )

    @_counted
    def barrier(self, data: Any) -> Any:
        self._check_process("collective")
        with self._heard:
            sequence = self._meetings
            self._meetings += 1
        self._outbox.put(
            BarrierReached(
                sequence=sequence, data=cloudpickle.dumps(data) if self.world_rank == 0 else None
            )
        )
        with self._heard:
            self._heard.wait_for(lambda: sequence in self._released)
            carried = self._released.pop(sequence)
        return None if carried is None else cloudpickle.loads(carried)

    def deliver(self, message: ControllerMessage) -> None:
        """The controller says something."""
        if isinstance(message, Consumed):
            self._outbox.consumed(message.batches)
            return
        with self._heard:
            if isinstance(message, Committed):
                if message.index in self._uncommitted:
                    self._uncommitted.discard(message.index)
                    self._latest = message.checkpoint
                else:
                    self._gives_files = False
            elif isinstance(message, BarrierReleased):
                self._released[message.sequence] = message.data
            elif isinstance(message, PreemptionNoticed):
                self._preemption = message.info
            elif isinstance(message, Checkpoints):
                self._answers[message.request] = message.checkpoints
            self._heard.notify_all()

    def _check_process(self, function: str) -> None:
        if self._forks != _forks:
            raise RuntimeError(
                f"`syncline.train.{function}` was called in process {os.getpid()}, which was forked from the training worker "
                f"{self._process}: only the worker itself is heard. Call it in the training function, not in a data loader's worker."
            )


def _listed(checkpoint: Checkpoint) -> Listing | None:
    try:
        return list_directory(checkpoint.filesystem, checkpoint.path)
    except FileNotFoundError:
        return None  # the upload tells of it


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _checked_name(dir_name: str | None) -> str | None:
    if dir_name is None:
        return None
    try:
        return checked_name(dir_name)
    except ValueError as error:
        raise ValueError(f"report(checkpoint_dir_name={dir_name!r}): {error}") from None
