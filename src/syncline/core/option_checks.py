"""Checks of single option values: TypeError for a wrong type, ValueError for an impossible value,
each with the value and a way out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from syncline.core.placement import (
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

_OWN_RESOURCES = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
_STRATEGIES = (
    PlacementGroupSchedulingStrategy,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
)


def amount(name: str, value: Any) -> None:
    """A number that is not negative, or None."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"`{name}={value!r}` is a {type(value).__name__}: give a number")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"`{name}={value}` cannot be reserved: give 0 or more")
    if name == "num_gpus" and value > 1 and value != int(value):
        raise ValueError(
            f"`num_gpus={value}` is neither a part of one GPU nor whole GPUs: give less than 1, or a whole number"
        )


def count(name: str, value: Any, *, least: int) -> None:
    """An integer of at least `least`, or None."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"`{name}={value!r}` is a {type(value).__name__}: give an integer")
    if value < least:
        unlimited = " (-1: without a limit)" if least == -1 else ""
        raise ValueError(f"`{name}={value}` is too small: give {least} or more{unlimited}")


def text(name: str, value: Any) -> None:
    """Text that is not empty, or None."""
    if value is None:
        return
    if not isinstance(value, str):
        raise TypeError(f"`{name}={value!r}` is a {type(value).__name__}: give text")
    if not value:
        raise ValueError(f"`{name}=''` names nothing: give some text, or leave it out")


def yes_or_no(name: str, value: Any) -> None:
    """True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"`{name}={value!r}` is a {type(value).__name__}: give True or False")


def one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    """One of some values."""
    if value not in allowed:
        raise ValueError(
            f"`{name}={value!r}` is none of {', '.join(repr(choice) for choice in allowed if choice is not None)}"
        )


def num_returns(value: Any) -> None:
    """An integer that is not negative, "streaming", "dynamic", or None."""
    if isinstance(value, str):
        one_of("num_returns", value, ("streaming", "dynamic"))
    else:
        count("num_returns", value, least=0)


def retry_exceptions(value: Any) -> None:
    """A bool, or a tuple of exception classes."""
    if isinstance(value, bool):
        return
    if not isinstance(value, tuple):
        raise TypeError(
            f"`retry_exceptions={value!r}` is a {type(value).__name__}: give True, False or a list of exception classes"
        )
    for cls in value:
        if not (isinstance(cls, type) and issubclass(cls, BaseException)):
            raise TypeError(f"`retry_exceptions` has {cls!r}, which is no exception class")


def resources(value: Any, *, own: bool = False) -> None:
    """Custom resources: amounts by name. `own`: also those that have an option of their own."""
    if not isinstance(value, Mapping):
        raise TypeError(
            f"`resources={value!r}` is a {type(value).__name__}: give a dict such as {{'special': 1}}"
        )
    for name, share in value.items():
        if not isinstance(name, str):
            raise TypeError(f"`resources` has {name!r} for a name: resources are named by text")
        if name in _OWN_RESOURCES and not own:
            raise ValueError(
                f"`resources` has {name!r}, which has an option of its own: use `{_OWN_RESOURCES[name]}={share!r}`"
            )
        amount(f"resources[{name!r}]", share)


def labels(name: str, value: Any) -> None:
    """Text by text."""
    if not isinstance(value, Mapping):
        raise TypeError(
            f"`{name}={value!r}` is a {type(value).__name__}: give a dict of text by text"
        )
    for label, wanted in value.items():
        if not isinstance(label, str) or not isinstance(wanted, str):
            raise TypeError(
                f"`{name}` has {label!r}: {wanted!r}, but labels and their values are text"
            )


def concurrency_groups(value: Any) -> None:
    """Numbers of calls at once, by name."""
    if not isinstance(value, Mapping):
        raise TypeError(
            f"`concurrency_groups={value!r}` is a {type(value).__name__}: give a dict such as {{'io': 2}}"
        )
    for name, limit in value.items():
        if not isinstance(name, str):
            raise TypeError(
                f"`concurrency_groups` has {name!r} for a name: groups are named by text"
            )
        count(f"concurrency_groups[{name!r}]", limit, least=1)


def strategy(value: Any) -> None:
    """A scheduling strategy."""
    if isinstance(value, str):
        one_of("scheduling_strategy", value, ("DEFAULT", "SPREAD"))
    elif not isinstance(value, _STRATEGIES):
        raise TypeError(
            f"`scheduling_strategy={value!r}` is a {type(value).__name__}: give 'DEFAULT', 'SPREAD' or an object of "
            f"`syncline.util.scheduling_strategies`"
        )
