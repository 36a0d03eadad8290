"""From observations of ranks to verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncline.diagnosis.collective_calls import CollectiveCall
from syncline.diagnosis.observation import Link, RankObserved
from syncline.diagnosis.rank_health import RankHealth
from syncline.diagnosis.thread_states import ThreadTimes
from syncline.runs.verdicts import Cause, Verdict

RANKS = 4


def call(number: int, at_s: float, *, pending: bool = False, sizes: str = "[2]") -> CollectiveCall:
    return CollectiveCall(
        group="0",
        number=number,
        operation="all_reduce",
        sizes=sizes,
        arrived_s=at_s,
        is_pending=pending,
    )


def links(rank: int, delays_s: Mapping[int, float]) -> tuple[Link, ...]:
    """Return the connections of a rank to all others, each on a separate host."""
    return tuple(
        Link(
            (f"10.0.0.{rank}", other),
            (f"10.0.0.{other}", rank),
            1e-4 + 2 * (delays_s.get(rank, 0.0) + delays_s.get(other, 0.0)),
        )
        for other in range(RANKS)
        if other != rank
    )


class Ranks:
    """Observations of four ranks with ten calls in each window of two seconds."""

    def __init__(self) -> None:
        self.health = RankHealth(range(RANKS))
        self.spent: dict[int, dict[str, float]] = {rank: {} for rank in range(RANKS)}

    def window(
        self,
        number: int,
        late: dict[int, float] | None = None,
        spent: dict[int, Any] | None = None,
        delays_s: Mapping[int, float] = {},
    ) -> list[Verdict]:
        """Let a window end; `late` has the delay of each call by rank, `spent` seconds, `delays_s`
        the delays of the ranks' hosts.
        """
        found = []
        for rank in range(RANKS):
            for name, seconds in (spent or {}).get(rank, {}).items():
                self.spent[rank][name] = self.spent[rank].get(name, 0.0) + seconds
            calls = tuple(
                call(10 * number + each, 2.0 * number + 0.2 * each + (late or {}).get(rank, 0.0))
                for each in range(10)
            )
            observed = RankObserved(
                window=number,
                times=ThreadTimes(**self.spent[rank]),
                line="step (train.py:3)",
                calls=calls,
                links=links(rank, delays_s),
            )
            verdict = self.health.observe(rank, observed, 2.0 * number)
            found += [verdict] if verdict is not None else []
        return found


def slow(spent: dict[str, float]) -> Verdict:
    """Return the verdict after four windows in which rank 2 is late and spends this more."""
    ranks = Ranks()
    found = [each for n in range(4) for each in ranks.window(n, {2: 0.1}, {2: spent})]
    assert len(found) == 1
    assert found[0].ranks == (2,)
    return found[0]


def test_the_cause_is_where_the_slow_rank_spends_more_time_than_the_others() -> None:
    assert slow({"running_s": 1.0, "cpu_s": 1.0}).cause is Cause.COMPUTE
    assert slow({"sleeping_s": 1.0}).cause is Cause.COMPUTE
    assert slow({"data_s": 1.0, "running_s": 0.1}).cause is Cause.DATA
    assert slow({"disk_s": 0.7, "running_s": 0.3}).cause is Cause.DISK
    contention = slow({"running_s": 1.0, "cpu_s": 0.2, "contention_s": 0.8})
    assert contention.cause is Cause.CPU_CONTENTION
    collection = slow({"running_s": 1.0, "cpu_s": 1.0, "collection_s": 0.9})
    assert collection.cause is Cause.GARBAGE_COLLECTION


def test_on_a_busy_machine_a_rank_that_computes_more_is_not_short_of_a_core() -> None:
    ranks, found = Ranks(), []
    busy = {rank: {"running_s": 0.4, "cpu_s": 0.2, "contention_s": 0.2} for rank in range(RANKS)}
    busy[2] = {"running_s": 1.6, "cpu_s": 0.8, "contention_s": 0.8}
    for number in range(4):
        found += ranks.window(number, {2: 0.1}, busy)
    assert [each.cause for each in found] == [Cause.COMPUTE]


def test_on_an_overloaded_machine_a_rank_that_waits_a_little_longer_for_a_core_is_no_verdict() -> (
    None
):
    ranks = Ranks()
    busy = {rank: {"running_s": 0.1, "cpu_s": 0.1, "contention_s": 0.2} for rank in range(RANKS)}
    busy[2] = {"running_s": 0.1, "cpu_s": 0.1, "contention_s": 0.5}
    assert [each for n in range(4) for each in ranks.window(n, {2: 0.1}, busy)] == []
    busy[2] = {"running_s": 0.1, "cpu_s": 0.1, "contention_s": 0.7}
    found = [each for n in range(4, 8) for each in ranks.window(n, {2: 0.1}, busy)]
    assert [each.cause for each in found] == [Cause.CPU_CONTENTION]


def test_the_text_names_the_line_and_the_share() -> None:
    text = slow({"running_s": 1.0, "cpu_s": 1.0}).text
    assert text.startswith("Rank 2 is slow: the other ranks waited for it 5")
    assert "step (train.py:3)" in text


def test_a_rank_that_is_late_without_spending_more_time_is_no_verdict() -> None:
    ranks = Ranks()
    spent = {rank: {"running_s": 0.5, "communication_s": 1.0} for rank in range(RANKS)}
    spent[2] = {"running_s": 0.7, "communication_s": 1.0}  # late by a second in each window
    assert [each for n in range(6) for each in ranks.window(n, {2: 0.1}, spent)] == []


def test_a_slow_network_is_told_once_and_is_over_with_the_delay() -> None:
    ranks, found = Ranks(), []
    communication = {rank: {"communication_s": 1.8} for rank in range(RANKS)}
    for number in range(6):
        found += ranks.window(number, spent=communication, delays_s={2: 0.02})
    assert [(each.cause, each.ranks) for each in found] == [(Cause.NETWORK_DELAY, (2,))]
    assert ranks.health.current is not None
    assert ranks.window(6, spent=communication) == []
    assert ranks.health.current is None


def test_two_slow_windows_are_no_verdict() -> None:
    ranks = Ranks()
    for number in range(12):  # a window without a slow rank after each two
        late = {2: 0.1} if number % 3 else None
        assert ranks.window(number, late, {2: {"running_s": 1.0}}) == []


def observed(window: int, calls: list[CollectiveCall], spent_s: float = 0.0) -> RankObserved:
    times = ThreadTimes(running_s=spent_s, cpu_s=spent_s)
    return RankObserved(window=window, times=times, line="", calls=tuple(calls))


def test_one_slow_step_counts_in_one_window_though_the_ranks_send_its_calls_again() -> None:
    health = RankHealth(range(2))
    for window in range(1, 10):
        for rank in range(2):  # of 0.1 s each; before call 30, rank 1 takes 2 s
            calls = [
                call(number, 0.1 * number + 2.0 * (number > 30) + 2.0 * (rank == number - 29 == 1))
                for number in range(20 * window)
            ]
            assert health.observe(rank, observed(window, calls), 2.0 * window) is None


def test_a_rank_is_called_slow_after_three_comparisons_also_if_steps_take_long() -> None:
    health, found = RankHealth(range(2)), []
    for window in range(1, 20):
        for rank in range(2):  # one call in each window of two seconds
            calls = [call(number, 2.0 * number + 0.5 * rank) for number in range(window)]
            verdict = health.observe(rank, observed(window, calls, rank * window), 2.0 * window)
            found += [(window, verdict.cause, verdict.ranks)] if verdict else []
    assert found == [(13, Cause.COMPUTE, (1,))]


def test_ranks_that_take_turns_in_coming_last_are_no_verdict() -> None:
    ranks = Ranks()
    assert [each for n in range(12) for each in ranks.window(n, {n % RANKS: 0.1})] == []


def test_a_verdict_is_given_once_and_ends_with_the_slowness() -> None:
    ranks = Ranks()
    found = [each for n in range(8) for each in ranks.window(n, {2: 0.1}, {2: {"data_s": 1.0}})]
    assert len(found) == 1
    assert ranks.health.current is not None
    assert ranks.health.current.title == "rank 2: data"
    ranks.window(8)
    assert ranks.health.current is None


def test_a_difference_is_a_verdict_at_once() -> None:
    health = RankHealth(range(2))
    for rank, sizes in enumerate(("[2]", "[3]")):
        observed = RankObserved(
            window=-1, times=ThreadTimes(), line="", calls=(call(7, 1.0, sizes=sizes),)
        )
        verdict = health.observe(rank, observed, 1.0)
    assert verdict is not None
    assert (verdict.cause, verdict.ranks) == (Cause.MISMATCHED_SHAPES, (0, 1))


def waiting(health: RankHealth, window: int, ranks: range = range(RANKS)) -> None:
    """Let all ranks but 1 wait in call 8 since second 1; rank 1 has made call 7 only."""
    for rank in ranks:
        calls = (call(7, 0.5),) if rank == 1 else (call(7, 0.5), call(8, 1.0, pending=True))
        observed = RankObserved(window=window, times=ThreadTimes(), line="f (a.py:1)", calls=calls)
        health.observe(rank, observed, 2.0 * window)


def test_a_rank_that_does_not_come_is_named_after_some_seconds_with_its_line() -> None:
    health = RankHealth(range(RANKS))
    waiting(health, 1)
    assert health.stalled(2.0) is None
    waiting(health, 4)
    verdict = health.stalled(8.0)
    assert verdict is not None
    assert (verdict.cause, verdict.ranks, verdict.seconds) == (Cause.MISSING_COLLECTIVE, (1,), 7.0)
    assert "which is in f (a.py:1)" in verdict.text
    assert health.stalled(10.0) is None


def test_a_stopped_process_is_named_when_its_observations_end() -> None:
    health = RankHealth(range(RANKS))
    waiting(health, 1)
    for window in (2, 3):
        waiting(health, window, range(2, RANKS))
        waiting(health, window, range(1))
    assert health.silent_ranks(6.0) == (1,)
    assert health.stalled(6.0) is None
    verdict = health.stalled(6.0, {1})
    assert verdict is not None
    assert (verdict.cause, verdict.ranks) == (Cause.STOPPED, (1,))
    assert "SIGSTOP" in verdict.text


def test_ranks_that_have_ended_are_not_absent() -> None:
    health = RankHealth(range(RANKS))
    waiting(health, 4)
    observed = RankObserved(window=-1, times=ThreadTimes(), line="", calls=(call(7, 0.5),))
    health.observe(1, observed, 8.0)
    assert health.stalled(60.0) is None


def wait_for_rank_1(health: RankHealth, windows: range) -> None:
    """Let the other ranks wait in call 8 since second 1, and observe them at each window's end."""
    for window in windows:
        for rank in (0, 2, 3):
            calls = (call(7, 0.5), call(8, 1.0, pending=True))
            observed = RankObserved(window=window, times=ThreadTimes(), line="", calls=calls)
            health.observe(rank, observed, 2.0 * window)


