"""Sorting: against pandas, in parts and whole."""

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from syncline.data.columnar.kernels import partition, sort
from syncline.data.columnar.schemas import UnknownColumnError
from syncline.data.columnar.tensors import object_array, tensor_array


def random_table(seed: int, rows: int = 400) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "a": pa.array(rng.integers(0, 6, rows), mask=rng.random(rows) < 0.1),
            "b": pa.array(rng.choice(["x", "yy", "z", ""], rows), mask=rng.random(rows) < 0.1),
            "c": np.round(rng.random(rows), 1),
            "row": np.arange(rows),
        }
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("keys", "descending"),
    [
        ("a", False),
        ("a", True),
        (["a", "b"], [False, True]),
        (["b", "c", "a"], [True, True, False]),
        (["c"], [True]),
    ],
)
def test_sorts_as_pandas_does_whole_and_in_parts(
    seed: int, keys: str | list[str], descending: bool | list[bool]
) -> None:
    table = random_table(seed)
    ascending = (
        [not flag for flag in descending] if isinstance(descending, list) else not descending
    )
    frame = table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    expected = frame.sort_values(keys, ascending=ascending, kind="stable", na_position="last")[
        "row"
    ].tolist()
    assert sort.sort(table, keys, descending)["row"].to_pylist() == expected
    pieces = [table.slice(0, 150), table.slice(150, 0), table.slice(150, 90), table.slice(240)]
    samples = [sort.sample(piece, keys, 40, seed=seed) for piece in pieces]
    cuts = sort.boundaries(samples, keys, 5, descending)
    parted = [partition.by_range(piece, keys, cuts, descending) for piece in pieces]
    merged = [
        sort.merge([part.part(index) for part in parted], keys, descending)
        for index in range(cuts.num_rows + 1)
    ]
    assert [row for part in merged for row in part["row"].to_pylist()] == expected


def test_boundaries_make_even_parts_and_never_an_empty_one() -> None:
    table = pa.table({"a": np.random.default_rng(0).permutation(10_000)})
    cuts = sort.boundaries([sort.sample(table, "a", 500, seed=1)], "a", 8)
    sizes = np.diff(partition.by_range(table, "a", cuts).offsets)
    assert len(sizes) == 8
    assert sizes.min() > 600
    assert sort.boundaries([pa.table({"a": [7] * 100})], "a", 8).num_rows <= 1
    assert (
        sort.boundaries([pa.table({"a": pa.array([], pa.int64())}), pa.table({})], "a", 8).num_rows
        == 0
    )


def test_nan_comes_before_null_at_the_end() -> None:
    table = pa.table({"v": [float("nan"), None, 2.0, 1.0]})
    assert str(sort.sort(table, "v")["v"].to_pylist()) == "[1.0, 2.0, nan, None]"
    assert str(sort.sort(table, "v", descending=True)["v"].to_pylist()) == "[2.0, 1.0, nan, None]"


@pytest.mark.parametrize(
    "values",
    [
        pa.array([True, False]),
        pa.array(["b", "a"]).dictionary_encode(),
        pa.array([b"b", b"a"]),
        pa.array(np.array([2, 1], np.float16)),
        pa.array([datetime.timedelta(2), datetime.timedelta(1)]),
        pa.array([datetime.time(2), datetime.time(1)]),
    ],
    ids=lambda values: str(values.type),
)
def test_every_type_with_an_order_is_sorted_and_kept(values: pa.Array) -> None:
    result = sort.sort(pa.table({"v": values, "t": tensor_array(np.array([[2, 2], [1, 1]]))}), "v")
    assert result["v"].to_pylist() == values.to_pylist()[::-1]
    assert result["v"].type == values.type
    assert np.asarray(result["t"].to_pylist()).tolist() == [[1, 1], [2, 2]]


def test_no_rows_and_columns_of_nulls() -> None:
    assert sort.sort(pa.table({"v": pa.array([], pa.string())}), "v").num_rows == 0
    assert sort.sort(pa.table({"v": pa.nulls(2), "w": [2, 1]}), ["v", "w"])["w"].to_pylist() == [
        1,
        2,
    ]
    assert sort.merge([pa.table({"v": pa.array([], pa.int64())})] * 2, "v").num_rows == 0


def test_what_cannot_be_sorted_is_named_with_its_type() -> None:
    table = pa.table(
        {
            "price": [1],
            "l": [[1]],
            "s": [{"x": 1}],
            "t": tensor_array(np.zeros((1, 2))),
            "o": object_array([object]),
        }
    )
    with pytest.raises(UnknownColumnError, match="no column 'prise'.*Did you mean 'price'"):
        sort.sort(table, "prise")
    for name, type_ in {
        "l": "list<",
        "s": "struct<",
        "t": ".*fixed_shape_tensor",
        "o": ".*object",
    }.items():
        with pytest.raises(TypeError, match=f"cannot sort by column '{name}' of type .*{type_}"):
            sort.sort(table, ["price", name])
        with pytest.raises(TypeError, match="cannot sort by"):
            sort.sample(table, name, 10, seed=0)
    with pytest.raises(ValueError, match=r"2 keys \(price, price\) need 2 values of `descending`"):
        sort.sort(table, ["price", "price"], [True])
    with pytest.raises(ValueError, match="at least one key"):
        sort.sort(table, [])
