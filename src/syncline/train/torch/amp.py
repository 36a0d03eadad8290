"""Automatic mixed precision for training functions: `accelerate`, `prepare_optimizer`, `backward`.

The setting belongs to the training session. `accelerate(amp=True)` comes first; then
`prepare_model` runs the model under autocast. Gradients are scaled if the precision is float16
(on GPUs). Without `accelerate` these functions change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.optim import Optimizer

from syncline.train.session import TrainSession, get_session
from syncline.train.torch.automatic_snapshots import follow_optimizer
from syncline.train.torch.device import get_device

_scalers: WeakKeyDictionary[TrainSession, torch.amp.GradScaler] = WeakKeyDictionary()
"""Gradient scalers of the sessions with mixed precision."""


def accelerate(amp: bool = False) -> None:
    """Enable or disable mixed precision for this training function. Call it before
    `prepare_model`.
    """
    session = get_session("torch.accelerate")
    if not amp:
        _scalers.pop(session, None)
        return
    device = get_device()
    # Autocast on CPUs uses bfloat16, which has the range of float32 and needs no scaling.
    scaler = _scalers[session] = torch.amp.GradScaler(device.type, enabled=device.type == "cuda")
    # Create the scale now: loading an optimizer's state may call `step` before there is a loss.
    scaler.scale(torch.zeros((), device=device))


def prepare_optimizer(optimizer: Optimizer) -> Optimizer:
    """Return `optimizer`; with mixed precision, wrapped so that `step` unscales the gradients."""
    session = get_session("torch.prepare_optimizer")
    follow_optimizer(optimizer, session)
    scaler = _scalers.get(session)
    return optimizer if scaler is None else ScaledOptimizer(optimizer, scaler)


def backward(tensor: torch.Tensor) -> None:
    """Call `tensor.backward()`; with mixed precision, on the scaled tensor."""
    scaler = _scalers.get(get_session("torch.backward"))
    torch.autograd.backward(tensor if scaler is None else scaler.scale(tensor))


def scaler_of(session: TrainSession) -> torch.amp.GradScaler | None:
    """Return the gradient scaler of a session with mixed precision, else None."""
    return _scalers.get(session)


def cast_forward(model: nn.Module, device: torch.device) -> None:
    """Run `model.forward` under autocast if this session uses mixed precision."""
    if _scalers.get(get_session("torch.prepare_model")) is not None:
        model.forward = AutocastForward(model, device.type)


class AutocastForward:
    """`forward` of a module under autocast.

    A class rather than a closure, so that the module can be pickled and copied.
    """

    def __init__(self, module: nn.Module, device_type: str) -> None:
        self.module = module
        self.device_type = device_type

    def __call__(self, *args: object, **kwargs: object) -> object:
        with torch.autocast(self.device_type):
            return type(self.module).forward(self.module, *args, **kwargs)


class ScaledOptimizer(Optimizer):
    """Optimizer whose steps use a gradient scaler, which skips steps with infinite gradients."""

    # `super().__init__` is not called: parameters and state are read from the wrapped optimizer.
    def __init__(self, optimizer: Optimizer, scaler: torch.amp.GradScaler) -> None:
        self.optimizer = optimizer
        self.scaler = scaler

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "optimizer":
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def step(self, closure: Callable[[], object] | None = None) -> Any:
        """Make one step on unscaled gradients. RuntimeError with a closure."""
        result = (
            self.scaler.step(self.optimizer)
            if closure is None
            else self.scaler.step(self.optimizer, closure)
        )
        self.scaler.update()
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.optimizer.add_param_group(param_group)
