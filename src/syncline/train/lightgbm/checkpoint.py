"""`LightGBMCheckpoint`: a model as a checkpoint directory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

from syncline.optional import load
from syncline.train.checkpoint import Checkpoint
from syncline.train.framework_checkpoint import FrameworkCheckpoint

if TYPE_CHECKING:
    from lightgbm import Booster

    from syncline.data.preprocessor import Preprocessor

SelfT = TypeVar("SelfT", bound="LightGBMCheckpoint")


class LightGBMCheckpoint(FrameworkCheckpoint):
    """A checkpoint with one file, `LightGBMCheckpoint.MODEL_FILENAME`."""

    MODEL_FILENAME = "model.txt"
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
            booster: The model; of an estimator, `booster_`.
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
        """The saved model. LightGBMError if the checkpoint was not made by this class."""
        return load_booster(self, self.MODEL_FILENAME)


def load_booster(checkpoint: Checkpoint, filename: str) -> Booster:
    """The model in one file of a checkpoint."""
    lightgbm = load(
        "lightgbm", purpose="the model of this checkpoint", install="syncline[lightgbm]"
    )
    with checkpoint.as_directory() as directory:
        booster: Booster = lightgbm.Booster(model_file=os.path.join(directory, filename))
    return booster
