"""Comparison of the ranks' collective calls."""

from __future__ import annotations

from syncline.diagnosis.collective_calls import CollectiveCall, absence, first_difference, lateness

GRADIENTS, METRIC = ("all_reduce", "[64] Float"), ("all_reduce", "[2] Float")


def calls(
    *operations: tuple[str, str], first: int = 1, late_s: float = 0.0, pending: int = 0
) -> list[CollectiveCall]:
    """Return calls one second apart; the last `pending` ones have not ended."""
    return [
        CollectiveCall(
            group="0",
            number=number,
            operation=operation,
            sizes=sizes,
            arrived_s=100.0 + number + late_s,
            is_pending=number - first >= len(operations) - pending,
        )
        for number, (operation, sizes) in enumerate(operations, start=first)
    ]


def test_equal_calls_have_no_difference_and_nobody_is_absent() -> None:
    same = {rank: calls(GRADIENTS, METRIC, GRADIENTS) for rank in range(4)}
    assert first_difference(same) is None
    assert absence(same) is None
    assert first_difference({}) is None


def test_a_rank_that_left_out_a_call_is_told_from_one_that_made_another() -> None:
    usual = calls(GRADIENTS, METRIC, GRADIENTS, METRIC, pending=1)
    others = dict.fromkeys((0, 2, 3), usual)
    left_out = first_difference({**others, 1: calls(GRADIENTS, METRIC, GRADIENTS, GRADIENTS)})
    assert left_out is not None
    assert (left_out.kind, left_out.ranks, left_out.number) == ("missing", (1,), 4)
    assert left_out.expected.text == "all_reduce [2] Float"
    shape = first_difference(
        {**others, 1: calls(GRADIENTS, METRIC, GRADIENTS, ("all_reduce", "[3] Float"))}
    )
    assert shape is not None
    assert (shape.kind, shape.ranks) == ("shape", (1,))
    other = first_difference(
        {**others, 1: calls(GRADIENTS, METRIC, GRADIENTS, ("broadcast", "[2] Float"))}
    )
    assert other is not None
    assert (other.kind, other.ranks) == ("operation", (1,))


def test_without_a_majority_all_ranks_differ() -> None:
    found = first_difference({0: calls(GRADIENTS), 1: calls(METRIC)})
    assert found is not None
    assert found.ranks == (0, 1)


def test_without_a_majority_the_usual_sequence_decides() -> None:
    usual = calls(GRADIENTS, METRIC, GRADIENTS, METRIC, pending=1)
    found = first_difference({0: usual, 1: calls(GRADIENTS, METRIC, GRADIENTS, GRADIENTS)})
    assert found is not None
    assert (found.kind, found.ranks, found.number) == ("missing", (1,), 4)
    assert found.expected.text == "all_reduce [2] Float"
    neither = first_difference({0: usual[:3] + calls(("barrier", ""), first=4), 1: usual[:3]})
    assert neither is None
    unusual = first_difference(
        {
            0: usual[:3] + calls(("barrier", ""), first=4),
            1: usual[:3] + calls(("broadcast", "[2] Float"), first=4),
        }
    )
    assert unusual is not None
    assert unusual.ranks == (0, 1)


def test_shapes_may_differ_where_the_operation_allows_it() -> None:
    assert (
        first_difference(
            {0: calls(("all_to_all", "[1] Float")), 1: calls(("all_to_all", "[2] Float"))}
        )
        is None
    )


def test_calls_that_only_one_rank_still_remembers_are_not_compared() -> None:
    assert first_difference({0: calls(GRADIENTS, first=1), 1: calls(METRIC, first=9)}) is None


def test_calls_of_a_new_group_are_not_compared_with_those_of_the_one_before() -> None:
    before = calls(GRADIENTS, METRIC)
    after = calls(METRIC, GRADIENTS, late_s=9.0, pending=1)
    assert first_difference({0: [*before, *after], 1: before, 2: before}) is None
    assert first_difference({0: [*before, *after], 1: [*before, *after]}) is None
    forgotten = first_difference({0: [*before, *after], 1: calls(METRIC, METRIC, pending=1)})
    assert forgotten is not None
    assert (forgotten.kind, forgotten.number) == ("shape", 2)


def test_a_rank_that_waits_in_a_group_whose_name_others_use_again_waits_for_them() -> None:
    before = calls(GRADIENTS, METRIC)
    waiting = calls(GRADIENTS, METRIC, GRADIENTS, pending=1)
    found = absence({0: [*before, *calls(METRIC, late_s=9.0, pending=1)], 1: waiting})
    assert found is not None
    assert (found.waiting, found.absent, found.call.number) == ((1,), (0,), 3)


def test_ranks_that_have_not_made_a_pending_call_are_absent() -> None:
    waiting = calls(GRADIENTS, METRIC, pending=1)
    found = absence({0: waiting, 1: calls(GRADIENTS), 2: calls(GRADIENTS, METRIC, pending=1)})
    assert found is not None
    assert (found.waiting, found.absent, found.since_s) == ((0, 2), (1,), 102.0)


def test_ranks_without_an_answer_are_absent_only_if_no_other_rank_is_behind() -> None:
    waiting = calls(GRADIENTS, METRIC, pending=1)
    found = absence({0: waiting, 1: waiting, 2: waiting}, {2, 3})
    assert found is not None
    assert (found.waiting, found.absent) == ((0, 1), (2, 3))
    found = absence({0: waiting, 1: calls(GRADIENTS)}, {2})
    assert found is not None
    assert (found.waiting, found.absent) == ((0,), (1,))
    assert absence({0: calls(GRADIENTS), 1: calls(GRADIENTS)}, {2}) is None
    assert absence({2: waiting}, {2}) is None


def test_the_last_rank_is_charged_with_the_wait_of_the_median() -> None:
    times = {
        0: calls(GRADIENTS, METRIC),
        1: calls(GRADIENTS, METRIC, late_s=0.5),
        2: calls(GRADIENTS, METRIC, late_s=0.1),
    }
    found = lateness(times)
    assert found.calls == 2
    assert round(found.waited_for_s[1], 6) == 0.9
    assert found.last == {1: 2}
    assert round(found.span_s, 6) == 1.5


def test_a_clock_that_is_ahead_does_not_make_a_rank_late() -> None:
    ahead = {0: calls(GRADIENTS), 1: calls(GRADIENTS, late_s=5.0), 2: calls(GRADIENTS)}
    assert max(lateness(ahead, {1: 5.0}).waited_for_s.values()) < 1e-6


def test_calls_are_compared_once_unless_a_new_group_begins_to_count_again() -> None:
    def made(numbers: range, late_s: float) -> dict[int, list[CollectiveCall]]:
        return {
            rank: [
                CollectiveCall(
                    group="0",
                    number=number,
                    operation="barrier",
                    sizes="",
                    arrived_s=number + rank * late_s,
                )
                for number in numbers
            ]
            for rank in range(2)
        }

    first = lateness(made(range(5), 0.5))
    assert (first.calls, first.newest) == (5, {"0": 4})
    second = lateness(made(range(8), 0.5), compared=first.newest)
    assert (second.calls, second.waited_for_s) == (3, {1: 1.5})
    assert lateness(made(range(8), 0.5), compared=second.newest).calls == 0
    assert lateness(made(range(2), 0.5), compared=second.newest).calls == 2
