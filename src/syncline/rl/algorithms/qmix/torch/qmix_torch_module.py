"""`QMixTorchRLModule`: one Q-network for all agents of a team, the mixer, and their targets."""

from __future__ import annotations

import copy
from typing import Literal

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from syncline.rl.algorithms.qmix.torch.mixers_torch import QMixer, VDNMixer
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import first_leaf, map_tree
from syncline.rl.config.schedule import Schedule
from syncline.rl.modules.acting import ActingPolicy
from syncline.rl.modules.apis import InferenceOnlyAPI, TargetNetworkAPI
from syncline.rl.modules.rl_module import Batch
from syncline.rl.modules.torch.catalog import Catalog
from syncline.rl.modules.torch.models import ENCODER_OUT
from syncline.rl.modules.torch.observations import leaf_spaces, to_vector, vector_size
from syncline.rl.modules.torch.torch_acting import to_numpy, to_tensor
from syncline.rl.modules.torch.torch_rl_module import TorchRLModule
from syncline.rl.value_types import Network, Space, SpacePair, Tree

OBS, STATE, ACTION_MASK = "obs", "state", "action_mask"
"""Keys of an agent's observation."""
Q_CHOSEN = "q_chosen"
"""Values of the taken actions, [S, L, n]."""
Q_NEXT = "q_next"
"""Target network values of the best next actions, [S, L, n]."""
TEAM_CHOSEN, TEAM_NEXT = "team_chosen", "team_next"
"""Mixed target values, [S, L]; without a mixer as above."""
EXCLUDED = -1e10
"""Value of masked actions."""


