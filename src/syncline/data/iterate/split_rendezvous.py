"""Messages between the ranks of a split and its coordinator, and which ranks have joined a pass.

`Rendezvous` is pure: the time is an argument.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import NamedTuple

import psutil

from syncline.data.execute.block_store import BlockValue
from syncline.data.iterate.batching import BatchOptions
from syncline.data.iterate.cursor import Cursor, PassStart
from syncline.data.iterate.position import Restart
from syncline.records import dataclass


class SplitError(RuntimeError):
    """The ranks of a split do not begin a pass together."""


class ConsumerDiedError(SplitError):
    """The process of a rank died."""


class CoordinatorDiedError(SplitError):
    """The process that reads the dataset for all ranks died."""


class PassReplacedError(SplitError):
    """Another pass of the same rank ended this one."""


@dataclass(frozen=True, kw_only=True)
class Join:
    """Request of a rank to begin its next pass. Repeated until there is a reply."""

    rank: int
    token: str
    """Identifies the pass of this rank."""
    process: ConsumerProcess
    options: BatchOptions
    cursors: tuple[Cursor, ...] = ()
    """Cursors that the rank has loaded."""


class Share(NamedTuple):
    """Rows `start` to `stop` of a block for one rank."""

    block: BlockValue
    """A reference to the block; in local mode the block."""
    start: int
    stop: int
    restart: Restart
    total: int | None


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """Next rows of a rank."""

    shares: tuple[Share, ...] = ()
    """Rows in order; empty if none were ready in time."""
    ended: bool = False
    """True after the last rows."""
    total: int | None = None
    """Rows of the whole sequence, with `ended`."""
    dropped_rows: int = 0
    """Rows that no rank gets, with `ended`."""


@dataclass(frozen=True, kw_only=True)
class Joined:
    """All ranks have joined; the pass begins."""

    pass_start: PassStart
    needs_heartbeats: bool
    """True if the coordinator cannot observe the rank's process."""
    first: Fetched
    """The first rows of the rank, which saves a call."""


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """The pass failed."""

    error: bytes
    """The user's error in the form of `core.error_frames.pack_error`."""


# Start times of processes are computed from the system clock, which may be adjusted.
_CLOCK_SLACK_S = 5.0


@dataclass(frozen=True, kw_only=True)
class ConsumerProcess:
    """The process of a rank."""

    host_id: str
    """Equal for processes that can observe each other."""
    pid: int
    started_s: float
    """Start in seconds since 1970; distinguishes processes with a reused id."""

    @property
    def is_local(self) -> bool:
        """True if this process can observe it."""
        return self.host_id == _host_id()

    def is_alive(self) -> bool:
        """Return True if the process runs; for local processes only."""
        try:
            process = psutil.Process(self.pid)
            return (
                process.status() != psutil.STATUS_ZOMBIE
                and abs(process.create_time() - self.started_s) < _CLOCK_SLACK_S
            )
        except psutil.NoSuchProcess:
            return False


def this_process() -> ConsumerProcess:
    """Return the calling process."""
    return ConsumerProcess(
        host_id=_host_id(), pid=os.getpid(), started_s=psutil.Process().create_time()
    )


def _host_id() -> str:
    """Return the boot id of the machine with the pid namespace, which differs in containers."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot_id} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


@dataclass(kw_only=True)
class _RankState:
    join: Join | None = None
    """Join of a rank that waits for the others."""
    waiting_since: float = 0.0
    process: ConsumerProcess | None = None
    """Last known process."""
    last_seen: float | None = None
    """Time of the rank's last call."""


@dataclass(frozen=True, kw_only=True)
class AbsentRank:
    """A rank that other ranks wait for."""

    rank: int
    process: ConsumerProcess | None
    """None if it has never joined."""
    silent_s: float
    """Seconds since its last call, or if later, since the first other rank joined."""

    def __str__(self) -> str:
        known = "has never begun a pass" if self.process is None else f"pid {self.process.pid}"
        return f"rank {self.rank} ({known})"


class Rendezvous:
    """Joins of the ranks for the next pass."""

    def __init__(self, world_size: int) -> None:
        self._ranks = [_RankState() for _ in range(world_size)]

    def arrive(self, join: Join, now: float) -> None:
        """Record a join; no effect if it is repeated."""
        state = self._ranks[join.rank]
        if state.join is None or state.join.token != join.token:
            state.join, state.waiting_since = join, now
        state.process, state.last_seen = join.process, now

    def mark_seen(self, rank: int, now: float) -> None:
        """Record a call of a rank in a pass."""
        self._ranks[rank].last_seen = now

    def silent_s(self, rank: int, now: float) -> float:
        """Return the seconds since a rank's last call."""
        last = self._ranks[rank].last_seen
        return 0.0 if last is None else now - last

    def absent(self, now: float) -> list[AbsentRank]:
        """Return the ranks that others wait for; empty if none waits."""
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
        """Return all joins by rank and start over once every rank has joined; else None."""
        joins = [state.join for state in self._ranks if state.join is not None]
        if len(joins) < len(self._ranks):
            return None
        self.clear()
        return joins

    def cancel(self, token: str) -> None:
        """Remove the join with a token."""
        for state in self._ranks:
            if state.join is not None and state.join.token == token:
                state.join = None

    def clear(self) -> list[str]:
        """Remove all joins and return their tokens."""
        tokens = [state.join.token for state in self._ranks if state.join is not None]
        for state in self._ranks:
            state.join = None
        return tokens
