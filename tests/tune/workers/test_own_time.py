"""`OwnTime`: waiting for a core does not count, waiting for anything else does."""

from __future__ import annotations

import pytest

from syncline.tune.workers.own_time import MAX_SHARE, SHORTEST_S, OwnTime, waited_s


class Machine:
    """A clock, and threads that wait for a core."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waits = {"1": 7.0, "2": 1.0}

    def clock(self) -> float:
        return self.now

    def waited(self) -> dict[str, float]:
        return dict(self.waits)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def time(machine: Machine) -> OwnTime:
    return OwnTime(machine.clock, machine.waited)


def test_waiting_for_a_core_does_not_count(machine: Machine, time: OwnTime) -> None:
    machine.now += 0.5
    assert time.elapsed_s() == pytest.approx(0.5)
    machine.waits["1"] += 0.3
    machine.waits["3"] = 0.1  # a thread that is new
    assert time.elapsed_s() == pytest.approx(0.1)


def test_a_thread_that_ends_takes_no_time_back(machine: Machine, time: OwnTime) -> None:
    machine.now += 0.5
    del machine.waits["1"]
    assert time.elapsed_s() == pytest.approx(0.5)


def test_threads_that_wait_at_the_same_time_do_not_stop_the_time(
    machine: Machine, time: OwnTime
) -> None:
    machine.now += 1.0
    machine.waits = {"1": 8.0, "2": 2.0}
    assert time.elapsed_s() == pytest.approx(1.0 / MAX_SHARE)
    assert time.remaining_s(1.0 / MAX_SHARE) == 0


def test_remaining_time_grows_by_the_wait_for_a_core(machine: Machine, time: OwnTime) -> None:
    machine.now += 0.04
    assert time.remaining_s(0.06) == pytest.approx(0.02)
    machine.now += 0.03
    assert time.remaining_s(0.06) == 0
    machine.waits["2"] += 0.02
    assert time.remaining_s(0.06) == pytest.approx(0.01)
    machine.waits["2"] += -0.008
    assert time.remaining_s(0.06) == pytest.approx(SHORTEST_S)


def test_threads_of_this_process_are_found_where_the_system_counts_their_waits() -> None:
    assert all(seconds >= 0 for seconds in waited_s().values())
