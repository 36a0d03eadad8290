"""`TorchModelV2`: the network interface of older releases, and its inputs.

A network gets flat observations and a list of states, returns the parameters of the action
distribution, and stores the inputs of `value_function()` from the last pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from syncline.rl.modules.torch.observations import at, leaf_spaces, to_vector, vector_size
from syncline.rl.older.view_requirement import ViewRequirement
from syncline.rl.value_types import Batch, CheckedSpace, Results, Space, Tree

OBS, OBS_FLAT = "obs", "obs_flat"


class ModelV2:
    """Base of networks; implement `forward`, and `value_function` for algorithms with a critic.

    Args:
        obs_space: Space of the flat observations; its `original_space` may be nested.
        action_space: Space of the actions.
        num_outputs: Number of outputs of `forward` per observation.
        model_config: Options of the network, including `custom_model_config`.
        name: Name of the network.
        framework: "torch".
    """

    def __init__(
        self,
        obs_space: Space,
        action_space: CheckedSpace,
        num_outputs: int | None,
        model_config: Mapping[str, object],
        name: str,
        framework: str = "torch",
    ) -> None:
        self.obs_space = obs_space
        self.action_space = action_space
        self.num_outputs: Any = num_outputs
        self.model_config = dict(model_config or {})
        self.name = name or "default_model"
        self.framework = framework
        self._last_output: Tree = None
        self.time_major = bool(self.model_config.get("_time_major"))
        self.view_requirements: dict[str, ViewRequirement] = {
            OBS: ViewRequirement(shift=0, space=obs_space)
        }

    def forward(
        self, input_dict: Batch, state: list[Tree], seq_lens: Tree
    ) -> tuple[Tree, list[Tree]]:
        """Return outputs [B, num_outputs] and the next states.

        Args:
            input_dict: "obs", nested as in the environment, and "obs_flat" [B, …].
            state: Arrays [B, …] of the states; with sequences [S, …].
            seq_lens: Lengths of sequences, [S]; None for single steps.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `forward`.")

    def value_function(self) -> Tree:
        """Return the values [B] of the last observations."""
        raise NotImplementedError(f"{type(self).__name__} must implement `value_function`.")

    def get_initial_state(self) -> list[Tree]:
        """Return the arrays of the state at the beginning of an episode, or an empty list."""
        return []

    def custom_loss(self, policy_loss: Any, loss_inputs: Batch) -> Tree:
        """Return the loss, or list of losses, that replaces the algorithm's."""
        return policy_loss

    def metrics(self) -> Results:
        """Return metrics for the results."""
        return {}

    def last_output(self) -> Tree:
        """Return the result of the last call."""
        return self._last_output

    def is_time_major(self) -> bool:
        """Return True if sequences are time-major."""
        return self.time_major

    def __call__(
        self,
        input_dict: Mapping[str, object],
        state: list[Tree] | None = None,
        seq_lens: Tree = None,
    ) -> tuple[Tree, list[Tree]]:
        """Call `forward` with the nested "obs" and "obs_flat"."""
        given = dict(input_dict)
        obs = given[OBS]
        original = getattr(self.obs_space, "original_space", None)
        if isinstance(obs, torch.Tensor):
            given.setdefault(OBS_FLAT, obs.reshape(obs.shape[0], -1).float())
            if isinstance(original, (gym.spaces.Dict, gym.spaces.Tuple)):
                given[OBS] = unpacked(original, obs)
        elif OBS_FLAT not in given and original is not None:
            given[OBS_FLAT] = packed(original, obs)
        outputs = self.forward(given, state or [], seq_lens)
        if not isinstance(outputs, tuple) or len(outputs) != 2:
            raise ValueError(
                f"{type(self).__name__}.forward() returned a {type(outputs).__name__}: return the "
                "outputs and the list of states, `return logits, state`."
            )
        self._last_output = outputs[0]
        return outputs[0], list(outputs[1])


