"""Outlier analysis of a hang: which ranks the others wait for."""

from __future__ import annotations

from syncline.train.controller.outliers import NO_ANSWER, hanging_ranks, ranks_text, stacks_text


def test_a_rank_outside_of_a_collective_is_the_outlier() -> None:
    assert hanging_ranks({0: "all_reduce", 1: "sleep", 2: "all_reduce"}, 3, waiting=[0]) == (1,)


def test_if_all_ranks_wait_those_outside_of_the_largest_group_are_outliers() -> None:
    assert hanging_ranks({0: "a", 1: "a", 2: "b"}, 3, waiting=[0, 1, 2]) == (2,)


def test_two_ranks_in_two_operations_are_both_outliers() -> None:
    assert hanging_ranks({0: "a", 1: "b"}, 2, waiting=[0, 1]) == (0, 1)


def test_ranks_with_equal_stacks_are_all_outliers() -> None:
    assert hanging_ranks({0: "a", 1: "a"}, 2, waiting=[0, 1]) == (0, 1)


def test_ranks_that_differ_only_in_how_they_wait_have_equal_stacks() -> None:
    def stack(line: int) -> str:
        return f"""  File "/home/me/train.py", line 7, in train
  File "/x/lib/python3.11/site-packages/torch/distributed/c10d.py", line {line}, in all_reduce"""

    assert hanging_ranks({0: stack(1), 1: stack(2), 2: "sleep"}, 3, waiting=[0]) == (2,)


def test_a_rank_without_an_answer_is_the_outlier() -> None:
    assert hanging_ranks({0: "a", 2: "a"}, 3, waiting=[0, 2]) == (1,)
    assert NO_ANSWER in stacks_text({0: "a", 2: "a"}, 3, [1])


def test_stacks_are_listed_with_the_outlier_first_and_marked() -> None:
    stacks = {0: "at all_reduce\n", 1: "at sleep\n", 2: "at all_reduce\n"}
    assert stacks_text(stacks, 3, [1]).splitlines() == [
        "[rank 1]  <-- outlier",
        "  at sleep",
        "[ranks 0, 2]",
        "  at all_reduce",
    ]


def test_no_rank_is_marked_if_all_are_outliers() -> None:
    assert "outlier" not in stacks_text({0: "a", 1: "b"}, 2, [0, 1])


def test_consecutive_ranks_are_written_as_spans() -> None:
    assert ranks_text([4]) == "rank 4"
    assert ranks_text([7, 0, 1, 2, 9, 8]) == "ranks 0-2, 7-9"
