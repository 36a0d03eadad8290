"""Rows to partitions, and the hash that decides: equal values meet, whatever holds them, in every
process.
"""

import datetime
import decimal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from syncline.data.columnar.kernels import keys, partition, sort
from syncline.data.columnar.schemas import UnknownColumnError
from syncline.data.columnar.tensors import tensor_array


def hashes(array: pa.Array) -> list[int]:
    return keys.row_hashes(pa.table({"k": array}), ["k"]).tolist()


MOMENT = datetime.datetime(2024, 5, 6)
WORDS = [
    "",
    "a",
    "ab",
    "12345678",
    "123456789",
    "é" * 20,
    "x" * 127,
    "x" * 128,
    "x" * 129,
    "x" * 5000,
    None,
]


@pytest.mark.parametrize(
    "equals",
    [
        [
            pa.array([0, 1, -7, None], type_)
            for type_ in (
                pa.int8(),
                pa.int32(),
                pa.int64(),
                pa.float32(),
                pa.float64(),
                pa.decimal128(9, 2),
            )
        ]
        + [pa.array([-0.0, 1.0, -7.0, None]), pa.array([0, 1, -7, None], pa.decimal128(30, 0))],
        [pa.array([True, False]), pa.array([1, 0], pa.uint8())],
        [
            pa.array([decimal.Decimal("1.10"), decimal.Decimal("-0.25")], pa.decimal128(9, scale))
            for scale in (2, 4)
        ],
        [pa.array([float("nan")]), pa.array([-float("nan")])],
        [
            pa.array(WORDS),
            pa.array(WORDS, pa.large_string()),
            pa.array(WORDS).dictionary_encode(),
            pa.array(WORDS, pa.string_view()),
        ],
        [pa.array([MOMENT, None], pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")]
        + [pa.array([MOMENT.date(), None], type_) for type_ in (pa.date32(), pa.date64())],
        [
            pa.array([datetime.time(1, 2)], pa.time32("s")),
            pa.array([datetime.time(1, 2)], pa.time64("ns")),
        ],
        [pa.array([b"ab", b"cd"]), pa.array([b"ab", b"cd"], pa.binary(2))],
        [pa.nulls(2), pa.nulls(2, pa.int64()), pa.nulls(2, pa.string())],
    ],
    ids=[
        "numbers",
        "booleans",
        "decimals",
        "nan",
        "strings",
        "times of a date",
        "times of a day",
        "bytes",
        "nulls",
    ],
)
def test_equal_values_of_different_types_hash_alike(equals: list[pa.Array]) -> None:
    first = hashes(equals[0])
    assert all(hashes(array) == first for array in equals)
    assert len(set(first)) == len(set(map(str, equals[0].to_pylist())))


def test_hashes_do_not_depend_on_slices_and_chunks() -> None:
    words = pa.array(["skipped", *map(str, range(500)), None, "last"])
    whole = hashes(words)
    assert hashes(words.slice(1)) == whole[1:]
    chunked = pa.chunked_array([words.slice(0, 7), words.slice(7, 0), words.slice(7)])
    assert hashes(chunked) == whole
    assert hashes(pa.array([], pa.string())) == hashes(pa.array([], pa.int64())) == []


def test_hashes_are_those_of_every_other_process() -> None:
    code = (
        "import pyarrow as pa; from syncline.data.columnar.kernels import keys;"
        "print(keys.row_hashes(pa.table({'a': [1, 2**40, None], 'b': ['x', 'a longer string', "
        "'']}), ['a', 'b']).tolist())"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    # The numbers themselves are fixed too: written partitions outlive a version.
    assert told.strip() == "[10804456916734647462, 17794738860495122080, 9393953306490229774]"


def test_hash_partitions_hold_every_row_once_and_equal_keys_together() -> None:
    rng = np.random.default_rng(0)
    table = pa.table(
        {"a": rng.integers(0, 300, 5000), "b": rng.choice(["u", "v"], 5000), "row": np.arange(5000)}
    )
    result = partition.by_hash(table, ["a", "b"], 16)
    parts = [result.part(index) for index in range(len(result))]
    assert sorted(row for part in parts for row in part["row"].to_pylist()) == list(range(5000))
    owners: dict[tuple[int, str], int] = {}
    for index, part in enumerate(parts):
        rows = part["row"].to_pylist()
        assert rows == sorted(rows)
        for key in zip(part["a"].to_pylist(), part["b"].to_pylist(), strict=True):
            assert owners.setdefault(key, index) == index
    assert min(part.num_rows for part in parts) > 100
    smaller = partition.by_hash(
        table.set_column(0, "a", table["a"].cast(pa.int32())), ["a", "b"], 16
    )
    assert smaller.offsets.tolist() == result.offsets.tolist()


def test_parts_are_slices_of_one_table() -> None:
    result = partition.by_hash(pa.table({"a": np.arange(1000)}), "a", 4)
    address = result.table["a"].chunk(0).buffers()[1].address
    assert all(
        result.part(index)["a"].chunk(0).buffers()[1].address == address for index in range(4)
    )


@pytest.mark.parametrize("parts", [1, 2, 256, 257, 70_000])
def test_any_number_of_parts(parts: int) -> None:
    table = pa.table({"a": np.arange(1000)})
    for result in (partition.by_hash(table, "a", parts), partition.at_random(table, parts, seed=1)):
        assert len(result) == parts
        assert (result.offsets[0], result.offsets[-1]) == (0, 1000)
        assert sorted(result.table["a"].to_pylist()) == list(range(1000))
    assert len(partition.by_hash(table.slice(0, 0), "a", parts)) == parts
    assert partition.at_random(table.select([]), parts, seed=1).table.num_rows == 1000


def test_random_partitions_depend_on_the_seed_alone() -> None:
    table = pa.table({"a": np.arange(1000)})
    first = partition.at_random(table, 4, seed=[7, 1])
    assert first.table.equals(partition.at_random(table, 4, seed=[7, 1]).table)
    assert not first.table.equals(partition.at_random(table, 4, seed=[7, 2]).table)
    assert min(np.diff(first.offsets)) > 150


def test_range_partitions_are_sorted_and_begin_with_their_boundary() -> None:
    table = pa.table({"a": [5, None, 1, 3, 3, 9, 0], "row": np.arange(7)})
    result = partition.by_range(table, "a", pa.table({"a": [1.0, 3.0, 3.5]}))
    assert [result.part(index)["a"].to_pylist() for index in range(4)] == [
        [0],
        [1],
        [3, 3],
        [5, 9, None],
    ]
    falling = partition.by_range(table, "a", pa.table({"a": [9, 3]}), descending=True)
    assert [falling.part(index)["row"].to_pylist() for index in range(3)] == [
        [],
        [5, 0],
        [3, 4, 2, 6, 1],
    ]
    none = partition.by_range(table, "a", sort.boundaries([], "a", 4))
    assert (len(none), none.part(0)["a"].to_pylist()) == (1, [0, 1, 3, 3, 5, 9, None])


def test_wrong_keys_are_named() -> None:
    table = pa.table({"price": [1], "pic": tensor_array(np.zeros((1, 2, 2)))})
    for parts in (1, 4):
        with pytest.raises(UnknownColumnError, match="Did you mean 'price'"):
            partition.by_hash(table, "prise", parts)
        with pytest.raises(
            TypeError, match="cannot partition by column 'pic' of type .*fixed_shape_tensor"
        ):
            partition.by_hash(table, "pic", parts)
    with pytest.raises(ValueError, match="at least 1 partition"):
        partition.by_hash(table, "price", 0)
