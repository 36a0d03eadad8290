"""Models that were made on torch's meta device, where tensors have a shape and no values: giving
them memory and first values.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import torch
from torch import nn

Initializer = Callable[[nn.Module], object]
RESETS = ("reset_parameters", "_reset_parameters")
"""Methods that give a module's own parameters their first values; some of torch's own modules have
the second.
"""


def on_meta(model: nn.Module) -> bool:
    """Whether any tensor of the model has no values yet."""
    return any(tensor.is_meta for tensor in chain(model.parameters(), model.buffers()))


def init_hook(model: nn.Module) -> Callable[[], object] | None:
    """The method with which a model initializes itself as a whole, if it has one."""
    hook = getattr(model, "init_weights", None)
    return hook if callable(hook) else None


def place(
    model: nn.Module, device: torch.device, param_init_fn: Initializer | None = None
) -> nn.Module:
    """`model` on `device`, with first values where it was made on the meta device."""
    if device.type != "meta" and on_meta(model):
        materialize = Materializer(model, device, param_init_fn)
        materialize(model)
        materialize.finish()
    return model.to(device)


class Materializer:
    """Gives modules memory on a device, one part of a model after the other; parameters that
    modules share stay shared.

    Args:
        model: the whole model.
        device: where its tensors will be.
        param_init_fn: called with every module that has tensors of its own on the meta device, once
            they have memory. Without it the model's `init_weights()` counts, called by `finish`, or
            else each module's `reset_parameters()`.
    """

    def __init__(
        self, model: nn.Module, device: torch.device, param_init_fn: Initializer | None = None
    ) -> None:
        self._hook = init_hook(model) if param_init_fn is None and on_meta(model) else None
        self._device = device
        self._param_init_fn = param_init_fn
        self._made: dict[torch.Tensor, torch.Tensor] = {}

    def __call__(self, part: nn.Module) -> None:
        """Give the tensors of `part` memory, and values unless `finish` does.

        ValueError: a module cannot initialize itself.
        """
        # Children first: a module may set what its children have set before it.
        for module in reversed(list(part.modules())):
            if any(
                tensor.is_meta
                for tensor in chain(module.parameters(recurse=False), module.buffers(recurse=False))
            ):
                initialize = self._initializer(module)
                self._allocate(module)
                with torch.no_grad():
                    initialize()

    def finish(self) -> bool:
        """Call the model's `init_weights()` where it counts, once everything has memory; returns
        whether it did.
        """
        if self._hook is None:
            return False
        with torch.no_grad():
            self._hook()
        return True

    def now(self, parameter: nn.Parameter) -> nn.Parameter:
        """What became of a parameter."""
        made = self._made.get(parameter, parameter)
        assert isinstance(made, nn.Parameter)
        return made

    def _initializer(self, module: nn.Module) -> Callable[[], object]:
        if self._hook is not None:
            return lambda: None
        if self._param_init_fn is not None:
            initialize = self._param_init_fn
            return lambda: initialize(module)
        for name in RESETS:
            if callable(getattr(module, name, None)):
                reset: Callable[[], object] = getattr(module, name)
                return reset
        raise ValueError(
            f"{type(module).__name__} was made on the meta device and has no `reset_parameters()`, so nothing says what its own tensors "
            "are to hold: give it that method, or the model a method `init_weights()`, or pass "
            "`parallel_strategy_kwargs={'param_init_fn': fn}` for `fn(module)`."
        )

    def _allocate(self, module: nn.Module) -> None:
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None and tensor.is_meta:
                    setattr(module, name, self._real(tensor))

    def _real(self, tensor: torch.Tensor) -> torch.Tensor:
        made = self._made.get(tensor)
        if made is None:
            made = torch.empty_like(tensor, device=self._device)
            if isinstance(tensor, nn.Parameter):
                made = nn.Parameter(made, requires_grad=tensor.requires_grad)
                vars(made).update(vars(tensor))
            self._made[tensor] = made
        return made
