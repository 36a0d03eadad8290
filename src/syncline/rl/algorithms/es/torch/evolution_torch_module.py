"""`EvolutionTorchRLModule`: the deterministic policy of ES and ARS, with its observation filter."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from syncline.rl.algorithms.es.torch.population_torch import (
    NumpyPopulation,
    Population,
    TorchPopulation,
    simple_layers,
)
from syncline.rl.columns.names import Columns
from syncline.rl.modules.rl_module import Batch
from syncline.rl.modules.torch.encoders import TorchMLPEncoder, plain_vector
from syncline.rl.modules.torch.models import ENCODER_OUT
from syncline.rl.modules.torch.torch_rl_module import TorchRLModule
from syncline.rl.value_types import Tree


class EvolutionTorchRLModule(TorchRLModule):
    """An encoder and a linear head. Discrete actions are the argmax of the outputs; continuous
    actions are the outputs.

    Without `fcnet_hiddens`, vectors go directly to the head: the linear policy of ARS. The buffers
    `filter_mean` and `filter_scale` standardize vectors; initially they are the identity.
    """

    filter_mean: torch.Tensor
    filter_scale: torch.Tensor

    def setup(self) -> None:
        """Build encoder, head and filter."""
        if self.is_stateful():
            raise ValueError(
                "ES and ARS train policies without memory. Remove `use_lstm`, `use_gru` and "
                "`use_attention` from the model configuration."
            )
        space = self.observation_space
        self.filters = plain_vector(space)
        size = space.shape[0] if self.filters else 1
        self.register_buffer("filter_mean", torch.zeros(size))
        self.register_buffer("filter_scale", torch.ones(size))
        self.encoder: nn.Module | None = None
        if not self.filters or self.model_config.get("fcnet_hiddens", True):
            self.encoder = self.catalog.build_encoder(framework="torch")
            size = int(self.catalog.latent_dims[0])
        self.head = nn.Linear(size, self._num_outputs())

    def is_stateful(self) -> bool:
        """Return True if the model configuration contains a memory."""
        return any(self.model_config.get(f"use_{kind}") for kind in ("lstm", "gru", "attention"))

    def _num_outputs(self) -> int:
        space = self.action_space
        if isinstance(space, gym.spaces.Discrete):
            return int(space.n)
        if isinstance(space, gym.spaces.MultiDiscrete):
            return int(space.nvec.sum())
        if isinstance(space, gym.spaces.Box):
            return int(np.prod(space.shape))
        raise ValueError(
            f"ES and ARS take Discrete, MultiDiscrete and Box actions, not {space}. Flatten the "
            "action space in a wrapper of the environment."
        )

    def policy_outputs(self, obs: Tree) -> torch.Tensor:
        """Return the outputs [B, K]: scores of actions, or a continuous action."""
        if self.filters:
            obs = (obs - self.filter_mean) * self.filter_scale
        latent = obs if self.encoder is None else self.encoder({Columns.OBS: obs})[ENCODER_OUT]
        outputs: torch.Tensor = self.head(latent)
        return outputs

    def actions_of(self, outputs: np.ndarray) -> np.ndarray:
        """Return the actions [S, …] for outputs [S, K]."""
        space = self.action_space
        found: np.ndarray
        if isinstance(space, gym.spaces.Discrete):
            found = outputs.argmax(-1)
            return found
        if isinstance(space, gym.spaces.MultiDiscrete):
            parts = np.split(outputs, np.cumsum(space.nvec.reshape(-1))[:-1], axis=-1)
            best = np.stack([part.argmax(-1) for part in parts], axis=-1)
            found = best.reshape(-1, *space.nvec.shape)
            return found
        found = outputs.reshape(-1, *space.shape)
        return found

    def _forward(self, batch: Batch, **kwargs: object) -> Batch:
        outputs = self.policy_outputs(batch[Columns.OBS])
        actions = self.actions_of(outputs.detach().cpu().numpy())
        return {Columns.ACTIONS: torch.from_numpy(actions).to(outputs.device)}

    def get_inference_action_dist_cls(self) -> type[Any]:
        """Raise NotImplementedError: the module returns actions."""
        raise NotImplementedError("The policies of ES and ARS are deterministic.")

    # -- weights as one vector

    def flat_weights(self) -> np.ndarray:
        """Return a copy of all parameters, [P], float32."""
        with torch.no_grad():
            vector = nn.utils.parameters_to_vector(self.parameters())
        flat: np.ndarray = vector.cpu().numpy().copy()
        return flat

    def set_filter(self, mean: np.ndarray, scale: np.ndarray) -> None:
        """Standardize observations by (obs - mean) * scale."""
        self.filter_mean.copy_(torch.from_numpy(mean))
        self.filter_scale.copy_(torch.from_numpy(scale))

    def population(self, thetas: np.ndarray) -> Population:
        """Return policies with the weights [S, P]."""
        if self.filters and (self.encoder is None or type(self.encoder) is TorchMLPEncoder):
            encoder: Any = self.encoder
            stacks = [] if encoder is None else [encoder.net.mlp]
            layers = simple_layers([*stacks, nn.Sequential(self.head)])
            if layers is not None:
                return NumpyPopulation(
                    layers,
                    list(self.parameters()),
                    thetas,
                    self.filter_mean.numpy().copy(),
                    self.filter_scale.numpy().copy(),
                )
        return TorchPopulation(self, thetas)
