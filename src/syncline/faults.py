"""Fault injection: named points at which a test makes a process die, fail or stall.

`SYNCLINE_FAULTS="worker.before_result=kill:3,store.before_seal=sleep:0.5"` kills a process with
SIGKILL when it reaches the first point for the third time, and delays it by half a second each time
it reaches the second point. Actions: `kill[:N]` (the N-th time, default 1), `raise[:N]` (raises
FaultInjected), `exit[:N]` (exit code 3), `sleep:SECONDS` (every time). Each process counts on its
own. `kill:1@FILE` acts only in the first process that creates FILE, so a retry succeeds. Without
faults, a point costs one comparison.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from syncline import settings

_ACTIONS = ("kill", "raise", "exit", "sleep")


class FaultInjected(RuntimeError):
    """Raised by the action `raise`."""


@dataclass(kw_only=True)
class Fault:
    """One fault at one point."""

    action: str
    """One of kill, raise, exit, sleep."""
    argument: float
    """Number of the visit that triggers the fault; for sleep, seconds."""
    marker: Path | None = None
    """File that the fault creates; the fault is skipped if the file exists."""
    reached: int = 0
    """Number of times that this process has reached the point."""


def parse(text: str) -> dict[str, Fault]:
    """Parse faults by point from the format in the module docstring.

    Raises ValueError that names the malformed part.
    """
    faults = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        point, equals, rest = part.partition("=")
        rest, _, marker = rest.partition("@")
        action, _, argument = rest.partition(":")
        try:
            number = float(argument or 1)
        except ValueError:
            number = -1
        if not equals or not point or action not in _ACTIONS or number < 0:
            raise ValueError(
                f"SYNCLINE_FAULTS has {part!r}, which is not a fault: write POINT=ACTION:NUMBER "
                f"with an action of {', '.join(_ACTIONS)}"
            )
        faults[point] = Fault(
            action=action, argument=number, marker=Path(marker) if marker else None
        )
    return faults


_armed: dict[str, Fault] | None = parse(settings.faults()) or None


def configure(text: str) -> None:
    """Replace this process's faults; `text` has the format in the module docstring.

    An empty text removes all faults.
    """
    global _armed
    _armed = parse(text) or None


def reach(point: str) -> None:
    """Trigger the fault that is set at `point`, if any."""
    if _armed is None:
        return
    fault = _armed.get(point)
    if fault is not None:
        _trigger(point, fault)


def _trigger(point: str, fault: Fault) -> None:
    fault.reached += 1
    if fault.action == "sleep":
        time.sleep(fault.argument)
        return
    if fault.reached != fault.argument or not _create(fault.marker):
        return
    if fault.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault.action == "exit":
        os._exit(3)
    raise FaultInjected(f"SYNCLINE_FAULTS injected an error at {point!r}")


def _create(marker: Path | None) -> bool:
    if marker is None:
        return True
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
