"""`FrameworkCheckpoint`: checkpoint of a model with the preprocessor of its input."""

from __future__ import annotations

import base64
import os
import pickle
import shutil
import tempfile
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import cloudpickle

from syncline.train.checkpoint import Checkpoint

if TYPE_CHECKING:
    from syncline.data.preprocessor import Preprocessor

SelfT = TypeVar("SelfT", bound="FrameworkCheckpoint")

_KEY = "preprocessor_pkl"


class FrameworkCheckpoint(Checkpoint):
    """Base class of the checkpoints of frameworks.

    A checkpoint created from a model is in a temporary directory, which is deleted with this object
    unless the object was pickled.
    """

    _finalizer: weakref.finalize[..., FrameworkCheckpoint] | None = None

    @classmethod
    def of(cls: type[SelfT], checkpoint: Checkpoint) -> SelfT:
        """Return any checkpoint as one of this class, for the same files."""
        return cls(checkpoint.path, checkpoint.filesystem)

    def get_preprocessor(self) -> Preprocessor | None:
        """Return the stored preprocessor or None. It is unpickled: use trusted checkpoints only."""
        text = self.get_metadata().get(_KEY)
        stored: Any = None if text is None else pickle.loads(base64.b64decode(text))
        return stored  # type: ignore[no-any-return]

    def set_preprocessor(self, preprocessor: Preprocessor) -> None:
        """Store or replace the preprocessor in the checkpoint's metadata."""
        self.update_metadata(
            {_KEY: base64.b64encode(cloudpickle.dumps(preprocessor)).decode("ascii")}
        )

    def __getstate__(self) -> dict[str, Any]:
        if self._finalizer is not None:
            self._finalizer.detach()
        return {name: value for name, value in vars(self).items() if name != "_finalizer"}

    @classmethod
    def _written(
        cls: type[SelfT],
        write: Callable[[str], object],
        *,
        preprocessor: Preprocessor | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> SelfT:
        """Return the checkpoint of the files that `write(directory)` writes.

        Args:
            write: Writes the files.
            preprocessor: Preprocessor to store.
            path: Directory to use and keep; by default a temporary one.

        Raises:
            ValueError: The directory `path` does not exist.
        """
        if path is not None and not os.path.isdir(path):
            raise ValueError(
                f"path={os.fspath(path)!r} is not a directory: create it, or omit `path`."
            )
        directory = (
            tempfile.mkdtemp(prefix="syncline-checkpoint-") if path is None else os.fspath(path)
        )
        write(directory)
        checkpoint = cls.from_directory(directory)
        if path is None:
            checkpoint._finalizer = weakref.finalize(
                checkpoint, shutil.rmtree, directory, ignore_errors=True
            )
        if preprocessor is not None:
            checkpoint.set_preprocessor(preprocessor)
        return checkpoint
