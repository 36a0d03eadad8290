"""The session behind `report` and its relatives in a training worker."""

from __future__ import annotations

import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import cloudpickle

from syncline import faults, settings
from syncline.train import datasets
from syncline.train import metrics as metric_values
from syncline.train.checkpoint import Checkpoint, CheckpointConsistencyMode, CheckpointUploadMode, ReportedCheckpoint
from syncline.train.config import ValidationTaskConfig
from syncline.train.errors import PreemptionInfo
from syncline.train.filesystem import TEMPORARY_PREFIX, is_local
from syncline.train.session import TrainSession, UploadFunction
from syncline.train.storage import StorageContext, checkpoint_dir_name
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


class WorkerSession(TrainSession):
    """One worker's end of the conversation with the controller: what it says goes to `outbox`, what it hears comes to `deliver`."""

    def __init__(self, spec: WorkerSpec, outbox: Outbox, fail: Callable[[BaseException], None]) -> None:
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
        self._spec = spec
        self._outbox = outbox
        self._fail = fail
        self._process = os.getpid()
        self._next_index = spec.first_index
        self._latest = spec.latest_checkpoint
        self._uncommitted: set[int] = set()  # reports of this rank whose checkpoints are not registered yet
        self._meetings = 0
        self._released: dict[int, bytes | None] = {}
        self._questions = 0
        self._answers: dict[int, tuple[ReportedCheckpoint, ...]] = {}
        self._preemption: PreemptionInfo | None = None
        self._heard = threading.Condition()
        self._uploads: queue.SimpleQueue[_Upload | None] = queue.SimpleQueue()
        self._uploader: threading.Thread | None = None

    @property
    def storage(self) -> StorageContext:
        return self._spec.storage

    @property
    def hang_limit_s(self) -> float:
        """How long this rank may be in one collective operation."""
        return self._spec.hang_limit_s

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
        self._check_process("report")
        plain = metric_values.clean(metrics)
        self._check_validation(checkpoint, validation)
        faults.reach("train.report")
        index = self._next_index
        if checkpoint is None:
            self._next_index += 1
            self._outbox.put(Reported(index=index, metrics=plain, time=time.time()))
            return
        if not isinstance(checkpoint, Checkpoint):
            raise TypeError(
                f"report(checkpoint=…) got a {type(checkpoint).__name__}, which is no checkpoint: save the files in a directory and pass "
                "`Checkpoint.from_directory(directory)`."
            )
        mode = CheckpointUploadMode(upload_mode)
        upload = _Upload(
            checkpoint=checkpoint,
            index=index,
            dir_name=_checked_name(dir_name) or self._checkpoint_name(index),
            mode=mode,
            delete_source=mode.deletes_source_by_default if delete_local is None else delete_local,
            upload_fn=upload_fn,
            validation=validation,
        )
        in_thread = mode is CheckpointUploadMode.ASYNC
        part = None if in_thread else self._upload(upload)
        self._next_index += 1
        with self._heard:
            self._uncommitted.add(index)
        self._outbox.put(Reported(index=index, metrics=plain, time=time.time(), part=part, uploading=in_thread))
        if in_thread:
            self._submit(upload)

    def finish_uploads(self) -> None:
        """Wait until what was reported with ASYNC is in the run directory."""
        if self._uploader is not None:
            self._uploads.put(None)
            self._uploader.join()

    def _checkpoint_name(self, index: int) -> str:
        """Where files go to their final place at once, a name that no worker of an earlier attempt has: one whose node was cut off may
        still be writing the report of this number."""
        name = checkpoint_dir_name(index)
        may_have_predecessors = self._spec.attempt > 1 or self._spec.first_index > 0
        return f"{name}-{self._spec.token}" if may_have_predecessors and not self.storage.local else name

    def _check_validation(self, checkpoint: Checkpoint | None, validation: bool | ValidationTaskConfig) -> None:
        if not validation:
            return
        if checkpoint is None:
            raise ValueError("report(validation=…) without a checkpoint leaves nothing to validate: pass `checkpoint=` too.")
        if not self._spec.has_validation:
            raise ValueError("report(validation=…) needs a function to validate with: give the trainer a `validation_config`.")

    def _submit(self, upload: _Upload) -> None:
        if self._uploader is None:
            self._uploader = threading.Thread(target=self._upload_all, name="syncline-upload", daemon=True)
            self._uploader.start()
        self._uploads.put(upload)

    def _upload_all(self) -> None:
        """The upload thread: first in, first out, until None comes or an upload fails."""
        while (upload := self._uploads.get()) is not None:
            try:
                part = self._upload(upload)
            except BaseException as error:
                self._fail(error)
                return
            self._outbox.put(Uploaded(index=upload.index, part=part))

    def _upload(self, upload: _Upload) -> CheckpointPart:
        """Bring the files of one report to the storage; where they are then."""
        storage, dir_name, staged = self._spec.storage, upload.dir_name, None
        if upload.upload_fn is not None:
            uploaded = upload.upload_fn(upload.checkpoint, dir_name)
            if not isinstance(uploaded, Checkpoint):
                raise ValueError(
                    f"`checkpoint_upload_fn` returned {type(uploaded).__name__!r}, not a Checkpoint: return one for where it put the files."
                )
            dir_name = storage.name_of(uploaded)
        elif upload.mode is CheckpointUploadMode.NO_UPLOAD:
            dir_name = storage.name_of(upload.checkpoint)
        else:
            token = f"{self._spec.token}-{upload.index:06d}"
            staged = storage.stage(upload.checkpoint, dir_name, rank=self.world_rank, token=token)
        faults.reach("train.uploaded")
        keeps = upload.mode is CheckpointUploadMode.NO_UPLOAD or storage.contains(upload.checkpoint)
        if upload.delete_source and not keeps and is_local(upload.checkpoint.filesystem):
            shutil.rmtree(upload.checkpoint.path, ignore_errors=True)
        return CheckpointPart(dir_name=dir_name, staged=staged, validation=upload.validation)

    # -- what is asked and heard

    def get_checkpoint(self) -> Checkpoint | None:
        with self._heard:
            if self._process == os.getpid():  # a forked process hears nothing more
                self._heard.wait_for(lambda: not self._uncommitted)
            return self._latest

    def get_all_reported_checkpoints(
        self, consistency_mode: CheckpointConsistencyMode, timeout_s: float | None
    ) -> list[ReportedCheckpoint]:
        self._check_process("get_all_reported_checkpoints")
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        validated = CheckpointConsistencyMode(consistency_mode) is CheckpointConsistencyMode.VALIDATED
        with self._heard:
            in_time = self._heard.wait_for(lambda: not self._uncommitted, _left(deadline))
        answer = self._ask(validated=validated, deadline=deadline) if in_time else None
        if answer is None:
            answer = self._ask(validated=False, deadline=None)
        return list(answer or ())

    def _ask(self, *, validated: bool, deadline: float | None) -> tuple[ReportedCheckpoint, ...] | None:
        with self._heard:
            question = self._questions
            self._questions += 1
        self._outbox.put(CheckpointsAsked(request=question, validated=validated))
        with self._heard:
            self._heard.wait_for(lambda: question in self._answers, _left(deadline))
            return self._answers.pop(question, None)

    def get_dataset_shard(self, name: str) -> Any:
        return datasets.shard(self._spec.shares, name)

    def close_shares(self) -> None:
        """The training function has ended: other ranks need not wait for this one to read on."""
        datasets.resign(self._spec.shares)

    def get_preemption_info(self) -> PreemptionInfo | None:
        return self._preemption

    def terminating(self) -> None:
        """SIGTERM has come to this process: the controller tells all ranks. On any thread."""
        notice_s = settings.termination_notice_s()
        deadline_ms = int((time.time() + notice_s) * 1000)
        self._outbox.put(Terminating(node_id=self._spec.worker.node_id, deadline_ms=deadline_ms, seconds_left=notice_s))

    def barrier(self, data: Any) -> Any:
        self._check_process("collective")
        with self._heard:
            sequence = self._meetings
            self._meetings += 1
        self._outbox.put(BarrierReached(sequence=sequence, data=cloudpickle.dumps(data) if self.world_rank == 0 else None))
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
            elif isinstance(message, BarrierReleased):
                self._released[message.sequence] = message.data
            elif isinstance(message, PreemptionNoticed):
                self._preemption = message.info
            elif isinstance(message, Checkpoints):
                self._answers[message.request] = message.checkpoints
            self._heard.notify_all()

    def _check_process(self, function: str) -> None:
        if self._process != os.getpid():
            raise RuntimeError(
                f"`syncline.train.{function}` was called in process {os.getpid()}, which was forked from the training worker "
                f"{self._process}: only the worker itself is heard. Call it in the training function, not in a data loader's worker."
            )


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _checked_name(dir_name: str | None) -> str | None:
    if dir_name is None:
        return None
    parts = dir_name.split("/") if isinstance(dir_name, str) else []
    if not parts or any(part in ("", ".", "..") or part.startswith(TEMPORARY_PREFIX) for part in parts):
        raise ValueError(
            f"report(checkpoint_dir_name={dir_name!r}) is no name of a directory below the run directory: give a relative path such as "
            '"epoch_3", without empty parts, "." or "..".'
        )
    return dir_name
