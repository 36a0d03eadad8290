"""Fault injection: named points in the engine at which a test lets a process die, fail or stall.

`SYNCLINE_FAULTS="worker.before_result=kill:3,store.before_seal=sleep:0.5"` ends a process with
SIGKILL when it reaches the first point for the third time, and makes it sleep half a second
whenever it reaches the second one. Actions: `kill[:N]` (at the N-th time, default 1), `raise[:N]`
(FaultInjected), `exit[:N]` (exit code 3), `sleep:SECONDS` (every time). Times are counted per
process; `kill:1@FILE` acts in one process only, the first that creates FILE, so that a retry gets
through. Without faults a point costs one check.
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
    """What happens at one point."""

    action: str
    """One of kill, raise, exit, sleep."""
    argument: float
    """Which time counts; for sleep, seconds."""
    marker: Path | None = None
    """The fault happens only where this file does not exist yet, and creates it."""
    reached: int = 0
    """How often this process was at the point."""


def parse(text: str) -> dict[str, Fault]:
    """Faults by point, from the form that the module describes. ValueError names the part that
    cannot be read.
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
                f"SYNCLINE_FAULTS has {part!r}, which is no fault: write POINT=ACTION:NUMBER with an action of {', '.join(_ACTIONS)}"
            )
        faults[point] = Fault(
            action=action, argument=number, marker=Path(marker) if marker else None
        )
    return faults


_armed: dict[str, Fault] | None = parse(settings.faults()) or None


def configure(text: str) -> None:
    """Replace this process's faults, in the form that the module describes; empty text removes
    them.
    """
    global _armed
    _armed = parse(text) or None


def reach(point: str) -> None:
    """The calling process is at `point` now; whatever fault is set there happens."""
    if _armed is None:
        return
    fault = _armed.get(point)
    if fault is not None:
        _happen(point, fault)


def _happen(point: str, fault: Fault) -> None:
    fault.reached += 1
    if fault.action == "sleep":
        time.sleep(fault.argument)
        return
    if fault.reached != fault.argument or not _first(fault.marker):
        return
    if fault.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault.action == "exit":
        os._exit(3)
    raise FaultInjected(f"the fault that SYNCLINE_FAULTS sets at {point!r}")


def _first(marker: Path | None) -> bool:
    if marker is None:
        return True
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
