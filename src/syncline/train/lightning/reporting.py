"""`RayTrainReportCallback`: reports metrics and checkpoints of Lightning.

A checkpoint has one entry, `CHECKPOINT_NAME`: a file or, with sharded strategies, a directory, as
`Trainer.save_checkpoint` writes it. All ranks of a node save into one directory, which the first
rank of the node reports. The others report an empty directory, so that their resume states are
stored too.
"""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
import tempfile
from functools import cache

from syncline.train.checkpoint import Checkpoint, CheckpointUploadMode
from syncline.train.config import ValidationTaskConfig
from syncline.train.lightning.loaders import Trainer
from syncline.train.lightning.step_callback import StepCallback
from syncline.train.session import TrainSession, get_session, report


class RayTrainReportCallback(StepCallback):
    """Reports `trainer.callback_metrics` with `epoch` and `step`, and a checkpoint, at the end of
    every epoch, after its validation.

    To resume from `directory`, the files of a checkpoint, call
    `trainer.fit(..., ckpt_path=os.path.join(directory, RayTrainReportCallback.CHECKPOINT_NAME))`.

    Args:
        checkpoint_upload_mode: As for `report`; SYNC if None.
        validation: As for `report`.
        every_n_train_steps: Number of optimizer steps after which to report as well, for long
            epochs.

    Raises:
        ValueError: `every_n_train_steps` is less than 1.
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
                f"`every_n_train_steps={every_n_train_steps}` is not a number of steps: pass at "
                "least 1, or None."
            )
        self.checkpoint_upload_mode = checkpoint_upload_mode or CheckpointUploadMode.SYNC
        self.validation = validation
        self.every_n_train_steps = every_n_train_steps

    def setup(self, trainer: Trainer, pl_module: object, stage: str) -> None:
        """Delete directories of earlier attempts. Called by Lightning before anything is saved."""
        session = get_session("lightning.RayTrainReportCallback")
        if session.local_rank == 0 and not session.local_mode:
            _delete_leftovers(_prefix(session))

    def after_step(self, trainer: Trainer) -> None:
        """Report every `every_n_train_steps`. The end of an epoch is reported separately."""
        if self.every_n_train_steps and trainer.global_step % self.every_n_train_steps == 0:
            self._report(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: object) -> None:
        """Report."""
        self._report(trainer)

    def _report(self, trainer: Trainer) -> None:
        session = get_session("lightning.RayTrainReportCallback")
        mine = tempfile.mkdtemp(prefix=_prefix(session))
        directory = trainer.strategy.broadcast(mine)
        os.makedirs(directory, exist_ok=True)  # on another node
        # Returns when all ranks have saved.
        trainer.save_checkpoint(os.path.join(directory, self.CHECKPOINT_NAME), weights_only=False)
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


@cache  # once per process, since later directories with this prefix may be in use
def _delete_leftovers(prefix: str) -> None:
    """Delete temporary directories of workers that were killed while they saved."""
    for left in glob.glob(os.path.join(tempfile.gettempdir(), f"{prefix}*")):
        shutil.rmtree(left, ignore_errors=True)


def _prefix(session: TrainSession) -> str:
    """Return the prefix of this run's temporary directories."""
    place = "local" if session.local_mode else session.storage.experiment_fs_path
    return f"syncline-lightning-{hashlib.sha256(place.encode()).hexdigest()[:16]}-"
