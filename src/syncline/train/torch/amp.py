"""Automatic mixed precision for training functions: `accelerate`, `prepare_optimizer`, `backward`.

Kept per session: `accelerate(amp=True)` comes first, then `prepare_model` makes the model compute
in lower precision, and gradients are scaled where that precision is float16 (on GPUs). Without
`accelerate` these functions change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.optim import Optimizer

from syncline.train.session import TrainSession, get_session
from syncline.train.torch.device import get_device

_scalers: WeakKeyDictionary[TrainSession, torch.amp.GradScaler] = WeakKeyDictionary()
"""The sessions with mixed precision, and what scales their gradients."""


def accelerate(amp: bool = False) -> None:
    """Choose mixed precision (`amp=True`) or not for the rest of this training function; before any
    `prepare_model`.
    """
    session = get_session("torch.accelerate")
    if not amp:
        _scalers.pop(session, None)
        return
    device = get_device()
    # On CPUs autocast computes in bfloat16, which has float32's range and needs no scaling.
    scaler = _scalers[session] = torch.amp.GradScaler(device.type, enabled=device.type == "cuda")
    # The scale exists from the first use on; loading an optimizer's state may make it step before
    # there is a loss.
    scaler.scale(torch.zeros((), device=device))


def prepare_optimizer(optimizer: Optimizer) -> Optimizer:
    """`optimizer`, with steps that unscale gradients first where mixed precision scales them."""
    scaler = _scalers.get(get_session("torch.prepare_optimizer"))
    return optimizer if scaler is None else ScaledOptimizer(optimizer, scaler)


def backward(tensor: torch.Tensor) -> None:
    """`tensor.backward()`, scaled where mixed precision asks for it."""
    scaler = _scalers.get(get_session("torch.backward"))
    torch.autograd.backward(tensor if scaler is None else scaler.scale(tensor))


def cast_forward(model: nn.Module, device: torch.device) -> None:
    """Let `model.forward` compute in mixed precision, if this session does."""
    if _scalers.get(get_session("torch.prepare_model")) is not None:
        model.forward = AutocastForward(model, device.type)


class AutocastForward:
    """A module's `forward` under autocast; an object and not a closure, so that the module can
    still be pickled and copied.
    """

    def __init__(self, module: nn.Module, device_type: str) -> None:
        self.module = module
        self.device_type = device_type

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(self.device_type):
            return type(self.module).forward(self.module, *args, **kwargs)


class ScaledOptimizer(Optimizer):
    """An optimizer whose steps go through a gradient scaler, which skips steps with infinite
    gradients.
    """

    # Not `super().__init__`: parameters and state are the wrapped optimizer's, and are read from
    # it.
    def __init__(self, optimizer: Optimizer, scaler: torch.amp.GradScaler) -> None:
        self.optimizer = optimizer
        self.scaler = scaler

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "optimizer":
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step on unscaled gradients. RuntimeError with a closure, which cannot be scaled."""
        result = (
            self.scaler.step(self.optimizer)
            if closure is None
            else self.scaler.step(self.optimizer, closure)
        )
        self.scaler.update()
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients."""
        self.optimizer.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """The wrapped optimizer's."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Into the wrapped optimizer."""
        self.optimizer.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """To the wrapped optimizer."""
        self.optimizer.add_param_group(param_group)
