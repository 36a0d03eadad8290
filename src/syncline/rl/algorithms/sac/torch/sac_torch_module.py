"""The networks of SAC: a policy and twin critics with targets."""

from __future__ import annotations

import copy
import math
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from syncline.rl.algorithms.sac.torch.critics import Critics, size_of, smallest
from syncline.rl.columns.names import Columns
from syncline.rl.modules.acting import ActingPolicy
from syncline.rl.modules.apis import InferenceOnlyAPI, QNetAPI, TargetNetworkAPI
from syncline.rl.modules.default_model_config import complete_model_config
from syncline.rl.modules.numpy_acting import NumpyNetwork
from syncline.rl.modules.torch.distributions.categorical import TorchCategorical
from syncline.rl.modules.torch.distributions.gaussian import SQUASHED_LOG_STD, TorchSquashedGaussian
from syncline.rl.modules.torch.heads import MLPHeadConfig
from syncline.rl.modules.torch.policy_weights import numpy_network
from syncline.rl.modules.torch.torch_rl_module import TorchRLModule
from syncline.rl.value_types import Batch, Tree

ENCODER_OUT = "encoder_out"


class DefaultSACTorchRLModule(TorchRLModule, InferenceOnlyAPI, TargetNetworkAPI, QNetAPI):
    """A policy and one or two critics."""

    def setup(self) -> None:
        """Create the networks."""
        space = self.action_space
        self.is_discrete = isinstance(space, gym.spaces.Discrete)
        if not self.is_discrete and not isinstance(space, gym.spaces.Box):
            raise ValueError(f"SAC needs a Box or Discrete action space, not {space}.")
        config = complete_model_config(self.model_config)
        self.pi_encoder = self.catalog.build_encoder(framework="torch")
        self.pi = MLPHeadConfig(
            input_dims=[int(self.catalog.latent_dims[0])],
            hidden_layer_dims=config.head_fcnet_hiddens,
            hidden_layer_activation=config.head_fcnet_activation,
            output_layer_dim=int(space.n) if self.is_discrete else 2 * size_of(space),
        ).build()
        self.critics = self.make_critics()
        if not self.inference_only:
            self.make_target_networks()
        self.action_dist_cls = (
            TorchCategorical
            if self.is_discrete
            else TorchSquashedGaussian.get_partial_dist_cls(event_shape=space.shape)
        )

    def make_critics(self) -> Critics:
        """Return the critics."""
        count = 2 if self.model_config.get("twin_q", True) else 1
        spaces = self.observation_space, self.action_space
        return Critics(count, self.catalog, self.model_config, *spaces)

    def get_non_inference_attributes(self) -> list[str]:
        """Return the critics."""
        return ["critics", "targets"]

    def make_target_networks(self) -> None:
        """Create the target critics, with the weights of the critics."""
        self.targets = copy.deepcopy(self.critics).requires_grad_(False)

    def get_target_network_pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        """Return critics and targets."""
        return [(self.critics, self.targets)]

    def compute_q_values(self, batch: Batch, actions: torch.Tensor | None = None) -> Batch:
        """Return `qf_preds`: the smaller of the critics' values."""
        return {"qf_preds": smallest(self.critics(batch, actions))}

    def forward_target(self, batch: Batch, actions: torch.Tensor | None = None) -> torch.Tensor:
        """Return the smaller of the target critics' values."""
        return smallest(self.targets(batch, actions))

    def policy(self, batch: Batch) -> Any:
        """Return the action distribution."""
        return self.action_dist_cls.from_logits(self.policy_inputs(batch))  # type: ignore[union-attr]

    def policy_inputs(self, batch: Batch) -> torch.Tensor:
        """Return the parameters of the action distribution, [B, …]."""
        inputs: torch.Tensor = self.pi(self.pi_encoder(batch)[ENCODER_OUT])
        return inputs

    def acting_policy(self) -> ActingPolicy:
        """Return acting by NumPy for fully connected continuous policies, else by torch."""
        own = type(self)._forward is DefaultSACTorchRLModule._forward
        own &= type(self).policy_inputs is DefaultSACTorchRLModule.policy_inputs
        own &= {"_forward_exploration", "_forward_inference"}.isdisjoint(vars(type(self)))
        network = None if self.is_discrete or not own else numpy_network(self.pi_encoder, self.pi)
        if network is None:
            return super().acting_policy()
        return SquashedActing(network, tuple(self.action_space.shape))

    def _forward(self, batch: Batch, **kwargs: object) -> Batch:
        return {Columns.ACTION_DIST_INPUTS: self.policy_inputs(batch)}


class SquashedActing:
    """Samples tanh(mean + std z), or takes tanh(mean), with NumPy.

    Args:
        network: From observations to means and log standard deviations.
        shape: Shape of an action.
    """

    noise_kind: Literal["uniform", "normal"] = "normal"

    def __init__(self, network: NumpyNetwork, shape: tuple[int, ...]) -> None:
        self._network = network
        self._shape = shape
        self.noise_size = math.prod(shape)

    def act(
        self, obs: Tree, noise: np.ndarray, explore: bool, state: Tree = None
    ) -> tuple[Batch, Tree]:
        """Return actions [N, …] in [-1, 1]."""
        outputs = self._network(obs)
        actions = outputs[:, : self.noise_size]
        if explore:
            log_std = outputs[:, self.noise_size :].clip(*SQUASHED_LOG_STD)
            actions = actions + np.exp(log_std) * noise.astype(np.float32)
        return {Columns.ACTIONS: np.tanh(actions).reshape(-1, *self._shape)}, None
