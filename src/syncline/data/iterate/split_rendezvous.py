"""What the consumers of a split and its coordinator say to each other."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from syncline.data.iterate.batching import BatchOptions
from syncline.data.iterate.cursor import Cursor, PassStart
from syncline.data.iterate.position import Restart


class SplitError(RuntimeError):
    """A split cannot go on: its ranks do not come together."""


class ConsumerDiedError(SplitError):
    """The process of a rank has died."""


class CoordinatorDiedError(SplitError):
    """The process that reads the dataset for all ranks has died."""


class PassReplacedError(SplitError):
    """The same rank has begun another pass, which ended this one."""


@dataclass(frozen=True, kw_only=True)
class Join:
    """A rank wants to begin its next pass. Sent again and again until there is an answer."""

    rank: int
    token: str
    """Names the pass of this rank."""
    process: Process
    options: BatchOptions
    cursors: tuple[Cursor, ...] = ()
    """What the rank has loaded."""


@dataclass(frozen=True, kw_only=True)
class Joined:
    """All ranks have come: the pass begins."""

    pass_start: PassStart
    needs_heartbeats: bool
    """The coordinator cannot see this rank's process, so the rank has to say that it lives."""


class Share(NamedTuple):
    """Rows `start` to `stop` of a block, for one rank."""

    block: Any
    """A reference to the block; in local mode the block."""
    start: int
    stop: int
    restart: Restart
    total: int | None


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """The next rows of a rank."""

    shares: tuple[Share, ...] = ()
    """In order; empty where there were none in time."""
    ended: bool = False
    """There is nothing more."""
    total: int | None = None
    """Rows of the dealt sequence, with `ended`."""
    dropped_rows: int = 0
    """Rows that no rank gets, with `ended`."""


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """The pass has failed."""

    error: bytes
    """`core.error_frames.pack_error` of what the program gets."""


# The time at which a process started is computed from the machine's clock, which may be set in
# between.
_CLOCK_SLACK_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process on some machine."""

    place: str
    """The same for all processes that can see each other's ids."""
    pid: int
    started_s: float
    """When it started, in seconds since 1970: ids are used again."""

    @property
    def is_local(self) -> bool:
        """Whether it can be seen from here."""
        return self.place == _place()

    def is_alive(self) -> bool:
        """Whether it runs; for one that is near only."""
        try:
            process = psutil.Process(self.pid)
            return (
                process.status() != psutil.STATUS_ZOMBIE
                and abs(process.create_time() - self.started_s) < _CLOCK_SLACK_S
            )
        except psutil.NoSuchProcess:
            return False


def this_process() -> Process:
    """The calling one."""
    return Process(place=_place(), pid=os.getpid(), started_s=psutil.Process().create_time())


def _place() -> str:
    """The boot of this machine, and the namespace that process ids belong to: containers have their
    own.
    """
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


@dataclass(kw_only=True)
class _RankState:
    """What is known of one rank."""

    join: Join | None = None
    """It waits for the others."""
    waiting_since: float = 0.0
    process: Process | None = None
    """The last that was seen."""
    last_seen: float | None = None
    """When the rank last asked for something, or left."""


@dataclass(frozen=True, kw_only=True)
class AbsentRank:
    """A rank that others wait for."""

    rank: int
    process: Process | None
    """None: it has never come."""
    silent_s: float
    """Seconds since its last sign of life, or, later, since the first of the others came."""

    def __str__(self) -> str:
        return f"rank {self.rank} ({'has never begun a pass' if self.process is None else f'pid {self.process.pid}'})"


class Rendezvous:
    """The ranks of a split between two passes."""

    def __init__(self, world_size: int) -> None:
        self._ranks = [_RankState() for _ in range(world_size)]

    def arrive(self, join: Join, now: float) -> None:
        """A rank wants to begin; a second time with the same token changes nothing."""
        state = self._ranks[join.rank]
        if state.join is None or state.join.token != join.token:
            state.join, state.waiting_since = join, now
        state.process, state.last_seen = join.process, now

    def mark_seen(self, rank: int, now: float) -> None:
        """A rank in a pass has asked for rows, or has left."""
        self._ranks[rank].last_seen = now

    def silent_s(self, rank: int, now: float) -> float:
        """Seconds since a rank's last sign of life."""
        last = self._ranks[rank].last_seen
        return 0.0 if last is None else now - last

    def absent(self, now: float) -> list[AbsentRank]:
        """The ranks that others wait for; none where nobody waits or all are there."""
        since = [state.waiting_since for state in self._ranks if state.join is not None]
        if not since:
            return []
        begun = min(since)
        return [
            AbsentRank(
                rank=rank,
                process=state.process,
                silent_s=now - max(begun, begun if state.last_seen is None else state.last_seen),
            )
            for rank, state in enumerate(self._ranks)
            if state.join is None
        ]

    def complete(self) -> list[Join] | None:
        """All joins, by rank, once everybody is there: then the seats are free for the next
        meeting.
        """
        joins = [state.join for state in self._ranks if state.join is not None]
        if len(joins) < len(self._ranks):
            return None
        self.clear()
        return joins

    def cancel(self, token: str) -> None:
        """The join with this token waits no more."""
        for state in self._ranks:
            if state.join is not None and state.join.token == token:
                state.join = None

    def clear(self) -> list[str]:
        """Nobody waits any more; the tokens of those who did."""
        tokens = [state.join.token for state in self._ranks if state.join is not None]
        for state in self._ranks:
            state.join = None
        return tokens
