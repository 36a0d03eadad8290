"""Who has come to the next pass of a split, and who keeps the others waiting: pure, the time comes
in as a number.
"""

from __future__ import annotations

from dataclasses import dataclass

from syncline.data.split.liveness import Process
from syncline.data.split.messages import Join


@dataclass(kw_only=True)
class _Seat:
    """What is known of one rank."""

    join: Join | None = None
    """It waits for the others."""
    waiting_since: float = 0.0
    process: Process | None = None
    """The last that was seen."""
    last_sign: float | None = None
    """When the rank last asked for something, or left."""


@dataclass(frozen=True, kw_only=True)
class Absent:
    """A rank that others wait for."""

    rank: int
    process: Process | None
    """None: it has never come."""
    silent_s: float
    """Seconds since its last sign of life, or, later, since the first of the others came."""

    def __str__(self) -> str:
        return f"rank {self.rank} ({'has never begun a pass' if self.process is None else f'pid {self.process.pid}'})"


class Meeting:
    """The ranks of a split between two passes."""

    def __init__(self, world_size: int) -> None:
        self._seats = [_Seat() for _ in range(world_size)]

    def arrive(self, join: Join, now: float) -> None:
        """A rank wants to begin; a second time with the same token changes nothing."""
        seat = self._seats[join.rank]
        if seat.join is None or seat.join.token != join.token:
            seat.join, seat.waiting_since = join, now
        seat.process, seat.last_sign = join.process, now

    def sign(self, rank: int, now: float) -> None:
        """A rank in a pass has asked for rows, or has left."""
        self._seats[rank].last_sign = now

    def silent_s(self, rank: int, now: float) -> float:
        """Seconds since a rank's last sign of life."""
        last = self._seats[rank].last_sign
        return 0.0 if last is None else now - last

    def absent(self, now: float) -> list[Absent]:
        """The ranks that others wait for; none where nobody waits or all are there."""
        since = [seat.waiting_since for seat in self._seats if seat.join is not None]
        if not since:
            return []
        begun = min(since)
        return [
            Absent(
                rank=rank,
                process=seat.process,
                silent_s=now - max(begun, begun if seat.last_sign is None else seat.last_sign),
            )
            for rank, seat in enumerate(self._seats)
            if seat.join is None
        ]

    def complete(self) -> list[Join] | None:
        """All joins, by rank, once everybody is there: then the seats are free for the next
        meeting.
        """
        joins = [seat.join for seat in self._seats if seat.join is not None]
        if len(joins) < len(self._seats):
            return None
        self.dissolve()
        return joins

    def withdraw(self, token: str) -> None:
        """The join with this token waits no more."""
        for seat in self._seats:
            if seat.join is not None and seat.join.token == token:
                seat.join = None

    def dissolve(self) -> list[str]:
        """Nobody waits any more; the tokens of those who did."""
        tokens = [seat.join.token for seat in self._seats if seat.join is not None]
        for seat in self._seats:
            seat.join = None
        return tokens
