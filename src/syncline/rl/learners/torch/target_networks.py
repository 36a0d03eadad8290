"""`TargetNetworkLearner`: a learner whose modules have target networks, and errors for replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from syncline.rl.buffers.replay_columns import N_STEP, WEIGHTS
from syncline.rl.checkpointable import StateDict
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree
from syncline.rl.learners.torch.torch_learner import TorchLearner
from syncline.rl.learners.torch.train_batch import Batch
from syncline.rl.metrics.names import NUM_ENV_STEPS_SAMPLED_LIFETIME

NUM_TARGET_UPDATES = "num_target_updates"


class TargetNetworkLearner(TorchLearner):
    """Moves target networks every `target_network_update_freq` environment steps."""

    def build(self) -> None:
        """Create modules, target networks and optimizers."""
        self.errors: dict[str, torch.Tensor] = {}
        self._last_target_update: dict[str, int] = {}
        super().build()

    def update_on_rows(
        self, columns: Mapping[str, dict[str, Tree]], *, timesteps: Mapping[str, int]
    ) -> dict[str, np.ndarray]:
        """Take one step on rows by module id; return their errors, [B]."""
        self.errors = {}
        super().update_on_rows(columns, timesteps=timesteps)
        return {module_id: found.cpu().numpy() for module_id, found in self.errors.items()}

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Move the target networks that are due."""
        super().after_gradient_based_update(timesteps=timesteps)
        step = int(timesteps.get(NUM_ENV_STEPS_SAMPLED_LIFETIME, 0))
        for module_id, module in self.module.items():
            config: Any = self.config.get_config_for_module(module_id)
            if self.is_target_due(module_id, config, step):
                self._last_target_update[module_id] = step
                move_targets(module.get_target_network_pairs(), config.tau)
                self.metrics.log_value((module_id, NUM_TARGET_UPDATES), 1, reduce="lifetime_sum")

    def is_target_due(self, module_id: str, config: Any, step: int) -> bool:
        """Return True if the target networks of a module have to move after `step` steps."""
        last = self._last_target_update.get(module_id, 0)
        return bool(step - last >= config.target_network_update_freq)

    def get_state(self, *args: Any, **kwargs: Any) -> StateDict:
        """Return modules, optimizers and counters."""
        return {
            **super().get_state(*args, **kwargs),
            "last_target_update": dict(self._last_target_update),
        }

    def set_state(self, state: StateDict) -> None:
        """Set what `get_state` returned."""
        super().set_state(state)
        self._last_target_update.update(state.get("last_target_update", {}))


def discounts(gamma: float, batch: Batch) -> torch.Tensor:
    """Return gamma^n, and 0 after terminal states, [B]; recorded rows have n = 1."""
    goes_on: torch.Tensor = ~batch[Columns.TERMINATEDS]
    return goes_on * (gamma ** batch[N_STEP] if N_STEP in batch else gamma)


def weighted_mean(losses: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return the mean over the rows, [..., B], weighted as the replay buffer says."""
    return (losses * batch[WEIGHTS] if WEIGHTS in batch else losses).mean(-1)


@torch.no_grad()
def move_targets(pairs: Any, tau: float) -> None:
    """Set each target network to (1 - tau) target + tau online; buffers are copied.

    Args:
        pairs: Online and target networks.
        tau: 1 to copy the weights.
    """
    for online, target in pairs:
        torch._foreach_lerp_(list(target.parameters()), list(online.parameters()), tau)
        for kept, new in zip(target.buffers(), online.buffers(), strict=True):
            kept.copy_(new)
