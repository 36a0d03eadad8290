"""Training session of a worker: `report` and its relatives."""

from __future__ import annotations

import functools
import math
import os
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, TypeVar

import cloudpickle

from syncline import faults, settings
from syncline.diagnosis.call_log import CallLog
from syncline.diagnosis.collective_calls import CollectiveCall
from syncline.train import metric_values
from syncline.train.checkpoint import (
    Checkpoint,
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    ReportedCheckpoint,
)
from syncline.train.errors import PreemptionInfo
from syncline.train.resume_state import Readers
from syncline.train.session import ReportCall, TrainSession, unknown_dataset
from syncline.train.snapshots import directory as directories
from syncline.train.snapshots import node_files
from syncline.train.snapshots.config import SnapshotSpec
from syncline.train.snapshots.copier import SnapshotCopier
from syncline.train.snapshots.rank_snapshots import RankSnapshots
from syncline.train.snapshots.slot import SnapshotId, SnapshotSlot
from syncline.train.storage.context import StorageContext, checked_name, checkpoint_dir_name
from syncline.train.workers.checkpoint_saver import CheckpointSaver
from syncline.train.workers.messages import (
    BadInputs,
    BarrierReached,
    BarrierReleased,
    CheckpointPart,
    Checkpoints,
    CheckpointsRequested,
    Committed,
    Consumed,
    ControllerMessage,
    CopyReady,
    CopySnapshot,
    PreemptionNoticed,
    Reported,
    SnapshotsRefused,
    StepTimes,
    Terminating,
    Uploaded,
)
from syncline.train.workers.send_buffer import SendBuffer
from syncline.train.workers.spec import WorkerSpec
from syncline.train.workers.uploads import CheckpointUpload, SavedCheckpoint, Uploader

P = ParamSpec("P")
R = TypeVar("R")

_REPORT_TIMES = 33
"""Reports of whose times the median is taken."""
_FEWEST_STEPS = 5

_forks = 0
"""Counts forks of this process. Checked at every report, as `os.getpid` is a system call."""


def _after_fork_in_child() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_after_fork_in_child)


def _timed(
    sum_name: str,
) -> Callable[
    [Callable[Concatenate[WorkerSession, P], R]], Callable[Concatenate[WorkerSession, P], R]
]:
    """Add the duration of a method to an attribute."""

    def decorate(
        call: Callable[Concatenate[WorkerSession, P], R],
    ) -> Callable[Concatenate[WorkerSession, P], R]:
        @functools.wraps(call)
        def timed(self: WorkerSession, /, *args: P.args, **kwargs: P.kwargs) -> R:
            began = time.perf_counter()
            try:
                return call(self, *args, **kwargs)
            finally:
                duration_s = time.perf_counter() - began
                setattr(self, sum_name, getattr(self, sum_name) + duration_s)

        return timed

    return decorate


