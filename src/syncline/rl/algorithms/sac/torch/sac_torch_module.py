"""The networks of SAC: a policy and twin critics with targets."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import torch
from torch import nn

from syncline.rl.columns.names import Columns
from syncline.rl.modules.apis import InferenceOnlyAPI, QNetAPI, TargetNetworkAPI
from syncline.rl.modules.torch.catalog import Catalog
from syncline.rl.modules.torch.distributions.categorical import TorchCategorical
from syncline.rl.modules.torch.distributions.gaussian import TorchSquashedGaussian
from syncline.rl.modules.torch.encoders import plain_vector
from syncline.rl.modules.torch.heads import MLPHeadConfig
from syncline.rl.modules.torch.torch_rl_module import TorchRLModule

LOG_STD_RANGE = (-20.0, 2.0)
ENCODER_OUT = "encoder_out"


class Critic(nn.Module):
    """Q(s, a), [B]; or Q(s, ·), [B, A], for discrete actions.

    Args:
        catalog: Builds encoders.
        config: Options of the networks.
        observation_space: Space of s.
        action_space: Space of a.
    """

    def __init__(
        self,
        catalog: Catalog,
        config: dict[str, Any],
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
    ) -> None:
        super().__init__()
        self.is_discrete = isinstance(action_space, gym.spaces.Discrete)
        actions = 0 if self.is_discrete else _size(action_space)
        outputs = int(action_space.n) if isinstance(action_space, gym.spaces.Discrete) else 1
        hidden = list(config.get("head_fcnet_hiddens") or [])
        self.encoder: nn.Module | None = None
        if plain_vector(observation_space):
            width = _size(observation_space)
            hidden = [*(config.get("fcnet_hiddens") or []), *hidden]
        else:
            self.encoder = catalog.build_encoder(framework="torch")
            width = int(catalog.latent_dims[0])
        self.layers = MLPHeadConfig(
            input_dims=[width + actions],
            hidden_layer_dims=hidden,
            hidden_layer_activation=config.get("fcnet_activation", "relu"),
            output_layer_dim=outputs,
        ).build()

    def forward(self, batch: dict[str, Any], actions: torch.Tensor | None) -> torch.Tensor:
        """Return action values; `actions` [B, D] is None for discrete ones."""
        inputs = batch[Columns.OBS]
        if self.encoder is not None:
            inputs = self.encoder(batch)[ENCODER_OUT]
        if actions is not None:
            inputs = torch.cat([inputs.float(), actions.reshape(len(actions), -1)], -1)
        values: torch.Tensor = self.layers(inputs)
        return values if self.is_discrete else values.squeeze(-1)


class DefaultSACTorchRLModule(TorchRLModule, InferenceOnlyAPI, TargetNetworkAPI, QNetAPI):
    """A policy and one or two critics."""

    def setup(self) -> None:
        """Create the networks."""
        space = self.action_space
        self.is_discrete = isinstance(space, gym.spaces.Discrete)
        if not self.is_discrete and not isinstance(space, gym.spaces.Box):
            raise ValueError(f"SAC needs a Box or Discrete action space, not {space}.")
        config = self.model_config
        self.pi_encoder = self.catalog.build_encoder(framework="torch")
        self.pi = MLPHeadConfig(
            input_dims=[int(self.catalog.latent_dims[0])],
            hidden_layer_dims=config.get("head_fcnet_hiddens") or [],
            hidden_layer_activation=config.get("head_fcnet_activation", "relu"),
            output_layer_dim=int(space.n) if self.is_discrete else 2 * _size(space),
        ).build()
        self.critics = nn.ModuleList(
            Critic(self.catalog, config, self.observation_space, space)
            for _ in range(2 if config.get("twin_q", True) else 1)
        )
        if not self.inference_only:
            self.make_target_networks()
        self.action_dist_cls = (
            TorchCategorical
            if self.is_discrete
            else TorchSquashedGaussian.get_partial_dist_cls(event_shape=space.shape)
        )

    def get_non_inference_attributes(self) -> list[str]:
        """Return the critics."""
        return ["critics", "targets"]

    def make_target_networks(self) -> None:
        """Create the target critics, with the weights of the critics."""
        self.targets = copy.deepcopy(self.critics).requires_grad_(False)

    def get_target_network_pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        """Return critics and targets."""
        return [(self.critics, self.targets)]

    def compute_q_values(
        self, batch: dict[str, Any], actions: torch.Tensor | None = None
    ) -> dict[str, Any]:
        """Return `qf_preds`: the smaller of the critics' values."""
        return {"qf_preds": smallest([each(batch, actions) for each in self.critics])}

    def forward_target(
        self, batch: dict[str, Any], actions: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the smaller of the target critics' values."""
        return smallest([each(batch, actions) for each in self.targets])

    def policy(self, batch: dict[str, Any]) -> Any:
        """Return the action distribution."""
        return self.action_dist_cls.from_logits(self.policy_inputs(batch))  # type: ignore[union-attr]

    def policy_inputs(self, batch: dict[str, Any]) -> torch.Tensor:
        """Return the parameters of the action distribution, [B, …]."""
        inputs: torch.Tensor = self.pi(self.pi_encoder(batch)[ENCODER_OUT])
        if self.is_discrete:
            return inputs
        mean, log_std = inputs.chunk(2, -1)
        return torch.cat([mean, log_std.clamp(*LOG_STD_RANGE)], -1)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {Columns.ACTION_DIST_INPUTS: self.policy_inputs(batch)}

    @contextmanager
    def frozen_critics(self) -> Iterator[None]:
        """Let gradients pass through the critics, but not into their weights."""
        self.critics.requires_grad_(False)
        try:
            yield
        finally:
            self.critics.requires_grad_(True)


def smallest(values: list[torch.Tensor]) -> torch.Tensor:
    """Return the elementwise minimum of one or two tensors."""
    return values[0] if len(values) == 1 else torch.minimum(*values)


def _size(space: Any) -> int:
    size = 1
    for length in space.shape:
        size *= int(length)
    return size
