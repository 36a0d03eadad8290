"""`XGBoostCheckpoint`: a model as a checkpoint directory."""

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
    """A checkpoint with one file, `XGBoostCheckpoint.MODEL_FILENAME`."""

    MODEL_FILENAME = "model.json"
    """The file, as `Booster.save_model` wrote it."""

    @classmethod
    def from_model(
        cls: type[SelfT],
        booster: Booster,
        *,
        preprocessor: Preprocessor | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> SelfT:
        """A checkpoint of a model.

        Args:
            booster: The model; of an estimator, `get_booster()`.
            preprocessor: What the model's input went through, for predictors.
            path: An empty directory that becomes the checkpoint; by default a temporary one,
                deleted with this object.

        Raises:
            ValueError: There is no directory `path`.
        """
        return cls._written(
            lambda directory: booster.save_model(os.path.join(directory, cls.MODEL_FILENAME)),
            preprocessor=preprocessor,
            path=path,
        )

    def get_model(self) -> Booster:
        """The saved model. XGBoostError if the checkpoint was not made by this class."""
        return load_booster(self, self.MODEL_FILENAME)


def load_booster(checkpoint: Checkpoint, filename: str) -> Booster:
    """The model in one file of a checkpoint."""
    with checkpoint.as_directory() as directory:
        booster: Booster = load(
            "xgboost", purpose="the model of this checkpoint", install="syncline[xgboost]"
        ).Booster()
        booster.load_model(os.path.join(directory, filename))
    return booster
