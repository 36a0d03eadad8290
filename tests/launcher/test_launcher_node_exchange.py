"""States of ranks on their way between nodes, with a store in memory."""

import threading
from queue import SimpleQueue

import pytest

from syncline.diagnosis.clock_offset import QUESTIONS
from syncline.launcher.messages import RankSeen
from syncline.launcher.node_exchange import RankReader, write_ranks

LIMIT_S = 60.0


class Store:
    """A dictionary whose `get` waits for the key, as torch's store does."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: str) -> None:
        with self._changed:
            self.values[key] = value.encode()
            self._changed.notify_all()

    def get(self, key: str) -> bytes:
        with self._changed:
            assert self._changed.wait_for(lambda: key in self.values, LIMIT_S), key
            return self.values[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def write(store):
    """Return a function that gives a state of a rank to node 1, or None for its end."""
    given: SimpleQueue[RankSeen | None] = SimpleQueue()
    thread = threading.Thread(target=write_ranks, args=(store, 1, given))
    thread.start()
    yield given.put
    given.put(None)
    thread.join(LIMIT_S)


def until(reader, condition):
    """Read until the condition holds for a state; return that state."""
    deadline = threading.Event()
    for _ in range(int(LIMIT_S / 0.01)):
        for each in reader.read():
            if condition(each):
                return each
        deadline.wait(0.01)
    raise AssertionError("no such state")


def test_a_node_that_has_written_nothing_has_no_states(store):
    reader = RankReader(store, 3)
    assert reader.read() == []
    assert not reader.have_all_ended


def test_each_state_of_a_rank_is_read_with_the_clock_of_its_node(store, write):
    reader = RankReader(store, 2)
    write(RankSeen(rank=2))
    first = until(reader, lambda each: each.rank == 2)
    assert (first.observation, first.is_stopped, first.has_ended) == ("", False, False)
    assert abs(first.clock_ahead_s) < LIMIT_S
    assert len([key for key in store.values if key.startswith("answer/1/")]) == QUESTIONS
    write(RankSeen(rank=2, observation="[1]", is_stopped=True))
    stopped = until(reader, lambda each: each.is_stopped)
    assert stopped.observation == "[1]"
    assert reader.read() == []


def test_a_node_has_ended_with_all_of_its_ranks(store, write):
    reader = RankReader(store, 2)
    write(RankSeen(rank=2))
    write(RankSeen(rank=3))
    until(reader, lambda each: each.rank == 3)
    write(RankSeen(rank=2, has_ended=True, death="killed"))
    assert until(reader, lambda each: each.has_ended).death == "killed"
    assert not reader.have_all_ended
    write(RankSeen(rank=3, has_ended=True))
    until(reader, lambda each: each.rank == 3 and each.has_ended)
    assert reader.have_all_ended
