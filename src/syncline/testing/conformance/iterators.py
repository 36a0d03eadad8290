"""`util.iter`: parallel iterators; `util.as_completed` and `util.map_unordered`."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from typing import Any

import pytest

import syncline
from syncline.testing.conformance.suite import Suite
from syncline.testing.tasks import get
from syncline.util import as_completed, map_unordered
from syncline.util.iter import (
    LocalIterator,
    ParallelIteratorWorker,
    from_actors,
    from_items,
    from_iterators,
    from_range,
)


class ParallelIterators(Suite):
    """Iterators whose shards are actors."""

    def test_items_are_dealt_to_shards(self) -> None:
        items = from_items([1, 2, 3, 4], num_shards=2)
        assert items.num_shards() == 2
        assert [list(shard) for shard in items.shards()] == [[1, 3], [2, 4]]
        assert [list(shard) for shard in from_range(5, num_shards=2).shards()] == [
            [0, 1],
            [2, 3, 4],
        ]

    def test_gather_sync_takes_items_in_turn_and_begins_again(self) -> None:
        gathered = from_iterators([range(3), lambda: iter([10])]).gather_sync()
        assert list(gathered) == [0, 10, 1, 2]
        assert list(gathered) == [0, 10, 1, 2]
        assert (next(gathered), next(gathered)) == (0, 10)

    def test_gather_async_yields_everything_once(self) -> None:
        items = from_range(20, num_shards=3)
        for options in ({}, {"batch_ms": 20}, {"num_async": 3}):
            assert sorted(items.gather_async(**options)) == list(range(20))

    def test_transforms_of_shards(self) -> None:
        items = from_range(6, num_shards=2)
        assert items.for_each(lambda x: 2 * x).take(4) == [0, 6, 2, 8]
        assert items.filter(lambda x: x % 2 == 0).take(9) == [0, 4, 2]
        assert items.batch(2).take(9) == [[0, 1], [3, 4], [2], [5]]
        assert items.batch(2).flatten().take(9) == [0, 3, 1, 4, 2, 5]
        assert items.combine(lambda x: [x, x]).take(4) == [0, 3, 0, 3]
        assert items.transform(lambda part: [sum(part)]).take(9) == [3, 12]
        assert items.batch_across_shards().take(2) == [[0, 3], [1, 4]]

    def test_transforms_of_gathered_items(self) -> None:
        items = from_range(6, num_shards=1).gather_sync()
        assert list(items.for_each(str).batch(4)) == [["0", "1", "2", "3"], ["4", "5"]]
        assert items.filter(lambda x: x > 3).combine(lambda x: [x, -x]).take(9) == [4, -4, 5, -5]
        shuffled = list(items.shuffle(3, seed=1))
        assert shuffled != list(range(6))
        assert sorted(shuffled) == list(range(6))
        first, second = items.duplicate(2)
        assert (list(first), list(second)) == (list(range(6)), list(range(6)))
        other = from_items([7, 8], num_shards=1).gather_sync()
        assert items.union(other, deterministic=True).take(5) == [0, 7, 1, 8, 2]
        assert sorted(items.union(other)) == [0, 1, 2, 3, 4, 5, 7, 8]
        assert len(items.union(other).take(1)) == 1
        assert items.union(other, round_robin_weights=[2, "*"]).take(5) == [0, 1, 7, 8, 2]

    def test_union_selection_and_repartition(self) -> None:
        items = from_range(8, num_shards=2)
        both = items.union(from_items(["a"], num_shards=1))
        assert both.num_shards() == 3
        assert list(both.select_shards([2, 0]).gather_sync()) == ["a", 0, 1, 2, 3]
        parts = items.for_each(lambda x: x + 1).repartition(4)
        assert parts.num_shards() == 4
        assert sorted(parts.gather_sync()) == list(range(1, 9))
        assert Counter(parts.gather_async()) == Counter(range(1, 9))

    def test_local_shuffle_stays_in_its_shard(self) -> None:
        shards = from_range(20, num_shards=2).local_shuffle(5, seed=0).shards()
        found = [list(shard) for shard in shards]
        assert [sorted(part) for part in found] == [list(range(10)), list(range(10, 20))]
        assert found[0] != sorted(found[0])

    def test_repeated_items_never_end(self) -> None:
        items = from_items([1, 2], num_shards=1, repeat=True)
        assert items.take(5) == [1, 2, 1, 2, 1]

    def test_function_may_run_in_tasks(self) -> None:
        items = from_range(6, num_shards=2).for_each(lambda x: x * x, max_concurrency=2)
        assert list(items.gather_sync()) == [0, 9, 1, 16, 4, 25]

    def test_actors_of_users_are_sources(self) -> None:
        @syncline.remote
        class Source(ParallelIteratorWorker):
            def __init__(self, start: int) -> None:
                super().__init__(lambda: itertools.islice(itertools.count(start), 2), False)

        items = from_actors([Source.remote(0), Source.remote(10)])
        assert list(items.gather_sync()) == [0, 10, 1, 11]

    def test_names_tell_the_transforms(self) -> None:
        items = from_items([1, 2]).for_each(str).batch(2)
        assert repr(items) == "ParallelIterator[from_items[int, 2, shards=2].for_each().batch(2)]"
        assert repr(from_range(4).gather_sync().filter(bool)) == (
            "LocalIterator[ParallelIterator[from_range[4, shards=2]].gather_sync().filter()]"
        )

    def test_other_tasks_read_shards(self) -> None:
        @syncline.remote
        def total(shard: LocalIterator) -> int:
            return sum(shard)

        shards = from_range(10, num_shards=2).for_each(lambda x: 2 * x).shards()
        assert get([total.remote(shard) for shard in shards]) == [20, 70]

    def test_error_of_a_function_is_raised(self) -> None:
        items = from_range(4, num_shards=1).for_each(lambda x: 1 // x)
        with pytest.raises(ZeroDivisionError):
            items.take(1)

    def test_misuse_is_refused(self) -> None:
        items = from_range(4)
        with pytest.raises(TypeError, match="gather_sync"):
            iter(items)
        for call in (
            lambda: items.batch(0),
            lambda: items.select_shards([2]),
            lambda: items.gather_async(num_async=0),
            lambda: items.for_each(str, max_concurrency=0),
            lambda: from_range(4, num_shards=0),
        ):
            with pytest.raises(ValueError):
                call()


@syncline.remote
def _echo(x: Any) -> Any:
    return x


@syncline.remote
def _exists_after(path: str, x: int) -> int:
    while x == 0 and not os.path.exists(path):
        pass
    return x


class CompletedTasks(Suite):
    """Results as they become ready."""

    def test_everything_is_yielded_once(self) -> None:
        refs = [_echo.remote(i) for i in range(25)]
        assert sorted(as_completed(refs)) == list(range(25))
        assert sorted(as_completed(refs, chunk_size=1)) == list(range(25))
        assert sorted(map_unordered(_echo, range(25), backpressure_size=3)) == list(range(25))
        assert sorted(map_unordered(_echo, range(5), backpressure_size=None)) == list(range(5))
        assert list(as_completed([])) == []

    def test_references_instead_of_values(self) -> None:
        refs = list(map_unordered(_echo, [1, 2], yield_obj_refs=True))
        assert sorted(get(refs)) == [1, 2]

    def test_impossible_arguments_are_refused_at_the_call(self) -> None:
        with pytest.raises(ValueError, match="chunk_size"):
            as_completed([], chunk_size=0)
        with pytest.raises(ValueError, match="num_returns"):
            as_completed([], num_returns=1)
        with pytest.raises(ValueError, match="backpressure_size"):
            map_unordered(_echo, [], backpressure_size=0)


class CompletedInParallel(Suite):
    """Results of tasks that run at the same time."""

    needs = ("parallel",)

    def test_what_is_ready_first_comes_first(self, tmp_path: Any) -> None:
        gate = tmp_path / "gate"
        refs = [_exists_after.remote(str(gate), x) for x in range(2)]
        results = as_completed(refs, chunk_size=1)
        assert next(results) == 1
        gate.touch()
        assert list(results) == [0]
