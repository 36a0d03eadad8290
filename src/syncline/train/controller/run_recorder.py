"""Writes the run directory: reports, committed checkpoints, events, the outcome.

The run directory is everything that survives the program. A checkpoint is committed in this order:

1. Its files become visible under their name, together with a marker that says it is unfinished.
2. The list of checkpoints names it, and names those to be deleted.
3. The marker is deleted.
4. The checkpoints to be deleted are deleted.

After a kill between two steps, the list names complete checkpoints only. The next start finds the
remains by the marker or by the list and deletes them.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from syncline import faults
from syncline.runs import RunDirectory, RunRecord
from syncline.runs.alerts import alerts_of
from syncline.runs.json_values import JsonObject, Record
from syncline.runs.media import is_media
from syncline.runs.media_events import MediaEventWriter
from syncline.runs.record_files import RegularUploads
from syncline.runs.tensorboard_writer import ScalarWriter
from syncline.train.backend import Worker
from syncline.train.checkpoint import Checkpoint
from syncline.train.controller.attempt import CompleteReport, WorkerFailure
from syncline.train.controller.checkpoint_manager import CheckpointManager, Registered
from syncline.train.controller.fencing import FencingToken
from syncline.train.errors import ControllerError, WorkerGroupError, worker_failure_message
from syncline.train.metric_values import Metrics
from syncline.train.snapshots.slot import SnapshotId
from syncline.train.storage.context import (
    FULL_DISK,
    MINIMUM_FREE_BYTES,
    StorageContext,
    StorageFullError,
    reported_name,
)
from syncline.train.workers.messages import Reported, UsageReported
from syncline.train.workers.reservation import is_hosted
from syncline.train.workers.spec import RunSpec

logger = logging.getLogger("syncline")

RECORDED_FAILURES = 16
"""Number of ranks whose failure is recorded."""
SNAPSHOTS_REFUSED = "snapshots_refused"
"""Event: the memory snapshots up to that of "attempt" and "step" are not used any more."""
LONGEST_TRACEBACK = 20_000
"""Characters kept of each traceback."""


class StepCount:
    """Maps report numbers to steps, the x-axis of metric curves. Pure.

    Report numbers always increase: a report that is repeated after a restart has a new number. Its
    step is the same as before, because an attempt counts from the report of its checkpoint.

    Args:
        attempts: Recorded attempts with "first_report" and "first_step"; others are ignored.
        next_report: Number of the run's next report.
    """

    def __init__(self, attempts: Iterable[Record], next_report: int) -> None:
        known = [each for each in attempts if "first_report" in each and "first_step" in each]
        self._first_reports = [int(attempt["first_report"]) for attempt in known]
        self._first_steps = [int(attempt["first_step"]) for attempt in known]
        ends = [*self._first_reports[1:], next_report] if known else []
        self.next_step = max((self.of(end - 1) + 1 for end in ends if end > 0), default=next_report)
        """Highest step of those attempts plus one."""

    def begin(self, first_report: int, checkpoint_report: int | None) -> int:
        """Begin an attempt; return the step of its first report.

        Args:
            first_report: Number of that report.
            checkpoint_report: Number of the report of the checkpoint that the attempt starts from;
                None without a checkpoint.
        """
        first_step = 0 if checkpoint_report is None else self.of(checkpoint_report) + 1
        self._first_reports.append(first_report)
        self._first_steps.append(first_step)
        return first_step

    def of(self, report: int) -> int:
        """Return the step of a report."""
        position = bisect_right(self._first_reports, report) - 1
        if position < 0:
            return report
        return self._first_steps[position] + report - self._first_reports[position]


class RunRecorder:
    """Record of one run, continued if the run directory has one. Not thread-safe.

    It stops writing once another recorder of the same run directory has been created (`fencing`).

    Args:
        spec: The run.
        staging: Directory for files before their upload; by default a temporary directory.

    Raises:
        ValueError: The run directory cannot be written, or its record is damaged.
        ControllerError: The latest checkpoint does not exist any more.
    """

    def __init__(self, spec: RunSpec, staging: Path | None = None) -> None:
        self._spec = spec
        self.storage = StorageContext.from_run_config(spec.run_config)
        self.storage.prepare()
        files = self.storage.files
        self._token = FencingToken(files)  # before anything is read
        self._directory = RunDirectory(files, staging=staging)
        self._scalars = ScalarWriter(files, staging=staging)
        self._media = MediaEventWriter(files)
        # The search sends the alerts of its trials.
        self._alerts = [] if is_hosted() else alerts_of(spec.run_config.callbacks)
        self._uploads = RegularUploads(self._upload) if files.local_path is None else None
        self._has_warned = False
        record = RunRecord(files)
        state = record.checkpoints()
        checkpoint_config = spec.run_config.checkpoint_config
        assert checkpoint_config is not None, "RunConfig fills checkpoint_config in"
        self.manager = CheckpointManager(checkpoint_config)
        """Checkpoints of the run; only the recorder changes them."""
        self._surplus: list[Checkpoint] = []  # no longer listed, to be deleted
        if state is not None:
            locate = self.storage.checkpoint
            self.manager = CheckpointManager.from_json(state, checkpoint_config, locate)
            self._surplus = [locate(name) for name in state.get("surplus", ())]
        self._is_listed = True  # the list in the run directory is that of the manager
        self._full_disk_errors: Mapping[int, BaseException] = {}  # of the last failed attempt
        self._forget_missing()
        self.discard_unfinished()
        self.storage.check_free_space(MINIMUM_FREE_BYTES)
        indices = [report["iteration"] for report in record.reports()] + [
            entry.index for entry in self.manager.registered
        ]
        self.next_index = max(indices, default=-1) + 1
        """Number of the run's next report."""
        earlier = list(record.events())
        attempts = [event for event in earlier if event["event"] == "attempt"]
        self.steps = StepCount(attempts, self.next_index)
        self.earlier_nodes: frozenset[str] = frozenset(
            str(worker["node_id"])
            for attempt in attempts
            for worker in attempt.get("workers", ())
            if "node_id" in worker
        )
        """Nodes that had workers before this call of `fit()`."""
        self.refused_snapshot: SnapshotId | None = max(
            (
                SnapshotId(attempt=event["attempt"], step=event["step"])
                for event in earlier
                if event["event"] == SNAPSHOTS_REFUSED
            ),
            default=None,
        )
        """Last memory snapshot from which the program could not continue, until then."""
        self.started: float = next(
            (event["run_started"] for event in earlier if "run_started" in event), time.time()
        )
        """Time when the run first started, in seconds since the epoch: identifies the run."""
        self.last_metrics: Metrics | None = None
        """Latest report of rank 0 in this call of `fit()`."""
        self._directory.write_run(
            self.storage.experiment_dir_name, spec.description(), detailed=not is_hosted()
        )
        self._directory.event(
            "started",
            continued=self.next_index > 0,
            next_report=self.next_index,
            run_started=self.started,
        )

    @property
    def latest(self) -> Checkpoint | None:
        """Checkpoint that the next attempt starts from."""
        latest = self.manager.latest
        return latest.checkpoint if latest is not None else self._spec.resume_from_checkpoint

    def event(self, event: str, **fields: Any) -> None:
        """Record an event unless another controller has taken over.

        A failed write is only logged: a full disk must not prevent an orderly end of the run.
        """
        if not self._is_fenced_locally:
            self._write_optional(lambda: self._directory.event(event, **fields))
        if event == "stalled":
            self._alert(event, None)

    def _alert(self, event: str, error: str | None) -> None:
        for alerts in self._alerts:
            alerts.send(
                event,
                run=self.storage.experiment_dir_name,
                kind="train",
                path=self.storage.experiment_fs_path,
                error=error,
            )

    @property
    def latest_report(self) -> int:
        """Number of the report of the run's latest checkpoint; -1 without one."""
        latest = self.manager.latest
        return -1 if latest is None else latest.index

    def begin_attempt(
        self, number: int, first_report: int, *, last_report: int | None = None, **fields: Any
    ) -> None:
        """Record the start of an attempt.

        Args:
            number: Number of the attempt.
            first_report: Number of its first report.
            last_report: Number of the last report before the state that the attempt starts from;
                None for that of the latest checkpoint.
            **fields: Further fields of the event.
        """
        if self._uploads is not None:
            self._uploads.start()
        before = self.latest_report if last_report is None else last_report
        first_step = self.steps.begin(first_report, before if before >= 0 else None)
        self._scalars.restart(first_step)
        self.event(
            "attempt", number=number, first_report=first_report, first_step=first_step, **fields
        )

    def check_token(self) -> None:
        """Call before `record`, once for reports that come together: each check takes as long as
        half of the rest.

        Raises:
            RuntimeError: Another controller has taken over.
        """
        if self.storage.local:  # remote records are uploaded with the next checkpoint
            self._check_token()

    def record(self, rank: int, report: Reported) -> None:
        """Record one rank's metrics.

        Raises:
            StorageFullError: The disk is full.
            OSError: The metrics cannot be written for another reason.
        """
        if rank == 0:
            self.last_metrics = report.metrics
            self._write_optional(
                lambda: self._scalars.add(self.steps.of(report.index), report.metrics, report.time)
            )
            if any(map(is_media, report.metrics.values())):
                step = self.steps.of(report.index)
                self._write_optional(lambda: self._media.add(step, report.metrics, report.time))
        has_checkpoint = report.part is not None or report.uploading
        try:
            self._directory.report(
                report.index, rank, report.metrics, report.time, wanted=has_checkpoint
            )
        except OSError as error:
            raise self._explained(error) from None

    def refuse_snapshots(self, last: SnapshotId) -> None:
        """Record that the memory snapshots up to `last` are not used any more."""
        self.event(SNAPSHOTS_REFUSED, attempt=last.attempt, step=last.step)

    def log_path(self, name: str) -> str:
        """Return a local path for a worker's log, which becomes part of the run directory."""
        return self._directory.log_path(name)

    def sample(
        self, worker: Worker, attempt: int, message: UsageReported, waited_for: float | None = None
    ) -> None:
        """Record resource usage and step times of a worker.

        Args:
            worker: The worker.
            attempt: Number of its attempt.
            message: Usage and times.
            waited_for: Share of the time that the other ranks waited for it; None if unknown.
        """
        if not self._is_fenced_locally:
            times = asdict(message.times)
            if waited_for is not None:
                times["waited_for"] = waited_for
            self._write_optional(
                lambda: self._directory.sample(
                    worker.rank, attempt, worker.pid, message.usage, times
                )
            )

    def failed(self, attempt: int, failures: Mapping[int, WorkerFailure]) -> None:
        """Record failures of ranks and remember those caused by a full disk."""
        exceptions = {rank: failure.exception for rank, failure in failures.items()}
        self._full_disk_errors = {
            rank: error
            for rank, error in exceptions.items()
            if isinstance(error, OSError) and error.errno in FULL_DISK
        }
        recorded = sorted(failures)[:RECORDED_FAILURES]
        self.event(
            "failure",
            attempt=attempt,
            ranks={rank: repr(exceptions[rank])[:LONGEST_TRACEBACK] for rank in recorded},
            tracebacks={
                rank: text[-LONGEST_TRACEBACK:]
                for rank in recorded
                if (text := failures[rank].traceback)
            },
        )

    def check_free_space(self) -> None:
        """Check before another attempt that a checkpoint that did not fit would fit now.

        No worker of this run may be writing.

        Raises:
            WorkerGroupError: It would not fit, so another attempt would fail in the same way.
        """
        if not self._full_disk_errors:
            return
        self.discard_unfinished()
        sizes = [
            error.needed_bytes
            for error in self._full_disk_errors.values()
            if isinstance(error, StorageFullError)
        ]
        try:
            self.storage.check_free_space(max(MINIMUM_FREE_BYTES, sum(sizes)))
        except ValueError as error:
            text = (
                f"{worker_failure_message(self._full_disk_errors)}\n"
                f"The run was not started again, as it would fail again: {error}"
            )
            raise WorkerGroupError(text, self._full_disk_errors) from None

    def commit(self, report: CompleteReport, validation: JsonObject | None = None) -> Checkpoint:
        """Merge the ranks' parts into a checkpoint, register it, and delete surplus checkpoints.

        Args:
            report: The report.
            validation: Arguments of its validation; None for no validation.

        Raises:
            StorageFullError: The disk is full.
            OSError: The storage failed. The checkpoint is not registered, or not yet listed.
            ValueError: Its directory would be inside another checkpoint, or contain one.
            RuntimeError: Another controller has taken over.
        """
        self._check_token()
        name = report.parts[0].dir_name
        same_name = self._registered_as(name)
        first = report.parts[0].staged or name
        if self._spec.metadata:
            self.storage.checkpoint(first).update_metadata(dict(self._spec.metadata))
        for rank, states in report.states.items():
            self.storage.write_states(first, rank, states)
        faults.reach("train.before_commit")
        checkpoint = self.storage.commit(
            name,
            [part.staged or part.dir_name for part in report.parts],
            beside=any(entry.pending for entry in same_name),
        )
        faults.reach("train.after_commit")
        surplus = self.manager.register(
            report.index,
            checkpoint,
            report.metrics[0] or {},
            validation=validation,
            replaces=[entry.checkpoint for entry in same_name],
        )
        self._surplus = [other for other in self._surplus if other != checkpoint]
        self._store(surplus, confirm=checkpoint)
        self.event("checkpoint", report=report.index, name=self.storage.name_of(checkpoint))
        self._directory.flush()
        self._write_optional(self._scalars.flush)
        return checkpoint

    def validated(self, index: int, metrics: Metrics | None, *, timed_out: bool = False) -> None:
        """Record the end of a validation, like `CheckpointManager.settle_validation`.

        Raises:
            RuntimeError: Another controller has taken over.
        """
        self._check_token()
        self._store(self.manager.settle_validation(index, metrics, timed_out=timed_out))
        self._directory.flush()

    def discard_unfinished(self) -> None:
        """Delete parts of checkpoints that an earlier attempt left unfinished.

        No worker of this run may be writing.
        """
        if self._token.is_superseded:
            return
        try:
            if not self._is_listed:  # the list decides which checkpoints are kept
                self._write_list()
            self.storage.discard_staged(
                keep=[self._name(entry.checkpoint) for entry in self.manager.registered]
            )
        except OSError as error:  # the next attempt or the next run of this name tries again
            logger.warning(
                "Unfinished checkpoints in %s could not be deleted: %s",
                self.storage.experiment_fs_path,
                error,
            )
        self._delete_surplus()

    def close(self, status: str, error: str | None = None) -> None:
        """Record the outcome unless another controller has taken over.

        Raises:
            OSError: The outcome of a finished run cannot be written. For a run that ends with an
                error, this is only logged.
        """
        if self._uploads is not None:
            self._uploads.close()
        if self._token.is_superseded:
            self._directory.abandon()
            self._scalars.close(keep=False)
            self._media.close()
            return
        self._write_optional(self._scalars.close)
        self._media.close()
        self.discard_unfinished()
        self.event(status)
        try:
            self._directory.write_outcome(status, error)
            self._directory.close()
            self._alert(status, error)
        except OSError as problem:
            if error is None:
                raise self._explained(problem) from None
            logger.warning(
                "The outcome of the run could not be written to %s: %s",
                self.storage.experiment_fs_path,
                problem,
            )

    def _upload(self) -> None:
        """Upload the record; called on a separate thread."""
        if not self._token.is_superseded:
            self._directory.flush()
            self._scalars.flush()

    @property
    def _is_fenced_locally(self) -> bool:
        """True if lines written now would mix with those of another controller. Uploads to a remote
        filesystem check the token themselves.
        """
        return self.storage.local and self._token.is_superseded

    def _write_optional(self, write: Callable[[], None]) -> None:
        """Write data that is only displayed; a failure is logged once and does not end the run."""
        try:
            write()
        except Exception as error:  # for example a metric name that no file can hold
            if not self._has_warned:
                self._has_warned = True
                logger.warning(
                    "The record of the run in %s will be incomplete, a write failed: %s",
                    self.storage.experiment_fs_path,
                    error,
                )

    def _explained(self, error: OSError) -> OSError:
        """Return the error, with cause and remedy if the disk is full."""
        if error.errno not in FULL_DISK or isinstance(error, StorageFullError):
            return error
        message = (
            "The record of the run (metrics, list of checkpoints) does not fit on the disk of "
            f"{self.storage.experiment_fs_path!r} ({error.strerror}), so the run has ended. "
            "Everything written before is complete. Free some space, or copy the run to a larger "
            "disk. Then start the run again under the same name to continue from its latest "
            "checkpoint."
        )
        return StorageFullError(error.errno, message, MINIMUM_FREE_BYTES)

    def _check_token(self) -> None:
        if self._token.is_superseded:
            raise RuntimeError(
                "Another controller has taken over the run in "
                f"{self.storage.experiment_fs_path!r}, or the directory was deleted. This "
                "controller stops and has written nothing since. The other program has the result "
                "of the run; programs that train at the same time need different names."
            )

    def _registered_as(self, name: str) -> list[Registered]:
        """Return the checkpoints reported under this name.

        Raises:
            ValueError: The name is inside that of another checkpoint, or contains it.
        """
        same_name = []
        for entry in self.manager.registered:
            other = reported_name(self._name(entry.checkpoint))
            if other == name:
                same_name.append(entry)
            elif other.startswith(f"{name}/") or name.startswith(f"{other}/"):
                raise ValueError(
                    f"report(checkpoint_dir_name={name!r}): the run has a checkpoint {other!r}, "
                    "and one cannot be inside another, because each is replaced and deleted as a "
                    f"whole. Use a separate name, such as {name.replace('/', '_') + '_last'!r}."
                )
        return same_name

    def _name(self, checkpoint: Checkpoint) -> str:
        """Return `StorageContext.name_of` without its checks, as it is called often."""
        return checkpoint.path[len(self.storage.experiment_fs_path) + 1 :]

    def _forget_missing(self) -> None:
        """Unregister checkpoints that a user has deleted; check only the latest if remote.

        Raises:
            ControllerError: The latest checkpoint is missing, so the run would repeat its work.
        """
        latest = self.manager.latest
        if latest is not None and not self.storage.exists(latest.checkpoint):
            others = [
                each.checkpoint.path for each in self.manager.registered if each is not latest
            ]
            remedy = f" and `resume_from_checkpoint=Checkpoint({others[-1]!r})`" if others else ""
            raise ControllerError(
                FileNotFoundError(
                    f"the latest checkpoint of the run, {latest.checkpoint.path}, does not exist "
                    "any more. Restore the directory, or start a run with another "
                    f"`RunConfig(name=…)`{remedy}."
                )
            )
        for entry in reversed(self.manager.registered):
            if self.storage.exists(entry.checkpoint):
                if not self.storage.local:
                    return
                continue
            logger.warning(
                "The checkpoint %s is listed but does not exist any more; the run continues "
                "without it",
                entry.checkpoint.path,
            )
            self.manager.forget(entry.index)
            self._is_listed = False

    def _store(self, surplus: list[Checkpoint], confirm: Checkpoint | None = None) -> None:
        """Write the list, then delete the checkpoints that it does not name any more."""
        self._surplus += surplus
        self._write_list()
        faults.reach("train.listed")
        if confirm is not None:
            self.storage.confirm(confirm)
            faults.reach("train.confirmed")
        self._delete_surplus()

    def _write_list(self) -> None:
        self._is_listed = False
        state = self.manager.to_json(self._name)
        surplus = [self._name(checkpoint) for checkpoint in self._surplus]
        try:
            self._directory.write_checkpoints({**state, "surplus": surplus})
        except OSError as error:
            raise self._explained(error) from None
        self._is_listed = True

    def _delete_surplus(self) -> None:
        remaining = []
        for checkpoint in self._surplus:
            try:
                self.storage.delete(checkpoint)
                faults.reach("train.surplus_deleted")
            except OSError as error:  # the next commit or the next start tries again
                logger.warning(
                    "The surplus checkpoint %s could not be deleted yet: %s", checkpoint.path, error
                )
                remaining.append(checkpoint)
        self._surplus = remaining
