"""`Optimizers`: the optimizers of a learner with their schedules and gradients."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from syncline.rl.checkpointable import StateDict
from syncline.rl.columns.trees import map_tree
from syncline.rl.config.schedule import Schedule
from syncline.rl.learners.torch.adam import FlatAdam
from syncline.rl.learners.torch.flat_parameters import FlatParameters, are_alike
from syncline.rl.value_types import OptionSchedule, Tree
from syncline.suggestions import did_you_mean

DEFAULT_OPTIMIZER = "default_optimizer"

Gradients = dict[Any, torch.Tensor]
"""Gradients by parameter."""


class Optimizers:
    """Optimizers by module id and name."""

    def __init__(self) -> None:
        self._by_module: dict[str, dict[str, torch.optim.Optimizer]] = {}
        self._schedules: dict[tuple[str, str], Schedule] = {}
        self._flat: dict[torch.optim.Optimizer, FlatParameters] = {}

    # -- registration

    def register_adam(
        self,
        module_id: str,
        name: str,
        params: Sequence[nn.Parameter],
        lr: OptionSchedule | None,
        eps: float,
    ) -> None:
        """Create Adam for parameters of a module, and make them views of one vector."""
        params = list(dict.fromkeys(params))
        if are_alike(params):
            flat = FlatParameters(params)
            optimizer: torch.optim.Optimizer = FlatAdam([flat.vector], eps=eps)
            self._flat[optimizer] = flat
        else:
            optimizer = torch.optim.Adam(params, eps=eps)
        self.register(module_id, name, optimizer, lr)

    def register(
        self, module_id: str, name: str, optimizer: torch.optim.Optimizer, lr: OptionSchedule | None
    ) -> None:
        """Register an optimizer with a learning rate or schedule; None keeps its own rate."""
        self._by_module.setdefault(module_id, {})[name] = optimizer
        if lr is not None:
            schedule = self._schedules[module_id, name] = Schedule(lr, "lr")
            _set_learning_rate(optimizer, schedule.value(0))

    def remove(self, module_id: str) -> None:
        """Remove the optimizers of a module."""
        for optimizer in self._by_module.pop(module_id, {}).values():
            self._flat.pop(optimizer, None)
        self._schedules = {
            key: each for key, each in self._schedules.items() if key[0] != module_id
        }

    @property
    def module_ids(self) -> list[str]:
        """Ids of the modules that have optimizers."""
        return list(self._by_module)

    def of_module(self, module_id: str) -> dict[str, torch.optim.Optimizer]:
        """Return the optimizers of a module by name."""
        return self._by_module.get(module_id, {})

    def parameters(self, optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
        """Return the parameters that an optimizer updates."""
        if optimizer in self._flat:
            return self._flat[optimizer].parameters
        return [each for group in optimizer.param_groups for each in group["params"]]

    # -- steps

    def bind(self) -> None:
        """Restore the views of parameters whose data was replaced."""
        for flat in self._flat.values():
            flat.bind()

    def set_learning_rates(self, step: int) -> Iterator[tuple[tuple[str, str], float]]:
        """Set the learning rates after `step` environment steps; yield metric keys and rates."""
        for (module_id, name), schedule in self._schedules.items():
            rate = schedule.value(step)
            if not schedule.is_constant:
                _set_learning_rate(self._by_module[module_id][name], rate)
            yield (module_id, f"{name}_learning_rate"), rate

    def zero_gradients(self, module_ids: Collection[str]) -> None:
        """Set the gradients of modules to 0."""
        for module_id in module_ids:
            for optimizer in self.of_module(module_id).values():
                if optimizer in self._flat:
                    self._flat[optimizer].zero_gradients()
                else:
                    optimizer.zero_grad()

    def own_gradients(self, optimizer: torch.optim.Optimizer, gradients: Gradients) -> Gradients:
        """Return the gradients of an optimizer's parameters."""
        return {each: gradients[each] for each in self.parameters(optimizer) if each in gradients}

    def clip(
        self, optimizer: torch.optim.Optimizer, gradients: Gradients, limit: float | None, by: str
    ) -> torch.Tensor:
        """Clip the gradients of an optimizer in place; return their global norm before clipping."""
        own = self.own_gradients(optimizer, gradients)
        are_views = all(parameter.grad is gradient for parameter, gradient in own.items())
        if optimizer in self._flat and are_views and by != "norm":
            return clip_gradients(self._vectors(optimizer), limit, by)
        return clip_gradients(list(own.values()), limit, by)

    def average(self, module_ids: Collection[str], num_learners: int) -> None:
        """Average the gradients of modules over the processes of the group, in place.

        Optimizers with one vector need one operation.
        """
        for module_id in module_ids:
            for optimizer in self.of_module(module_id).values():
                for parameter in self.parameters(optimizer):
                    if parameter.grad is None:  # unused here, but maybe not in another process
                        parameter.grad = torch.zeros_like(parameter)
                for gradient in self._vectors(optimizer):
                    torch.distributed.all_reduce(gradient)
                    gradient /= num_learners

    def unscale(self, module_ids: Collection[str], scaler: Any) -> None:
        """Unscale the gradients of modules with a `GradScaler`, which records infinities."""
        for module_id in module_ids:
            for optimizer in self.of_module(module_id).values():
                scaler.unscale_(optimizer)

    def apply(self, gradients: Gradients, *, skip_unless_finite: bool, scaler: Any = None) -> None:
        """Take one step of the optimizers whose parameters have gradients.

        A `GradScaler` skips steps with infinite gradients.

        Non-finite values are set to 0 or, with `skip_unless_finite`, prevent the step.
        """
        for optimizers in self._by_module.values():
            for optimizer in optimizers.values():
                own = self.own_gradients(optimizer, gradients)
                if own:
                    self._set_gradients(optimizer, own)
                    self._step(optimizer, skip_unless_finite, scaler)
        if scaler is not None:
            scaler.update()

    def are_vectors(self, module_id: str) -> bool:
        """Return True if every optimizer of a module is Adam for one vector on the CPU."""
        optimizers = self.of_module(module_id).values()
        return bool(optimizers) and all(
            isinstance(each, FlatAdam)
            and each in self._flat
            and self._flat[each].vector.device.type == "cpu"
            for each in optimizers
        )

    def clip_and_step(
        self, module_id: str, limit: float | None, by: str, *, skip_unless_finite: bool
    ) -> dict[str, float]:
        """Clip the gradient vectors and take a step of all optimizers of a module.

        Returns:
            The norms before clipping, by name of the optimizer.

        Args:
            module_id: The module, for which `are_vectors` is True.
            limit: None for no limit.
            by: "global_norm" or "value".
            skip_unless_finite: As in `apply`.
        """
        norms: dict[str, float] = {}
        for name, optimizer in self.of_module(module_id).items():
            gradient = self._flat[optimizer].gradient
            norm = norms[name] = float(torch.linalg.vector_norm(self._vectors(optimizer)[0]))
            if limit is not None and by == "value":
                gradient.clip(-limit, limit, out=gradient)
            elif limit is not None and not norm <= limit:
                gradient *= limit / (norm + 1e-6)
            if math.isfinite(norm) and not _has_hooks(optimizer):
                assert isinstance(optimizer, FlatAdam)
                optimizer.update()
            else:
                self._step(optimizer, skip_unless_finite, None)
        return norms

    def _set_gradients(self, optimizer: torch.optim.Optimizer, gradients: Gradients) -> None:
        for parameter, gradient in gradients.items():
            if gradient is parameter.grad:
                continue
            if optimizer in self._flat:
                parameter.grad.copy_(gradient)
            else:
                parameter.grad = gradient

    def _step(
        self, optimizer: torch.optim.Optimizer, skip_unless_finite: bool, scaler: Any
    ) -> None:
        vectors = self._vectors(optimizer)
        if skip_unless_finite:
            if not all(bool(torch.isfinite(each).all()) for each in vectors):
                return
        else:
            for gradient in vectors:
                torch.nan_to_num_(gradient, nan=0.0, posinf=0.0, neginf=0.0)
        if scaler is not None:
            scaler.step(optimizer)
        elif isinstance(optimizer, FlatAdam) and not _has_hooks(optimizer):
            optimizer.update()
        else:
            optimizer.step()

    def _vectors(self, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
        """Return all gradients of an optimizer: one vector, or one tensor per parameter."""
        if optimizer in self._flat:
            gradient = self._flat[optimizer].vector.grad
            assert gradient is not None
            return [gradient]
        return [each.grad for each in self.parameters(optimizer) if each.grad is not None]

    # -- state

    def get_state(self) -> StateDict:
        """Return the states of all optimizers as arrays."""
        return {
            module_id: {
                name: map_tree(_to_array, optimizer.state_dict()) for name, optimizer in own.items()
            }
            for module_id, own in self._by_module.items()
        }

    def set_state(self, state: Mapping[str, StateDict]) -> None:
        """Set the states of the optimizers of trained modules."""
        for module_id, own in state.items():
            optimizers = self.of_module(module_id)
            for name, saved in own.items() if optimizers else ():
                if name not in optimizers:
                    raise ValueError(
                        f"The checkpoint has an optimizer {name!r} of the module {module_id!r}, "
                        "which this configuration does not create."
                        f"{did_you_mean(name, optimizers)}"
                    )
                # The undecorated method, because the decorator imports torch's compiler.
                load = torch.optim.Optimizer.load_state_dict
                getattr(load, "__wrapped__", load)(optimizers[name], map_tree(_to_tensor, saved))


def clip_gradients(gradients: Sequence[torch.Tensor], limit: float | None, by: str) -> torch.Tensor:
    """Clip gradients in place and return their global norm before clipping.

    Args:
        gradients: Tensors.
        limit: None for no limit.
        by: "global_norm", "norm" (of each tensor) or "value".
    """
    norms: list[torch.Tensor] = [torch.linalg.vector_norm(each) for each in gradients]
    norm: torch.Tensor = (
        norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))
    )
    if limit is None:
        return norm
    for each in gradients:
        if by == "value":
            each.clamp_(-limit, limit)
        else:
            own = torch.linalg.vector_norm(each) if by == "norm" else norm
            each.mul_(torch.clamp(limit / (own + 1e-6), max=1.0))
    return norm


def _has_hooks(optimizer: torch.optim.Optimizer) -> bool:
    """Return True if `step` has hooks or was replaced by a scheduler."""
    return bool(
        optimizer._optimizer_step_pre_hooks
        or optimizer._optimizer_step_post_hooks
        or "step" in vars(optimizer)
    )


def _set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def _to_array(leaf: Tree) -> Tree:
    return leaf.detach().cpu().numpy() if isinstance(leaf, torch.Tensor) else leaf


def _to_tensor(leaf: Tree) -> Tree:
    return torch.from_numpy(leaf) if isinstance(leaf, np.ndarray) else leaf
