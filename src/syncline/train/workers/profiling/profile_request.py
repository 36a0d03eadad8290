"""What kind of profile is asked for, and for how long: checked where it comes in from outside."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

LONGEST_S = 600.0
MOST_STEPS = 1_000
DEFAULT_STEPS = 10


class ProfileKind(str, Enum):
    """What a profile shows."""

    CPU = "cpu"
    MEMORY = "memory"
    TORCH = "torch"


@dataclass(frozen=True, kw_only=True)
class _Traits:
    """What differs between the kinds."""

    ending: str
    """Of the file's name."""
    seconds: float
    """How long is looked by default; for steps: how long they are waited for."""
    afterwards_s: float
    """How long the rest may take: starting the tool, and making the file of what it saw."""


_TRAITS = {
    ProfileKind.CPU: _Traits(ending="cpu.svg", seconds=10.0, afterwards_s=30.0),
    ProfileKind.MEMORY: _Traits(ending="memory.html", seconds=10.0, afterwards_s=180.0),
    ProfileKind.TORCH: _Traits(ending="torch.json.gz", seconds=120.0, afterwards_s=180.0),
}


@dataclass(frozen=True, kw_only=True)
class ProfileRequest:
    """One profile."""

    kind: ProfileKind
    seconds: float
    """How long to look. Of a torch profile: how long to wait until all steps are made."""
    steps: int = DEFAULT_STEPS
    """Of a torch profile: so many steps of the optimizer."""

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> ProfileRequest:
        """From plain values: "kind", and if given "seconds" and "steps".

        Raises:
            ValueError: No such kind, or a number out of its range.
        """
        try:
            kind = ProfileKind(arguments.get("kind", ""))
        except ValueError:
            known = ", ".join(repr(kind.value) for kind in ProfileKind)
            raise ValueError(
                f"kind={arguments.get('kind')!r} is no kind of profile: give {known}"
            ) from None
        seconds = _number(arguments, "seconds", _TRAITS[kind].seconds, LONGEST_S)
        steps = _number(arguments, "steps", DEFAULT_STEPS, MOST_STEPS)
        if steps != int(steps):
            raise ValueError(f"steps={steps} is no whole number: give one from 1 to {MOST_STEPS}")
        return cls(kind=kind, seconds=seconds, steps=int(steps))

    @property
    def ending(self) -> str:
        """How the name of its file ends."""
        return _TRAITS[self.kind].ending

    @property
    def afterwards_s(self) -> float:
        """How long it may take besides `seconds`."""
        return _TRAITS[self.kind].afterwards_s

    @property
    def answer_within_s(self) -> float:
        """After so long there is a file or an error."""
        return self.seconds + self.afterwards_s


def _number(arguments: Mapping[str, Any], name: str, default: float, largest: float) -> float:
    value = arguments.get(name)
    if value is None:
        return default
    smallest = 1
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or math.isnan(value)
        or not smallest <= value <= largest
    ):
        raise ValueError(
            f"{name}={value!r} is not possible for a profile: give a number from {smallest} to {largest:g}"
        )
    return value
