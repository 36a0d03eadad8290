"""Positions in the global sequence of rows.

The output of a plan is a sequence of rows 0, 1, 2, ... whose order is fixed by a seed and an epoch.
A `Position` divides it into consumed and remaining rows; a pass distributes the remaining rows in
order. Covered: conversion between the two numberings, and the JSON form. Not covered: which rank
gets which row (`sharding`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from syncline.records import dataclass

RestartPoint: TypeAlias = Any
"""JSON value that only the executor interprets; None is the first row."""


@dataclass(frozen=True, kw_only=True)
class Restart:
    """A point from which an execution produces exactly the rows from `index` on."""

    index: int = 0
    """Global index of the first row."""
    point: RestartPoint = None
    """State that the executor needs to start there."""


@dataclass(frozen=True, kw_only=True)
class Position:
    """Consumed rows: all before `prefix`, and those in `holes`."""

    prefix: int = 0
    """Global index of the first remaining row."""
    holes: tuple[tuple[int, int], ...] = ()
    """Consumed ranges `(start, stop)` of global indices after `prefix`: sorted, not empty, not
    adjacent.
    """
    restart: Restart = field(default_factory=Restart)
    """Restart at or before `prefix`."""

    def __post_init__(self) -> None:
        bounds = [self.prefix, *(bound for hole in self.holes for bound in hole)]
        if any(after <= before for before, after in zip(bounds, bounds[1:], strict=False)):
            raise ValueError(
                f"Holes must be sorted, separate ranges after prefix={self.prefix}, "
                f"but are {self.holes[:4]} ..."
            )
        if not 0 <= self.restart.index <= self.prefix:
            raise ValueError(
                f"A restart at row {self.restart.index} would skip rows after prefix={self.prefix}."
            )

    def remaining_before(self, index: int) -> int:
        """Return the number of remaining rows before the row with a global index."""
        hole = int(np.searchsorted(self._starts, index))
        consumed = int(self._consumed[hole])
        if hole and self._stops[hole - 1] > index:
            consumed -= int(self._stops[hole - 1]) - index
        return max(0, index - self.prefix - consumed)

    def global_indices(self, rows: np.ndarray) -> np.ndarray:
        """Return the global indices of remaining rows; int64 `(n,)` -> int64 `(n,)`."""
        # A hole precedes a remaining row if at most as many remaining rows precede the hole.
        before = self._starts - self.prefix - self._consumed[:-1]
        indices: np.ndarray = (
            self.prefix + rows + self._consumed[np.searchsorted(before, rows, side="right")]
        )
        return indices

    def global_index(self, row: int) -> int:
        """Return the global index of a remaining row."""
        return int(self.global_indices(np.array([row], np.int64))[0])

    def remaining_ranges(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of remaining rows within `start` to `stop`, in order."""
        start = max(start, self.prefix)
        for hole in range(int(np.searchsorted(self._stops, start, side="right")), len(self.holes)):
            hole_start, hole_stop = self.holes[hole]
            if hole_start >= stop:
                break
            if start < hole_start:
                yield start, hole_start
            start = hole_stop
        if start < stop:
            yield start, stop

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON form. Holes are stored as short distances between their bounds."""
        bounds = np.array(
            [self.prefix, *(bound for hole in self.holes for bound in hole)], np.int64
        )
        return {
            "prefix": self.prefix,
            "holes": np.diff(bounds).tolist(),
            "restart": restart_to_list(self.restart),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Position:
        """Return the position that `to_dict` was called on."""
        prefix = int(state["prefix"])
        bounds = (prefix + np.cumsum(np.array(state["holes"], np.int64))).tolist()
        holes = tuple(zip(bounds[::2], bounds[1::2], strict=True))
        return cls(prefix=prefix, holes=holes, restart=restart_from_list(state["restart"]))

    @cached_property
    def _starts(self) -> np.ndarray:
        return np.array([start for start, _ in self.holes], np.int64)

    @cached_property
    def _stops(self) -> np.ndarray:
        return np.array([stop for _, stop in self.holes], np.int64)

    @cached_property
    def _consumed(self) -> np.ndarray:
        """Number of rows in the first h holes; int64 `(holes + 1,)`."""
        return np.concatenate([[0], np.cumsum(self._stops - self._starts)]).astype(np.int64)


def position_after(
    start: Position, contiguous: int, scattered: np.ndarray, restarts: list[Restart]
) -> Position:
    """Return the position after some of the remaining rows of `start` were consumed.

    Args:
        start: Position that the rows are numbered from.
        contiguous: Number of consumed rows from the first one on.
        scattered: Numbers of further consumed rows, int64 `(n,)`, in any order, with repeats.
        restarts: Candidates for the restart; the last one that skips no row is chosen.
    """
    prefix = start.global_index(contiguous - 1) + 1 if contiguous else start.prefix
    indices = start.global_indices(np.unique(scattered))
    starts = np.concatenate([[0], start._starts, indices])
    stops = np.concatenate([[prefix], start._stops, indices + 1])
    (_, prefix), *holes = _merged(starts, stops)
    restart = max(
        (each for each in (start.restart, *restarts) if each.index <= prefix),
        key=lambda each: each.index,
    )
    return Position(prefix=prefix, holes=tuple(holes), restart=restart)


def restart_to_list(restart: Restart) -> list[Any]:
    """Return a JSON form."""
    return [restart.index, restart.point]


def restart_from_list(state: Sequence[RestartPoint]) -> Restart:
    """Return the restart that `restart_to_list` was called with."""
    index, point = state
    return Restart(index=int(index), point=point)


def _merged(starts: np.ndarray, stops: np.ndarray) -> list[tuple[int, int]]:
    """Return sorted ranges with overlapping or adjacent ones merged."""
    order = np.argsort(starts, kind="stable")
    starts, stops = starts[order], np.maximum.accumulate(stops[order])
    opens = np.flatnonzero(np.concatenate([[True], starts[1:] > stops[:-1]]))
    closes = np.concatenate([opens[1:], [len(starts)]]) - 1
    return list(zip(starts[opens].tolist(), stops[closes].tolist(), strict=True))
