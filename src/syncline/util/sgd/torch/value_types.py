"""Types of the values that pass between a program, its operator and the trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Config: TypeAlias = Mapping[str, Any]
"""The `config` of a trainer: options of the program, and names of `constants`."""

Metrics: TypeAlias = dict[str, Any]
"""Metrics and counters of an epoch, a batch or a worker, by name."""

Info: TypeAlias = dict[str, Any]
"""Step, epoch and the entries of the caller, for a training or validation method."""

StateDict: TypeAlias = dict[str, Any]
"""State of a runner or operator, as `state_dict` returns and `load_state_dict` accepts it."""

Batch: TypeAlias = Any
"""A batch of the program's loader; its operator knows the type."""

Creator: TypeAlias = Callable[..., Any]
"""A function of a program that creates models, optimizers, loaders, a loss or schedulers."""
