"""Finds the rank whose batch had a NaN: the last inputs of a model are remembered, without a copy,
and looked at only when a report has a value that is not finite.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from torch import nn


class _LastInputs:
    """Forward hook that keeps weak references to the tensors passed to a model.

    A class rather than a closure, so that the model can be pickled.
    """

    def __init__(self) -> None:
        self.tensors: list[weakref.ref[torch.Tensor]] = []

    def __call__(self, model: nn.Module, inputs: tuple[object, ...]) -> None:
        self.tensors = [weakref.ref(each) for each in inputs if isinstance(each, torch.Tensor)]

    def __reduce__(self) -> tuple[type[_LastInputs], tuple[()]]:
        return _LastInputs, ()


def follow_inputs(model: nn.Module) -> Callable[[], bool]:
    """Return a function that returns True if the last inputs of `model` have a value that is not
    finite. Inputs that the program has dropped, and those passed by name, are not looked at.
    """
    last = _LastInputs()
    model.register_forward_pre_hook(last)

    def has_bad_inputs() -> bool:
        tensors = [found for each in last.tensors if (found := each()) is not None]
        return any(
            each.is_floating_point() and not bool(torch.isfinite(each).all()) for each in tensors
        )

    return has_bad_inputs
