"""The object table: objects are freed with their last reference, in any order of events."""

import random

import pytest

from syncline.core.embedded.messages import ERROR, SHARED, failure, inline
from syncline.core.embedded.object_table import ObjectTable
from syncline.core.embedded.segments import Layout, Segment


class FakeStore:
    def __init__(self):
        self.released = []

    def release(self, segment):
        self.released.append(segment.name)


@pytest.fixture
def store():
    return FakeStore()


@pytest.fixture
def table(store):
    return ObjectTable(store.release)


def in_memory(name, owner, refs=()):
    return (SHARED, Layout(Segment(name, 1, False), 1, ()), owner, refs)


def small(*refs):
    return inline(b"", (), refs)


def test_an_object_is_freed_with_its_last_reference(table, store):
    table.add(1, count=2)
    table.settle(1, in_memory("a", 1))
    table.release([1])
    assert 1 in table.entries
    assert store.released == []
    table.release([1])
    assert 1 not in table.entries
    assert store.released == ["a"]


def test_hold_ignores_unknown_objects(table):
    table.add(1)
    table.hold([1, 99])
    table.release([1, 99])
    assert list(table.entries) == [1]
    table.release([1])
    assert table.entries == {}


def test_several_releases_of_one_object_in_one_call(table):
    table.add(1, count=3)
    table.release([1, 1])
    assert 1 in table.entries
    table.release(iter([1, 1]))
    assert table.entries == {}


def test_a_value_of_a_freed_object_is_discarded(table, store):
    table.add(1)
    table.add(2)
    table.release([1])
    table.settle(1, in_memory("late", 1, (2,)))
    assert store.released == ["late"]
    assert table.entries[2].count == 1


def test_a_second_value_is_discarded(table, store):
    table.add(1)
    table.settle(1, in_memory("first", 1))
    table.settle(1, in_memory("second", 1))
    assert store.released == ["second"]
    assert table.entries[1].value[1].segment.name == "first"


def test_contents_of_a_value_live_as_long_as_the_value(table, store):
    table.add(1)
    table.add(2)
    table.settle(1, in_memory("inner", 1))
    table.settle(2, small(1))
    table.release([1])
    assert 1 in table.entries
    table.release([2])
    assert table.entries == {}
    assert store.released == ["inner"]


def test_a_chain_longer_than_the_stack_is_freed(table, store):
    length = 20_000
    for id in range(length):
        table.add(id)
        table.settle(id, in_memory(str(id), id, (id - 1,)) if id else in_memory("0", 0))
        if id:
            table.release([id - 1])
    assert len(table.entries) == length
    table.release([length - 1])
    assert table.entries == {}
    assert len(store.released) == length


def test_on_free_is_called_for_freed_objects(table):
    freed = []
    for id in (1, 2):
        table.add(id, producer="task").on_free = freed.append
    table.settle(1, small())
    assert table.entries[1].producer is None
    table.release([1])
    table.release([2])
    assert freed == [1, 2]


def test_subscribers_are_called_once_in_order(table):
    told = []
    arrivals = [lambda id, value, name=name: told.append((name, id, value)) for name in "abc"]
    table.add(1)
    for arrival in arrivals[:2]:
        table.subscribe(1, arrival)
    assert told == []
    value = small()
    table.settle(1, value)
    table.settle(1, small())
    assert told == [("a", 1, value), ("b", 1, value)]
    table.subscribe(1, arrivals[2])
    assert told[-1] == ("c", 1, value)


def test_cancelled_subscribers_are_not_called(table):
    told = []

    def arrival(id, value):
        told.append(id)

    table.add(1)
    table.subscribe(1, arrival)
    table.unsubscribe(1, arrival)
    table.unsubscribe(1, arrival)
    table.unsubscribe(99, arrival)
    table.settle(1, small())
    table.unsubscribe(1, arrival)
    assert told == []


def test_subscribing_to_an_unknown_object_is_an_error(table):
    with pytest.raises(KeyError):
        table.subscribe(1, print)


def test_a_subscriber_may_release_its_object(table, store):
    table.add(1)
    told = []

    def arrival(id, value):
        told.append(id)
        table.release([id])

    table.subscribe(1, arrival)
    table.subscribe(1, lambda id, value: told.append(-id))
    table.settle(1, in_memory("a", 1))
    assert told == [1, -1]
    assert table.entries == {}
    assert store.released == ["a"]


def test_an_error_is_a_value(table):
    table.add(1)
    table.settle(1, failure(b"error"))
    assert table.entries[1].value[0] == ERROR
    table.release([1])
    assert table.entries == {}


def test_statistics_count_objects(table):
    table.add(1)
    table.add(2)
    table.settle(1, small())
    assert (table.statistics.objects, table.statistics.pending) == (2, 1)


@pytest.mark.parametrize("seed", range(20))
def test_random_operations_free_exactly_the_unreachable_objects(table, store, seed):
    """Compare with a model: exactly the objects reachable from held ones are alive."""
    generator = random.Random(seed)
    held, contains, made = {}, {}, 0
    for _ in range(400):
        action = generator.choice(["add", "settle", "hold", "release"])
        if action == "add":
            table.add(made)
            held[made] = 1
            made += 1
        elif action == "settle" and (pending := [id for id in table.entries if id not in contains]):
            id = generator.choice(pending)
            # only to older objects, as programs do: a reference exists before a value contains it
            older = [other for other in table.entries if other < id]
            contains[id] = tuple(generator.sample(older, min(len(older), generator.randint(0, 3))))
            table.settle(id, in_memory(str(id), id, contains[id]))
        elif action == "hold" and table.entries:
            id = generator.choice(list(table.entries))
            held[id] = held.get(id, 0) + 1
            table.hold([id])
        elif action == "release" and (holders := [id for id, count in held.items() if count]):
            id = generator.choice(holders)
            held[id] -= 1
            table.release([id])
        assert set(table.entries) == reachable(
            [id for id, count in held.items() if count], contains
        )
    table.release([id for id, count in held.items() for _ in range(count)])
    assert table.entries == {}
    assert sorted(store.released) == sorted(map(str, contains))


def reachable(roots, contains):
    found, left = set(), list(roots)
    while left:
        id = left.pop()
        if id not in found:
            found.add(id)
            left += contains.get(id, ())
    return found
