"""When a failed attempt is followed by another, and how many workers an attempt gets. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from syncline.train.config import FailureConfig

FailureKind = Literal["worker", "preemption", "controller"]

FUTILE_CONTROLLER_FAILURES = 3
"""So many controller failures in a row, without a report between them, end the run whatever its
limit: nothing has changed.
"""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What follows a failed attempt."""

    retry: bool
    count: int
    """Failures of this kind so far."""
    limit: int
    """How many may be followed by another attempt; -1: all."""


class FailureBudgets:
    """Three counters, each against its own limit; one count per failed attempt. Retry while count
    <= limit.
    """

    def __init__(self, config: FailureConfig) -> None:
        self._limits: dict[FailureKind, int] = {
            "worker": config.max_failures,
            "preemption": config.max_preemption_failures,
            "controller": config.controller_failure_limit,
        }
        self._counts: dict[FailureKind, int] = dict.fromkeys(self._limits, 0)
        self._futile = 0

    def progressed(self) -> None:
        """A report has come in."""
        self._futile = 0

    def charge(self, kind: FailureKind) -> Decision:
        """Count one failed attempt and say whether another follows."""
        self._counts[kind] += 1
        self._futile = self._futile + 1 if kind == "controller" else 0
        count, limit = self._counts[kind], self._limits[kind]
        allowed = limit < 0 or count <= limit
        return Decision(
            retry=allowed and self._futile < FUTILE_CONTROLLER_FAILURES, count=count, limit=limit
        )


def group_size(
    *, minimum: int, maximum: int, bundle: dict[str, float], available: dict[str, float]
) -> int:
    """How many workers to start now: as many as fit into what is free, at least `minimum` (waited
    for), at most `maximum`.
    """
    fitting = [
        int((available.get(name, 0.0) + 1e-9) / amount)
        for name, amount in bundle.items()
        if amount > 0
    ]
    return max(minimum, min([maximum, *fitting]))
