"""`TorchCheckpoint`: a model, or the state dict of one, as a checkpoint directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import cloudpickle
import torch
from torch import nn
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present

from syncline.train.framework_checkpoint import FrameworkCheckpoint

if TYPE_CHECKING:
    from syncline.data.preprocessor import Preprocessor

SelfT = TypeVar("SelfT", bound="TorchCheckpoint")


class TorchCheckpoint(FrameworkCheckpoint):
    """A checkpoint with one file, `TorchCheckpoint.MODEL_FILENAME`."""

    MODEL_FILENAME = "model.pt"
    """The file, as `torch.save` wrote it."""

    @classmethod
    def from_state_dict(
        cls: type[SelfT], state_dict: Mapping[str, Any], *, preprocessor: Preprocessor | None = None
    ) -> SelfT:
        """A checkpoint of a state dict; the `module.` that DDP puts before the names is taken off.

        `preprocessor` is what the model's input went through, for predictors.
        """
        plain = dict(state_dict)
        consume_prefix_in_state_dict_if_present(plain, "module.")
        return cls._save(plain, preprocessor)

    @classmethod
    def from_model(
        cls: type[SelfT], model: nn.Module, *, preprocessor: Preprocessor | None = None
    ) -> SelfT:
        """A checkpoint of the whole module, without DDP's wrapper.

        The module's class is stored with it where it is the program's own; otherwise it has to be
        importable where it is loaded. `preprocessor` is what the model's input went through, for
        predictors.
        """
        return cls._save(
            model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model,
            preprocessor,
        )

    def get_model(self, model: nn.Module | None = None) -> nn.Module:
        """The saved module, on the CPU; with a saved state dict `model`, which gets it.

        Unpickles the file: load only checkpoints that you trust.

        Raises:
            ValueError: a state dict was saved and no `model` given.
            FileNotFoundError: the checkpoint was not made by this class.
        """
        with self.as_directory() as directory:
            path = os.path.join(directory, self.MODEL_FILENAME)
            if not os.path.exists(path):
                raise FileNotFoundError(
                    f"{self!r} has no file {self.MODEL_FILENAME!r}, so it was not made by `TorchCheckpoint.from_model` or "
                    "`from_state_dict`: read its files with `as_directory()`."
                )
            saved = torch.load(path, map_location="cpu", weights_only=False)
        if isinstance(saved, nn.Module):
            return saved
        if model is None:
            raise ValueError(
                f"{self!r} holds a state dict, which has no architecture: give the module, `get_model(model)`."
            )
        model.load_state_dict(saved)
        return model

    @classmethod
    def _save(cls: type[SelfT], content: object, preprocessor: Preprocessor | None) -> SelfT:
        def write(directory: str) -> None:
            # A worker knows the classes of the program's main file only by value, as cloudpickle
            # brought them.
            torch.save(
                content, os.path.join(directory, cls.MODEL_FILENAME), pickle_module=cloudpickle
            )

        return cls._written(write, preprocessor=preprocessor)