class WorkerSession(TrainSession):
    """Session of one worker: sends messages to the controller and receives its answers.

    Args:
        spec: The worker.
        send_buffer: Buffer of messages to the controller.
        fail: Ends the worker with an error; may be called on any thread.
    """

    def __init__(
        self, spec: WorkerSpec, send_buffer: SendBuffer, fail: Callable[[BaseException], None]
    ) -> None:
        worker = spec.worker
        self.world_rank = worker.rank
        self.world_size = spec.world_size
        self.local_rank = worker.local_rank
        self.local_world_size = worker.local_world_size
        self.node_rank = worker.node_rank
        self.gpu_ids = tuple(worker.gpu_ids)
        self.use_gpu = spec.use_gpu
        self.local_mode = False
        self.experiment_name = spec.run_name
        snapshots = self.snapshots = _snapshots(spec, self.barrier, send_buffer.put)
        has_positions = snapshots is not None and snapshots.spec.resumes_readers
        self.readers = Readers(
            rank=worker.rank,
            world_size=spec.world_size,
            saved=spec.latest_checkpoint if spec.resumes else None,
            captured=(lambda: snapshots.resumed_readers if snapshots is not None else None)
            if has_positions
            else None,
        )
        self.barrier_s = 0.0
        """Seconds in barriers of `train.collective`."""
        self.communication_meters = [lambda: self.barrier_s]
        self._has_bad_inputs: Callable[[], bool] | None = None  # None once it was asked
        self.call_log = CallLog(spec.world_size)
        """Recent calls of collective operations."""
        self._report_times: deque[float] = deque(maxlen=_REPORT_TIMES)
        self._began = time.perf_counter()
        self.reported_s = 0.0
        """Seconds in `report`, and waiting for checkpoints to be registered."""
        self._spec = spec
        self._send_buffer = send_buffer
        self._process = os.getpid()
        self._forks = _forks
        # Checked with the first checkpoint, which has the metrics of rank 0.
        self._score_attribute = spec.score_attribute if worker.rank == 0 else None
        self.next_report = spec.first_index
        self._latest = spec.latest_checkpoint
        # If only one rank reports files, it is rank 0. Ranks that report none send their reader
        # states with the metrics, for the checkpoints of the others.
        self._reports_files = worker.rank == 0
        self._uncommitted: set[int] = set()  # reports of this rank that are not registered yet
        self._barriers = 0
        self._released: dict[int, bytes | None] = {}
        self._requests = 0
        self._answers: dict[int, tuple[ReportedCheckpoint, ...]] = {}
        self._preemption: PreemptionInfo | None = None
        self._changed = threading.Condition()
        self._saver: CheckpointSaver | None = None
        self._uploader = Uploader(self._upload_later, fail)

    def follow_calls(self, source: Callable[[], Sequence[CollectiveCall]]) -> None:
        self.call_log.source = source

    def follow_inputs(self, has_bad_inputs: Callable[[], bool]) -> None:
        self._has_bad_inputs = has_bad_inputs

    @property
    def storage(self) -> StorageContext:
        return self._spec.storage

    @property
    def hang_limit_s(self) -> float:
        """Longest time of this rank in one collective operation, in seconds."""
        return self._spec.hang_limit_s

    @property
    def median_step_s(self) -> float | None:
        """Median time between two of the last reports; None before there are some."""
        times = list(self._report_times)
        steps = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
        return statistics.median(steps) if len(steps) >= _FEWEST_STEPS else None

    def begin(self) -> None:
        """Record that the training function begins now."""
        self._began = time.perf_counter()

    def step_times(self) -> StepTimes:
        """Return the times since the training function began."""
        return StepTimes(
            total_s=time.perf_counter() - self._began,
            data_s=self.readers.waited_s,
            report_s=self.reported_s,
            communication_s=sum(meter() for meter in self.communication_meters),
        )

    # -- reports

    def report(self, call: ReportCall) -> None:
        if call.checkpoint is not None or call.validation:
            self._report_checkpoint(call)
            return
        # Every training step may come here, with the processor's caches evicted: each function
        # call costs microseconds, so the checks are inline.
        began = time.perf_counter()
        try:
            if self._forks != _forks:
                self._check_process("report")
            plain = metric_values.clean(call.metrics)
            if self._has_bad_inputs is not None:
                for value in plain.values():
                    if value.__class__ is float and value - value != 0.0:  # not finite
                        self._look_at_inputs()
            faults.reach("train.report")
            states = None
            if not self._reports_files and not self.readers.is_idle:
                states = self.readers.capture()
            index = self.next_report
            self.next_report = index + 1
            now = time.time()
            self._report_times.append(now)
            self._send_buffer.put_batched((index, plain, now, states))
        finally:
            self.reported_s += time.perf_counter() - began

    def _look_at_inputs(self) -> None:
        """Tell the controller, once, if the batch of the report that follows has bad values."""
        has_bad_inputs, self._has_bad_inputs = self._has_bad_inputs, None
        if has_bad_inputs is not None and has_bad_inputs():
            self._send_buffer.put_batched(BadInputs(report=self.next_report))

    @_timed("reported_s")
    def _report_checkpoint(self, call: ReportCall) -> None:
        self._check_process("report")
        plain = metric_values.clean(call.metrics)
        call.check_validation()
        if call.validation and not self._spec.has_validation:
            raise ValueError(
                "report(validation=…) needs a validation function: give the trainer a "
                "`validation_config`."
            )
        # A validation adds metrics later.
        if self._score_attribute is not None and not call.validation:
            metric_values.check_score(plain, self._score_attribute)
            self._score_attribute = None
        if any(isinstance(value, float) and not math.isfinite(value) for value in plain.values()):
            self._look_at_inputs()
        faults.reach("train.report")
        index = self.next_report
        upload = CheckpointUpload.of(
            call,
            self._spec,
            index=index,
            dir_name=_checked_name(call.dir_name) or self._default_name(index),
            states=self.readers.capture(),
        )
        if self._saver is not None and isinstance(upload.checkpoint, SavedCheckpoint):
            self._saver.reported(upload.checkpoint)
        part = None if upload.mode is CheckpointUploadMode.ASYNC else upload.run()
        is_unfinished = part is None or self.storage.local  # local files have to reach the disk
        self.next_report += 1
        self._reports_files = True
        with self._changed:
            self._uncommitted.add(index)
        now = time.time()
        self._report_times.append(now)
        self._send_buffer.put(
            Reported(
                index=index,
                metrics=plain,
                time=now,
                part=None if is_unfinished else part,
                uploading=is_unfinished,
            )
        )
        if is_unfinished:
            self._uploader.submit((upload, part))

    @_timed("reported_s")
    def save(self, state: object, file_name: str) -> Checkpoint:
        self._check_process("save")
        if self._saver is None and self.snapshots is not None:
            self._saver = CheckpointSaver(self._spec, self.snapshots)
        return (
            super().save(state, file_name)
            if self._saver is None
            else self._saver.save(state, file_name)
        )

    def finish_uploads(self, limit_s: float | None = None) -> None:
        """Wait up to `limit_s` until everything reported is in the run directory."""
        if self.snapshots is not None and limit_s is None:
            self.snapshots.finish()
        self._uploader.finish(limit_s)

    def _default_name(self, index: int) -> str:
        """Return the default name of a checkpoint.

        On a remote filesystem, files are written to their final place. There the name includes a
        token, since a disconnected worker of an earlier attempt may still write the same report.
        """
        name = checkpoint_dir_name(index)
        may_have_predecessor = self._spec.attempt > 1 or self._spec.first_index > 0
        if self.storage.local or not may_have_predecessor:
            return name
        return f"{name}-{self._spec.token}"

    def _upload_later(self, item: tuple[CheckpointUpload, CheckpointPart | None]) -> None:
        """Upload in the upload thread unless done, and wait for the disk."""
        upload, part = item
        part = part or upload.run_later()
        self.storage.sync(part.staged or part.dir_name)
        self._send_buffer.put(Uploaded(index=upload.index, part=part))

    # -- requests and answers

    @_timed("reported_s")
    def get_checkpoint(self) -> Checkpoint | None:
        with self._changed:
            if self._forks == _forks:  # a forked process receives no messages
                self._changed.wait_for(lambda: not self._uncommitted)
            return self._latest

    @_timed("reported_s")
    def get_all_reported_checkpoints(
        self, consistency_mode: CheckpointConsistencyMode, timeout_s: float | None
    ) -> list[ReportedCheckpoint]:
        self._check_process("get_all_reported_checkpoints")
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        mode = CheckpointConsistencyMode(consistency_mode)
        validated = mode is CheckpointConsistencyMode.VALIDATED
        with self._changed:
            in_time = self._changed.wait_for(lambda: not self._uncommitted, _left_s(deadline))
        answer = self._request(validated=validated, deadline=deadline) if in_time else None
        if answer is None:
            answer = self._request(validated=False, complete=False, deadline=None)
        return list(answer or ())

    def _request(
        self, *, validated: bool, deadline: float | None, complete: bool = True
    ) -> tuple[ReportedCheckpoint, ...] | None:
        with self._changed:
            request = self._requests
            self._requests += 1
        self._send_buffer.put(
            CheckpointsRequested(request=request, validated=validated, complete=complete)
        )
        with self._changed:
            self._changed.wait_for(lambda: request in self._answers, _left_s(deadline))
            return self._answers.pop(request, None)

    def get_dataset_shard(self, name: str) -> Any:
        if not self._spec.shares:
            raise unknown_dataset(name, ())
        from syncline.train import datasets  # loads syncline.data: half a second

        return datasets.shard(self._spec.shares, name, self)

    def close_shares(self) -> None:
        """Stop reading datasets, so that other ranks do not wait for this one."""
        if self._spec.shares:
            from syncline.train import datasets  # loads syncline.data: half a second

            datasets.close_shares(self._spec.shares)

    def get_preemption_info(self) -> PreemptionInfo | None:
        return self._preemption

    def terminating(self) -> None:
        """Notify the controller that this process received SIGTERM. Thread-safe."""
        notice_s = settings.termination_notice_s()
        self._send_buffer.put(
            Terminating(
                node_id=self._spec.worker.node_id,
                deadline_ms=int((time.time() + notice_s) * 1000),
                seconds_left=notice_s,
            )
        )

    @_timed("barrier_s")
    def barrier(self, data: object) -> Any:
        self._check_process("collective")
        with self._changed:
            sequence = self._barriers
            self._barriers += 1
        pickled = cloudpickle.dumps(data) if self.world_rank == 0 else None
        self._send_buffer.put(BarrierReached(sequence=sequence, data=pickled))
        with self._changed:
            self._changed.wait_for(lambda: sequence in self._released)
            received = self._released.pop(sequence)
        return None if received is None else cloudpickle.loads(received)

    def deliver(self, message: ControllerMessage) -> None:
        """Receive a message of the controller."""
        if isinstance(message, Consumed):
            self._send_buffer.consumed(message.batches)
            return
        if isinstance(message, CopySnapshot):
            if self.snapshots is not None:
                self.snapshots.copy(message.from_step, message.kept_step)
            return
        with self._changed:
            if isinstance(message, Committed):
                if message.index in self._uncommitted:
                    self._uncommitted.discard(message.index)
                    self._latest = message.checkpoint
                else:
                    self._reports_files = False
            elif isinstance(message, BarrierReleased):
                self._released[message.sequence] = message.data
            elif isinstance(message, PreemptionNoticed):
                self._preemption = message.info
            elif isinstance(message, Checkpoints):
                self._answers[message.request] = message.checkpoints
            self._changed.notify_all()

    def _check_process(self, function: str) -> None:
        if self._forks != _forks:
            raise RuntimeError(
                f"`syncline.train.{function}` was called in process {os.getpid()}, which was "
                f"forked from the training worker {self._process}. Only the worker is connected to "
                "the controller: call it in the training function, not in a data loader's worker."
            )


