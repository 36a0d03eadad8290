"""Groups of rows: which rows, in which order, as slices; distinct rows, zip and permutations."""

import numpy as np
import pyarrow as pa
import pytest

from syncline.data.columnar.kernels import group, join, partition
from syncline.data.columnar.schemas import UnknownColumnError
from syncline.data.columnar.tensors import tensor_array


def test_groups_are_in_order_of_first_rows_and_keep_the_order_of_rows() -> None:
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            "a": rng.integers(0, 5000, 20_000),
            "b": rng.choice(["x", "y"], 20_000),
            "row": np.arange(20_000),
        }
    )
    found = group.groups(table, ["a", "b"])
    slices = list(found.slices(table))
    expected: dict[tuple[int, str], list[int]] = {}
    for row in table.to_pylist():
        expected.setdefault((row["a"], row["b"]), []).append(row["row"])
    assert [piece["row"].to_pylist() for piece in slices] == list(expected.values())
    assert list(zip(*found.keys.to_pydict().values(), strict=True)) == list(expected)
    assert (table["a"].to_numpy() == found.keys["a"].to_numpy()[found.ids]).all()


def test_sorted_rows_are_sliced_without_a_copy() -> None:
    table = pa.table(
        {"a": np.repeat([3, 5, 9], [2, 1, 4]), "t": tensor_array(np.arange(14).reshape(7, 2))}
    )
    found = group.groups(table, "a")
    assert found.arrange(table) is table
    assert [piece.num_rows for piece in found.slices(table)] == [2, 1, 4]


def test_nulls_zeros_and_nans_are_groups() -> None:
    negative_nan = np.array([0xFFF8000000000001], np.uint64).view(np.float64)[0]
    table = pa.table(
        {"v": pa.array([0.0, -0.0, float("nan"), None, negative_nan, None], from_pandas=False)}
    )
    assert np.diff(group.groups(table, "v").offsets).tolist() == [2, 2, 2]


def test_without_keys_all_rows_are_one_group() -> None:
    table = pa.table({"v": [1, 2, 3]})
    assert [piece["v"].to_pylist() for piece in group.groups(table, []).slices(table)] == [
        [1, 2, 3]
    ]
    assert (
        len(group.groups(table.slice(0, 0), [])) == len(group.groups(table.slice(0, 0), "v")) == 0
    )


def test_what_cannot_be_grouped_is_named_with_its_type() -> None:
    table = pa.table({"price": [1], "l": [[1]]})
    with pytest.raises(UnknownColumnError, match="Did you mean 'price'"):
        group.groups(table, "prices")
    with pytest.raises(TypeError, match="cannot group by column 'l' of type list<"):
        group.groups(table, "l")


def test_distinct_keeps_first_rows_in_their_order() -> None:
    table = pa.table(
        {
            "a": [2, 1, 2, None, 1, None],
            "b": ["x", "y", "x", "z", "w", "z"],
            "t": tensor_array(np.arange(12).reshape(6, 2)),
        }
    )
    assert group.distinct(table.select(["a", "b"])).to_pydict() == {
        "a": [2, 1, None, 1],
        "b": ["x", "y", "z", "w"],
    }
    assert group.distinct(table, "a")["b"].to_pylist() == ["x", "y", "z"]


def test_zip_numbers_the_names_that_are_taken() -> None:
    left, right = (
        pa.table({"a": [1, 2], "b": [3, 4], "b_1": [5, 6]}),
        pa.table({"b": [7, 8], "c": [9, 10]}),
    )
    zipped = join.zip_tables(left, right)
    assert zipped.column_names == ["a", "b", "b_1", "b_2", "c"]
    assert zipped["b_2"].to_pylist() == [7, 8]
    assert join.zip_tables(left.select(["a"]), left.select(["a"])).column_names == ["a", "a_1"]
    with pytest.raises(ValueError, match="2 and 1 rows"):
        join.zip_tables(left, right.slice(1))


def test_permutations_depend_on_the_seed_alone() -> None:
    table = pa.table({"a": np.arange(100)})
    first = partition.permute(table, 5)["a"].to_pylist()
    assert sorted(first) == list(range(100))
    assert first == partition.permute(table, 5)["a"].to_pylist()
    assert first != partition.permute(table, 6)["a"].to_pylist()
    assert partition.permute(table, [5, 1])["a"].to_pylist() != first
