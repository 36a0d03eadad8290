"""`Verdict`: which rank delays or stops a training, and why. Pure.

A verdict is an event of the record: {"event": "verdict", "cause", "ranks", "seconds", "text"}.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from syncline.records import dataclass
from syncline.runs.json_values import finite
from syncline.runs.outliers import ranks_text

EVENT = "verdict"
OVER = "verdict_over"
"""Event: the last verdict does not hold any more."""


class Cause(str, Enum):
    """Reason of a delay, a stop or an error."""

    def __str__(self) -> str:
        return str(self.value)

    MISSING_COLLECTIVE = "missing collective"
    MISMATCHED_COLLECTIVES = "mismatched collectives"
    MISMATCHED_SHAPES = "mismatched shapes"
    COMPUTE = "compute"
    DATA = "data"
    DISK = "disk"
    CPU_CONTENTION = "cpu contention"
    GARBAGE_COLLECTION = "garbage collection"
    STOPPED = "stopped"
    DEAD = "dead"
    NETWORK_DELAY = "network delay"
    NOT_A_NUMBER = "nan"


_CAUSES = frozenset(map(str, Cause))
DIFFERENCES = frozenset(
    {Cause.MISSING_COLLECTIVE, Cause.MISMATCHED_COLLECTIVES, Cause.MISMATCHED_SHAPES}
)
"""Causes for which the calls of the ranks differ. Gloo may abort a process then."""
SLOWNESS = frozenset(
    {Cause.COMPUTE, Cause.DATA, Cause.DISK, Cause.CPU_CONTENTION, Cause.GARBAGE_COLLECTION}
)
"""Causes for which a rank comes late to collective operations."""
STALLS = DIFFERENCES | {Cause.STOPPED}
"""Causes for which the training makes no progress."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A finding about one or more ranks."""

    cause: Cause
    ranks: tuple[int, ...]
    seconds: float
    """Seconds that the other ranks have waited for them; 0 if unknown."""
    text: str
    """One or two sentences for people, with the ranks, the cause and the remedy."""

    def to_json(self) -> dict[str, object]:
        """Return the fields of the event."""
        return {
            "cause": str(self.cause),
            "ranks": list(self.ranks),
            "seconds": round(self.seconds, 3),
            "text": self.text,
        }

    @property
    def may_pass(self) -> bool:
        """True if a rank is away from a call for a while, as to evaluate or to save: no reason to
        warn yet.
        """
        return self.cause is Cause.MISSING_COLLECTIVE and self.seconds > 0

    @property
    def title(self) -> str:
        """Such as "rank 2: garbage collection"."""
        return f"{ranks_text(self.ranks)}: {self.cause}"


def verdict_of(event: Mapping[str, object]) -> Verdict | None:
    """Return the verdict of an event; None for another or an invalid event."""
    ranks = event.get("ranks")
    cause = str(event.get("cause"))
    if event.get("event") != EVENT or not isinstance(ranks, Sequence) or cause not in _CAUSES:
        return None
    return Verdict(
        cause=Cause(cause),
        ranks=tuple(rank for rank in ranks if isinstance(rank, int)),
        seconds=finite(event.get("seconds")) or 0.0,
        text=str(event.get("text", "")),
    )


def current_verdict(events: Iterable[Mapping[str, object]]) -> Verdict | None:
    """Return the last verdict that still holds; None without one."""
    found: Verdict | None = None
    for event in events:
        if event.get("event") in (OVER, "attempt"):
            found = None
        else:
            found = verdict_of(event) or found
    return found


def verdicts(events: Iterable[Mapping[str, object]]) -> list[Verdict]:
    """Return the verdicts among the events of a run, in order."""
    return [found for event in events if (found := verdict_of(event)) is not None]
