"""Resource amounts in fixed point, so that ten times 0.1 CPU is exactly one CPU.

One whole resource is ``UNIT`` units; everything inside the engine counts in units, and only users
see floats. A `Resources` value is an immutable mapping from name to units without zero entries.
Covers arithmetic, validation of what users pass, and the message for what can never be met. Which
amounts are free at the moment is the scheduler's business.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import SupportsFloat

UNIT = 10_000
"""Units in one whole resource: the finest fraction is 0.0001."""

CPU = "CPU"
GPU = "GPU"
MEMORY = "memory"
OBJECT_STORE_MEMORY = "object_store_memory"


class Infeasible(ValueError):
    """A demand that this machine can never meet, however long one waits; the message has the
    asked-for and the existing amounts.
    """


class Resources(Mapping[str, int]):
    """Immutable amounts by resource name, in units. Zero amounts are left out; a name that is
    absent reads as 0 through `units`.
    """

    __slots__ = ("_hash", "_units")

    def __init__(self, units: Mapping[str, int] | Iterable[tuple[str, int]] = ()) -> None:
        self._units: dict[str, int] = {
            name: amount for name, amount in dict(units).items() if amount
        }
        self._hash: int | None = None

    @classmethod
    def of(cls, amounts: Mapping[str, float]) -> Resources:
        """Validated resources from what a user passed, such as ``{"CPU": 2, "GPU": 0.5}``.

        Raises `TypeError` for a name that is no string or an amount that is no number, `ValueError`
        for a negative, infinite or too finely divided amount, and for more than one GPU that is not
        a whole number.
        """
        return cls(
            {_checked_name(name): to_units(name, amount) for name, amount in amounts.items()}
        )

    def units(self, name: str) -> int:
        """Units of one resource, 0 if there is none."""
        return self._units.get(name, 0)

    def amounts(self) -> dict[str, float]:
        """Plain amounts for users and messages; whole numbers come as ``int``s, so that they print
        as ``2`` and not ``2.0``.
        """
        return {name: to_amount(units) for name, units in self._units.items()}

    def fits_in(self, other: Resources) -> bool:
        """Whether ``other`` has at least as much of everything."""
        return all(units <= other.units(name) for name, units in self._units.items())

    def __add__(self, other: Resources) -> Resources:
        names = {**self._units, **other._units}
        return Resources({name: self.units(name) + other.units(name) for name in names})

    def __sub__(self, other: Resources) -> Resources:
        """The difference; amounts may become negative, which is how a machine that is in debt for a
        moment is expressed.
        """
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
    """Units of a user's amount of the resource ``name`` (numpy scalars are numbers, too); errors as
    in `Resources.of`.
    """
    if not isinstance(amount, SupportsFloat):
        raise TypeError(
            f"the amount of resource {name!r} must be a number, not {amount!r}: pass an int or a float"
        )
    amount = float(amount)
    if not math.isfinite(amount) or amount < 0:
        raise ValueError(
            f"the amount of resource {name!r} is {amount:g}, but an amount is finite and not negative: pass 0 or more"
        )
    if name == GPU and amount > 1 and amount != int(amount):
        raise ValueError(
            f"{amount:g} GPUs were asked for, but only a single GPU can be shared: ask for a fraction below 1 (one GPU, shared) "
            f"or for a whole number such as {math.ceil(amount)}"
        )
    units = round(amount * UNIT)
    if amount > 0 and units == 0:
        raise ValueError(
            f"the amount of resource {name!r} is {amount:g}, but the finest fraction is {1 / UNIT}: ask for at least that"
        )
    return units


def to_amount(units: int) -> float:
    """A user's amount of some units: an ``int`` if it is whole, otherwise a float with at most four
    decimals.
    """
    whole, rest = divmod(units, UNIT)
    return whole if rest == 0 else units / UNIT


def infeasible_message(
    asked: Resources, existing: Resources, *, where: str = "this machine"
) -> str:
    """Why ``asked`` can never be met by ``existing``: cause, consequence and remedy with the
    numbers of the resources concerned.
    """
    missing = [name for name in asked if asked[name] > existing.units(name)]
    wanted = {name: to_amount(asked[name]) for name in missing or asked}
    there = {name: to_amount(existing.units(name)) for name in wanted}
    return f"asked {wanted} but {where} has {there}: it would wait for ever, so it is refused now; {_remedy(list(wanted), where)}"


def _remedy(names: list[str], where: str) -> str:
    argument = {CPU: "num_cpus", GPU: "num_gpus", MEMORY: "memory"}
    options = ", ".join(argument.get(name, f"resources={{{name!r}: …}}") for name in names)
    if where != "this machine":
        return f"lower {options}, or create the placement group with larger bundles"
    return f"lower {options}, or tell init() that this machine has more"


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise TypeError(
            f"a resource is named by a non-empty string, not by {name!r}: write for example {{'CPU': 1}}"
        )
    return name