class TorchModelV2(ModelV2):
    """Base of networks in torch: `class Mine(TorchModelV2, nn.Module)`."""

    def __init__(
        self,
        obs_space: Space,
        action_space: CheckedSpace,
        num_outputs: int | None,
        model_config: Mapping[str, object],
        name: str,
    ) -> None:
        if not isinstance(self, nn.Module):
            raise ValueError(
                f"{type(self).__name__} must also be a subclass of torch.nn.Module: "
                f"`class {type(self).__name__}(TorchModelV2, nn.Module)`."
            )
        ModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name, "torch")

    def variables(self, as_dict: bool = False) -> Any:
        """Return all parameters and buffers."""
        state = getattr(self, "state_dict")()  # noqa: B009
        return dict(state) if as_dict else list(state.values())

    def trainable_variables(self, as_dict: bool = False) -> Any:
        """Return the trainable parameters."""
        parameters: Any = getattr(self, "named_parameters")()  # noqa: B009
        found = {name: each for name, each in parameters if each.requires_grad}
        return found if as_dict else list(found.values())


class RecurrentNetwork(TorchModelV2):
    """Base of networks with memory; implement `forward_rnn` and `get_initial_state`."""

    def forward(
        self, input_dict: Batch, state: list[Tree], seq_lens: Tree
    ) -> tuple[Tree, list[Tree]]:
        """Add the time dimension to observations, and call `forward_rnn`."""
        flat = input_dict[OBS_FLAT].float()
        inputs = add_time_dimension(flat, seq_lens=seq_lens)
        output, new_state = self.forward_rnn(inputs, state, seq_lens)
        return output.reshape(-1, output.shape[-1]), new_state

    def forward_rnn(
        self, inputs: torch.Tensor, state: list[Tree], seq_lens: Tree
    ) -> tuple[torch.Tensor, list[Tree]]:
        """Return outputs [S, L, num_outputs] and the states after each sequence.

        Args:
            inputs: Flat observations, [S, L, …].
            state: Arrays [S, …] before each sequence.
            seq_lens: Steps of each sequence, [S].
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `forward_rnn`.")


def add_time_dimension(
    padded_inputs: torch.Tensor,
    *,
    seq_lens: Tree = None,
    max_seq_len: int | None = None,
    **_: object,
) -> torch.Tensor:
    """Reshape rows [S * L, …] to sequences [S, L, …]."""
    count = padded_inputs.shape[0] if seq_lens is None else len(seq_lens)
    length = max_seq_len or padded_inputs.shape[0] // count
    return padded_inputs.reshape(-1, length, *padded_inputs.shape[1:])


def preprocessed_space(space: Space) -> Space:
    """Return the space of flat observations; for a Box, `space` itself."""
    if isinstance(space, gym.spaces.Box):
        return space
    size = sum(vector_size(leaf) for leaf in leaf_spaces(space).values())
    flat: Any = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)
    flat.original_space = space
    return flat  # type: ignore[no-any-return]


def packed(space: Space, obs: Tree) -> torch.Tensor:
    """Flatten observations [B, …] of a space."""
    if isinstance(space, gym.spaces.Box):
        tensor: torch.Tensor = obs
        return tensor
    parts = [to_vector(leaf, at(obs, path)) for path, leaf in leaf_spaces(space).items()]
    return torch.cat(parts, -1)


def unpacked(space: Space, flat: torch.Tensor) -> Tree:
    """Unflatten observations [B, size]; Discrete parts remain one-hot."""
    if isinstance(space, gym.spaces.Dict):
        pieces = _split(list(space.spaces.values()), flat)
        return dict(zip(space.spaces, pieces, strict=True))
    if isinstance(space, gym.spaces.Tuple):
        return tuple(_split(list(space.spaces), flat))
    if isinstance(space, gym.spaces.Box):
        return flat.reshape(*flat.shape[:-1], *space.shape)
    return flat


def _split(spaces: list[Tree], flat: torch.Tensor) -> list[Tree]:
    sizes = [sum(vector_size(leaf) for leaf in leaf_spaces(each).values()) for each in spaces]
    pieces = torch.split(flat, sizes, -1)
    return [unpacked(each, piece) for each, piece in zip(spaces, pieces, strict=True)]
