"""The numbering of the rows that remain, and its form in JSON."""

import json
import random

import numpy as np
import pytest

from syncline.data.iterate.position import Position, Restart, position_after


def random_position(rng: random.Random) -> tuple[Position, list[int]]:
    """A position, and the global indices that remain, up to 100."""
    consumed = set(range(rng.randint(0, 10))) | {index for index in range(60) if rng.random() < 0.4}
    prefix = next(index for index in range(101) if index not in consumed)
    holes, start = [], None
    for index in range(prefix, 101):
        if index in consumed and start is None:
            start = index
        if index not in consumed and start is not None:
            holes.append((start, index))
            start = None
    return Position(prefix=prefix, holes=tuple(holes)), [
        index for index in range(100) if index not in consumed
    ]


@pytest.mark.parametrize("case", range(20))
def test_both_numberings_of_the_remaining_rows_agree(case: int) -> None:
    position, remaining = random_position(random.Random(case))
    assert position.global_indices(np.arange(len(remaining))).tolist() == remaining
    for index in range(100):
        assert position.remaining_before(index) == sum(each < index for each in remaining)
    for start, stop in [(0, 100), (5, 30), (30, 31), (31, 31)]:
        rows = [
            index
            for begin, end in position.remaining_ranges(start, stop)
            for index in range(begin, end)
        ]
        assert rows == [index for index in remaining if start <= index < stop]
    assert Position.from_dict(json.loads(json.dumps(position.to_dict()))) == position


@pytest.mark.parametrize("case", range(20))
def test_consumed_rows_move_the_prefix_and_leave_holes(case: int) -> None:
    rng = random.Random(case)
    position, remaining = random_position(rng)
    contiguous = rng.randint(0, 20)
    scattered = rng.sample(range(contiguous, len(remaining)), 10)
    after = position_after(position, contiguous, np.array(scattered), [])
    left = [
        index for row, index in enumerate(remaining) if row >= contiguous and row not in scattered
    ]
    assert after.global_indices(np.arange(len(left))).tolist() == left


def test_the_last_restart_that_leaves_out_no_row_is_chosen() -> None:
    restarts = [Restart(index=index, point=[index]) for index in (3, 12, 9)]
    after = position_after(Position(), 10, np.array([12, 13]), restarts)
    assert after == Position(prefix=10, holes=((12, 14),), restart=Restart(index=9, point=[9]))


def test_holes_before_the_prefix_and_a_late_restart_are_errors() -> None:
    with pytest.raises(ValueError, match="Holes must be sorted"):
        Position(prefix=5, holes=((5, 7),))
    with pytest.raises(ValueError, match="would skip rows"):
        Position(prefix=5, restart=Restart(index=6))
