"""`TensorflowCheckpoint`: checkpoint of a Keras model.

Keras 2 (tf_keras) and Keras 3 cannot read each other's files, and a program may use one while its
workers use the other. The checkpoint's metadata name the one that wrote the model.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any, TypeVar

from syncline.optional import load
from syncline.train.framework_checkpoint import FrameworkCheckpoint

if TYPE_CHECKING:
    from syncline.data.preprocessor import Preprocessor

SelfT = TypeVar("SelfT", bound="TensorflowCheckpoint")

_LIBRARY_KEY = "_keras"
_KERAS_2 = "tf_keras"


class TensorflowCheckpoint(FrameworkCheckpoint):
    """Checkpoint with one Keras model, in any of Keras's formats."""

    MODEL_FILENAME_KEY = "_model_filename"
    """Key of the model's file or directory in the metadata."""

    @classmethod
    def from_model(
        cls: type[SelfT], model: Any, *, preprocessor: Preprocessor | None = None
    ) -> SelfT:
        """Create a checkpoint of a Keras model with its optimizer, in a temporary directory.

        Args:
            model: Keras model.
            preprocessor: Preprocessor of the model's input, for predictors.
        """
        library, filename = _library_of(model), "model.keras"
        # Outside the main thread, Keras 2 writes HDF5 by default.
        options = {"save_format": "keras_v3"} if library == _KERAS_2 else {}
        checkpoint = cls._written(
            lambda directory: model.save(os.path.join(directory, filename), **options),
            preprocessor=preprocessor,
        )
        checkpoint.update_metadata({cls.MODEL_FILENAME_KEY: filename, _LIBRARY_KEY: library})
        return checkpoint

    @classmethod
    def from_h5(
        cls: type[SelfT],
        file_path: str | os.PathLike[str],
        *,
        preprocessor: Preprocessor | None = None,
    ) -> SelfT:
        """Create a checkpoint with a copy of a model's HDF5 file.

        Args:
            file_path: The file, which ends with .h5.
            preprocessor: Preprocessor of the model's input, for predictors.

        Raises:
            ValueError: There is no such file.
        """
        path = os.fspath(file_path)
        if not path.endswith(".h5") or not os.path.isfile(path):
            raise ValueError(
                f"TensorflowCheckpoint.from_h5({path!r}): there is no such file, or it does not "
                "end with .h5."
            )
        checkpoint = cls._written(
            lambda directory: shutil.copy(path, directory), preprocessor=preprocessor
        )
        checkpoint.update_metadata({cls.MODEL_FILENAME_KEY: os.path.basename(path)})
        return checkpoint

    @classmethod
    def from_saved_model(
        cls: type[SelfT],
        dir_path: str | os.PathLike[str],
        *,
        preprocessor: Preprocessor | None = None,
    ) -> SelfT:
        """Create a checkpoint with a copy of a SavedModel, which only Keras 2 can load as a model.

        Args:
            dir_path: Directory of the SavedModel.
            preprocessor: Preprocessor of the model's input, for predictors.

        Raises:
            ValueError: `dir_path` is not a directory.
        """
        path = os.fspath(dir_path)
        if not os.path.isdir(path):
            raise ValueError(
                f"TensorflowCheckpoint.from_saved_model({path!r}): there is no such directory."
            )
        checkpoint = cls._written(
            lambda directory: shutil.copytree(path, directory, dirs_exist_ok=True),
            preprocessor=preprocessor,
        )
        checkpoint.update_metadata({cls.MODEL_FILENAME_KEY: ".", _LIBRARY_KEY: _KERAS_2})
        return checkpoint

    def get_model(self) -> Any:
        """Return the saved model, of tf_keras if that wrote it, otherwise of `tf.keras`.

        Raises:
            ValueError: The metadata lack the model's file name, so this class did not create the
                checkpoint.
            ImportError: The library that wrote the model is not installed.
        """
        metadata = self.get_metadata()
        filename = metadata.get(self.MODEL_FILENAME_KEY)
        if filename is None:
            raise ValueError(
                f"{self!r} has no {self.MODEL_FILENAME_KEY!r} in its metadata: "
                "`TensorflowCheckpoint` did not create it, or `set_metadata` has replaced the "
                "metadata. Use `update_metadata` to add to them."
            )
        library = metadata.get(_LIBRARY_KEY, "tensorflow.keras")
        if library == _KERAS_2:
            keras = load(
                _KERAS_2, purpose="a model that Keras 2 saved", install="syncline[tensorflow]"
            )
        else:
            keras = load(
                "tensorflow", purpose="the model of this checkpoint", install="syncline[tensorflow]"
            ).keras
        with self.as_directory() as directory:
            return keras.models.load_model(os.path.normpath(os.path.join(directory, filename)))


def _library_of(model: object) -> str:
    """Return the Keras package of a model's base classes."""
    modules = {class_.__module__.partition(".")[0] for class_ in type(model).__mro__}
    return _KERAS_2 if _KERAS_2 in modules else "tensorflow.keras"
