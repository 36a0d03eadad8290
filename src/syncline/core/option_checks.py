"""Checks of single option values.

Each raises TypeError for a wrong type and ValueError for an impossible value; the message has the
value and a remedy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from syncline.core.placement import (
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)
from syncline.suggestions import check_resource_names

_OWN_RESOURCES = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
_STRATEGIES = (
    PlacementGroupSchedulingStrategy,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
)


def _wrong_type(name: str, value: object, wanted: str) -> TypeError:
    return TypeError(f"`{name}={value!r}` is a {type(value).__name__}: give {wanted}")


def amount(name: str, value: object) -> None:
    """Check a non-negative number or None."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong_type(name, value, "a number")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"`{name}={value}` is not a valid amount: give 0 or more")
    if name == "num_gpus" and value > 1 and value != int(value):
        raise ValueError(
            f"`num_gpus={value}` is neither a fraction of one GPU nor whole GPUs: "
            f"give less than 1, or a whole number"
        )


def count(name: str, value: object, *, least: int) -> None:
    """Check an integer of at least `least`, or None."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong_type(name, value, "an integer")
    if value < least:
        unlimited = " (-1: unlimited)" if least == -1 else ""
        raise ValueError(f"`{name}={value}` is too small: give {least} or more{unlimited}")


def text(name: str, value: object) -> None:
    """Check a non-empty string or None."""
    if value is None:
        return
    if not isinstance(value, str):
        raise _wrong_type(name, value, "a string")
    if not value:
        raise ValueError(f"`{name}=''` is empty: give a non-empty string, or leave it out")


def boolean(name: str, value: object) -> None:
    """Check True or False."""
    if not isinstance(value, bool):
        raise _wrong_type(name, value, "True or False")


def one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    """Check one of the allowed values."""
    if value not in allowed:
        choices = ", ".join(repr(choice) for choice in allowed if choice is not None)
        raise ValueError(f"`{name}={value!r}` is unknown: give one of {choices}")


def num_returns(value: object) -> None:
    """Check a non-negative integer, "streaming", "dynamic", or None."""
    if isinstance(value, str):
        one_of("num_returns", value, ("streaming", "dynamic"))
    else:
        count("num_returns", value, least=0)


def retry_exceptions(value: object) -> None:
    """Check a bool, or a tuple of exception classes."""
    if isinstance(value, bool):
        return
    if not isinstance(value, tuple):
        raise _wrong_type("retry_exceptions", value, "True, False or a list of exception classes")
    for cls in value:
        if not (isinstance(cls, type) and issubclass(cls, BaseException)):
            raise TypeError(f"`retry_exceptions` has {cls!r}, which is not an exception class")


def resources(value: object) -> None:
    """Check amounts by name."""
    items = _named_items("resources", value, "a dict such as {'special': 1}")
    for name, share in items:
        check_resource_names("resources", (name,))
        if name in _OWN_RESOURCES:
            raise ValueError(
                f"`resources` has {name!r}, which has its own option: "
                f"use `{_OWN_RESOURCES[name]}={share!r}`"
            )
        amount(f"resources[{name!r}]", share)


def labels(name: str, value: object) -> None:
    """Check a mapping of strings to strings."""
    for label, wanted in _named_items(name, value, "a dict of strings"):
        if not isinstance(wanted, str):
            raise TypeError(
                f"`{name}` has {label!r}: {wanted!r}, but labels and their values are strings"
            )


def bundle_labels(name: str, value: object, bundles: int) -> None:
    """Check the label selectors of the bundles of a placement group: none, or one for each."""
    if not isinstance(value, (list, tuple)):
        raise _wrong_type(name, value, "a list of dicts")
    if value and len(value) != bundles:
        raise ValueError(
            f"`{name}` has {len(value)} items for {bundles} bundles: give one for each"
        )
    for number, selector in enumerate(value):
        labels(f"{name}[{number}]", selector)


def fallbacks(name: str, value: object) -> None:
    """Check a sequence of dicts with a `label_selector`."""
    if not isinstance(value, tuple):
        raise _wrong_type(name, value, "a list such as [{'label_selector': {'zone': 'a'}}]")
    for number, each in enumerate(value):
        items = dict(_named_items(f"{name}[{number}]", each, "a dict with a 'label_selector'"))
        if items.keys() != {"label_selector"}:
            raise ValueError(
                f"`{name}[{number}]` has the keys {sorted(items)}: give only 'label_selector'"
            )
        labels(f"{name}[{number}]['label_selector']", items["label_selector"])


def concurrency_groups(value: object) -> None:
    """Check numbers of concurrent calls by name."""
    for name, limit in _named_items("concurrency_groups", value, "a dict such as {'io': 2}"):
        count(f"concurrency_groups[{name!r}]", limit, least=1)


def _named_items(name: str, value: object, wanted: str) -> Iterable[tuple[str, object]]:
    """Return the items of a dict whose keys are strings."""
    if not isinstance(value, Mapping):
        raise _wrong_type(name, value, wanted)
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"`{name}` has the name {key!r}: names are strings")
    return value.items()


def strategy(value: object) -> None:
    """Check a scheduling strategy."""
    if isinstance(value, str):
        one_of("scheduling_strategy", value, ("DEFAULT", "SPREAD"))
    elif not isinstance(value, _STRATEGIES):
        raise _wrong_type(
            "scheduling_strategy",
            value,
            "'DEFAULT', 'SPREAD' or an object of `syncline.util.scheduling_strategies`",
        )
