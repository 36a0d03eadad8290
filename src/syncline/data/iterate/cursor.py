"""Cursors: how far a rank is in an epoch, and what a restart makes of the cursors of all ranks.

A cursor counts the rows that the program got; what was fetched ahead does not count. Its size does
not depend on the length of the epoch. `continue_from` gives the exact continuation, shuffle windows
included, where the ranks go on as before, and for any other world size or batch size what `merge`
gives: the position from which the rows that remain are dealt anew, in order. Not covered: storing
cursors, starting the pipeline.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
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

VERSION = 1


class CursorError(ValueError):
    """A cursor cannot be used: it is of another version or plan, damaged, or does not belong to the
    others.
    """


class CursorUpdate(NamedTuple):
    """How far a rank is after a batch."""

    rows: int
    """Own rows that the program got in this pass and in those that it continues."""
    restart: Restart
    """Where the pipeline may start again for the next row."""
    total: int | None
    """Rows of the dealt sequence; known in its last round."""


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """How far one rank is in one epoch."""

    plan: str
    """Signature of the plan: other data, or another order of it, have another one."""
    epoch: int
    """Number of the pass."""
    seed: int
    """Seed of the execution, from which a plan's unseeded shuffles take theirs."""
    start: Position
    """What the dealing began from."""
    rounds: Rounds
    """How the rows are dealt."""
    rank: int
    """Whose cursor this is."""
    windows: ShuffleWindows | None = None
    """The local shuffle."""
    rows: int = 0
    """Own rows that the program got."""
    restart: Restart = field(default_factory=Restart)
    """Where the pipeline may start again for the next row; no later than the shuffle window that
    the next row is in.
    """
    total: int | None = None
    """Rows of the dealt sequence, known in its last round."""
    ended: bool = False
    """The pass has ended: what comes next is the next epoch."""

    @property
    def settled(self) -> int:
        """Own rows before the first one that a continuation has to read: those of windows that are
        over, or all without a shuffle.
        """
        return self.windows.settled(self.rows) if self.windows else self.rows

    def advanced(self, mark: CursorUpdate, *, ended: bool = False) -> Cursor:
        """The cursor after a batch."""
        return dataclasses.replace(
            self, rows=mark.rows, restart=mark.restart, total=mark.total, ended=ended
        )

    def to_dict(self) -> dict[str, Any]:
        """A form that JSON holds."""
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
        """What `to_dict` was called on. CursorError if this library cannot read it, or if it
        belongs to another plan than `plan`.
        """
        version = state.get("version") if isinstance(state, Mapping) else None
        if version != VERSION:
            raise CursorError(
                f"the state of the iterator has version {version!r}, but this syncline reads version {VERSION}: "
                "load it with the syncline that saved it, or start the epoch from its beginning"
            )
        try:
            cursor = cls._read(state)
        except (KeyError, TypeError, ValueError) as error:
            raise CursorError(
                f"the state of the iterator is damaged ({type(error).__name__}: {error}): use another checkpoint"
            ) from error
        if cursor.plan != plan:
            raise CursorError(
                f"the state of the iterator belongs to another dataset (plan {cursor.plan!r}, not {plan!r}), so its counts mean "
                "nothing here: load it into a dataset with the same inputs and transformations, or do not load it"
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
        """Own rows from `first` on that the program got, int64 `(n,)`; `first` is not after
        `settled`.
        """
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
    """Where a pass begins."""

    epoch: int
    """Number of the pass."""
    seed: int
    """Seed of the execution."""
    position: Position
    """The rows that are dealt."""
    rounds: Rounds
    """How they are dealt."""
    rows: tuple[int, ...]
    """Own rows that each rank got before."""
    settled: tuple[int, ...]
    """Own rows that each rank does not need again: `Sharder.skip`."""
    restart: Restart
    """Where the pipeline starts."""
    total: int | None = None
    """Rows of the dealt sequence, where a pass before this one got to its last round."""

    def cursor(self, *, plan: str, rank: int, windows: ShuffleWindows | None) -> Cursor:
        """The cursor with which a rank begins."""
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
    """The beginning of an epoch."""
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
    """Where a pass begins that continues the pass of `cursors` (of all ranks, in any order).

    With the rounds and the windows (one entry per rank) of the cursors every rank continues its own
    rows exactly. With others the rows that remain are dealt anew. After an epoch that all ranks
    ended it is the beginning of the next one.
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
    """What all ranks together consumed, independent of the world size. CursorError if cursors are
    missing or do not belong together.
    """
    cursors = _of_one_pass(cursors)
    first, rounds = cursors[0], cursors[0].rounds
    total = _total(cursors)
    # Rounds that every rank has consumed: the rows in them need no list.
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
    """The last point from which the pipeline produces every row that a rank still needs."""
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
    """The cursors by rank, after a check that they are those of all ranks of one pass."""
    if not cursors:
        raise CursorError("there is no cursor to continue from: give the states of all ranks")
    latest = max(cursors, key=lambda cursor: (cursor.epoch, not cursor.ended))
    world_size = latest.rounds.world_size
    ranks = sorted(cursor.rank for cursor in cursors)
    if ranks != list(range(world_size)):
        raise CursorError(
            f"the pass had {world_size} ranks, but these are the states of ranks {ranks}: give one of each rank"
        )
    return [
        _in_pass_of(latest, cursor) for cursor in sorted(cursors, key=lambda cursor: cursor.rank)
    ]


def _in_pass_of(latest: Cursor, cursor: Cursor) -> Cursor:
    """The cursor, or that of its next epoch if `latest` is there already."""
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
                f"the states of ranks {cursor.rank} and {latest.rank} are of two passes ({name}: {_short(mine)} and {_short(others)}), "
                "so they do not add up: use states that all ranks saved at the same moment"
            )
    return cursor


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


class CursorTracker:
    """The cursor of the pass that is going on: moved by the loop, read by `state_dict`. One thread
    moves, any thread reads.
    """

    def __init__(self) -> None:
        self._state: tuple[Cursor, CursorUpdate | None, bool] | None = None
        self.in_pass = False
        """Whether the program is in a loop."""
        self.passes = 0
        """Passes that have begun."""
        self.meter = WaitMeter()
        """What the input of all passes cost the program."""

    def begin(self, cursor: Cursor) -> None:
        """A pass begins at `cursor`."""
        self._state = (cursor, None, False)
        self.in_pass = True
        self.passes += 1

    def advance(self, mark: CursorUpdate) -> None:
        """The program got a batch."""
        assert self._state is not None, "a pass begins before it advances"
        self._state = (self._state[0], mark, False)

    def end(self, mark: CursorUpdate) -> None:
        """The program got all that there is."""
        assert self._state is not None, "a pass begins before it ends"
        self._state = (self._state[0], mark, True)

    def leave(self, begun: Cursor) -> None:
        """The loop that began at `begun`, this very object, is over: at its end or before."""
        if self._state is not None and self._state[0] is begun:
            self.in_pass = False

    @contextmanager
    def loop(self, cursor: Cursor) -> Iterator[None]:
        """A pass begins at `cursor`, and the program leaves it with the block."""
        self.begin(cursor)
        try:
            yield
        finally:
            self.leave(cursor)

    @property
    def cursor(self) -> Cursor | None:
        """How far the program is; None before the first pass."""
        if self._state is None:
            return None
        begun, mark, ended = self._state
        return begun if mark is None else begun.advanced(mark, ended=ended)
