"""Memory and initial values for models created on torch's meta device, where tensors have a shape
but no values.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import torch
from torch import nn

Initializer = Callable[[nn.Module], object]
RESETS = ("reset_parameters", "_reset_parameters")
"""Methods that initialize a module's own parameters; some modules of torch have the second."""


def _has_meta_tensors(model: nn.Module) -> bool:
    return any(tensor.is_meta for tensor in chain(model.parameters(), model.buffers()))


def place(
    model: nn.Module, device: torch.device, param_init_fn: Initializer | None = None
) -> nn.Module:
    """Move `model` to `device`, and initialize it if it was created on the meta device."""
    if device.type != "meta" and _has_meta_tensors(model):
        initializer = MetaInitializer(model, device, param_init_fn)
        initializer(model)
        initializer.finish()
    return model.to(device)


class MetaInitializer:
    """Allocates and initializes the modules of a model, one part after the other. Shared parameters
    stay shared.

    Args:
        model: The whole model.
        device: Device of the allocated tensors.
        param_init_fn: Called with every module that has own tensors on the meta device, after they
            are allocated. By default `finish` calls the model's `init_weights()`; if it has none,
            each module's `reset_parameters()` is called.
    """

    def __init__(
        self, model: nn.Module, device: torch.device, param_init_fn: Initializer | None = None
    ) -> None:
        init_weights = getattr(model, "init_weights", None)
        self._init_weights: Callable[[], object] | None = (
            init_weights
            if callable(init_weights) and param_init_fn is None and _has_meta_tensors(model)
            else None
        )
        self._device = device
        self._param_init_fn = param_init_fn
        self._made: dict[torch.Tensor, torch.Tensor] = {}

    def __call__(self, part: nn.Module) -> None:
        """Allocate the tensors of `part`, and initialize them unless `finish` does.

        Raises:
            ValueError: A module has no method that initializes it.
        """
        # Children first: a module may override the values that its children have set.
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
        """Call the model's `init_weights()` if that initializes it; return True if it was called.

        Call this after all parts are allocated.
        """
        if self._init_weights is None:
            return False
        with torch.no_grad():
            self._init_weights()
        return True

    def counterpart(self, parameter: nn.Parameter) -> nn.Parameter:
        """Return the allocated counterpart of a parameter, or the parameter itself."""
        made = self._made.get(parameter, parameter)
        assert isinstance(made, nn.Parameter)
        return made

    def _initializer(self, module: nn.Module) -> Callable[[], object]:
        if self._init_weights is not None:
            return lambda: None
        if self._param_init_fn is not None:
            initialize = self._param_init_fn
            return lambda: initialize(module)
        for name in RESETS:
            if callable(getattr(module, name, None)):
                reset: Callable[[], object] = getattr(module, name)
                return reset
        raise ValueError(
            f"{type(module).__name__} was created on the meta device and has no "
            "`reset_parameters()`, so its tensors cannot be initialized: add that method, add "
            "`init_weights()` to the model, or pass "
            "`parallel_strategy_kwargs={'param_init_fn': fn}` for `fn(module)`."
        )

    def _allocate(self, module: nn.Module) -> None:
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None and tensor.is_meta:
                    setattr(module, name, self._allocated(tensor))

    def _allocated(self, tensor: torch.Tensor) -> torch.Tensor:
        made = self._made.get(tensor)
        if made is None:
            made = torch.empty_like(tensor, device=self._device)
            if isinstance(tensor, nn.Parameter):
                made = nn.Parameter(made, requires_grad=tensor.requires_grad)
                vars(made).update(vars(tensor))
            self._made[tensor] = made
        return made
