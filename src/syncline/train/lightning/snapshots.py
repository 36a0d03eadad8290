"""Memory snapshots of Lightning's `Trainer`, after each optimizer step.

A snapshot has everything that `Trainer.save_checkpoint` writes, and is restored as
`trainer.fit(ckpt_path=…)` restores a file. `prepare_trainer` adds both if the run takes automatic
snapshots. Covered: `RayDDPStrategy`. Not covered: sharded strategies, whose checkpoints consist of
files, and gradients that are accumulated since the last optimizer step.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from syncline.train.lightning.loaders import Trainer
from syncline.train.lightning.step_callback import StepCallback
from syncline.train.session import automatic_snapshots, current_session, get_session

logger = logging.getLogger("syncline")

SNAPSHOT_PATH = "memory snapshot"
"""Path of the snapshot in calls of Lightning's methods; not a file."""


def follow_trainer(trainer: Trainer) -> None:
    """Take snapshots of a trainer, and start it from the snapshot of this attempt, if the run has
    automatic snapshots.
    """
    session = current_session()
    snapshots = automatic_snapshots(session)
    if session is None or snapshots is None:
        return
    if not isinstance(trainer.strategy, SnapshotStrategy):
        if session.world_rank == 0:
            logger.warning(
                "`RunConfig(snapshot=…)` takes no memory snapshots of a Trainer with the strategy "
                "%s, only with `RayDDPStrategy`: restarts continue from the last checkpoint.",
                type(trainer.strategy).__name__,
            )
        return
    if any(isinstance(each, SnapshotCallback) for each in trainer.callbacks):
        return
    # The last callback: a report of the same step comes before the snapshot.
    trainer.callbacks.append(SnapshotCallback())
    if snapshots.spec.resume_step is not None:
        trainer.ckpt_path = SNAPSHOT_PATH


class SnapshotCallback(StepCallback):
    """Takes a snapshot after each optimizer step, and after the validation of each epoch."""

    def after_step(self, trainer: Trainer) -> None:
        """Take a snapshot; that of the last step of an epoch follows at its end."""
        _take(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: object) -> None:
        """Take a snapshot."""
        _take(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: object) -> None:
        """Let later calls of the trainer's methods use other checkpoints."""
        if trainer.ckpt_path == SNAPSHOT_PATH:
            trainer.ckpt_path = None


def _take(trainer: Trainer) -> None:
    snapshots = get_session("lightning").snapshots
    assert snapshots is not None
    if snapshots.advance_automatic():
        trainer.save_checkpoint(SNAPSHOT_PATH)


class SnapshotStrategy:
    """Mixin for strategies whose checkpoints are one state that every rank has."""

    def save_checkpoint(
        self, checkpoint: Mapping[str, Any], filepath: Any, storage_options: Any = None
    ) -> None:
        """Write a file, or take a snapshot."""
        if filepath != SNAPSHOT_PATH:
            super().save_checkpoint(  # type: ignore[misc]
                checkpoint, filepath, storage_options=storage_options
            )
            return
        session = get_session("lightning")
        assert session.snapshots is not None
        session.snapshots.take_automatic(
            dict(checkpoint), session.readers.capture(), session.next_report
        )

    def load_checkpoint(self, checkpoint_path: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the state of the snapshot that the attempt starts from, which is newer than every
        file, or that of a file.
        """
        snapshots = get_session("lightning").snapshots
        state = None if snapshots is None else snapshots.automatic_state()
        if state is not None:
            return state
        return super().load_checkpoint(checkpoint_path, *args, **kwargs)  # type: ignore[misc]