class QMixTorchRLModule(TorchRLModule, TargetNetworkAPI, InferenceOnlyAPI):
    """Values of a team's actions.

    The observation is a tuple with an entry for each of n agents: a dict with "obs" and optionally
    "state" (of the whole game) and "action_mask", or only the value of "obs". Agents share a
    network, whose input also contains the agent's index.
    """

    def setup(self) -> None:
        """Build the network of agents, the mixer, and their targets."""
        obs_space, action_space = self._team_spaces()
        self.num_agents = len(action_space)
        self.num_actions = int(action_space[0].n)
        entry = obs_space[0]
        self.is_dict = isinstance(entry, gym.spaces.Dict) and OBS in entry.spaces
        self._obs_space = entry[OBS] if self.is_dict else entry
        self._state_space = entry.spaces.get(STATE) if self.is_dict else None
        self.has_mask = self.is_dict and ACTION_MASK in entry.spaces
        self._obs_size = _size(self._obs_space)
        config = {"vf_share_layers": True, **self.model_config}
        vector = gym.spaces.Box(-np.inf, np.inf, (self._obs_size + self.num_agents,), np.float32)
        catalog = Catalog(vector, action_space[0], config)
        self.encoder = catalog.build_encoder(framework="torch")
        self.head = nn.Linear(int(catalog.latent_dims[0]), self.num_actions)
        if not self.inference_only:
            mixer, embed = config.get("mixer", "qmix"), config.get("mixing_embed_dim", 32)
            self.mixer: nn.Module | None = None
            if mixer == "qmix":
                self.mixer = QMixer(self.num_agents, self._state_size(), embed)
            elif mixer == "vdn":
                self.mixer = VDNMixer()
            self.make_target_networks()

    def _team_spaces(self) -> SpacePair:
        obs, actions = self.observation_space, self.action_space
        if (
            not isinstance(obs, gym.spaces.Tuple)
            or not isinstance(actions, gym.spaces.Tuple)
            or any(each != obs[0] for each in obs.spaces)
            or any(each != actions[0] for each in actions.spaces)
            or not isinstance(actions[0], gym.spaces.Discrete)
        ):
            raise ValueError(
                "QMIX needs a group of agents with equal observations and equal Discrete actions, "
                f"not the observation space {obs} and the action space {actions}. Group them with "
                "`MultiAgentEnv.with_agent_groups({'team': [agent, …]})`, and pad spaces that "
                "differ."
            )
        return obs, actions

    def _state_size(self) -> int:
        if self._state_space is not None:
            return _size(self._state_space)
        return self._obs_size * self.num_agents

    # -- targets

    def get_non_inference_attributes(self) -> list[str]:
        """Return the mixer and the targets."""
        return ["mixer", "target_encoder", "target_head", "target_mixer"]

    def make_target_networks(self) -> None:
        """Create the target networks, with the weights of the online ones."""
        self.target_encoder = copy.deepcopy(self.encoder).requires_grad_(False)
        self.target_head = copy.deepcopy(self.head).requires_grad_(False)
        self.target_mixer = copy.deepcopy(self.mixer)
        if self.target_mixer is not None:
            self.target_mixer.requires_grad_(False)

    def get_target_network_pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        """Return online and target networks."""
        pairs = [(self.encoder, self.target_encoder), (self.head, self.target_head)]
        if self.mixer is not None and self.target_mixer is not None:
            pairs.append((self.mixer, self.target_mixer))
        return [pair for pair in pairs if any(True for _ in pair[0].parameters())]

    def forward_target(self, batch: Batch) -> torch.Tensor:
        """Return the target network's values, [S, L, n, A]."""
        return self._values(batch, self.target_encoder, self.target_head)

    # -- values

    def get_initial_state(self) -> Tree:
        """Return the encoder's state for every agent, [n, …]; empty without memory."""
        if not hasattr(self.encoder, "get_initial_state"):
            return {}
        return map_tree(
            lambda leaf: np.repeat(np.asarray(leaf)[None], self.num_agents, axis=0),
            self.encoder.get_initial_state(),
        )

    def vectors(self, obs: Tree) -> torch.Tensor:
        """Return the inputs of the shared network, [..., n, D]."""
        parts = [_vector(self._obs_space, each[OBS] if self.is_dict else each) for each in obs]
        stacked = torch.stack(parts, -2)
        numbers = torch.eye(self.num_agents, device=stacked.device)
        return torch.cat([stacked, numbers.expand(*stacked.shape[:-1], -1)], -1)

    def states(self, obs: Tree) -> torch.Tensor:
        """Return the given states of the game [..., D], or the concatenated observations."""
        if self._state_space is not None:
            return _vector(self._state_space, obs[0][STATE])
        return self.vectors(obs)[..., : self._obs_size].flatten(-2)

    def masks(self, obs: Tree) -> torch.Tensor | None:
        """Return which actions are allowed, [..., n, A]; None if all are."""
        if not self.has_mask:
            return None
        return torch.stack([each[ACTION_MASK] for each in obs], -2) > 0

    def _values(self, batch: Batch, encoder: Network, head: Network) -> torch.Tensor:
        """Return values [S, L, n, A] of sequences that start at the beginning of episodes."""
        inputs = self.vectors(batch[Columns.OBS])
        sequences, length, agents, size = inputs.shape
        rows = inputs.transpose(1, 2).reshape(sequences * agents, length, size)
        encoded = encoder({Columns.OBS: rows, Columns.STATE_IN: self._first_states(sequences)})
        values: torch.Tensor = head(encoded[ENCODER_OUT])
        return values.view(sequences, agents, length, -1).transpose(1, 2)

    def _first_states(self, sequences: int) -> Tree:
        device = self.head.weight.device
        return map_tree(
            lambda leaf: torch.as_tensor(leaf, device=device).repeat(
                sequences, *[1] * (leaf.ndim - 1)
            ),
            self.get_initial_state(),
        )

    def compute_q_values(self, batch: Batch) -> tuple[torch.Tensor, Tree]:
        """Return values [B, n, A] of single steps, and the next states [B, n, …].

        Args:
            batch: Observations [B, …]; with memory also `state_in` [B, n, …].
        """
        inputs = self.vectors(batch[Columns.OBS])
        rows = inputs.flatten(0, 1)
        if not self.is_stateful():
            encoded = self.encoder({Columns.OBS: rows})
            return self.head(encoded[ENCODER_OUT]).view(*inputs.shape[:2], -1), None
        states = map_tree(lambda leaf: leaf.flatten(0, 1), batch[Columns.STATE_IN])
        encoded = self.encoder({Columns.OBS: rows.unsqueeze(1), Columns.STATE_IN: states})
        following = map_tree(
            lambda leaf: leaf.view(*inputs.shape[:2], *leaf.shape[1:]), encoded[Columns.STATE_OUT]
        )
        return self.head(encoded[ENCODER_OUT][:, 0]).view(*inputs.shape[:2], -1), following

    def _forward(self, batch: Batch, **kwargs: object) -> Batch:
        values, following = self.compute_q_values(batch)
        mask = self.masks(batch[Columns.OBS])
        if mask is not None:
            values = values.masked_fill(~mask, EXCLUDED)
        best = values.argmax(-1)
        out = {Columns.ACTIONS: tuple(best.unbind(-1)), "q_values": values}
        return out if following is None else {**out, Columns.STATE_OUT: following}

    def _forward_train(self, batch: Batch, **kwargs: object) -> Batch:
        """Return the values of taken and of next actions.

        Observations [S, L + 1, …] start at the beginning of episodes; actions are [S, L].
        """
        obs = batch[Columns.OBS]
        online = self._values(batch, self.encoder, self.head)
        actions = torch.stack(list(batch[Columns.ACTIONS]), -1).long().unsqueeze(-1)
        chosen = online[:, :-1].gather(-1, actions).squeeze(-1)
        with torch.no_grad():
            target = self.forward_target(batch)[:, 1:]
            chooser = online[:, 1:] if self.model_config.get("double_q", True) else target
            mask = self.masks(obs)
            if mask is not None:
                chooser = chooser.masked_fill(~mask[:, 1:], EXCLUDED)
            best = chooser.argmax(-1, keepdim=True)
            following = target.gather(-1, best).squeeze(-1)
        out = {Q_CHOSEN: chosen, Q_NEXT: following, TEAM_CHOSEN: chosen, TEAM_NEXT: following}
        if self.mixer is not None and self.target_mixer is not None:
            states = self.states(obs)
            out[TEAM_CHOSEN] = self.mixer(chosen, states[:, :-1])
            with torch.no_grad():
                out[TEAM_NEXT] = self.target_mixer(following, states[:, 1:])
        return out

    def acting_policy(self) -> ActingPolicy:
        """Return the epsilon-greedy acting policy of all agents."""
        return TeamActing(self, Schedule(self.model_config.get("epsilon", 0.0), "epsilon"))


