"""`AlphaZeroTorchRLModule`: priors of actions and the value of a position."""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium as gym
import numpy as np
import torch

from syncline.rl.algorithms.alpha_zero.simulator import ACTION_MASK, OBS, Position
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import map_tree, stack_trees
from syncline.rl.modules.apis import ValueFunctionAPI
from syncline.rl.modules.rl_module import Batch
from syncline.rl.modules.torch.catalog import PPOCatalog
from syncline.rl.modules.torch.models import ENCODER_OUT
from syncline.rl.modules.torch.torch_acting import to_tensor
from syncline.rl.modules.torch.torch_rl_module import TorchRLModule
from syncline.rl.value_types import Tree


class AlphaZeroTorchRLModule(TorchRLModule, ValueFunctionAPI):
    """A shared encoder with one head for the logits and one for the value.

    Observations are dicts with the keys `obs` and `action_mask`, or any value without a mask.
    Override `logits_and_values` for a network of your own.
    """

    def setup(self) -> None:
        """Build encoder and heads."""
        space = self.observation_space
        self.has_mask = isinstance(space, gym.spaces.Dict) and ACTION_MASK in space.spaces
        if self.has_mask and OBS not in space.spaces:
            raise ValueError(
                f"Observations with 'action_mask' also need the key 'obs', not {space}."
            )
        inner = space[OBS] if self.has_mask else space
        if any(self.model_config.get(f"use_{kind}") for kind in ("lstm", "gru", "attention")):
            raise ValueError(
                "AlphaZero evaluates positions on their own, without memory. Remove `use_lstm`, "
                "`use_gru` and `use_attention` from the model configuration."
            )
        config = {**self.model_config, "vf_share_layers": True}
        catalog = PPOCatalog(inner, self.action_space, config)
        self.encoder = catalog.actor_critic_encoder_config.base_encoder_config.build("torch")
        self.pi = catalog.build_pi_head()
        self.vf = catalog.build_vf_head()

    def logits_and_values(self, obs: Tree) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits [B, A] and values [B] of observations, without the mask."""
        latent = self.encoder({Columns.OBS: obs})[ENCODER_OUT]
        return self.pi(latent), self.vf(latent).squeeze(-1)

    def compute_priors_and_value(self, obs: Tree) -> tuple[torch.Tensor, torch.Tensor]:
        """Return priors [B, A], 0 for masked actions, and values [B]."""
        logits, values = self.masked_logits_and_values(obs)
        return torch.softmax(logits, -1), values

    def masked_logits_and_values(self, obs: Tree) -> tuple[torch.Tensor, torch.Tensor]:
        """Return values [B] and logits [B, A] with the minimum for masked actions."""
        logits, values = self.logits_and_values(obs[OBS] if self.has_mask else obs)
        if self.has_mask:
            logits = logits.masked_fill(obs[ACTION_MASK] <= 0, torch.finfo(logits.dtype).min)
        return logits, values

    def evaluate_positions(self, positions: Sequence[Position]) -> tuple[np.ndarray, np.ndarray]:
        """Return priors [B, A] and values [B] of positions, in one pass."""
        device = next(self.parameters()).device
        obs = stack_trees(np.stack, [each.obs for each in positions])
        with torch.inference_mode():
            priors, values = self.compute_priors_and_value(
                map_tree(lambda leaf: to_tensor(leaf, device), obs)
            )
        return priors.cpu().numpy(), values.cpu().numpy()

    def _forward(self, batch: Batch, **kwargs: object) -> Batch:
        logits, values = self.masked_logits_and_values(batch[Columns.OBS])
        return {Columns.ACTION_DIST_INPUTS: logits, Columns.VF_PREDS: values}

    def compute_values(self, batch: Batch, embeddings: Tree = None) -> Tree:
        """Return the values of the observations, [B]."""
        return self.masked_logits_and_values(batch[Columns.OBS])[1]
