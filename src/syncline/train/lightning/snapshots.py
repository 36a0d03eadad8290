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

from syncline.train.lightning.library import pl
from syncline.train.lightning.loaders import Trainer
from syncline.train.session import TrainSession, current_session, get_session

logger = logging.getLogger("syncline")

SNAPSHOT_PATH = "memory snapshot"
"""Path that stands for the snapshot in calls of Lightning's methods."""


def follow_trainer(trainer: Trainer) -> None:
    """Take snapshots of a trainer, and start it from the snapshot of this attempt, if the run has
    automatic snapshots.
    """
    session = current_session()
    snapshots = None if session is None else session.snapshots
    if session is None or snapshots is None or not snapshots.spec.is_automatic:
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


class SnapshotCallback(pl.Callback):
    """Takes a snapshot after each optimizer step, and after the validation of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self._last_step = 0

    def on_train_start(self, trainer: Trainer, pl_module: object) -> None:
        """Start counting at the step from which training resumes."""
        self._last_step = trainer.global_step

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: object, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Take a snapshot after a step; the last one of an epoch belongs to its end."""
        stepped = trainer.global_step != self._last_step
        self._last_step = trainer.global_step
        if stepped and not trainer.is_last_batch:
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
    assert snapshots.spec.config is not None
    if snapshots.advance(snapshots.spec.config.every_s):
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
        session: TrainSession = get_session("lightning")
        snapshots = session.snapshots
        if snapshots is not None and snapshots.spec.is_automatic:
            state = snapshots.automatic_state()
            if state is not None:
                return state
        return super().load_checkpoint(checkpoint_path, *args, **kwargs)  # type: ignore[misc]
