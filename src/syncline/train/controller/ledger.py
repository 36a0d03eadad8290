"""What the controller writes down: reports, committed checkpoints, events, the outcome. Everything that survives the program.

A checkpoint is committed in this order: its files become visible under their name, the list of checkpoints says so, surplus ones
are deleted. A kill between two steps leaves a whole checkpoint that is listed or is not, never a listed one that is not whole.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from syncline import faults
from syncline.runs import RunDirectory, RunRecord
from syncline.train.checkpoint import Checkpoint
from syncline.train.controller.barriers import CompleteReport
from syncline.train.controller.checkpoints import CheckpointManager, Registered
from syncline.train.controller.tenure import Tenure
from syncline.train.storage import StorageContext
from syncline.train.workers.messages import Reported
from syncline.train.workers.spec import RunSpec

logger = logging.getLogger("syncline")


class Ledger:
    """The record of one run, continued if the run directory has one. Not safe for use from several threads.

    Where another ledger of the same run directory has been made later, this one writes no more.

    Raises:
        ValueError: The run directory cannot be written, or its record is damaged.
    """

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self.storage = StorageContext.from_run_config(spec.run_config)
        self.storage.prepare()
        files = self.storage.files
        self._tenure = Tenure(files)  # first of all: what is read below stays as it is
        record = RunRecord(files)
        state = record.checkpoints()
        checkpoint_config = spec.run_config.checkpoint_config
        assert checkpoint_config is not None, "RunConfig fills checkpoint_config in"
        self._manager = CheckpointManager(checkpoint_config)
        if state is not None:
            self._manager = CheckpointManager.from_json(state, checkpoint_config, self.storage.checkpoint)
        self.discard_unfinished()
        iterations = [report["iteration"] for report in record.reports()] + [entry.index for entry in self._manager.registered]
        self.next_index = max(iterations, default=-1) + 1
        """The number of the run's next report."""
        self.last_metrics: Mapping[str, Any] | None = None
        """Rank 0's latest report in this call of `fit()`."""
        self._directory = RunDirectory(files)
        self._directory.write_run(self.storage.experiment_dir_name, spec.description())
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

    def event(self, name: str, **fields: Any) -> None:
        """Write down that something happened."""
        self._directory.event(name, **fields)

    def record(self, rank: int, report: Reported) -> None:
        """Write down one rank's metrics. RuntimeError where another controller has taken over."""
        if self.storage.local:  # elsewhere, what is written here leaves this machine with the next checkpoint
            self._check_tenure()
        if rank == 0:
            self.last_metrics = report.metrics
        self._directory.report(report.index, rank, report.metrics, report.time)

    def log_path(self, name: str) -> str:
        """A file of this machine for what a worker prints; it ends in the run directory."""
        return self._directory.log_path(name)

    def commit(self, report: CompleteReport, *, validate: bool, validation_kwargs: dict[str, Any] | None) -> Registered:
        """Make the ranks' parts one checkpoint, register it, and delete what need not be kept any more.

        Raises:
            OSError: The storage refused; the checkpoint is not registered.
            RuntimeError: Another controller has taken over.
        """
        self._check_tenure()
        name = report.parts[0].dir_name
        if self._spec.metadata:
            first = self.storage.checkpoint(report.parts[0].staged or name)
            first.update_metadata(dict(self._spec.metadata))
        faults.reach("train.before_commit")
        checkpoint = self.storage.commit(name, [part.staged or part.dir_name for part in report.parts])
        faults.reach("train.after_commit")
        surplus = self._manager.register(
            report.index, checkpoint, report.metrics[0] or {}, validate=validate, validation_kwargs=validation_kwargs
        )
        self._directory.event("checkpoint", report=report.index, name=name)
        self._store(surplus)
        latest = self._manager.latest
        assert latest is not None, "one was just registered"
        return latest

    def validated(self, index: int, metrics: Mapping[str, Any]) -> None:
        """A validation has returned `metrics`. RuntimeError where another controller has taken over."""
        self._check_tenure()
        self._store(self._manager.finish_validation(index, metrics))

    def validation_failed(self, index: int, *, timed_out: bool) -> None:
        """A validation has raised or has taken too long. RuntimeError where another controller has taken over."""
        self._check_tenure()
        self._store(self._manager.fail_validation(index, timed_out=timed_out))

    def discard_unfinished(self) -> None:
        """Delete parts of checkpoints that an attempt left behind. No worker of this run may be writing."""
        if self._tenure.is_over:
            return
        try:
            self.storage.discard_staged(keep=[self.storage.name_of(entry.checkpoint) for entry in self._manager.registered])
        except OSError as error:  # the next attempt, or the next run of this name, tries again
            logger.warning("unfinished checkpoints in %s cannot be deleted: %s", self.storage.experiment_fs_path, error)

    def close(self, status: str, error: str | None = None) -> None:
        """Write down how the run ended, unless it is another controller's by now."""
        if self._tenure.is_over:
            self._directory.abandon()
            return
        self.discard_unfinished()
        self._directory.event(status)
        self._directory.write_outcome(status, error)
        self._directory.close()

    def _check_tenure(self) -> None:
        if self._tenure.is_over:
            raise RuntimeError(
                f"another controller has taken over the run in {self.storage.experiment_fs_path!r}, or the directory was deleted: this "
                "one stops, and has written nothing since. The other one's program has the run's result; two programs that are to train "
                "at the same time need different names."
            )

    def _store(self, surplus: list[Checkpoint]) -> None:
        self._directory.write_checkpoints(self._manager.to_json(self.storage.name_of))
        for checkpoint in surplus:
            try:
                self.storage.delete(checkpoint)
            except OSError as error:  # it is forgotten all the same; only its space is not freed
                logger.warning("the checkpoint %s is not kept any more but cannot be deleted: %s", checkpoint.path, error)
        self._directory.flush()
