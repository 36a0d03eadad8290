"""Positions in the global sequence of rows: what is consumed already, and where the pipeline may
start again.

The output of a plan is one sequence of rows 0, 1, 2, ... in a fixed order for a seed and an epoch.
A `Position` splits it into rows that are consumed and rows that remain; the remaining ones, in
order, are what a pass deals out. Covered: the arithmetic between the two numberings, and the form
in JSON. Not covered: who gets which of the remaining rows (`dealing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

RestartPoint: TypeAlias = Any
"""JSON value that only the executor interprets; None stands for the first row."""


@dataclass(frozen=True, kw_only=True)
class Restart:
    """A point from which the pipeline can be started so that it produces exactly the rows from
    `index` on.
    """

    index: int = 0
    """Global index of the first row that it produces."""
    point: RestartPoint = None
    """What the executor needs to start there, as JSON would hold it; None for the very
    beginning.
    """


@dataclass(frozen=True, kw_only=True)
class Position:
    """Which rows are consumed: all before `prefix`, and those in `holes`."""

    prefix: int = 0
    """Global index of the first row that remains."""
    holes: tuple[tuple[int, int], ...] = ()
    """Ranges `(start, stop)` of global indices after `prefix` that are consumed: sorted, not empty,
    not touching.
    """
    restart: Restart = field(default_factory=Restart)
    """Where the pipeline starts for the remaining rows: at `prefix` or before."""

    def __post_init__(self) -> None:
        bounds = [self.prefix, *(bound for hole in self.holes for bound in hole)]
        if any(after <= before for before, after in zip(bounds, bounds[1:], strict=False)):
            raise ValueError(
                f"holes must be sorted ranges after prefix={self.prefix} that do not touch, but are {self.holes[:4]} ..."
            )
        if not 0 <= self.restart.index <= self.prefix:
            raise ValueError(
                f"the restart at row {self.restart.index} would leave out rows from prefix={self.prefix} on"
            )

    def remaining_before(self, index: int) -> int:
        """How many remaining rows come before the row with global `index`: the number of that row
        among the remaining, if it is one.
        """
        hole = int(np.searchsorted(self._starts, index))
        consumed = int(self._consumed[hole])
        if hole and self._stops[hole - 1] > index:
            consumed -= int(self._stops[hole - 1]) - index
        return max(0, index - self.prefix - consumed)

    def global_indices(self, rows: np.ndarray) -> np.ndarray:
        """Global indices int64 `(n,)` of the remaining rows numbered `rows`, int64 `(n,)`."""
        # Hole h lies before a remaining row exactly if as many remaining rows as come before h come
        # before that row, or more.
        before = self._starts - self.prefix - self._consumed[:-1]
        indices: np.ndarray = (
            self.prefix + rows + self._consumed[np.searchsorted(before, rows, side="right")]
        )
        return indices

    def global_index(self, row: int) -> int:
        """Global index of the remaining row numbered `row`."""
        return int(self.global_indices(np.array([row], np.int64))[0])

    def remaining_ranges(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The ranges of remaining rows within the global indices `start` to `stop`, in order."""
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
        """A form for JSON: holes as the distances between their bounds, which are short numbers
        however far the epoch is.
        """
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
        """What `to_dict` was called on."""
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
        """int64 `(holes + 1,)`: rows in the first h holes."""
        return np.concatenate([[0], np.cumsum(self._stops - self._starts)]).astype(np.int64)


def position_after(
    start: Position, contiguous: int, scattered: np.ndarray, restarts: list[Restart]
) -> Position:
    """Where the sequence stands after some of the remaining rows of `start` were consumed.

    Args:
        start: The position that the rows are numbered from.
        contiguous: So many of the remaining rows are consumed from the first one on.
        scattered: Numbers int64 `(n,)` of more remaining rows that are consumed, in any order,
            repeats allowed.
        restarts: Points to start again from; the last one that leaves out no row is chosen, that of
            `start` if there is none.
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
    """A form for JSON."""
    return [restart.index, restart.point]


def restart_from_list(state: Any) -> Restart:
    """What `restart_to_list` was called with."""
    index, point = state
    return Restart(index=int(index), point=point)


def _merged(starts: np.ndarray, stops: np.ndarray) -> list[tuple[int, int]]:
    """Ranges in any order, put together where they overlap or touch."""
    order = np.argsort(starts, kind="stable")
    starts, stops = starts[order], np.maximum.accumulate(stops[order])
    opens = np.flatnonzero(np.concatenate([[True], starts[1:] > stops[:-1]]))
    closes = np.concatenate([opens[1:], [len(starts)]]) - 1
    return list(zip(starts[opens].tolist(), stops[closes].tolist(), strict=True))