def _snapshots(
    spec: WorkerSpec,
    agree: Callable[[int], int],
    put: Callable[[CopyReady | SnapshotsRefused], None],
) -> RankSnapshots | None:
    """Return the memory snapshots of a rank, ready for its attempt."""
    if spec.snapshots is None:
        return None
    here, rank = spec.worker.node_id, spec.worker.rank
    chosen = replace(
        spec.snapshots, directory=str(directories.on_this_node(spec.snapshots.directory))
    )
    snapshots = RankSnapshots(
        chosen,
        rank=rank,
        world_size=spec.world_size,
        local_world_size=spec.worker.local_world_size,
        agree=agree,
        copier=None if rank not in chosen.copy_nodes else _copier(chosen, rank, put),
        on_refused=lambda last: put(SnapshotsRefused(last=last)),
    )
    snapshots.begin(lambda source, path: node_files.fetch(source, here, path))
    return snapshots


def _copier(spec: SnapshotSpec, rank: int, put: Callable[[CopyReady], None]) -> SnapshotCopier:
    def send(slot: SnapshotSlot, kept: int | None, is_stopped: Callable[[], bool]) -> None:
        node_files.send(
            slot,
            spec.copy_nodes[rank],
            keep_s=spec.keep_s,
            kept=spec.resumed if kept is None else SnapshotId(attempt=spec.attempt, step=kept),
            is_stopped=is_stopped,
        )

    return SnapshotCopier(
        send,
        lambda copied, newest: put(CopyReady(copied_step=copied, newest_step=newest)),
        every_s=spec.copy_every_s or 0.0,
        step=spec.resume_step or 0,
    )


def _left_s(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _checked_name(dir_name: str | None) -> str | None:
    if dir_name is None:
        return None
    try:
        return checked_name(dir_name)
    except ValueError as error:
        raise ValueError(f"report(checkpoint_dir_name={dir_name!r}): {error}") from None
