"""The networks of TD3: a deterministic policy and critics, with targets of both; acting."""

from __future__ import annotations

import copy
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from syncline.rl.algorithms.sac.torch.critics import Critics, frozen, size_of, smallest
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import map_tree
from syncline.rl.config.schedule import Schedule
from syncline.rl.modules.acting import ActingPolicy
from syncline.rl.modules.apis import InferenceOnlyAPI, QNetAPI, TargetNetworkAPI
from syncline.rl.modules.default_model_config import complete_model_config
from syncline.rl.modules.numpy_acting import NumpyNetwork
from syncline.rl.modules.torch.distributions.deterministic import TorchDeterministic
from syncline.rl.modules.torch.heads import MLPHeadConfig
from syncline.rl.modules.torch.policy_weights import numpy_network
from syncline.rl.modules.torch.torch_acting import to_numpy, to_tensor
from syncline.rl.modules.torch.torch_rl_module import TorchRLModule
from syncline.rl.runners.actions import is_normalized
from syncline.rl.value_types import Batch, Tree

ENCODER_OUT = "encoder_out"


class DeterministicPolicy(nn.Module):
    """Maps observations to actions in [-1, 1], [B, …].

    Args:
        catalog: Builds the encoder.
        model_config: Options of the networks.
        action_space: Space of the actions.
    """

    def __init__(self, catalog: Any, model_config: Any, action_space: gym.spaces.Box) -> None:
        super().__init__()
        config = complete_model_config(model_config)
        self._shape = action_space.shape
        self.encoder = catalog.build_encoder(framework="torch")
        self.head = MLPHeadConfig(
            input_dims=[int(catalog.latent_dims[0])],
            hidden_layer_dims=config.head_fcnet_hiddens,
            hidden_layer_activation=config.head_fcnet_activation,
            output_layer_dim=size_of(action_space),
            output_layer_activation="tanh",
        ).build()

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return actions."""
        actions: torch.Tensor = self.head(self.encoder(batch)[ENCODER_OUT])
        return actions.reshape(-1, *self._shape)


class DefaultTD3TorchRLModule(TorchRLModule, InferenceOnlyAPI, TargetNetworkAPI, QNetAPI):
    """A deterministic policy and one or two critics."""

    def setup(self) -> None:
        """Create the networks."""
        space = self.action_space
        if not is_normalized(space):
            raise ValueError(
                f"TD3 needs a Box action space of floats with bounds, not {space}. Use DQN for "
                "Discrete actions."
            )
        self.policy = DeterministicPolicy(self.catalog, self.model_config, space)
        count = 2 if self.model_config.get("twin_q", True) else 1
        self.critics = Critics(
            count, self.catalog, self.model_config, self.observation_space, space
        )
        if not self.inference_only:
            self.make_target_networks()
        self.action_dist_cls = TorchDeterministic

    def get_non_inference_attributes(self) -> list[str]:
        """Return the critics and the targets."""
        return ["critics", "target_policy", "target_critics"]

    def make_target_networks(self) -> None:
        """Create the target networks, with the weights of the online networks."""
        self.target_policy = copy.deepcopy(self.policy).requires_grad_(False)
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)

    def get_target_network_pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        """Return networks and targets."""
        return [(self.policy, self.target_policy), (self.critics, self.target_critics)]

    def compute_q_values(self, batch: Batch, actions: torch.Tensor | None = None) -> Batch:
        """Return `qf_preds`: values of the first critic for actions (default: the policy's)."""
        actions = self.policy(batch) if actions is None else actions
        return {"qf_preds": self.critics.each[0](batch, actions)}

    def value_of_policy(self, batch: Batch) -> torch.Tensor:
        """Return Q(s, pi(s)), [B], whose gradient reaches the policy only."""
        with frozen(self.critics.each[0]):
            values: torch.Tensor = self.compute_q_values(batch)["qf_preds"]
        return values

    def forward_target(self, batch: Batch, actions: torch.Tensor | None = None) -> torch.Tensor:
        """Return the smaller of the target critics' values of the target policy's actions."""
        actions = self.target_policy(batch) if actions is None else actions
        return smallest(self.target_critics(batch, actions))

    def _forward(self, batch: Batch, **kwargs: object) -> Batch:
        return {Columns.ACTIONS: self.policy(batch)}

    def acting_policy(self) -> ActingPolicy:
        """Return the acting policy with Gaussian noise."""
        stddev = Schedule(self.model_config.get("exploration_noise", 0.1), "exploration_noise")
        return NoisyActing(self, stddev)


class NoisyActing:
    """Takes the policy's actions, with Gaussian noise while exploring."""

    noise_kind: Literal["uniform", "normal"] = "normal"

    def __init__(self, module: DefaultTD3TorchRLModule, stddev: Schedule) -> None:
        self._module = module
        self._schedule = stddev
        self.noise_size = size_of(module.action_space)
        self.stddev = stddev.value(0)
        self._network: NumpyNetwork | None = None
        if type(module) is DefaultTD3TorchRLModule:
            self._network = numpy_network(module.policy.encoder, module.policy.head)

    def set_step(self, step: int) -> None:
        """Set the standard deviation according to the number of sampled environment steps."""
        self.stddev = self._schedule.value(step)

    def act(
        self, obs: Tree, noise: np.ndarray, explore: bool, state: Tree = None
    ) -> tuple[Batch, Tree]:
        """Return actions [N, …] in [-1, 1]."""
        if self._network is not None:
            actions = self._network(obs).reshape(-1, *self._module.action_space.shape)
        else:
            device = next(self._module.parameters()).device
            batch = {Columns.OBS: map_tree(lambda leaf: to_tensor(leaf, device), obs)}
            with torch.inference_mode():
                actions = to_numpy(self._module.policy(batch))
        if explore:
            added = (self.stddev * noise).reshape(actions.shape).astype(actions.dtype)
            actions = np.clip(actions + added, -1.0, 1.0)
        return {Columns.ACTIONS: actions}, None
