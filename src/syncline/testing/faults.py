"""Helpers to set fault points (see `syncline.faults`) in this process or in a new program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from syncline import faults

VARIABLE = "SYNCLINE_FAULTS"


def fault_text(points: dict[str, str]) -> str:
    """Return the value of `SYNCLINE_FAULTS` for `{"worker.before_result": "kill:3"}`.

    Raises ValueError for an unknown action.
    """
    text = ",".join(f"{point}={action}" for point, action in points.items())
    faults.parse(text)
    return text


def fault_environment(points: dict[str, str]) -> dict[str, str]:
    """Return the environment variables that set the faults in a program and its processes."""
    return {VARIABLE: fault_text(points)}


@contextmanager
def faults_set(points: dict[str, str]) -> Iterator[None]:
    """Set faults in this process only, until the end of the block.

    Existing child processes are not affected.
    """
    faults.configure(fault_text(points))
    try:
        yield
    finally:
        faults.configure("")
