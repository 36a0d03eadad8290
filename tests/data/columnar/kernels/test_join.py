"""Joins: against pandas for every type of join, with nulls, tensors and names that meet."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from syncline.data.columnar.kernels import join
from syncline.data.columnar.schemas import UnknownColumnError
from syncline.data.columnar.tensors import tensor_array

HOW = {"inner": "inner", "left_outer": "left", "right_outer": "right", "full_outer": "outer"}


def sides(seed: int) -> tuple[pa.Table, pa.Table]:
    rng = np.random.default_rng(seed)
    left = pa.table(
        {"k": rng.integers(0, 30, 60), "s": rng.choice(["x", "y"], 60), "l": np.arange(60)}
    )
    right = pa.table(
        {"k": rng.integers(10, 40, 50), "s": rng.choice(["x", "y"], 50), "r": np.arange(50)}
    )
    return left, right


def as_set(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(
        str({name: None if pd.isna(item) else item for name, item in row.items()}) for row in rows
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("keys", [["k"], ["k", "s"]])
@pytest.mark.parametrize("join_type", HOW)
def test_joins_as_pandas_does(seed: int, keys: list[str], join_type: Any) -> None:
    left, right = sides(seed)
    if keys == ["k"]:
        right = right.drop_columns(["s"])
    frames = [
        side.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get) for side in (left, right)
    ]
    expected = frames[0].merge(frames[1], on=keys, how=HOW[join_type]).astype(object)
    result = join.join(left, right, join_type, keys)
    assert as_set(result.to_pylist()) == as_set(expected[result.column_names].to_dict("records"))
    assert result.column_names == ["k", "s", "l", "r"]
    if join_type in ("inner", "left_outer"):
        assert result["l"].to_pylist() == sorted(result["l"].to_pylist())


@pytest.mark.parametrize("side", ["left", "right"])
def test_semi_and_anti_joins_keep_the_rows_and_columns_of_one_side(side: str) -> None:
    tables = dict(zip(("left", "right"), sides(1), strict=True))
    own, other = tables[side], tables["right" if side == "left" else "left"]
    partners = set(other["k"].to_pylist())
    for kind, wanted in (("semi", True), ("anti", False)):
        result = join.join(tables["left"], tables["right"], f"{side}_{kind}", "k")
        assert result.to_pylist() == [
            row for row in own.to_pylist() if (row["k"] in partners) is wanted
        ]


def test_null_keys_match_nothing() -> None:
    left, right = pa.table({"k": [1, None], "l": [1, 2]}), pa.table({"k": [None, 1], "r": [3, 4]})
    assert join.join(left, right, "inner", "k").to_pylist() == [{"k": 1, "l": 1, "r": 4}]
    full = join.join(left, right, "full_outer", "k").to_pylist()
    assert full == [
        {"k": 1, "l": 1, "r": 4},
        {"k": None, "l": 2, "r": None},
        {"k": None, "l": None, "r": 3},
    ]
    untyped = pa.table({"k": pa.nulls(2), "r": [3, 4]})
    assert join.join(left, untyped, "inner", "k").num_rows == 0
    assert join.join(left, untyped, "left_anti", "k").num_rows == 2


def test_keys_of_different_types_and_names_meet() -> None:
    left = pa.table({"id": pa.array([1, 2], pa.int32()), "v": ["a", "b"]})
    right = pa.table({"w": ["c", "d"], "key": pa.array([2.0, 3.0])})
    assert join.join(left, right, "full_outer", "id", "key").to_pylist() == [
        {"id": 1, "v": "a", "w": None},
        {"id": 2, "v": "b", "w": "c"},
        {"id": 3, "v": None, "w": "d"},
    ]
    words = (
        pa.table({"id": pa.array(["x", "y"]).dictionary_encode()}),
        pa.table({"id": pa.array(["y"], pa.large_string())}),
    )
    assert join.join(*words, "inner", "id")["id"].to_pylist() == ["y"]


def test_tensors_lists_and_structs_come_along() -> None:
    left = pa.table(
        {"k": [1, 2], "t": tensor_array(np.arange(8).reshape(2, 2, 2)), "l": [[1], [2, 3]]}
    )
    right = pa.table(
        {"k": [2, 4], "u": tensor_array(np.arange(4).reshape(2, 2)), "s": [{"x": 1}, {"x": 2}]}
    )
    result = join.join(left, right, "full_outer", "k")
    assert result.schema.field("t").type == left.schema.field("t").type
    rows = result.to_pylist()
    assert [row["k"] for row in rows] == [1, 2, 4]
    assert np.asarray(rows[1]["t"]).ravel().tolist() == [4, 5, 6, 7]
    assert [None if row["u"] is None else list(row["u"]) for row in rows] == [None, [0, 1], [2, 3]]
    assert [row["s"] for row in rows] == [None, {"x": 1}, {"x": 2}]


def test_columns_of_both_sides_get_suffixes() -> None:
    left, right = pa.table({"k": [1], "v": [2]}), pa.table({"k": [1], "v": [3]})
    with pytest.raises(
        ValueError, match="both sides of the join have 'v'.*left_suffix or right_suffix"
    ):
        join.join(left, right, "inner", "k")
    assert join.join(left, right, "inner", "k", right_suffix="_r").to_pylist() == [
        {"k": 1, "v": 2, "v_r": 3}
    ]
    both = join.join(left, right, "inner", "k", left_suffix="_l", right_suffix="_r")
    assert both.column_names == ["k", "v_l", "v_r"]


def test_empty_sides() -> None:
    left, right = sides(0)
    right = right.drop_columns(["s"])
    assert join.join(left.slice(0, 0), right, "inner", "k").column_names == ["k", "s", "l", "r"]
    assert join.join(left, right.slice(0, 0), "left_outer", "k").num_rows == left.num_rows
    assert join.join(left, right.slice(0, 0), "full_outer", "k")["r"].null_count == left.num_rows


def test_wrong_joins_are_named() -> None:
    left, right = (
        pa.table({"price": [1], "t": tensor_array(np.zeros((1, 2)))}),
        pa.table({"price": ["x"], "t": [1]}),
    )
    with pytest.raises(ValueError, match="join_type='outer' is not known"):
        join.join(left, right, "outer", "price")
    with pytest.raises(UnknownColumnError, match="Did you mean 'price'"):
        join.join(left, right, "inner", "prise")
    with pytest.raises(
        ValueError,
        match="cannot join column 'price' of type int64 to column 'price' of type string",
    ):
        join.join(left, right, "inner", "price")
    with pytest.raises(TypeError, match="cannot join on column 't' of type .*tensor"):
        join.join(left, right, "inner", "t")
    with pytest.raises(ValueError, match="equally many keys"):
        join.join(left, right, "inner", ["price"], ["price", "t"])
