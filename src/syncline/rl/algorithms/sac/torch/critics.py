"""Critics: networks that map observations and actions to values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import torch
from torch import nn

from syncline.rl.columns.names import Columns
from syncline.rl.modules.default_model_config import complete_model_config
from syncline.rl.modules.torch.catalog import Catalog
from syncline.rl.modules.torch.encoders import plain_vector
from syncline.rl.modules.torch.heads import MLPHeadConfig
from syncline.rl.value_types import Batch, CheckedSpace, Options, Space

ENCODER_OUT = "encoder_out"


class Critic(nn.Module):
    """Q(s, a), [B]; Q(s, ·), [B, A], for discrete actions; quantiles of returns, [B, K]; or V(s).

    Args:
        catalog: Builds encoders.
        model_config: Options of the networks.
        observation_space: Space of s.
        action_space: Space of a; None for V(s).
        num_quantiles: K; 1 for values.
    """

    def __init__(
        self,
        catalog: Catalog,
        model_config: Options,
        observation_space: Space,
        action_space: Space | None,
        num_quantiles: int = 1,
    ) -> None:
        super().__init__()
        config = complete_model_config(model_config)
        actions = size_of(action_space) if isinstance(action_space, gym.spaces.Box) else 0
        is_discrete = isinstance(action_space, gym.spaces.Discrete)
        outputs = int(action_space.n) if is_discrete else num_quantiles  # type: ignore[union-attr]
        self._is_scalar = not is_discrete and num_quantiles == 1
        hidden = list(config.head_fcnet_hiddens)
        self.encoder: nn.Module | None = None
        if plain_vector(observation_space):
            width = size_of(observation_space)
            hidden = [*config.fcnet_hiddens, *hidden]
        else:
            self.encoder = catalog.build_encoder(framework="torch")
            width = int(catalog.latent_dims[0])
        self.layers = MLPHeadConfig(
            input_dims=[width + actions],
            hidden_layer_dims=hidden,
            hidden_layer_activation=config.fcnet_activation,
            output_layer_dim=outputs,
        ).build()

    def forward(self, batch: Batch, actions: torch.Tensor | None = None) -> torch.Tensor:
        """Return values; `actions` [B, …] must be None unless they are continuous."""
        inputs = batch[Columns.OBS]
        if self.encoder is not None:
            inputs = self.encoder(batch)[ENCODER_OUT]
        if actions is not None:
            inputs = torch.cat([inputs.float(), actions.reshape(len(actions), -1)], -1)
        values: torch.Tensor = self.layers(inputs)
        return values.squeeze(-1) if self._is_scalar else values


class Critics(nn.Module):
    """C critics with separate weights: values [C, B, …].

    Args:
        count: C.
        arguments: Arguments of `Critic`.
    """

    def __init__(self, count: int, *arguments: Any) -> None:
        super().__init__()
        self.each = nn.ModuleList(Critic(*arguments) for _ in range(count))

    def forward(self, batch: Batch, actions: torch.Tensor | None = None) -> torch.Tensor:
        """Return the values of all critics."""
        return torch.stack([each(batch, actions) for each in self.each])


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Let gradients pass through a module, but not into its weights."""
    parameters = module.__dict__.get("_known_parameters")
    if parameters is None:
        parameters = module.__dict__["_known_parameters"] = list(module.parameters())
    for each in parameters:
        each.requires_grad = False
    try:
        yield
    finally:
        for each in parameters:
            each.requires_grad = True


def smallest(values: torch.Tensor) -> torch.Tensor:
    """Return the minimum over the critics of values [C, …]."""
    if len(values) == 1:
        return values[0]
    return torch.minimum(values[0], values[1]) if len(values) == 2 else values.amin(0)


def size_of(space: CheckedSpace) -> int:
    """Return the number of elements of a Box."""
    size = 1
    for length in space.shape:
        size *= int(length)
    return size
