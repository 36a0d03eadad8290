"""Requests for profiles: kind and duration, checked when they arrive; `run_tool` runs profilers."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

LONGEST_S = 600.0
MOST_STEPS = 1_000
DEFAULT_STEPS = 10


class ProfileError(RuntimeError):
    """A profile could not be taken. The message has cause and remedy; the training continues."""


def run_tool(command: list[str], target: Path, limit_s: float) -> str | None:
    """Run a program that writes `target`; return its error output if it failed.

    Raises:
        subprocess.TimeoutExpired: It did not end in time and was killed.
    """
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=limit_s,
    )
    if done.returncode == 0 and target.exists():
        return None
    return (done.stderr or done.stdout).strip() or "no output"


class ProfileKind(str, Enum):
    """Kind of a profile."""

    CPU = "cpu"
    MEMORY = "memory"
    TORCH = "torch"


@dataclass(frozen=True, kw_only=True)
class _Traits:
    """Properties of a kind."""

    ending: str
    """Ending of the file name."""
    seconds: float
    """Default duration; of a torch profile, default time limit for its steps."""
    afterwards_s: float
    """Time limit for everything else: the start of the tool and the creation of the file."""


_TRAITS = {
    ProfileKind.CPU: _Traits(ending="cpu.svg", seconds=10.0, afterwards_s=30.0),
    ProfileKind.MEMORY: _Traits(ending="memory.html", seconds=10.0, afterwards_s=180.0),
    ProfileKind.TORCH: _Traits(ending="torch.json.gz", seconds=120.0, afterwards_s=180.0),
}


@dataclass(frozen=True, kw_only=True)
class ProfileRequest:
    """One requested profile."""

    kind: ProfileKind
    seconds: float
    """Duration; of a torch profile, time limit for its steps."""
    steps: int = DEFAULT_STEPS
    """Optimizer steps of a torch profile."""

    @classmethod
    def of(cls, arguments: Mapping[str, object]) -> ProfileRequest:
        """Return the request for plain values: "kind", optional "seconds" and "steps".

        Raises:
            ValueError: Unknown kind, or a number out of range.
        """
        try:
            kind = ProfileKind(arguments.get("kind", ""))
        except ValueError:
            known = ", ".join(repr(kind.value) for kind in ProfileKind)
            raise ValueError(
                f"kind={arguments.get('kind')!r} is not a kind of profile: pass {known}"
            ) from None
        seconds = _number(arguments, "seconds", _TRAITS[kind].seconds, LONGEST_S)
        steps = _number(arguments, "steps", DEFAULT_STEPS, MOST_STEPS)
        if steps != int(steps):
            raise ValueError(f"steps={steps} is not an integer: pass one from 1 to {MOST_STEPS}")
        return cls(kind=kind, seconds=seconds, steps=int(steps))

    @property
    def ending(self) -> str:
        """Ending of the file name."""
        return _TRAITS[self.kind].ending

    @property
    def afterwards_s(self) -> float:
        """Time limit for everything besides `seconds`."""
        return _TRAITS[self.kind].afterwards_s

    @property
    def answer_within_s(self) -> float:
        """Seconds within which there is a file or an error."""
        return self.seconds + self.afterwards_s


def _number(arguments: Mapping[str, object], name: str, default: float, largest: float) -> float:
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
            f"{name}={value!r} is invalid for a profile: pass a number from {smallest} to "
            f"{largest:g}"
        )
    return value
