"""Verdicts on the ranks of a job, from what they write into their memory."""

from __future__ import annotations

import pytest

from syncline.diagnosis.collective_calls import CollectiveCall
from syncline.diagnosis.observation import RankObserved
from syncline.diagnosis.thread_states import ThreadTimes
from syncline.launcher.collective_watch import Notice
from syncline.launcher.messages import Failure, RankSeen
from syncline.launcher.rank_memory import RankMemory, RankWriter, packed
from syncline.launcher.rank_verdicts import RankVerdicts


def call(number: int, at_s: float, **others: object) -> CollectiveCall:
    plain = CollectiveCall("0", number, "all_reduce", "[2] Float", at_s)
    return plain._replace(**others)


class Job:
    """Two ranks that write into their memory, and a clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.stopped: set[int] = set()
        self.memories = {rank: RankMemory() for rank in (0, 1)}
        self.writers = {rank: RankWriter(each.fd) for rank, each in self.memories.items()}
        self.verdicts = RankVerdicts(lambda: self.now, self.stopped.__contains__)
        self.verdicts.started(self.memories, {0: 10, 1: 11}, 2)

    def write(self, rank: int, window: int, *calls: CollectiveCall) -> None:
        times = ThreadTimes(data_s=float(window) if rank else 0.0)
        observed = RankObserved(window=window, times=times, line="f (a.py:1)", calls=calls)
        self.writers[rank].write_observation(observed)

    def slow_window(self, window: int) -> list[Notice]:
        """Let rank 1 come 0.4 s late to each of four calls."""
        for rank in (0, 1):
            calls = [call(4 * window + n, 2.0 * window + 0.5 * n + 0.4 * rank) for n in range(4)]
            self.write(rank, window, *calls)
        return self.verdicts.update()


@pytest.fixture
def job():
    job = Job()
    yield job
    for memory in job.memories.values():
        memory.close()


def failure(rank: int, exitcode: int) -> Failure:
    return Failure(rank=rank, local_rank=rank, pid=9, exitcode=exitcode, time=0.0, traceback="")


def test_a_slow_rank_is_named_once_and_the_share_is_shown(job):
    found = [notice for window in range(6) for notice in job.slow_window(window)]
    (notice,) = found
    assert notice.event == "verdict"
    assert (notice.fields["cause"], notice.fields["ranks"]) == ("data", [1])
    assert notice.text.startswith("Rank 1 is slow")
    assert job.verdicts.waited_for(1) == pytest.approx(1.6 / 1.9)
    assert job.verdicts.to_json()["verdict"] == notice.fields


def test_a_rank_that_is_not_slow_any_more_ends_the_verdict(job):
    for window in range(4):
        job.slow_window(window)
    for rank in (0, 1):
        job.write(rank, 4, *[call(16 + n, 8.0 + 0.5 * n) for n in range(4)])
    assert [notice.event for notice in job.verdicts.update()] == ["verdict_over"]
    assert job.verdicts.current is None


def test_different_calls_are_told(job):
    job.write(0, 1, call(1, 2.0, is_pending=True))
    job.write(1, 1, call(1, 2.0, is_pending=True, sizes="[3] Float"))
    (notice,) = job.verdicts.update()
    assert notice.fields["cause"] == "mismatched shapes"


def test_a_stopped_process_is_named(job):
    for rank in (0, 1):
        job.write(rank, 1, call(1, 2.0))
    assert job.verdicts.update() == []
    job.write(0, 3, call(1, 2.0), call(2, 3.0, is_pending=True))
    job.now = 4.0
    job.stopped.add(11)
    (notice,) = job.verdicts.update()
    assert (notice.fields["cause"], notice.fields["ranks"]) == ("stopped", [1])
    assert "kill -CONT" in notice.text


def test_a_rank_that_is_away_is_recorded_but_not_told(job):
    job.write(1, 6, call(1, 2.0))
    job.write(0, 6, call(1, 2.0), call(2, 3.0, is_pending=True))
    (notice,) = job.verdicts.update()
    assert notice.fields["cause"] == "missing collective"
    assert notice.text == ""


def test_the_last_observation_of_an_ended_rank_counts(job):
    job.write(0, -1, call(1, 2.0))
    job.verdicts.ended(0, 1)
    job.write(1, -1, call(1, 2.0, operation="broadcast"))
    job.verdicts.ended(1, 1)
    (notice,) = job.verdicts.failed([failure(0, -6)])
    assert notice.fields["cause"] == "mismatched collectives"


def test_ranks_that_end_one_after_the_other_are_compared_once(job):
    job.write(0, -1, call(1, 2.0))
    job.verdicts.ended(0, 1)
    job.write(1, -1, call(1, 2.0, sizes="[3] Float"))
    assert job.verdicts.update() == []
    job.verdicts.ended(1, 1)
    assert len(job.verdicts.failed([failure(0, 1), failure(1, 1)])) == 1


def test_nobody_waits_for_a_rank_that_has_ended(job):
    job.write(1, 1, call(1, 2.0))
    job.write(0, 1, call(1, 2.0))
    job.verdicts.update()
    job.verdicts.ended(1, 1)
    job.write(0, 20, call(1, 2.0), call(2, 3.0, is_pending=True))
    job.now = 40.0
    assert job.verdicts.update() == []


@pytest.mark.parametrize(("exitcode", "is_dead"), [(-9, True), (1, False), (-15, False)])
def test_a_rank_that_a_signal_has_ended_is_dead(job, exitcode, is_dead):
    found = job.verdicts.failed([failure(1, exitcode)])
    assert [notice.fields["cause"] for notice in found] == ["dead"] * is_dead


def test_a_rank_is_busy_while_it_does_not_communicate(job):
    assert job.verdicts.busy_s(10) is None
    job.writers[0].write_times(9.0, (2.0, 1.0, 0.5))
    assert job.verdicts.busy_s(10) == 7.0
    assert job.verdicts.busy_s(99) is None


def test_an_attempt_begins_without_verdicts(job):
    for window in range(4):
        job.slow_window(window)
    job.verdicts.started(job.memories, {0: 10, 1: 11}, 2)
    assert job.verdicts.current is None


def test_a_rank_that_is_stopped_before_its_first_observation_is_named_on_any_node(job):
    job.verdicts.started(dict(zip((4, 5), job.memories.values(), strict=True)), {4: 10, 5: 11}, 2)
    job.stopped.add(11)
    for window, now in enumerate((2.0, 4.0, 6.0), start=1):
        job.write(0, window, call(1, 1.0, is_pending=True))
        job.now = now
        found = job.verdicts.update()
    (notice,) = found
    assert (notice.fields["cause"], notice.fields["ranks"]) == ("stopped", [5])


def seen(rank: int, window: int, *calls: CollectiveCall, **fields: object) -> RankSeen:
    """Return the state of a rank of another node."""
    observed = RankObserved(window=window, times=ThreadTimes(), line="", calls=calls)
    return RankSeen(rank=rank, observation=packed(observed, 1000).decode(), **fields)


@pytest.fixture
def spread(job):
    """A job with ranks 0 and 1 on this node, the first one, and 2 and 3 on another."""
    job.verdicts.started(job.memories, {0: 10, 1: 11}, 4)
    for rank in (2, 3):
        job.verdicts.seen(RankSeen(rank=rank, clock_ahead_s=5.0))
    return job


def test_a_rank_of_another_node_is_named(spread):
    for rank in (0, 1):
        spread.write(rank, 1, call(1, 2.0, is_pending=True))
    spread.verdicts.seen(seen(2, 1, call(1, 7.0, is_pending=True)))
    spread.verdicts.seen(seen(3, 1, call(1, 7.0, is_pending=True, sizes="[3] Float")))
    (notice,) = spread.verdicts.update()
    assert (notice.fields["cause"], notice.fields["ranks"]) == ("mismatched shapes", [3])


def test_clocks_of_nodes_are_compared_first(spread):
    for window in range(5):
        at_s = [2.0 * window + 0.5 * n for n in range(4)]
        calls = [call(4 * window + n, at) for n, at in enumerate(at_s)]
        for rank in (0, 1):
            spread.write(rank, window, *calls)
        for rank in (2, 3):
            ahead = [each._replace(arrived_s=each.arrived_s + 5.0) for each in calls]
            spread.verdicts.seen(seen(rank, window, *ahead, clock_ahead_s=5.0))
        assert spread.verdicts.update() == []
    assert spread.verdicts.waited_for(3) == 0.0


def test_ranks_of_one_node_are_compared_until_all_are_known(job):
    job.verdicts.started(job.memories, {0: 10, 1: 11}, 4)
    job.verdicts.seen(RankSeen(rank=2))
    found = [notice for window in range(6) for notice in job.slow_window(window)]
    assert [notice.fields["ranks"] for notice in found] == [[1]]


def test_a_stopped_process_of_another_node_is_named(spread):
    for rank in (0, 1):
        spread.write(rank, 1, call(1, 2.0))
    for rank in (2, 3):
        spread.verdicts.seen(seen(rank, 1, call(1, 7.0)))
    assert spread.verdicts.update() == []
    waiting = call(1, 2.0), call(2, 3.0, is_pending=True)
    for rank in (0, 1):
        spread.write(rank, 3, *waiting)
    spread.verdicts.seen(seen(2, 3, *waiting))
    spread.now = 4.0
    spread.verdicts.seen(seen(3, 1, call(1, 7.0), is_stopped=True))
    (notice,) = spread.verdicts.update()
    assert (notice.fields["cause"], notice.fields["ranks"]) == ("stopped", [3])


def test_a_rank_of_another_node_that_died_is_told(spread):
    spread.verdicts.ended(0, 1)
    spread.verdicts.seen(seen(3, -1, has_ended=True, death="Rank 3 was killed by SIGKILL."))
    (notice,) = spread.verdicts.failed([failure(0, 1)])
    assert (notice.fields["ranks"], notice.text) == ([3], "Rank 3 was killed by SIGKILL.")


def test_the_first_node_learns_the_state_of_each_rank(job):
    job.verdicts.started(job.memories, {0: 10, 1: 11}, 4, node=1)
    assert job.verdicts.unsent() == [RankSeen(rank=0), RankSeen(rank=1)]
    job.write(0, 1, call(1, 2.0))
    job.verdicts.update()
    (observed,) = job.verdicts.unsent()
    assert (observed.rank, observed.has_ended) == (0, False)
    job.stopped.add(10)
    job.now = 4.0
    job.verdicts.update()
    (stopped,) = job.verdicts.unsent()
    assert (stopped.rank, stopped.is_stopped, stopped.observation) == (
        0,
        True,
        observed.observation,
    )
    job.verdicts.ended(0, -9)
    job.verdicts.ended(1, -15)
    ended = job.verdicts.unsent()
    assert [(each.rank, each.has_ended, bool(each.death)) for each in ended] == [
        (0, True, True),
        (1, True, False),
    ]
    assert "SIGKILL" in ended[0].death


def test_the_first_node_tells_no_other(job):
    job.slow_window(1)
    job.verdicts.ended(0, -9)
    assert job.verdicts.unsent() == []
