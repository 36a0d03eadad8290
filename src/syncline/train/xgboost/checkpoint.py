"""`XGBoostCheckpoint`: checkpoint of a model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from syncline.optional import load
from syncline.train.boosting import BoosterCheckpoint
from syncline.train.checkpoint import Checkpoint

if TYPE_CHECKING:
    from xgboost import Booster


class XGBoostCheckpoint(BoosterCheckpoint):
    """Checkpoint with one file, `XGBoostCheckpoint.MODEL_FILENAME`."""

    MODEL_FILENAME = "model.json"
    """Name of the file, written by `Booster.save_model`."""

    def get_model(self) -> Booster:
        """Return the saved model. XGBoostError if this class did not create the checkpoint."""
        return load_booster(self, self.MODEL_FILENAME)


def load_booster(checkpoint: Checkpoint, filename: str) -> Booster:
    """Return the model in a file of a checkpoint."""
    with checkpoint.as_directory() as directory:
        booster: Booster = load(
            "xgboost", purpose="the model of this checkpoint", install="syncline[xgboost]"
        ).Booster()
        booster.load_model(os.path.join(directory, filename))
    return booster
