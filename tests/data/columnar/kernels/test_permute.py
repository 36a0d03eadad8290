"""Permutations move every row once and keep types, shapes and all rows."""

import datetime

import numpy as np
import pyarrow as pa
import pytest

from syncline.data.columnar import block as blocks
from syncline.data.columnar.kernels import permute

RANDOM = np.random.default_rng(0)


def chunked(rows: int, chunks: int) -> pa.Table:
    """Return a table in chunks of unequal length, each a slice of a longer one."""
    start = datetime.datetime(2026, 1, 1)
    columns = {
        "id": np.arange(rows),
        "half": np.arange(rows, dtype=np.float16) / 2,
        "image": RANDOM.integers(0, 255, (rows, 5, 7, 3), np.uint8),
        "vector": RANDOM.standard_normal((rows, 4)),
        "time": pa.array([start + datetime.timedelta(n) for n in range(rows)], pa.timestamp("us")),
    }
    whole = blocks.from_batch(columns)
    bounds = [0, *sorted(RANDOM.choice(np.arange(1, rows), chunks - 1, replace=False)), rows]
    parts = [whole.slice(a, b - a) for a, b in zip(bounds, bounds[1:], strict=False)]
    return pa.concat_tables(parts)


@pytest.mark.parametrize("chunks", [1, 2, 7])
def test_the_rows_are_those_of_take(chunks):
    table = chunked(50, chunks)
    order = RANDOM.permutation(50)
    assert permute.can_permute(table)
    made = permute.permuted(table, order)
    assert made.schema.equals(table.schema)
    assert made.equals(blocks.take(table, order))
    assert all(column.num_chunks == 1 for column in made.columns)


def test_rows_without_elements_are_moved():
    table = blocks.from_batch({"empty": np.empty((3, 0), np.float32), "id": np.arange(3)})
    assert permute.permuted(table, np.array([2, 0, 1]))["id"].to_pylist() == [2, 0, 1]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", "b"]),
        pa.array([1, None]),
        pa.array([True, False]),
        pa.array([[1], [2, 3]]),
        blocks.to_column("ragged", np.array([np.zeros(2), np.zeros(3)], dtype=object)),
    ],
    ids=lambda column: str(column.type),
)
def test_other_columns_are_left_to_take(column):
    assert not permute.can_permute(pa.table({"id": [1, 2], "other": column}))


def test_a_table_without_columns_is_left_to_take():
    assert not permute.can_permute(pa.table({}))
