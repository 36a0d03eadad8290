"""`DreamerV3TorchRLModule`: world model, actor and critic, with acting and imagination."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import nn
from torch.nn.functional import one_hot

from syncline.rl.algorithms.dreamerv3.sequence_replay import (
    IS_FIRST,
    LATENT_H,
    LATENT_Z,
    START_ACTION,
    START_H,
    START_Z,
)
from syncline.rl.algorithms.dreamerv3.torch.actor import ActionVectors, Actor
from syncline.rl.algorithms.dreamerv3.torch.formulas import TwoHot
from syncline.rl.algorithms.dreamerv3.torch.networks import (
    MLP,
    Decoder,
    Encoder,
    ModelSize,
    Observations,
    model_size,
)
from syncline.rl.algorithms.dreamerv3.torch.rssm import RSSM, Observed
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import map_tree
from syncline.rl.modules.acting import ActingPolicy
from syncline.rl.modules.apis import InferenceOnlyAPI, TargetNetworkAPI
from syncline.rl.modules.torch.torch_acting import to_numpy, to_tensor
from syncline.rl.modules.torch.torch_rl_module import TorchRLModule
from syncline.rl.value_types import Arrays, Batch, Tree

FIRST, H, Z, ACTION = "is_first", "h", "z", "a"
"""Parts of the recurrent state."""


class WorldModel(nn.Module):
    """Encoder, recurrent state-space model, and predictors of observation, reward and continuation.

    Args:
        observations: Parts of the observation space.
        action_size: Length of actions as vectors.
        size: Widths.
    """

    def __init__(self, observations: Observations, action_size: int, size: ModelSize) -> None:
        super().__init__()
        self.observations = observations
        self.encoder = Encoder(observations, size)
        self.rssm = RSSM(size, self.encoder.num_outputs, action_size)
        self.features = self.rssm.gru_units + self.rssm.z_size
        units, layers = size.dense_units, size.num_dense_layers
        self.decoder = Decoder(self.features, observations, size)
        self.reward = MLP(self.features, units, layers, TwoHot().num_bins, zero=True)
        self.continues = MLP(self.features, units, layers, 1)


@dataclass(frozen=True, kw_only=True)
class Dream:
    """Imagined trajectories, each starting from one observed state."""

    features: torch.Tensor
    """States [H + 1, N, F]."""
    actions: torch.Tensor
    """Action vectors in the first H states, [H, N, A]."""


class DreamerV3TorchRLModule(TorchRLModule, InferenceOnlyAPI, TargetNetworkAPI):
    """The networks of DreamerV3.

    The recurrent state contains the latents before the previous action, that action, and a flag for
    the beginning of an episode.
    """

    def setup(self) -> None:
        """Create the networks."""
        config = self.model_config
        size = model_size(config)
        self.vectors = ActionVectors(self.action_space)
        use_symlog = config.get("symlog_obs", "auto") in ("auto", True)
        self.world_model = WorldModel(
            Observations(self.observation_space, use_symlog), self.vectors.size, size
        )
        features = self.world_model.features
        self.actor = Actor(features, self.vectors, size)
        self.critic = MLP(
            features, size.dense_units, size.num_dense_layers, TwoHot().num_bins, zero=True
        )
        self.register_buffer("return_percentiles", torch.full((2,), math.nan))
        if not self.inference_only:
            self.make_target_networks()

    def get_non_inference_attributes(self) -> list[str]:
        """Return the names of the networks that only learning needs."""
        heads = [f"world_model.{name}" for name in ("decoder", "reward", "continues")]
        return [*heads, "critic", "slow_critic", "return_percentiles"]

    def make_target_networks(self) -> None:
        """Create the slow critic, with the weights of the critic."""
        self.slow_critic = copy.deepcopy(self.critic).requires_grad_(False)

    def get_target_network_pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        """Return critic and slow critic."""
        return [(self.critic, self.slow_critic)]

    def forward_target(self, batch: Batch) -> torch.Tensor:
        """Return the logits of the slow critic for `batch["features"]`."""
        logits: torch.Tensor = self.slow_critic(batch["features"])
        return logits

    # -- acting

    def get_initial_state(self) -> dict[str, np.ndarray]:
        """Return the state before the first step of an episode."""
        rssm = self.world_model.rssm
        return {
            H: np.zeros(rssm.gru_units, np.float32),
            Z: np.zeros(rssm.num_categoricals, np.int64),
            ACTION: np.zeros(self.vectors.size, np.float32),
            FIRST: np.ones(1, np.float32),
        }

    @property
    def num_noise(self) -> int:
        """Uniform numbers of a step: for z and for the action."""
        return self.world_model.rssm.num_categoricals + self.vectors.num_noise

    def act(
        self, obs: Tree, state: dict[str, torch.Tensor], noise: torch.Tensor, explore: bool
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return actions [N, …] and the next state.

        Args:
            obs: Observations [N, …].
            state: Parts of the state, [N, …].
            noise: Uniform numbers [N, num_noise].
            explore: Draw actions; otherwise take the most likely ones.
        """
        rssm = self.world_model.rssm
        embedding = self.world_model.encoder(*self.world_model.observations.parts(obs))
        first = state[FIRST]
        initial_h, initial_z = rssm.initial()
        z = self._one_hot(state[Z])
        h = torch.lerp(state[H], initial_h.expand_as(state[H]), first)
        z = torch.lerp(z, initial_z.expand_as(z), first)
        h = rssm.next_h(h, z, state[ACTION] * (1.0 - first))
        drawn = rssm.sample(rssm.posterior_of(h, embedding), noise[:, : rssm.num_categoricals])
        inputs = self.actor(torch.cat([h, drawn], -1))
        if explore:
            vectors = self.actor.sample(inputs, noise[:, rssm.num_categoricals :])
        else:
            vectors = self.actor.mode(inputs)
        latent = drawn.reshape(-1, rssm.num_categoricals, rssm.num_classes).argmax(-1)
        following = {
            H: h,
            Z: latent,
            ACTION: self.vectors.clipped(vectors),
            FIRST: torch.zeros_like(first),
        }
        return self.vectors.decode(vectors), following

    def _one_hot(self, indices: torch.Tensor) -> torch.Tensor:
        """Return z as one-hot vectors [N, K C] of indices [N, K]."""
        return one_hot(indices.long(), self.world_model.rssm.num_classes).flatten(-2).float()

    def _act_on_sequence(self, batch: Batch, explore: bool) -> Batch:
        """Act on observations [S, L, …] step by step, with random numbers from torch."""
        obs, state = batch[Columns.OBS], batch[Columns.STATE_IN]
        size, length = _first(obs).shape[:2]
        found = []
        with torch.no_grad():
            for t in range(length):
                noise = torch.rand(size, self.num_noise, device=state[H].device)
                now = map_tree(lambda leaf, t=t: leaf[:, t], obs)
                actions, state = self.act(now, state, noise, explore)
                found.append(actions)
        return {Columns.ACTIONS: torch.stack(found, 1), Columns.STATE_OUT: state}

    def _forward_inference(self, batch: Batch, **kwargs: object) -> Batch:
        return self._act_on_sequence(batch, False)

    def _forward_exploration(self, batch: Batch, **kwargs: object) -> Batch:
        return self._act_on_sequence(batch, True)

    def acting_policy(self) -> ActingPolicy:
        """Return the step from observations to actions."""
        return DreamerActing(self)

    # -- training

    def _forward_train(self, batch: Batch, **kwargs: object) -> Batch:
        """Return the observed states of sequences [B, T, …], time-major, and the decoder's targets.

        `batch["actions"]` follow the observations. Sequences begin in the initial state, or in
        `start_h`, `start_z` after `start_action` if the batch contains them.
        """
        model = self.world_model
        obs = map_tree(lambda leaf: leaf.transpose(0, 1), batch[Columns.OBS])
        vector, images = model.observations.parts(obs)
        actions = self.vectors.encode(batch[Columns.ACTIONS].transpose(0, 1))
        first_action, start = torch.zeros_like(actions[0]), None
        if START_H in batch:
            first_action = self.vectors.encode(batch[START_ACTION])
            start = batch[START_H], self._one_hot(batch[START_Z])
        before = torch.cat([first_action.unsqueeze(0), actions[:-1]])
        is_first = batch[IS_FIRST].transpose(0, 1)
        noise = torch.rand(*is_first.shape, model.rssm.num_categoricals, device=is_first.device)
        observed = model.rssm.observe(model.encoder(vector, images), before, is_first, noise, start)
        return {"observed": observed, "vector": vector, "images": images}

    @torch.no_grad()
    def dream(self, observed: Observed, horizon: int) -> Dream:
        """Imagine `horizon` steps with the actor's actions from each observed state."""
        rssm = self.world_model.rssm
        h, z = observed.h.detach().flatten(0, 1), observed.z.detach().flatten(0, 1)
        noise = torch.rand(horizon, len(h), self.num_noise, device=h.device)
        states, actions = [torch.cat([h, z], -1)], []
        for t in range(horizon):
            vectors = self.actor.sample(
                self.actor(states[-1]), noise[t, :, rssm.num_categoricals :]
            )
            h = rssm.next_h(h, z, self.vectors.clipped(vectors))
            z = rssm.sample(rssm.prior_of(h), noise[t, :, : rssm.num_categoricals])
            states.append(torch.cat([h, z], -1))
            actions.append(vectors)
        return Dream(features=torch.stack(states), actions=torch.stack(actions))


