from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from syncline.data.columnar import block as block_functions
from syncline.data.columnar.aggregate import Count, Sum
from syncline.data.execute.physical_plan import TaskState
from syncline.data.execute.steps.heads import (
    AggregateHead,
    ChooseBoundaries,
    JoinHead,
    PartitionAtRandom,
    PartitionByHash,
    PartitionByRange,
    PermuteHead,
    SampleKeys,
    SortHead,
    concatenate,
    pass_blocks,
    read_payload,
    zip_ports,
)
from syncline.data.io.sources.datasource import BlockMetadata, ReadTask


def ids(*numbers: int, name: str = "id") -> pa.Table:
    return pa.table({name: pa.array(numbers, pa.int64())})


def run(head: Any, *ports: list[pa.Table], payload: Any = None, task: int = 0) -> pa.Table:
    return block_functions.concat(list(head(ports, payload, TaskState(task=task))))


def test_read_gives_what_the_task_reads() -> None:
    task = ReadTask(lambda: iter([ids(1), {"id": [2, 3]}]), BlockMetadata(3, 24))
    assert run(read_payload, payload=task).column("id").to_pylist() == [1, 2, 3]


def test_blocks_come_one_after_the_other_or_as_one() -> None:
    assert [table.num_rows for table in pass_blocks([[ids(1), ids(2, 3)]], None, TaskState())] == [
        1,
        2,
    ]
    assert [table.num_rows for table in concatenate([[ids(1), ids(2, 3)]], None, TaskState())] == [
        3
    ]


def test_zip_puts_ports_side_by_side() -> None:
    made = run(zip_ports, [ids(1), ids(2)], [ids(3, 4)], [ids(5, 6, name="x")])
    assert made.to_pydict() == {"id": [1, 2], "id_1": [3, 4], "x": [5, 6]}


def test_merge_sorts_pieces_whether_they_are_sorted_or_not() -> None:
    head = SortHead(keys=("id",), descending=(True,))
    assert run(head, [ids(5, 3), ids(1, 4)]).column("id").to_pylist() == [5, 4, 3, 1]
    assert run(head, [ids(1, 2)]).column("id").to_pylist() == [2, 1]
    assert run(head, []).num_rows == 0


def test_aggregate_of_nothing_is_one_row_without_keys_and_none_with() -> None:
    assert run(AggregateHead(keys=(), aggregates=(Count(), Sum("a"))), []).to_pydict() == {
        "count()": [0],
        "sum(a)": [None],
    }
    assert run(AggregateHead(keys=("k",), aggregates=(Count(),)), []).num_rows == 0


def join(
    kind: Any, left: list[pa.Table], right: list[pa.Table], **schemas: pa.Schema
) -> dict[str, list[Any]]:
    made = run(JoinHead(join_type=kind, left_on=("id",), right_on=("key",), **schemas), left, right)
    return made.to_pydict()


RIGHT = pa.table({"key": [2, 9], "x": ["two", "nine"]})


def test_join_matches_the_ports() -> None:
    assert join("inner", [ids(1), ids(2)], [RIGHT]) == {"id": [2], "x": ["two"]}


def test_a_side_without_rows_has_the_columns_of_its_schema() -> None:
    assert join("left_outer", [ids(1)], [], right_schema=RIGHT.schema) == {"id": [1], "x": [None]}
    assert join("inner", [], [RIGHT], left_schema=ids().schema) == {"id": [], "x": []}


@pytest.mark.parametrize(
    ("kind", "left", "right"),
    [
        ("inner", {}, {}),
        ("left_outer", {"id": [1]}, {}),
        ("right_outer", {}, {"id": [2, 9], "x": ["two", "nine"]}),
        ("full_outer", {"id": [1]}, {"id": [2, 9], "x": ["two", "nine"]}),
        ("left_semi", {}, {}),
        ("right_semi", {}, {}),
        ("left_anti", {"id": [1]}, {}),
        ("right_anti", {}, {"key": [2, 9], "x": ["two", "nine"]}),
    ],
)
def test_a_side_of_which_nothing_is_known_matches_nothing(
    kind: str, left: dict[str, Any], right: dict[str, Any]
) -> None:
    assert join(kind, [ids(1)], []) == left
    assert join(kind, [], [RIGHT]) == right


def test_permute_draws_for_the_seed_and_the_task() -> None:
    table = ids(*range(100))
    first = run(PermuteHead(seed=4), [table.slice(0, 50), table.slice(50)]).column("id").to_pylist()
    assert sorted(first) == list(range(100)) != first
    assert run(PermuteHead(seed=4), [table]).column("id").to_pylist() == first
    assert run(PermuteHead(seed=4), [table], task=1).column("id").to_pylist() != first
    assert run(PermuteHead(seed=5), [table]).column("id").to_pylist() != first


def test_groups_lie_together_sorted() -> None:
    assert run(SortHead(keys=("id",)), [ids(2, 1), ids(2, 1)]).column("id").to_pylist() == [
        1,
        1,
        2,
        2,
    ]
    assert run(SortHead(keys=()), [ids(2, 1), ids(2)]).column("id").to_pylist() == [2, 1, 2]


def test_tensors_survive_sorting_and_permuting() -> None:
    table = block_functions.from_batch(
        {"id": np.array([2, 1]), "image": np.arange(8.0).reshape(2, 2, 2)}
    )
    made = run(SortHead(keys=("id",), descending=(False,)), [table])
    np.testing.assert_array_equal(
        block_functions.to_batch(made)["image"], np.arange(8.0).reshape(2, 2, 2)[::-1]
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
