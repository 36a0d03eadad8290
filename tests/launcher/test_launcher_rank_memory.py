"""Observations of a worker, as its launcher reads them."""

import os

import pytest

from syncline.diagnosis.collective_calls import CollectiveCall
from syncline.diagnosis.observation import RankObserved
from syncline.diagnosis.thread_states import ThreadTimes
from syncline.launcher.rank_memory import SIZE, RankMemory, RankWriter


def observed(window: int = 3, calls: int = 2) -> RankObserved:
    call = CollectiveCall("default", 1, "all_reduce", "[2] Float", 1.5)
    return RankObserved(
        window=window,
        times=ThreadTimes(cpu_s=1.0, data_s=0.25),
        line="f (train.py:3)",
        calls=tuple(call._replace(number=number) for number in range(calls)),
    )


@pytest.fixture
def memory():
    memory = RankMemory()
    yield memory
    memory.close()


def test_memory_of_a_process_without_a_look_says_nothing(memory):
    RankWriter(memory.fd)
    assert memory.times() is None
    assert memory.observation() is None


def test_an_observation_is_read_once(memory):
    writer = RankWriter(memory.fd)
    writer.write_observation(observed())
    assert memory.observation() == observed()
    assert memory.observation() is None
    writer.write_observation(observed(window=4))
    assert memory.observation() == observed(window=4)


def test_times_and_observation_do_not_overlap(memory):
    writer = RankWriter(memory.fd)
    writer.write_observation(observed())
    writer.write_times(3.0, (1.0, 0.5, 0.25))
    assert memory.times() == {
        "total_s": 3.0,
        "communication_s": 1.0,
        "data_s": 0.5,
        "report_s": 0.25,
    }
    assert memory.observation() == observed()


def test_half_an_observation_is_none(memory):
    RankWriter(memory.fd).write_observation(observed())
    os.pwrite(memory.fd, b"!", 60)
    assert memory.observation() is None


def test_the_oldest_calls_are_left_out_if_there_is_no_room(memory):
    RankWriter(memory.fd).write_observation(observed(calls=SIZE // 40))
    found = memory.observation()
    assert found is not None
    assert found.calls[-1].number == SIZE // 40 - 1
    assert 0 < len(found.calls) < SIZE // 40


def test_closed_memory_has_nothing():
    memory = RankMemory()
    RankWriter(memory.fd).write_observation(observed())
    memory.close()
    assert memory.times() is None
    assert memory.observation() is None
