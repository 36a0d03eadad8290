"""Resource amounts in fixed point, so that ten times 0.1 CPU is exactly one CPU.

One whole resource is ``UNIT`` units. The engine counts in units; only users see floats. Covers
arithmetic, validation of user input, and the message for infeasible demands. The scheduler tracks
the free amounts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import SupportsFloat

from syncline.suggestions import did_you_mean

UNIT = 10_000
"""Units in one whole resource: the finest fraction is 0.0001."""

CPU = "CPU"
GPU = "GPU"
MEMORY = "memory"
OBJECT_STORE_MEMORY = "object_store_memory"
HEAD_NODE = "node:__internal_head__"
"""Resource of which the head of a cluster has 1, and other nodes have none."""
IMPLICIT_PREFIX = "node:__internal_implicit_resource_"
"""Prefix of resources of which each node of a Ray cluster has 1 by default."""


class Infeasible(ValueError):
    """A demand that this machine can never satisfy; the message has both amounts."""


class Resources(Mapping[str, int]):
    """Immutable amounts by resource name, in units. Zero amounts are left out."""

    __slots__ = ("_hash", "_units")

    def __init__(self, units: Mapping[str, int] | Iterable[tuple[str, int]] = ()) -> None:
        self._units: dict[str, int] = {
            name: amount for name, amount in dict(units).items() if amount
        }
        self._hash: int | None = None

    @classmethod
    def of(cls, amounts: Mapping[str, float]) -> Resources:
        """Validate a user's amounts, such as ``{"CPU": 2, "GPU": 0.5}``.

        Raises TypeError for a name that is not a string or an amount that is not a number,
        ValueError for a negative, infinite or too finely divided amount, and for a fractional
        amount of more than one GPU.
        """
        return cls(
            {_checked_name(name): to_units(name, amount) for name, amount in amounts.items()}
        )

    def units(self, name: str) -> int:
        """Return the units of one resource, 0 if it is absent."""
        return self._units.get(name, 0)

    def amounts(self) -> dict[str, float]:
        """Return the amounts for users; whole numbers are ``int``, so that 2 prints as ``2``."""
        return {name: to_amount(units) for name, units in self._units.items()}

    def fits_in(self, other: Resources) -> bool:
        """Return True if ``other`` has at least as much of each resource."""
        return all(units <= other.units(name) for name, units in self._units.items())

    def __add__(self, other: Resources) -> Resources:
        names = {**self._units, **other._units}
        return Resources({name: self.units(name) + other.units(name) for name in names})

    def __sub__(self, other: Resources) -> Resources:
        """Return the difference; amounts may be negative while resources are overcommitted."""
        names = {**self._units, **other._units}
        return Resources({name: self.units(name) - other.units(name) for name in names})

    def __getitem__(self, name: str) -> int:
        return self._units[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._units)

    def __len__(self) -> int:
        return len(self._units)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._units.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self._units == other._units if isinstance(other, Resources) else NotImplemented

    def __repr__(self) -> str:
        return f"Resources({self.amounts()})"


def to_units(name: str, amount: SupportsFloat) -> int:
    """Convert an amount of the resource ``name`` to units; errors as in `Resources.of`.

    Numpy scalars are allowed.
    """
    if not isinstance(amount, SupportsFloat):
        raise TypeError(
            f"the amount of resource {name!r} must be a number, not {amount!r}: "
            f"pass an int or a float"
        )
    amount = float(amount)
    if not math.isfinite(amount) or amount < 0:
        raise ValueError(
            f"the amount of resource {name!r} is {amount:g}, but must be finite and not negative: "
            f"pass 0 or more"
        )
    if name == GPU and amount > 1 and amount != int(amount):
        raise ValueError(
            f"{amount:g} GPUs were requested, but only a single GPU can be shared: request a "
            f"fraction below 1, or a whole number such as {math.ceil(amount)}"
        )
    units = round(amount * UNIT)
    if amount > 0 and units == 0:
        raise ValueError(
            f"the amount of resource {name!r} is {amount:g}, but the finest fraction is "
            f"{1 / UNIT}: request at least that"
        )
    return units


def to_amount(units: int) -> float:
    """Convert units to an amount: ``int`` if whole, else a float with at most four decimals."""
    whole, rest = divmod(units, UNIT)
    return whole if rest == 0 else units / UNIT


def infeasible_message(
    asked: Resources, existing: Resources, *, where: str = "this machine"
) -> str:
    """Explain why ``existing`` can never satisfy ``asked``, with the amounts and a remedy."""
    missing = [name for name in asked if asked[name] > existing.units(name)]
    wanted = {name: to_amount(asked[name]) for name in missing or asked}
    there = {name: to_amount(existing.units(name)) for name in wanted}
    unknown = [name for name in missing if not existing.units(name)]
    hint = did_you_mean(unknown[0], existing) if unknown else ""
    return (
        f"asked {wanted} but {where} has {there}: it could never start; "
        f"{_remedy(list(wanted), where)}{'.' if hint else ''}{hint}"
    )


def _remedy(names: list[str], where: str) -> str:
    argument = {CPU: "num_cpus", GPU: "num_gpus", MEMORY: "memory"}
    options = ", ".join(argument.get(name, f"resources={{{name!r}: …}}") for name in names)
    if where != "this machine":
        return f"lower {options}, or create the placement group with larger bundles"
    return f"lower {options}, or tell init() that this machine has more"


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise TypeError(
            f"a resource name must be a non-empty string, not {name!r}: "
            f"write for example {{'CPU': 1}}"
        )
    return name
