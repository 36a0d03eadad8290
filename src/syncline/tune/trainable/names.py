"""How trainables are called: the first part of the names of their trials and of the search."""

from __future__ import annotations

import functools
from typing import Any


def trainable_name(trainable: Any) -> str:
    """The name of a function, a class, or what wraps one of these; a registered name is its own."""
    if isinstance(trainable, str):
        return trainable
    while isinstance(trainable, functools.partial):
        trainable = trainable.func
    name = getattr(trainable, "__name__", None) or type(trainable).__name__
    return "lambda" if name == "<lambda>" else str(name)
