"""`TargetNetworkLearner`: a learner for modules with target networks and replay priorities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch

from syncline.rl.buffers.replay_columns import DISCOUNTS, N_STEP, WEIGHTS
from syncline.rl.checkpointable import StateDict
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.learners.torch.torch_learner import TorchLearner
from syncline.rl.learners.torch.train_batch import Batch
from syncline.rl.metrics.names import NUM_ENV_STEPS_SAMPLED_LIFETIME
from syncline.rl.value_types import ModuleType, Network, Results, Selection

NUM_TARGET_UPDATES = "num_target_updates"

TargetTensors: TypeAlias = tuple[
    list[torch.Tensor], list[torch.Tensor], list[tuple[torch.Tensor, torch.Tensor]]
]

_HOOKS = frozenset(name for name in vars(TorchLearner) if not name.startswith("__"))
"""Methods that a subclass may override on a learner."""


class DirectStep(Protocol):
    """Computes the gradients of a loss without autograd."""

    def gradients(self, columns: dict[str, Tree]) -> tuple[np.ndarray, Batch]:
        """Set the gradients of all weights; return the errors, [B], and metrics."""
        ...


@dataclass(frozen=True, kw_only=True)
class _DirectUpdate:
    """Update procedure of a module."""

    module_id: str
    module: ModuleType
    options: Any
    """Options of the learner."""
    config: AlgorithmConfig
    """Options of the module."""
    step: DirectStep | None
    """None if the update needs autograd."""


class TargetNetworkLearner(TorchLearner):
    """Updates target networks every `target_network_update_freq` environment steps.

    Small networks are trained without autograd if `make_direct_step` supports them; any override of
    the update, the loss or the module switches back to autograd.
    """

    def build(self) -> None:
        """Create modules, target networks and optimizers."""
        self._direct: dict[str, _DirectUpdate] = {}
        self._direct_rows: dict[str, int] = {}
        self.errors: dict[str, torch.Tensor] = {}
        self._reported: dict[str, Results] = {}
        self._last_target_update: dict[str, int] = {}
        self._targets_of: dict[str, tuple[Network, Network]] = {}
        super().build()

    def update_on_rows(
        self, columns: Mapping[str, dict[str, Tree]], *, timesteps: Mapping[str, int]
    ) -> dict[str, np.ndarray]:
        """Take one step on rows by module id; return their errors, [B]."""
        self.errors = {}
        if updates := self._direct_updates(columns):
            return self._update_directly(updates, columns, timesteps)
        super().update_on_rows(columns, timesteps=timesteps)
        return {module_id: found.cpu().numpy() for module_id, found in self.errors.items()}

    # -- updates without autograd

    def make_direct_step(self, module_id: str, config: AlgorithmConfig) -> DirectStep | None:
        """Return the object that computes the gradients of a module, or None to use autograd."""
        return None

    def _direct_updates(self, columns: Mapping[str, dict[str, Tree]]) -> list[_DirectUpdate]:
        """Return the updates of the modules; empty if one of them needs autograd."""
        if self.distributed:
            return []
        updates = [self._direct_update(module_id, rows) for module_id, rows in columns.items()]
        return [each for each in updates if each is not None] if None not in updates else []

    def _direct_update(self, module_id: str, columns: dict[str, Tree]) -> _DirectUpdate | None:
        """Return the update of a module; it is fixed within an iteration."""
        if module_id not in self.module or DISCOUNTS not in columns:
            return None
        module, known = self.module[module_id], self._direct.get(module_id)
        if known is None or known.module is not module or known.options is not self.config:
            config = self.config.get_config_for_module(module_id)
            usual = self._may_be_direct(config) and self.optimizers.are_vectors(module_id)
            step = self.make_direct_step(module_id, config) if usual else None
            known = self._direct[module_id] = _DirectUpdate(
                module_id=module_id, module=module, options=self.config, config=config, step=step
            )
        return None if known.step is None else known

    def _may_be_direct(self, config: AlgorithmConfig) -> bool:
        """Return True if no option needs more than the gradients of the losses."""
        return (
            self._scaler is None
            and self.device.type == "cpu"
            and self.config.torch_autocast is None
            and not self.config.torch_compile_learner
            and not self.config._torch_lr_scheduler_classes
            and self.config.policies_to_train is None
            and config.grad_clip_by != "norm"
            and not self.connectors.exist
            and _HOOKS.isdisjoint(vars(self))
        )

    def _update_directly(
        self,
        updates: Sequence[_DirectUpdate],
        columns: Mapping[str, dict[str, Tree]],
        timesteps: Mapping[str, int],
    ) -> dict[str, np.ndarray]:
        """Update like `TorchLearner.update_on_rows`, but with gradients from `DirectStep`."""
        self.updates += 1
        self.optimizers.bind()
        step = int(timesteps.get(NUM_ENV_STEPS_SAMPLED_LIFETIME, 0))
        rates = dict(self.optimizers.set_learning_rates(step))
        errors: dict[str, np.ndarray] = {}
        for update in updates:
            module_id, config = update.module_id, update.config
            assert update.step is not None
            errors[module_id], report = update.step.gradients(columns[module_id])
            self.errors[module_id] = torch.from_numpy(errors[module_id])
            norms = self.optimizers.clip_and_step(
                module_id,
                config.grad_clip,
                config.grad_clip_by,
                skip_unless_finite=self.config.torch_skip_nan_gradients,
            )
            report.update(
                {name: rate for (owner, name), rate in rates.items() if owner == module_id}
            )
            if config.grad_clip is not None or config.log_gradients:
                report.update({f"gradients_{name}_global_norm": n for name, n in norms.items()})
            self.report(module_id, **report)
            self._direct_rows[module_id] = self._direct_rows.get(module_id, 0) + len(
                errors[module_id]
            )
        self.after_gradient_based_update(timesteps=dict(timesteps))
        return errors

    # -- metrics

    def report(self, module_id: str, **values: object) -> None:
        """Store tensors of the latest update, whose means are metrics.

        Means are computed when results are read, once in many updates.
        """
        self._reported[module_id] = values

    def reduce_metrics(self) -> Results:
        """Return the metrics since the previous call."""
        for module_id, values in self._reported.items():
            means = {name: _mean(value) for name, value in values.items()}
            self.metrics.log_dict(means, key=module_id, window=1)
        self._reported = {}
        self._direct = {}  # check again in every iteration: hooks on layers need autograd
        if self._direct_rows:
            self._log_rows(self._direct_rows)
            self._direct_rows = {}
        return super().reduce_metrics()

    def after_gradient_based_update(self, *, timesteps: dict[str, int]) -> None:
        """Update the target networks that are due."""
        super().after_gradient_based_update(timesteps=timesteps)
        step = int(timesteps.get(NUM_ENV_STEPS_SAMPLED_LIFETIME, 0))
        for module_id, module in self.module.items():
            if not hasattr(module, "get_target_network_pairs"):
                continue  # a rule-based module without weights
            config: AlgorithmConfig = self.config.get_config_for_module(module_id)
            if self.is_target_due(module_id, config, step):
                self._last_target_update[module_id] = step
                self._move_targets(module_id, module, config.tau)
                self.metrics.log_value((module_id, NUM_TARGET_UPDATES), 1, reduce="lifetime_sum")

    def _move_targets(self, module_id: str, module: ModuleType, tau: float) -> None:
        """Update the targets of a module; cache its parameters, because collecting them is slow."""
        known, tensors = self._targets_of.get(module_id, (None, []))
        if known is not module:
            tensors = target_tensors(module.get_target_network_pairs())
            self._targets_of[module_id] = (module, tensors)
        move_tensors(tensors, tau)

    def is_target_due(self, module_id: str, config: AlgorithmConfig, step: int) -> bool:
        """Return True if the target networks of a module are due after `step` steps."""
        last = self._last_target_update.get(module_id, 0)
        return bool(step - last >= config.target_network_update_freq)

    def remove_module(self, module_id: str, **options: object) -> None:
        """Remove a module, its target networks and its optimizers."""
        super().remove_module(module_id, **options)
        self._last_target_update.pop(module_id, None)
        self._targets_of.pop(module_id, None)

    def get_state(
        self, components: Selection = None, *, not_components: Selection = None, **kwargs: object
    ) -> StateDict:
        """Return modules, optimizers and counters."""
        return {
            **super().get_state(components, not_components=not_components, **kwargs),
            "last_target_update": dict(self._last_target_update),
        }

    def set_state(self, state: StateDict) -> None:
        """Restore the state that `get_state` returned."""
        super().set_state(state)
        self._last_target_update.update(state.get("last_target_update", {}))


def _mean(value: object) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().mean()
    return float(value.mean()) if isinstance(value, np.ndarray) else value


def discounts(gamma: float, batch: Batch) -> torch.Tensor:
    """Return gamma^n, or 0 after terminal states, [B]; recorded rows have n = 1."""
    if DISCOUNTS in batch:
        known: torch.Tensor = batch[DISCOUNTS]
        return known
    goes_on: torch.Tensor = ~batch[Columns.TERMINATEDS]
    return goes_on * (gamma ** batch[N_STEP] if N_STEP in batch else gamma)


def weighted_mean(losses: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return the mean over the rows, [..., B], with the weights of the replay buffer."""
    return (losses * batch[WEIGHTS] if WEIGHTS in batch else losses).mean(-1)


def move_targets(pairs: Sequence[tuple[Network, Network]], tau: float) -> None:
    """Set each target network to (1 - tau) target + tau online; buffers are copied.

    Args:
        pairs: Online and target networks.
        tau: 1 to copy the weights.
    """
    move_tensors(target_tensors(pairs), tau)


def target_tensors(pairs: Sequence[tuple[Network, Network]]) -> TargetTensors:
    """Return target parameters, online parameters, and pairs of buffers."""
    online = [each for one, _ in pairs for each in one.parameters()]
    target = [each for _, other in pairs for each in other.parameters()]
    buffers = [
        each for one, other in pairs for each in zip(other.buffers(), one.buffers(), strict=True)
    ]
    return target, online, buffers


@torch.no_grad()
def move_tensors(tensors: TargetTensors, tau: float) -> None:
    """Update the tensors that `target_tensors` returned."""
    target, online, buffers = tensors
    torch._foreach_lerp_(target, online, tau)
    for kept, new in buffers:
        kept.copy_(new)
