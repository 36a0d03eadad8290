"""`FrameworkCheckpoint`: a checkpoint of a model, that carries the preprocessor of the model's
input.
"""

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
    """Base of the checkpoints of frameworks.

    Those made from a model lie in a temporary directory, deleted when this object is; an object
    that has been pickled leaves its directory to whoever reads it.
    """

    _finalizer: weakref.finalize[..., FrameworkCheckpoint] | None = None

    @classmethod
    def of(cls: type[SelfT], checkpoint: Checkpoint) -> SelfT:
        """Any checkpoint as one of this class, for the same files."""
        return cls(checkpoint.path, checkpoint.filesystem)

    def get_preprocessor(self) -> Preprocessor | None:
        """The preprocessor that was stored, or None. It is unpickled: read only checkpoints that
        you trust.
        """
        text = self.get_metadata().get(_KEY)
        stored: Any = None if text is None else pickle.loads(base64.b64decode(text))
        return stored  # type: ignore[no-any-return]

    def set_preprocessor(self, preprocessor: Preprocessor) -> None:
        """Store a preprocessor in the checkpoint's metadata, in place of another one."""
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
        """The checkpoint of what `write(directory)` has written; `path` is a directory to use and
        keep instead of a temporary one.

        Raises:
            ValueError: There is no directory `path`.
        """
        if path is not None and not os.path.isdir(path):
            raise ValueError(
                f"path={os.fspath(path)!r} is no directory, so no checkpoint can be written there: make it, or leave `path` out."
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
