"""Cursors: the progress of a rank in an epoch, and how to resume from the cursors of all ranks.

A cursor counts the rows delivered to the user; prefetched rows do not count. Its size does not
depend on the length of the epoch. With the same world size and batch sizes, `continue_from` resumes
exactly, including shuffle windows. Otherwise it resumes from the position computed by `merge` and
distributes the remaining rows anew. Not covered: storing cursors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np

from syncline.data.iterate.position import (
    Position,
    Restart,
    position_after,
    restart_from_list,
    restart_to_list,
)
from syncline.data.iterate.prefetch import WaitMeter
from syncline.data.iterate.sharding import Rounds, ShuffleWindows, equal_mode
from syncline.records import dataclass

VERSION = 1


class CursorError(ValueError):
    """A cursor is damaged, of another version or plan, or does not belong to the others."""


class CursorUpdate(NamedTuple):
    """Progress of a rank after a batch."""

    rows: int
    """Rows delivered in this pass and in the passes that it continues."""
    restart: Restart
    """Restart for the next row."""
    total: int | None
    """Rows of the whole sequence; known in its last round."""


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """Progress of one rank in one epoch."""

    plan: str
    """Signature of the plan; changes with the data or their order."""
    epoch: int
    """Number of the pass."""
    seed: int
    """Seed of the execution."""
    start: Position
    """Position at the start of the pass."""
    rounds: Rounds
    """Assignment of rows to ranks."""
    rank: int
    windows: ShuffleWindows | None = None
    """Local shuffle."""
    rows: int = 0
    """Delivered rows of this rank."""
    restart: Restart = field(default_factory=Restart)
    """Restart for the next row; not after the start of its shuffle window."""
    total: int | None = None
    """Rows of the whole sequence; known in its last round."""
    ended: bool = False
    """True if the pass has ended; the next epoch follows."""

    @property
    def settled(self) -> int:
        """Number of leading rows that need not be read again: those of completed windows."""
        return self.windows.settled(self.rows) if self.windows else self.rows

    def advanced(self, update: CursorUpdate, *, ended: bool = False) -> Cursor:
        """Return the cursor after a batch."""
        return dataclasses.replace(
            self, rows=update.rows, restart=update.restart, total=update.total, ended=ended
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON form."""
        return {
            "version": VERSION,
            "plan": self.plan,
            "epoch": self.epoch,
            "seed": self.seed,
            "start": self.start.to_dict(),
            "world_size": self.rounds.world_size,
            "rank": self.rank,
            "chunks": list(self.rounds.chunks),
            "equal": self.rounds.equal,
            "window": self.windows and self.windows.to_dict(),
            "rows": self.rows,
            "restart": restart_to_list(self.restart),
            "total": self.total,
            "ended": self.ended,
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any], *, plan: str) -> Cursor:
        """Return the cursor that `to_dict` was called on.

        Raises:
            CursorError: The state has another version or plan, or is damaged.
        """
        version = state.get("version") if isinstance(state, Mapping) else None
        if version != VERSION:
            raise CursorError(
                f"The state of the iterator has version {version!r}, but this syncline reads "
                f"version {VERSION}. Load it with the syncline that saved it, or start the epoch "
                "from its beginning."
            )
        try:
            cursor = cls._read(state)
        except (KeyError, TypeError, ValueError) as error:
            raise CursorError(
                f"The state of the iterator is damaged ({type(error).__name__}: {error}). Use "
                "another checkpoint."
            ) from error
        if cursor.plan != plan:
            raise CursorError(
                f"The state of the iterator belongs to another dataset (plan {cursor.plan!r}, not "
                f"{plan!r}). Load it into a dataset with the same inputs and transformations."
            )
        return cursor

    @classmethod
    def _read(cls, state: Mapping[str, Any]) -> Cursor:
        window = state["window"]
        return cls(
            plan=state["plan"],
            epoch=int(state["epoch"]),
            seed=int(state["seed"]),
            start=Position.from_dict(state["start"]),
            rounds=Rounds(
                chunks=tuple(map(int, state["chunks"])), equal=equal_mode(state["equal"])
            ),
            rank=int(state["rank"]),
            windows=None
            if window is None
            else ShuffleWindows(rows=int(window["rows"]), seed=int(window["seed"])),
            rows=int(state["rows"]),
            restart=restart_from_list(state["restart"]),
            total=None if state["total"] is None else int(state["total"]),
            ended=bool(state["ended"]),
        )

    def _yielded_from(self, first: int, total: int | None) -> np.ndarray:
        """Return the delivered rows from `first` on, int64 `(n,)`; `first` <= `settled`."""
        plain = np.arange(first, self.settled, dtype=np.int64)
        if self.windows is None or self.rows == self.settled:
            return plain
        length = self.windows.rows
        if total is not None:
            length = min(length, self.rounds.share(self.rank, total) - self.settled)
        order = self.windows.order(self.epoch, self.rank, self.settled // self.windows.rows, length)
        return np.concatenate([plain, self.settled + order[: self.rows - self.settled]])


@dataclass(frozen=True, kw_only=True)
class PassStart:
    """Start of a pass."""

    epoch: int
    """Number of the pass."""
    seed: int
    """Seed of the execution."""
    position: Position
    """Rows to distribute."""
    rounds: Rounds
    """Assignment of rows to ranks."""
    rows: tuple[int, ...]
    """Rows that each rank received before."""
    settled: tuple[int, ...]
    """Leading rows that each rank does not need again, see `Sharder.skip`."""
    restart: Restart
    """Restart of the execution."""
    total: int | None = None
    """Rows of the whole sequence, if an earlier pass reached its last round."""

    def cursor(self, *, plan: str, rank: int, windows: ShuffleWindows | None) -> Cursor:
        """Return the cursor of a rank at the start of the pass."""
        return Cursor(
            plan=plan,
            epoch=self.epoch,
            seed=self.seed,
            start=self.position,
            rounds=self.rounds,
            rank=rank,
            windows=windows,
            rows=self.rows[rank],
            restart=self.restart,
            total=self.total,
        )


def epoch_start(*, epoch: int, seed: int, rounds: Rounds) -> PassStart:
    """Return the start of an epoch."""
    none = (0,) * rounds.world_size
    return PassStart(
        epoch=epoch,
        seed=seed,
        position=Position(),
        rounds=rounds,
        rows=none,
        settled=none,
        restart=Restart(),
    )


def continue_from(
    cursors: Sequence[Cursor], *, rounds: Rounds, windows: Sequence[ShuffleWindows | None]
) -> PassStart:
    """Return the start of the pass that continues the pass of `cursors`.

    With the same rounds and windows as before, each rank continues its own rows. Otherwise the
    remaining rows are distributed anew. If all ranks have ended the epoch, the next epoch starts.

    Args:
        cursors: Cursors of all ranks, in any order.
        rounds: New assignment of rows to ranks.
        windows: New local shuffle of each rank.

    Raises:
        CursorError: Cursors are missing or do not belong together.
    """
    cursors = _of_one_pass(cursors)
    first = cursors[0]
    if all(cursor.ended for cursor in cursors):
        return epoch_start(epoch=first.epoch + 1, seed=first.seed, rounds=rounds)
    if rounds != first.rounds or list(windows) != [cursor.windows for cursor in cursors]:
        position = merge(cursors)
        begin = epoch_start(epoch=first.epoch, seed=first.seed, rounds=rounds)
        return dataclasses.replace(begin, position=position, restart=position.restart)
    return PassStart(
        epoch=first.epoch,
        seed=first.seed,
        position=first.start,
        rounds=rounds,
        rows=tuple(cursor.rows for cursor in cursors),
        settled=tuple(cursor.settled for cursor in cursors),
        restart=_last_restart(cursors),
        total=_total(cursors),
    )


def merge(cursors: Sequence[Cursor]) -> Position:
    """Return the position after the rows that all ranks consumed, for any world size.

    Raises:
        CursorError: Cursors are missing or do not belong together.
    """
    cursors = _of_one_pass(cursors)
    first, rounds = cursors[0], cursors[0].rounds
    total = _total(cursors)
    # Rounds consumed by every rank; their rows need no list.
    whole = min(cursor.settled // rounds.lengths[cursor.rank] for cursor in cursors)
    if total is not None:
        whole = min(whole, total // rounds.size)
    scattered = [
        rounds.rows(c.rank, c._yielded_from(whole * rounds.lengths[c.rank], total), total)
        for c in cursors
    ]
    return position_after(
        first.start,
        whole * rounds.size,
        np.concatenate(scattered),
        [cursor.restart for cursor in cursors],
    )


def _last_restart(cursors: Sequence[Cursor]) -> Restart:
    """Return the last restart that produces every row that a rank still needs."""
    start, rounds, total = cursors[0].start, cursors[0].rounds, _total(cursors)
    restarts = [start.restart, *(cursor.restart for cursor in cursors)]
    needed = []
    for cursor in cursors:
        if total is None or cursor.settled < rounds.share(cursor.rank, total):
            needed.append(int(rounds.rows(cursor.rank, np.array([cursor.settled]), total)[0]))
    if needed:
        index = start.global_index(min(needed))
        restarts = [restart for restart in restarts if restart.index <= index]
    return max(restarts, key=lambda restart: restart.index)


def _total(cursors: Sequence[Cursor]) -> int | None:
    return next((cursor.total for cursor in cursors if cursor.total is not None), None)


def _of_one_pass(cursors: Sequence[Cursor]) -> list[Cursor]:
    """Return the cursors by rank after checking that they are those of all ranks of one pass."""
    if not cursors:
        raise CursorError("There is no cursor to continue from. Pass the states of all ranks.")
    latest = max(cursors, key=lambda cursor: (cursor.epoch, not cursor.ended))
    world_size = latest.rounds.world_size
    ranks = sorted(cursor.rank for cursor in cursors)
    if ranks != list(range(world_size)):
        raise CursorError(
            f"The pass had {world_size} ranks, but these are the states of ranks {ranks}. Pass one "
            "state of each rank."
        )
    return [
        _in_pass_of(latest, cursor) for cursor in sorted(cursors, key=lambda cursor: cursor.rank)
    ]


def _in_pass_of(latest: Cursor, cursor: Cursor) -> Cursor:
    """Return the cursor, or its next epoch if `latest` has begun it."""
    if cursor.ended and cursor.epoch == latest.epoch - 1 and cursor.plan == latest.plan:
        return dataclasses.replace(
            latest,
            rank=cursor.rank,
            windows=cursor.windows,
            rows=0,
            restart=latest.start.restart,
            total=None,
        )
    for name in ("plan", "epoch", "seed", "start", "rounds"):
        mine, others = getattr(cursor, name), getattr(latest, name)
        if mine != others:
            raise CursorError(
                f"The states of ranks {cursor.rank} and {latest.rank} are of two passes ({name}: "
                f"{_short(mine)} and {_short(others)}). Use states that all ranks saved at "
                "the same step."
            )
    return cursor


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


class CursorTracker:
    """Cursor of the current pass. The loop's thread updates it; any thread may read it."""

    def __init__(self) -> None:
        self._state: tuple[Cursor, CursorUpdate | None, bool] | None = None
        self.in_pass = False
        """True while the user is in a loop."""
        self.passes = 0
        """Number of passes begun."""
        self.meter = WaitMeter()
        """Waiting time of all passes."""
        self.on_request: Callable[[], None] | None = None
        """Called on the user's thread when the user is done with a batch and requests the next."""

    def requested(self) -> None:
        """Record that the user requests the next batch."""
        if self.on_request is not None:
            self.on_request()

    def begin(self, cursor: Cursor) -> None:
        """Begin a pass at a cursor."""
        self._state = (cursor, None, False)
        self.in_pass = True
        self.passes += 1

    def advance(self, update: CursorUpdate) -> None:
        """Record a delivered batch."""
        assert self._state is not None, "a pass begins before it advances"
        self._state = (self._state[0], update, False)

    def end(self, update: CursorUpdate) -> None:
        """Record the end of the rows."""
        assert self._state is not None, "a pass begins before it ends"
        self._state = (self._state[0], update, True)

    def leave(self, begun: Cursor) -> None:
        """Leave the loop that began with this very cursor object."""
        if self._state is not None and self._state[0] is begun:
            self.in_pass = False

    @contextmanager
    def loop(self, cursor: Cursor) -> Iterator[None]:
        """Context of a loop that begins at a cursor."""
        self.begin(cursor)
        try:
            yield
        finally:
            self.leave(cursor)

    @property
    def cursor(self) -> Cursor | None:
        """Cursor after the last delivered batch; None before the first pass."""
        if self._state is None:
            return None
        begun, update, ended = self._state
        return begun if update is None else begun.advanced(update, ended=ended)
