"""`XGBoostCheckpoint`: checkpoint of a model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

from syncline.optional import load
from syncline.train.checkpoint import Checkpoint
from syncline.train.framework_checkpoint import FrameworkCheckpoint

if TYPE_CHECKING:
    from xgboost import Booster

    from syncline.data.preprocessor import Preprocessor

SelfT = TypeVar("SelfT", bound="XGBoostCheckpoint")


class XGBoostCheckpoint(FrameworkCheckpoint):
    """Checkpoint with one file, `XGBoostCheckpoint.MODEL_FILENAME`."""

    MODEL_FILENAME = "model.json"
    """Name of the file, written by `Booster.save_model`."""

    @classmethod
    def from_model(
        cls: type[SelfT],
        booster: Booster,
        *,
        preprocessor: Preprocessor | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> SelfT:
        """Create a checkpoint of a model.

        Args:
            booster: Model; for an estimator, its `get_booster()`.
            preprocessor: Preprocessor of the model's input, for predictors.
            path: Empty directory for the checkpoint; by default a temporary one, deleted with
                this object.

        Raises:
            ValueError: The directory `path` does not exist.
        """
        return cls._written(
            lambda directory: booster.save_model(os.path.join(directory, cls.MODEL_FILENAME)),
            preprocessor=preprocessor,
            path=path,
        )

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
