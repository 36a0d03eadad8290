"""`TorchCheckpoint`: checkpoint of a model or its state dict."""

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
    """Checkpoint with one file, `TorchCheckpoint.MODEL_FILENAME`."""

    MODEL_FILENAME = "model.pt"
    """Name of the file, written by `torch.save`."""

    @classmethod
    def from_state_dict(
        cls: type[SelfT], state_dict: Mapping[str, Any], *, preprocessor: Preprocessor | None = None
    ) -> SelfT:
        """Create a checkpoint of a state dict, without DDP's prefix `module.`.

        Args:
            state_dict: State dict of a module.
            preprocessor: Preprocessor of the model's input, for predictors.
        """
        plain = dict(state_dict)
        consume_prefix_in_state_dict_if_present(plain, "module.")
        return cls._save(plain, preprocessor)

    @classmethod
    def from_model(
        cls: type[SelfT], model: nn.Module, *, preprocessor: Preprocessor | None = None
    ) -> SelfT:
        """Create a checkpoint of a module, without DDP's wrapper.

        The classes of the program's main module are stored by value. Other classes must be
        importable where the checkpoint is loaded.

        Args:
            model: The module.
            preprocessor: Preprocessor of the model's input, for predictors.
        """
        return cls._save(
            model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model,
            preprocessor,
        )

    def get_model(self, model: nn.Module | None = None) -> nn.Module:
        """Return the saved module on the CPU, or `model` with the saved state dict loaded.

        Unpickles the file: load only checkpoints that you trust.

        Raises:
            ValueError: The checkpoint holds a state dict and `model` is None.
            FileNotFoundError: The checkpoint was not created by this class.
        """
        with self.as_directory() as directory:
            path = os.path.join(directory, self.MODEL_FILENAME)
            if not os.path.exists(path):
                raise FileNotFoundError(
                    f"{self!r} has no file {self.MODEL_FILENAME!r}, so it was not created by "
                    "`TorchCheckpoint.from_model` or `from_state_dict`: read its files with "
                    "`as_directory()`."
                )
            saved = torch.load(path, map_location="cpu", weights_only=False)
        if isinstance(saved, nn.Module):
            return saved
        if model is None:
            raise ValueError(
                f"{self!r} holds a state dict, without the architecture of the model: pass the "
                "module, `get_model(model)`."
            )
        model.load_state_dict(saved)
        return model

    @classmethod
    def _save(cls: type[SelfT], content: object, preprocessor: Preprocessor | None) -> SelfT:
        def write(directory: str) -> None:
            # Workers receive the classes of the program's main module by value, from cloudpickle.
            torch.save(
                content, os.path.join(directory, cls.MODEL_FILENAME), pickle_module=cloudpickle
            )

        return cls._written(write, preprocessor=preprocessor)
