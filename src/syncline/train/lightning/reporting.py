"""`RayTrainReportCallback`: Lightning's own checkpoints and metrics as reports of the run.

A checkpoint has one entry, `CHECKPOINT_NAME`: what `Trainer.save_checkpoint` writes, a file or
(sharded strategies) a directory. Every rank of a node saves into one directory, which the node's
first rank reports; the others report an empty one, so that their places in the data are kept too.
"""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
import tempfile
from functools import cache
from typing import Any

from syncline.train.checkpoint import Checkpoint, CheckpointUploadMode
from syncline.train.config import ValidationTaskConfig
from syncline.train.lightning.library import pl
from syncline.train.session import TrainSession, get_session, report


class RayTrainReportCallback(pl.Callback):
    """Reports `trainer.callback_metrics`, with `epoch` and `step`, and a checkpoint: at the end of
    every epoch, after its validation.

    `trainer.fit(..., ckpt_path=os.path.join(directory, RayTrainReportCallback.CHECKPOINT_NAME))`
    continues from `directory`, the files of a checkpoint.

    Args:
        checkpoint_upload_mode: as for `report`; SYNC if None.
        validation: as for `report`.
        every_n_train_steps: report after every so many optimizer steps too; an epoch that takes
            hours then need not be repeated.
    """

    CHECKPOINT_NAME = "checkpoint.ckpt"

    def __init__(
        self,
        checkpoint_upload_mode: CheckpointUploadMode | None = None,
        validation: bool | ValidationTaskConfig = False,
        *,
        every_n_train_steps: int | None = None,
    ) -> None:
        super().__init__()
        if every_n_train_steps is not None and every_n_train_steps < 1:
            raise ValueError(
                f"`every_n_train_steps={every_n_train_steps}` is no number of steps: give at least 1, or None."
            )
        self.checkpoint_upload_mode = checkpoint_upload_mode or CheckpointUploadMode.SYNC
        self.validation = validation
        self.every_n_train_steps = every_n_train_steps
        self._last_step = 0

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Called by Lightning before anything is saved."""
        session = get_session("lightning.RayTrainReportCallback")
        if session.local_rank == 0 and not session.local_mode:
            _delete_leftovers(_prefix(session))

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Count from the checkpoint that training continues from."""
        self._last_step = trainer.global_step

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Report if it is time, and no end of an epoch, which is reported anyway."""
        # Between two optimizer steps there are gradients, which no checkpoint holds.
        stepped = trainer.global_step != self._last_step
        self._last_step = trainer.global_step
        if (
            self.every_n_train_steps
            and stepped
            and trainer.global_step % self.every_n_train_steps == 0
            and not trainer.is_last_batch
        ):
            self._report(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Report."""
        self._report(trainer)

    def _report(self, trainer: Any) -> None:
        session = get_session("lightning.RayTrainReportCallback")
        mine = tempfile.mkdtemp(prefix=_prefix(session))
        directory = trainer.strategy.broadcast(mine)
        os.makedirs(directory, exist_ok=True)  # on another node
        trainer.save_checkpoint(
            os.path.join(directory, self.CHECKPOINT_NAME), weights_only=False
        )  # returns when all ranks have saved
        if session.local_rank == 0 and directory != mine:
            os.rmdir(mine)
            mine = directory
        metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
        report(
            {**metrics, "epoch": trainer.current_epoch, "step": trainer.global_step},
            Checkpoint.from_directory(mine),
            checkpoint_upload_mode=self.checkpoint_upload_mode,
            delete_local_checkpoint_after_upload=True,
            validation=self.validation,
        )


@cache  # once per process: later, what begins so may be in use
def _delete_leftovers(prefix: str) -> None:
    """Delete the temporary directories that workers of earlier attempts have left, killed while
    they saved.
    """
    for left in glob.glob(os.path.join(tempfile.gettempdir(), f"{prefix}*")):
        shutil.rmtree(left, ignore_errors=True)


def _prefix(session: TrainSession) -> str:
    """How the names of this run's temporary directories begin."""
    place = "local" if session.local_mode else session.storage.experiment_fs_path
    return f"syncline-lightning-{hashlib.sha256(place.encode()).hexdigest()[:16]}-"
