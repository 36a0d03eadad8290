"""Messages between the launcher and its agent: one pickled dataclass a packet."""

from __future__ import annotations

from syncline.records import dataclass


@dataclass(frozen=True, kw_only=True)
class StartRank:
    """Request of the agent for one worker; the launcher answers with `RankStarted`."""

    local_rank: int
    rank: int
    restarts: int
    """Restarts of the group before this start."""
    world_size: int
    local_world_size: int
    group_rank: int
    command: tuple[str, ...]
    """Program and arguments, as for `exec`."""
    work: bytes | None
    """Pickled function that the process runs instead of a command; None for a command."""
    variables: dict[str, str]
    """Environment variables besides the launcher's."""
    removed: tuple[str, ...]
    """Environment variables of the launcher that the agent has removed."""
    stdout: str
    """File for standard output; empty for the console."""
    stderr: str


@dataclass(frozen=True, kw_only=True)
class RankStarted:
    """Notice that a worker runs; it leads a session."""

    local_rank: int
    pid: int


@dataclass(frozen=True, kw_only=True)
class RankEnded:
    """Notice that the process of a worker ended."""

    pid: int
    exitcode: int
    """Exit code, or the negative number of a signal."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One failed worker of the last group."""

    rank: int
    local_rank: int
    pid: int
    exitcode: int
    time: float
    """Seconds since the epoch."""
    traceback: str
    """Traceback that `record` has written; empty without one."""


@dataclass(frozen=True, kw_only=True)
class GroupFailed:
    """Notice of the agent that its workers failed."""

    failures: tuple[Failure, ...]


@dataclass(frozen=True, kw_only=True)
class AgentFailed:
    """Notice of the agent that it could not run workers, or was stopped."""

    reason: str
    traceback: str
    """Empty for errors that explain themselves."""


@dataclass(frozen=True, kw_only=True)
class RankSeen:
    """What the launcher of a node knows of a rank, on its way to the launcher of the first node."""

    rank: int
    observation: str = ""
    """The latest one as JSON; empty before the first."""
    is_stopped: bool = False
    """True if a signal has stopped the process."""
    has_ended: bool = False
    death: str = ""
    """How the process died, if it was the first of its node to end; else empty."""
    clock_ahead_s: float = 0.0
    """Seconds by which the clock of its node is ahead of that of the first node."""
