"""Collective operations that do not end: who is the odd one out."""

from __future__ import annotations

from syncline.train.controller.hangs import NO_ANSWER, grouped, odd_ones, ranks_text, side_by_side


def test_who_waits_in_no_collective_is_the_odd_one() -> None:
    assert odd_ones({0: "all_reduce", 1: "sleep", 2: "all_reduce"}, 3, waiting=[0]) == (1,)


def test_where_all_wait_those_that_stand_elsewhere_than_most_are_odd() -> None:
    assert odd_ones({0: "a", 1: "a", 2: "b"}, 3, waiting=[0, 1, 2]) == (2,)


def test_two_ranks_at_two_operations_are_both_odd() -> None:
    assert odd_ones({0: "a", 1: "b"}, 2, waiting=[0, 1]) == (0, 1)


def test_all_at_one_place_are_all_odd() -> None:
    assert odd_ones({0: "a", 1: "a"}, 2, waiting=[0, 1]) == (0, 1)


def test_a_rank_that_does_not_answer_stands_elsewhere() -> None:
    assert odd_ones({0: "a", 2: "a"}, 3, waiting=[0, 2]) == (1,)
    assert grouped({0: "a", 2: "a"}, 3) == {"a": [0, 2], NO_ANSWER: [1]}


def test_stacks_stand_side_by_side_with_the_odd_one_first_and_marked() -> None:
    text = side_by_side({0: "at all_reduce\n", 1: "at sleep\n", 2: "at all_reduce\n"}, 3, odd=[1])
    assert text.splitlines() == [
        "[rank 1]  <-- the odd one out",
        "  at sleep",
        "[ranks 0, 2]",
        "  at all_reduce",
    ]


def test_nobody_is_marked_where_all_are_odd() -> None:
    assert "odd one" not in side_by_side({0: "a", 1: "b"}, 2, odd=[0, 1])


def test_many_ranks_are_written_as_spans() -> None:
    assert ranks_text([4]) == "rank 4"
    assert ranks_text([7, 0, 1, 2, 9, 8]) == "ranks 0-2, 7-9"