class DreamerActing:
    """Acts with separate noise for each environment. Implements `ActingPolicy`."""

    noise_kind: Literal["uniform", "normal"] = "uniform"

    def __init__(self, module: DreamerV3TorchRLModule) -> None:
        self._module = module
        self.noise_size = module.num_noise
        self._parameter = next(module.parameters())
        self._records_states = bool(module.model_config.get("use_stored_states"))

    def act(
        self, obs: Arrays, noise: np.ndarray, explore: bool, state: Arrays = None
    ) -> tuple[Batch, Arrays]:
        """Return the actions of one step and the next state. See `ActingPolicy.act`."""
        device = self._parameter.device
        if state is None:
            state = {
                name: np.repeat(leaf[None], len(noise), axis=0)
                for name, leaf in self._module.get_initial_state().items()
            }
        with torch.inference_mode():
            actions, following = self._module.act(
                map_tree(lambda leaf: to_tensor(leaf, device), obs),
                {name: to_tensor(leaf, device) for name, leaf in state.items()},
                to_tensor(noise, device),
                explore,
            )
        columns = {Columns.ACTIONS: to_numpy(actions)}
        next_state = {name: to_numpy(leaf) for name, leaf in following.items()}
        if self._records_states:
            columns |= {LATENT_H: next_state[H], LATENT_Z: next_state[Z].astype(np.uint8)}
        return columns, next_state


def _first(tree: Tree) -> torch.Tensor:
    while isinstance(tree, (dict, tuple, list)):
        tree = next(iter(tree.values())) if isinstance(tree, dict) else tree[0]
    found: torch.Tensor = tree
    return found