class TeamActing:
    """Every agent takes a random allowed action with probability epsilon, else its best one."""

    noise_kind: Literal["uniform", "normal"] = "uniform"

    def __init__(self, module: QMixTorchRLModule, epsilon: Schedule) -> None:
        self._module = module
        self._schedule = epsilon
        self.noise_size = 2 * module.num_agents
        self.epsilon = epsilon.value(0)

    def set_step(self, step: int) -> None:
        """Set epsilon according to the number of sampled environment steps."""
        self.epsilon = self._schedule.value(step)

    def act(
        self, obs: Tree, noise: np.ndarray, explore: bool, state: Tree = None
    ) -> tuple[Batch, Tree]:
        """Return actions, a tuple of [N] for every agent."""
        module = self._module
        device = module.head.weight.device
        batch = {Columns.OBS: map_tree(lambda leaf: to_tensor(leaf, device), obs)}
        if state is not None:
            batch[Columns.STATE_IN] = map_tree(lambda leaf: to_tensor(leaf, device), state)
        with torch.inference_mode():
            out = module.forward_inference(batch)
        actions = np.stack([to_numpy(each) for each in out[Columns.ACTIONS]], -1)
        if explore and self.epsilon > 0.0:
            allowed = to_numpy(out["q_values"]) > EXCLUDED
            rows, agents = actions.shape
            pick, which = noise.reshape(rows, agents, 2).transpose(2, 0, 1)
            counts = np.maximum(allowed.sum(-1), 1)
            number = np.floor(which * counts)  # of the allowed actions
            chosen = (np.cumsum(allowed, -1) > number[..., None]).argmax(-1)
            actions = np.where(pick < self.epsilon, chosen, actions)
        following = out.get(Columns.STATE_OUT)
        return (
            {Columns.ACTIONS: tuple(np.moveaxis(actions, -1, 0))},
            None if following is None else map_tree(to_numpy, following),
        )


def _size(space: Space) -> int:
    return sum(vector_size(leaf) for leaf in leaf_spaces(space).values())


def _vector(space: Space, tree: Tree) -> torch.Tensor:
    """Return nested values [*batch, …] as vectors [*batch, D]."""
    found = leaf_spaces(space)
    if set(found) == {()}:
        return to_vector(space, first_leaf(tree))
    parts = []
    for path, leaf in found.items():
        value = tree
        for key in path:
            value = value[key]
        parts.append(to_vector(leaf, value))
    return torch.cat(parts, -1)
