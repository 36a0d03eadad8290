"""`FrameworkCheckpoint`: a checkpoint that carries the preprocessor of its model's input."""

from __future__ import annotations

import base64
import pickle
from typing import TYPE_CHECKING, Any, TypeVar

import cloudpickle

from syncline.train.checkpoint import Checkpoint

if TYPE_CHECKING:
    from syncline.data.preprocessor import Preprocessor

SelfT = TypeVar("SelfT", bound="FrameworkCheckpoint")

_KEY = "preprocessor_pkl"


class FrameworkCheckpoint(Checkpoint):
    """Base of the checkpoints of frameworks."""

    @classmethod
    def of(cls: type[SelfT], checkpoint: Checkpoint) -> SelfT:
        """Any checkpoint as one of this class, for the same files."""
        return cls(checkpoint.path, checkpoint.filesystem)

    def get_preprocessor(self) -> Preprocessor | None:
        """The preprocessor that was stored, or None. It is unpickled: read only checkpoints that you trust."""
        text = self.get_metadata().get(_KEY)
        stored: Any = None if text is None else pickle.loads(base64.b64decode(text))
        return stored  # type: ignore[no-any-return]

    def set_preprocessor(self, preprocessor: Preprocessor) -> None:
        """Store a preprocessor in the checkpoint's metadata, in place of another one."""
        self.update_metadata({_KEY: base64.b64encode(cloudpickle.dumps(preprocessor)).decode("ascii")})
