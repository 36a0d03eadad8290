"""What the controller writes down: reports, committed checkpoints, events, the outcome. Everything
that survives the program.

A checkpoint is committed in this order: its files become visible under their name, marked as
unfinished; the list of checkpoints names it, and those that are to be deleted; the mark goes; what
is to be deleted is deleted. A kill between two steps leaves a list of whole checkpoints, and rests
that a mark or the list tell, so that the next start deletes them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from syncline import faults
from syncline.runs import RunDirectory, RunRecord
from syncline.runs.sending import RegularUploads
from syncline.runs.tensorboard import ScalarWriter
from syncline.train.backend import Worker
from syncline.train.checkpoint import Checkpoint
from syncline.train.controller.barriers import CompleteReport
from syncline.train.controller.checkpoints import CheckpointManager, Registered
from syncline.train.controller.events import WorkerFailure
from syncline.train.controller.steps import StepCount
from syncline.train.controller.tenure import Tenure
from syncline.train.errors import WorkerGroupError, worker_failure_message
from syncline.train.storage import (
    FULL_DISK,
    MINIMUM_FREE_BYTES,
    StorageContext,
    StorageFullError,
    asked_name,
)
from syncline.train.workers.messages import Reported, Spent
from syncline.train.workers.placement import is_hosted
from syncline.train.workers.spec import RunSpec

logger = logging.getLogger("syncline")

TOLD_FAILURES = 16
"""Of so many ranks the record tells how they failed."""
LONGEST_TRACEBACK = 20_000
"""Characters of each that are kept."""


class Ledger:
    """The record of one run, continued if the run directory has one. Not safe for use from several
    threads.

    Where another ledger of the same run directory has been made later, this one writes no more.

    Args:
        spec: The run. staging: Where what lies elsewhere in the end is collected first; the
        system's temporary directory by default.

    Raises:
        ValueError: The run directory cannot be written, or its record is damaged.
    """

    def __init__(self, spec: RunSpec, staging: Path | None = None) -> None:
        self._spec = spec
        self.storage = StorageContext.from_run_config(spec.run_config)
        self.storage.prepare()
        files = self.storage.files
        self._tenure = Tenure(files)  # first of all: what is read below stays as it is
        self._directory = RunDirectory(files, staging=staging)
        self._scalars = ScalarWriter(files, staging=staging)
        self._uploads = RegularUploads(self._upload) if files.local_path is None else None
        self._has_told_of_gaps = False
        record = RunRecord(files)
        state = record.checkpoints()
        checkpoint_config = spec.run_config.checkpoint_config
        assert checkpoint_config is not None, "RunConfig fills checkpoint_config in"
        self._manager = CheckpointManager(checkpoint_config)
        self._surplus: list[Checkpoint] = []  # not listed any more, to be deleted
        if state is not None:
            self._manager = CheckpointManager.from_json(
                state, checkpoint_config, self.storage.checkpoint
            )
            self._surplus = [self.storage.checkpoint(name) for name in state.get("surplus", ())]
        self._is_listed = True  # whether the list in the run directory says what the manager says
        self._found_no_room: Mapping[
            int, BaseException
        ] = {}  # the last failures of ranks, if that was the reason
        self._forget_missing()
        self.discard_unfinished()
        self.storage.check_room(MINIMUM_FREE_BYTES)
        iterations = [report["iteration"] for report in record.reports()] + [
            entry.index for entry in self._manager.registered
        ]
        self.next_index = max(iterations, default=-1) + 1
        """The number of the run's next report."""
        self.steps = StepCount(
            (event for event in record.events() if event["event"] == "attempt"), self.next_index
        )
        """Which step each report is."""
        self.last_metrics: Mapping[str, Any] | None = None
        """Rank 0's latest report in this call of `fit()`."""
        self._directory.write_run(
            self.storage.experiment_dir_name, spec.description(), detailed=not is_hosted()
        )
        self._directory.event("started", continued=self.next_index > 0, next_report=self.next_index)

    @property
    def latest(self) -> Checkpoint | None:
        """The checkpoint from which an attempt begins."""
        latest = self._manager.latest
        return latest.checkpoint if latest is not None else self._spec.resume_from_checkpoint

    @property
    def manager(self) -> CheckpointManager:
        """The checkpoints that the run has; changed through the ledger only."""
        return self._manager

    def event(self, event: str, **fields: Any) -> None:
        """Write down that something happened, unless another controller has taken over. Where there
        is no room for it, it is not told: the run must come to its end, and be it an orderly one
        for that reason.
        """
        if not self._is_superseded_here:
            self._besides(lambda: self._directory.event(event, **fields))

    def begin_attempt(self, number: int, first_report: int, **fields: Any) -> None:
        """Write down that an attempt begins; `first_report` is the number of its first report."""
        if self._uploads is not None:
            self._uploads.start()
        latest = self._manager.latest
        first_step = self.steps.begin(first_report, latest.index if latest is not None else None)
        self._scalars.restart(first_step)
        self.event(
            "attempt", number=number, first_report=first_report, first_step=first_step, **fields
        )

    def record(self, rank: int, report: Reported) -> None:
        """Write down one rank's metrics.

        Raises:
            StorageFullError: The disk is full.
            OSError: They cannot be written for another reason.
            RuntimeError: Another controller has taken over.
        """
        if (
            self.storage.local
        ):  # elsewhere, what is written here leaves this machine with the next checkpoint
            self._check_tenure()
        if rank == 0:
            self.last_metrics = report.metrics
            self._besides(
                lambda: self._scalars.add(self.steps.of(report.index), report.metrics, report.time)
            )
        has_checkpoint = report.part is not None or report.uploading
        try:
            self._directory.report(
                report.index, rank, report.metrics, report.time, wanted=has_checkpoint
            )
        except OSError as error:
            raise self._told(error) from None

    def log_path(self, name: str) -> str:
        """A file of this machine for what a worker prints; it ends in the run directory."""
        return self._directory.log_path(name)

    def sample(self, worker: Worker, attempt: int, spent: Spent) -> None:
        """Write down what a worker's process uses, and where its time has gone."""
        if not self._is_superseded_here:
            self._besides(
                lambda: self._directory.sample(
                    worker.rank, attempt, worker.pid, spent.usage, asdict(spent.times)
                )
            )

    def failed(self, attempt: int, failures: Mapping[int, WorkerFailure]) -> None:
        """Write down that ranks have failed, and remember those that found no room on the disk."""
        exceptions = {rank: failure.exception for rank, failure in failures.items()}
        self._found_no_room = {
            rank: error
            for rank, error in exceptions.items()
            if isinstance(error, OSError) and error.errno in FULL_DISK
        }
        told = sorted(failures)[:TOLD_FAILURES]
        self.event(
            "failure",
            attempt=attempt,
            ranks={rank: repr(exceptions[rank])[:LONGEST_TRACEBACK] for rank in told},
            tracebacks={
                rank: text[-LONGEST_TRACEBACK:]
                for rank in told
                if (text := failures[rank].traceback)
            },
        )

    def check_room(self) -> None:
        """Before another attempt: see that a checkpoint which did not fit would fit now. No worker
        of this run may be writing.

        Raises:
            WorkerGroupError: It would not, so that another attempt would end as this one did.
        """
        if not self._found_no_room:
            return
        self.discard_unfinished()
        sizes = [
            error.needed_bytes
            for error in self._found_no_room.values()
            if isinstance(error, StorageFullError)
        ]
        try:
            self.storage.check_room(max(MINIMUM_FREE_BYTES, sum(sizes)))
        except ValueError as error:
            text = f"{worker_failure_message(self._found_no_room)}\nThe run was not started again, as that would fail again: {error}"
            raise WorkerGroupError(text, self._found_no_room) from None

    def commit(
        self, report: CompleteReport, *, validate: bool, validation_kwargs: dict[str, Any] | None
    ) -> Registered:
        """Make the ranks' parts one checkpoint, register it, and delete what need not be kept any
        more.

        Raises:
            StorageFullError: The disk is full. OSError: The storage refused; the checkpoint is not
            registered, or the list of checkpoints does not say so yet. ValueError: Its directory
            would lie in that of another checkpoint, or around it. RuntimeError: Another controller
            has taken over.
        """
        self._check_tenure()
        name = report.parts[0].dir_name
        namesakes = self._namesakes(name)
        if self._spec.metadata:
            first = self.storage.checkpoint(report.parts[0].staged or name)
            first.update_metadata(dict(self._spec.metadata))
        for rank, states in report.states.items():
            self.storage.write_states(report.parts[0].staged or name, rank, states)
        faults.reach("train.before_commit")
        checkpoint = self.storage.commit(
            name,
            [part.staged or part.dir_name for part in report.parts],
            beside=any(entry.pending for entry in namesakes),
        )
        faults.reach("train.after_commit")
        surplus = self._manager.register(
            report.index,
            checkpoint,
            report.metrics[0] or {},
            validate=validate,
            validation_kwargs=validation_kwargs,
            replaces=[entry.checkpoint for entry in namesakes],
        )
        self._surplus = [other for other in self._surplus if other != checkpoint]
        self._store(surplus, confirm=checkpoint)
        self.event("checkpoint", report=report.index, name=self.storage.name_of(checkpoint))
        self._directory.flush()
        self._besides(self._scalars.flush)
        latest = self._manager.latest
        assert latest is not None, "one was just registered"
        return latest

    def validated(self, index: int, metrics: Mapping[str, Any]) -> None:
        """A validation has returned `metrics`. RuntimeError where another controller has taken
        over.
        """
        self._check_tenure()
        if self._is_registered(index):
            self._store(self._manager.finish_validation(index, metrics))
            self._directory.flush()

    def validation_failed(self, index: int, *, timed_out: bool) -> None:
        """A validation has raised or has taken too long. RuntimeError where another controller has
        taken over.
        """
        self._check_tenure()
        if self._is_registered(index):
            self._store(self._manager.fail_validation(index, timed_out=timed_out))
            self._directory.flush()

    def discard_unfinished(self) -> None:
        """Delete parts of checkpoints that an attempt left behind. No worker of this run may be
        writing.
        """
        if self._tenure.is_over:
            return
        try:
            if (
                not self._is_listed
            ):  # what the list names must not be deleted, and nothing be kept that it does not name
                self._write_list()
            self.storage.discard_staged(
                keep=[self._name(entry.checkpoint) for entry in self._manager.registered]
            )
        except OSError as error:  # the next attempt, or the next run of this name, tries again
            logger.warning(
                "unfinished checkpoints in %s cannot be deleted: %s",
                self.storage.experiment_fs_path,
                error,
            )
        self._delete_surplus()

    def close(self, status: str, error: str | None = None) -> None:
        """Write down how the run ended, unless it is another controller's by now.

        Raises:
            OSError: A run that has finished cannot be recorded. One that ends with an error has
            that to tell, and this is only logged.
        """
        if self._uploads is not None:
            self._uploads.close()
        if self._tenure.is_over:
            self._directory.abandon()
            self._scalars.close(keep=False)
            return
        self._besides(self._scalars.close)
        self.discard_unfinished()
        self.event(status)
        try:
            self._directory.write_outcome(status, error)
            self._directory.close()
        except OSError as problem:
            if error is None:
                raise self._told(problem) from None
            logger.warning(
                "how the run ended cannot be written to %s: %s",
                self.storage.experiment_fs_path,
                problem,
            )

    def _upload(self) -> None:
        """On a thread of its own."""
        if not self._tenure.is_over:
            self._directory.flush()
            self._scalars.flush()

    @property
    def _is_superseded_here(self) -> bool:
        """Whether lines written now would come between those of another controller. Elsewhere they
        are uploaded only after a look.
        """
        return self.storage.local and self._tenure.is_over

    def _besides(self, write: Callable[[], None]) -> None:
        """Write what people look at, and no run needs to go on: a failure is no reason to end
        it.
        """
        try:
            write()
        except Exception as error:  # a metric whose name no file can hold, for instance
            if not self._has_told_of_gaps:
                self._has_told_of_gaps = True
                logger.warning(
                    "what is shown of %s will lack something, it cannot be written: %s",
                    self.storage.experiment_fs_path,
                    error,
                )

    def _told(self, error: OSError) -> OSError:
        """The same error; where the disk is full, one that says whose, and what to do."""
        if error.errno not in FULL_DISK or isinstance(error, StorageFullError):
            return error
        path = self.storage.experiment_fs_path
        message = (
            f"The record of the run (its metrics, its list of checkpoints) does not fit on the disk of {path!r} ({error.strerror}), so the "
            "run has ended; what was written before is whole. Free some room, or copy the run to a larger disk; then start the run under "
            "the same name again, and it goes on from its latest checkpoint."
        )
        return StorageFullError(error.errno, message, MINIMUM_FREE_BYTES)

    def _check_tenure(self) -> None:
        if self._tenure.is_over:
            raise RuntimeError(
                f"another controller has taken over the run in {self.storage.experiment_fs_path!r}, or the directory was deleted: this "
                "one stops, and has written nothing since. The other one's program has the run's result; two programs that are to train "
                "at the same time need different names."
            )

    def _namesakes(self, name: str) -> list[Registered]:
        """The registered checkpoints that were reported under this name; ValueError where it cannot
        be one beside the others.
        """
        namesakes = []
        for entry in self._manager.registered:
            other = asked_name(self._name(entry.checkpoint))
            if other == name:
                namesakes.append(entry)
            elif other.startswith(f"{name}/") or name.startswith(f"{other}/"):
                raise ValueError(
                    f"report(checkpoint_dir_name={name!r}): the run has a checkpoint {other!r}, and one cannot lie in another, because "
                    "each is replaced and deleted as a whole. Give names of which none is the beginning of another, such as "
                    f"{name.replace('/', '_') + '_last'!r}."
                )
        return namesakes

    def _name(self, checkpoint: Checkpoint) -> str:
        """As `StorageContext.name_of`, of one that is known to be the run's: asked for every one
        with every commit.
        """
        return checkpoint.path[len(self.storage.experiment_fs_path) + 1 :]

    def _is_registered(self, index: int) -> bool:
        """Whether the checkpoint of that report is still in the list; a newer one of the same place
        may have taken its place.
        """
        return any(entry.index == index for entry in self._manager.registered)

    def _forget_missing(self) -> None:
        """Drop checkpoints that somebody has deleted, for room perhaps; elsewhere than on this
        machine, look at the latest only.
        """
        for entry in reversed(self._manager.registered):
            if self.storage.exists(entry.checkpoint):
                if not self.storage.local:
                    return
                continue
            logger.warning(
                "the checkpoint %s is listed but is not there any more; the run goes on without it",
                entry.checkpoint.path,
            )
            self._manager.forget(entry.index)
            self._is_listed = False

    def _store(self, surplus: list[Checkpoint], confirm: Checkpoint | None = None) -> None:
        """Write the list, then delete what it does not name any more."""
        self._surplus += surplus
        self._write_list()
        faults.reach("train.listed")
        if confirm is not None:
            self.storage.confirm(confirm)
            faults.reach("train.confirmed")
        self._delete_surplus()

    def _write_list(self) -> None:
        self._is_listed = False
        state = self._manager.to_json(self._name)
        try:
            self._directory.write_checkpoints(
                {**state, "surplus": [self._name(checkpoint) for checkpoint in self._surplus]}
            )
        except OSError as error:
            raise self._told(error) from None
        self._is_listed = True

    def _delete_surplus(self) -> None:
        left = []
        for checkpoint in self._surplus:
            try:
                self.storage.delete(checkpoint)
                faults.reach("train.surplus_deleted")
            except OSError as error:  # the next commit tries again, and the next start
                logger.warning(
                    "the checkpoint %s is not kept any more but cannot be deleted yet: %s",
                    checkpoint.path,
                    error,
                )
                left.append(checkpoint)
        self._surplus = left