def test_a_process_that_is_stopped_before_its_first_observation_is_named() -> None:
    health = RankHealth(range(RANKS))
    wait_for_rank_1(health, range(1, 4))
    assert health.silent_ranks(4.0) == ()
    assert health.silent_ranks(6.0) == (1,)
    verdict = health.stalled(6.0, {1})
    assert verdict is not None
    assert (verdict.cause, verdict.ranks, verdict.seconds) == (Cause.STOPPED, (1,), 5.0)
    assert verdict.text.startswith("Ranks 0, 2-3 wait for rank 1 in all_reduce [2], call 8")


def test_a_rank_that_was_never_heard_of_is_named_later_than_a_slow_start_takes() -> None:
    health = RankHealth(range(RANKS))
    wait_for_rank_1(health, range(1, 16))
    assert health.stalled(30.0) is None
    wait_for_rank_1(health, range(16, 17))
    verdict = health.stalled(32.0)
    assert verdict is not None
    assert (verdict.cause, verdict.ranks) == (Cause.STOPPED, (1,))
    assert "gives no answer" in verdict.text


def test_a_rank_that_answers_before_its_first_call_is_named_with_its_line() -> None:
    health = RankHealth(range(RANKS))
    for window in range(1, 17):
        line = RankObserved(window=window, times=ThreadTimes(), line="f (a.py:1)", calls=())
        health.observe(1, line, 2.0 * window)
        wait_for_rank_1(health, range(window, window + 1))
        verdict = health.stalled(2.0 * window)
        assert (verdict is None) == (window < 16)
    assert verdict is not None
    assert (verdict.cause, verdict.ranks) == (Cause.MISSING_COLLECTIVE, (1,))
    assert "which is in f (a.py:1)" in verdict.text
    for rank in range(RANKS):
        health.observe(rank, observed(17, [call(7, 0.5), call(8, 33.0)]), 34.0)
    assert health.current is None


def test_a_process_that_is_stopped_inside_of_a_call_is_named() -> None:
    health = RankHealth(range(RANKS))
    inside = (call(7, 0.5), call(8, 1.0, pending=True))
    health.observe(1, RankObserved(window=1, times=ThreadTimes(), line="", calls=inside), 2.0)
    wait_for_rank_1(health, range(1, 4))
    assert health.stalled(6.0) is None
    verdict = health.stalled(6.0, {1})
    assert verdict is not None
    assert (verdict.cause, verdict.ranks) == (Cause.STOPPED, (1,))
    assert verdict.text.startswith("Ranks 0, 2-3 wait for rank 1")


def test_a_call_of_all_ranks_that_takes_long_is_no_verdict() -> None:
    health = RankHealth(range(RANKS))
    for window in range(1, 40):
        for rank in range(RANKS):
            health.observe(rank, observed(window, [call(8, 1.0, pending=True)]), 2.0 * window)
        assert health.stalled(2.0 * window) is None
