"""`TorchModel`: base of the configurable parts of modules, such as encoders and heads."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from syncline.rl.value_types import Network, Tree

ENCODER_OUT = "encoder_out"
"""Key of an encoder's output."""
ACTOR = "actor"
"""Key of the part that belongs to the policy."""
CRITIC = "critic"
"""Key of the part that belongs to the value function."""


@dataclass
class ModelConfig(abc.ABC):
    """Settings of a part of a module; `build` creates the part."""

    input_dims: Any = None
    """Shape of the input without batch dimensions, such as [4]."""
    always_check_shapes: bool = False
    """Ignored; torch reports mismatched shapes."""

    @abc.abstractmethod
    def build(self, framework: str = "torch") -> Network:
        """Return the part."""

    @property
    def output_dims(self) -> tuple[int, ...]:
        """Shape of the output without batch dimensions."""
        raise NotImplementedError(f"{type(self).__name__} does not define `output_dims`.")

    @property
    def is_stateful(self) -> bool:
        """True if the part has a state that persists between steps."""
        return False


class Model:
    """A part of a module with a configuration. Subclasses implement `_forward`."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def _forward(self, inputs: Tree, **kwargs: object) -> Tree:
        """Return the output for a batch."""
        raise NotImplementedError(f"{type(self).__name__} must implement `_forward`.")

    def get_initial_state(self) -> Tree:
        """Return the state at the start of an episode; empty without memory."""
        return {}


class TorchModel(nn.Module, Model):
    """A part of a module in torch."""

    def __init__(self, config: Any) -> None:
        nn.Module.__init__(self)
        Model.__init__(self, config)

    def forward(self, inputs: Tree, **kwargs: object) -> Tree:
        """Return `_forward` of the inputs."""
        return self._forward(inputs, **kwargs)

    def get_num_parameters(self) -> tuple[int, int]:
        """Return the numbers of trainable and of frozen parameters."""
        sizes = [(each.requires_grad, each.numel()) for each in self.parameters()]
        return (
            sum(size for trainable, size in sizes if trainable),
            sum(size for trainable, size in sizes if not trainable),
        )


class Encoder(Model):
    """Maps `{"obs": ...}` (and "state_in") to `{ENCODER_OUT: ...}` (and "state_out")."""


def in_dtype_of(inputs: torch.Tensor, layer: nn.Module) -> torch.Tensor:
    """Convert inputs to the dtype of a layer's weights."""
    weight = layer.weight
    assert isinstance(weight, torch.Tensor)
    return inputs if inputs.dtype is weight.dtype else inputs.to(weight.dtype)
