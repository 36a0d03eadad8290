import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from syncline.data.execute.steps.heads import (
    ChooseBoundaries,
    PartitionAtRandom,
    PartitionByHash,
    PartitionByRange,
    SampleKeys,
)


def parts_of(
    partition: Any, table: pa.Table, parts: int, prepared: Any = None, number: int = 0
) -> list[list[Any]]:
    found = pickle.loads(pickle.dumps(partition))(table, parts, prepared, number)
    assert len(found) == parts
    return [found.part(index).column(0).to_pylist() for index in range(parts)]


def test_equal_keys_of_all_blocks_meet_in_one_partition() -> None:
    partition = PartitionByHash(keys=("k",))
    places: dict[int, set[int]] = {}
    for number in range(3):
        for index, keys in enumerate(
            parts_of(partition, pa.table({"k": np.arange(50) % 20}), 4, number=number)
        ):
            for key in keys:
                places.setdefault(key, set()).add(index)
    assert len(places) == 20
    assert all(len(place) == 1 for place in places.values())


@pytest.mark.parametrize("descending", [False, True])
def test_ranges_by_sampled_boundaries_are_in_order_and_about_equal(descending: bool) -> None:
    tables = [
        pa.table({"k": np.random.default_rng(number).permutation(1000)}) for number in range(3)
    ]
    sample = SampleKeys(keys=("k",), seed=1, rows=100)
    samples = [sample(table, number) for number, table in enumerate(tables)]
    assert all(found.num_rows == 100 for found in samples)
    prepared = ChooseBoundaries(keys=("k",), descending=(descending,))(samples, 4)
    ranges: list[list[int]] = [[], [], [], []]
    for table in tables:
        for index, keys in enumerate(
            parts_of(PartitionByRange(keys=("k",), descending=(descending,)), table, 4, prepared)
        ):
            ranges[index] += keys
    assert all(500 < len(found) < 1000 for found in ranges)
    for before, after in zip(ranges, ranges[1:], strict=False):
        assert min(before) >= max(after) if descending else max(before) <= min(after)


def test_samples_depend_on_seed_and_block_alone() -> None:
    table = pa.table({"k": np.arange(10_000)})
    drawn = [
        SampleKeys(keys=("k",), seed=seed, rows=10)(table, number).to_pydict()
        for seed, number in ((1, 0), (1, 0), (1, 1), (-2, 0))
    ]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]
    assert drawn[0] != drawn[3]


def test_keys_that_repeat_leave_the_last_partitions_empty() -> None:
    table = pa.table({"k": [7] * 10})
    prepared = ChooseBoundaries(keys=("k",), descending=(False,))([table], 4)
    found = parts_of(PartitionByRange(keys=("k",), descending=(False,)), table, 4, prepared)
    assert sum(found, []) == [7] * 10
    assert sum(1 for part in found if part) == 1


def test_given_boundaries_begin_partitions() -> None:
    table = pa.table({"k": [1, 30, 10, 15, 20, 9]})
    ascending = PartitionByRange(keys=("k",), descending=(False,), boundaries=(20, 10))
    assert parts_of(ascending, table, 3) == [[1, 9], [10, 15], [20, 30]]
    descending = PartitionByRange(keys=("k",), descending=(True,), boundaries=(10, 20))
    assert parts_of(descending, table, 3) == [[30], [20, 15], [10, 9, 1]]


def test_given_boundaries_are_of_the_first_key() -> None:
    table = pa.table({"k": [2, 1, 1], "other": ["a", "c", "b"]})
    found = parts_of(
        PartitionByRange(keys=("k", "other"), descending=(False, False), boundaries=(1.5,)),
        table,
        2,
    )
    assert found == [[1, 1], [2]]


def test_chance_depends_on_seed_and_block() -> None:
    table = pa.table({"k": np.arange(1000)})
    first = parts_of(PartitionAtRandom(seed=3), table, 4)
    assert all(150 < len(part) < 350 for part in first)
    assert parts_of(PartitionAtRandom(seed=3), table, 4) == first
    assert parts_of(PartitionAtRandom(seed=3), table, 4, number=1) != first


@pytest.mark.parametrize(
    "partition",
    [
        PartitionByHash(keys=("k",)),
        PartitionByRange(keys=("k",), descending=(False,)),
        PartitionAtRandom(seed=0),
    ],
)
def test_a_block_without_rows_need_not_have_the_keys(partition: Any) -> None:
    found = partition(pa.table({}), 3, pa.table({"k": [1, 2]}), 0)
    assert found.offsets.tolist() == [0, 0, 0, 0]
    assert SampleKeys(keys=("k",), seed=0)(pa.table({}), 0).num_rows == 0
