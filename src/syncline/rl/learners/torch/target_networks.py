"""`TargetNetworkLearner`: a learner whose modules have target networks, and errors for replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch

from syncline.rl.buffers.replay_columns import DISCOUNTS, N_STEP, WEIGHTS
from syncline.rl.checkpointable import StateDict
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree
from syncline.rl.learners.torch.torch_learner import TorchLearner
from syncline.rl.learners.torch.train_batch import Batch
from syncline.rl.metrics.names import NUM_ENV_STEPS_SAMPLED_LIFETIME

NUM_TARGET_UPDATES = "num_target_updates"

TargetTensors: TypeAlias = tuple[
    list[torch.Tensor], list[torch.Tensor], list[tuple[torch.Tensor, torch.Tensor]]
]


class TargetNetworkLearner(TorchLearner):
    """Moves target networks every `target_network_update_freq` environment steps."""

    def build(self) -> None:
        """Create modules, target networks and optimizers."""
        self.errors: dict[str, torch.Tensor] = {}
        self._reported: dict[str, dict[str, Any]] = {}
        self._last_target_update: dict[str, int] = {}
        self._targets_of: dict[str, tuple[Any, Any]] = {}
        super().build()

    def update_on_rows(
        self, columns: Mapping[str, dict[str, Tree]], *, timesteps: Mapping[str, int]
    ) -> dict[str, np.ndarray]:
        """Take one step on rows by module id; return their errors, [B]."""
        self.errors = {}
        super().update_on_rows(columns, timesteps=timesteps)
        return {module_id: found.cpu().numpy() for module_id, found in self.errors.items()}

    def report(self, module_id: str, **values: Any) -> None:
        """Report tensors of the latest update: their means are metrics.

        Means are taken when results are read, once in many updates.
        """
        self._reported[module_id] = values

    def reduce_metrics(self) -> dict[str, Any]:
        """Return the metrics since the previous call."""
        for module_id, values in self._reported.items():
            means = {
                name: value.detach().mean() if isinstance(value, torch.Tensor) else value
                for name, value in values.items()
            }
            self.metrics.log_dict(means, key=module_id, window=1)
        self._reported = {}
        return super().reduce_metrics()

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Move the target networks that are due."""
        super().after_gradient_based_update(timesteps=timesteps)
        step = int(timesteps.get(NUM_ENV_STEPS_SAMPLED_LIFETIME, 0))
        for module_id, module in self.module.items():
            config: Any = self.config.get_config_for_module(module_id)
            if self.is_target_due(module_id, config, step):
                self._last_target_update[module_id] = step
                self._move_targets(module_id, module, config.tau)
                self.metrics.log_value((module_id, NUM_TARGET_UPDATES), 1, reduce="lifetime_sum")

    def _move_targets(self, module_id: str, module: Any, tau: float) -> None:
        """Move the targets of a module; finding its parameters takes longer than moving them."""
        known, tensors = self._targets_of.get(module_id, (None, []))
        if known is not module:
            tensors = target_tensors(module.get_target_network_pairs())
            self._targets_of[module_id] = (module, tensors)
        move_tensors(tensors, tau)

    def is_target_due(self, module_id: str, config: Any, step: int) -> bool:
        """Return True if the target networks of a module have to move after `step` steps."""
        last = self._last_target_update.get(module_id, 0)
        return bool(step - last >= config.target_network_update_freq)

    def remove_module(self, module_id: str, **options: Any) -> None:
        """Remove a module, its target networks and its optimizers."""
        super().remove_module(module_id, **options)
        self._last_target_update.pop(module_id, None)
        self._targets_of.pop(module_id, None)

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
    if DISCOUNTS in batch:
        known: torch.Tensor = batch[DISCOUNTS]
        return known
    goes_on: torch.Tensor = ~batch[Columns.TERMINATEDS]
    return goes_on * (gamma ** batch[N_STEP] if N_STEP in batch else gamma)


def weighted_mean(losses: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return the mean over the rows, [..., B], weighted as the replay buffer says."""
    return (losses * batch[WEIGHTS] if WEIGHTS in batch else losses).mean(-1)


def move_targets(pairs: Any, tau: float) -> None:
    """Set each target network to (1 - tau) target + tau online; buffers are copied.

    Args:
        pairs: Online and target networks.
        tau: 1 to copy the weights.
    """
    move_tensors(target_tensors(pairs), tau)


def target_tensors(pairs: Any) -> TargetTensors:
    """Return parameters of targets, parameters of online networks, and pairs of buffers."""
    online = [each for one, _ in pairs for each in one.parameters()]
    target = [each for _, other in pairs for each in other.parameters()]
    buffers = [
        each for one, other in pairs for each in zip(other.buffers(), one.buffers(), strict=True)
    ]
    return target, online, buffers


@torch.no_grad()
def move_tensors(tensors: TargetTensors, tau: float) -> None:
    """Move what `target_tensors` returned."""
    target, online, buffers = tensors
    torch._foreach_lerp_(target, online, tau)
    for kept, new in buffers:
        kept.copy_(new)
