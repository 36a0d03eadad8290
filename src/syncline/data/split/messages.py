"""What the consumers of a split and its coordinator say to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from syncline.data.iterate.batching import BatchOptions
from syncline.data.iterate.cursor import Beginning, Cursor
from syncline.data.iterate.position import Restart
from syncline.data.split.liveness import Process


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

    beginning: Beginning
    needs_beats: bool
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
class Refused:
    """The pass has failed."""

    error: bytes
    """`core.error_frames.pack_error` of what the program gets."""
