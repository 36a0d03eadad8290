"""Rows and batches to blocks and back, putting blocks together, taking rows, sizes."""

import datetime
import decimal
import enum
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from syncline.data.columnar import block
from syncline.data.columnar.schemas import SchemaMismatchError, UnknownColumnError
from syncline.data.columnar.tensors import PythonObjectType, RaggedTensorType


class Color(enum.Enum):
    RED = 1


class ArrayLike:
    """Something with `__array__`, such as a torch tensor."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.values


def equal(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(
            left, right, equal_nan=left.dtype.kind in "fM"
        )
    if isinstance(left, float) and isinstance(right, float) and np.isnan(left):
        return bool(np.isnan(right))
    return type(left) is type(right) and bool(left == right)


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


ROUND_TRIPS: dict[str, list[Any]] = {
    "int": [1, -2, 3],
    "big int": [2**63, 1, None],
    "huge int": [2**70, 1, None],
    "float": [1.5, float("nan"), None],
    "bool": [True, False, None],
    "text": ["a", "ä€", "", None],
    "bytes": [b"a\0", b"", None],
    "none": [None, None, None],
    "date": [datetime.date(2020, 1, 2), None],
    "datetime": [datetime.datetime(2020, 1, 2, 3, 4, 5, 6), None],
    "zoned datetime": [datetime.datetime(2020, 1, 2, tzinfo=datetime.timezone.utc)],
    "time": [datetime.time(1, 2, 3, 4), None],
    "timedelta": [datetime.timedelta(seconds=1.5), None],
    "decimal": [decimal.Decimal("1.50"), decimal.Decimal("20.25"), None],
    "list": [[1, 2], [], None, [3]],
    "nested list": [[[1], []], [[2, 3]], None],
    "list of text": [["a", None], []],
    "dict": [{"a": 1, "b": "x"}, {"a": 2, "b": None}, None],
    "nested dict": [{"a": {"b": [1, {"c": 2.5}]}}, {"a": None}],
    "list of dicts": [[{"a": 1}], []],
    "mixed list": [[1, "a"], [None]],
    "dict with int keys": [{1: 2}, None],
    "complex": [1 + 2j, None],
    "object": [Color.RED, None],
    "set beside object": [Color.RED, {1, 2}],
    "vector": [np.array([1.5, 2.5]), np.array([3.5, 4.5])],
    "image": [np.full((4, 4, 3), 7, np.uint8), np.zeros((4, 4, 3), np.uint8)],
    "bool tensor": [np.array([[True, False, True]]), np.array([[False, False, True]])],
    "float16 tensor": [np.array([1.5, 2.0], np.float16)],
    "tensor with null": [np.array([1, 2]), None],
    "tensor without elements": [np.zeros((0, 3)), np.zeros((0, 3))],
    "datetime tensor": [np.array(["2020-01-01", "NaT"], "M8[us]")],
    "ragged": [np.arange(3), np.arange(4).reshape(2, 2), None, np.zeros((0,), int)],
    "ragged bool": [np.array([True]), np.array([False, True])],
    "text tensor": [np.array(["a", "bcd"]), np.array(["efg"])],
    "complex tensor": [np.array([1j]), np.array([2j, 3j])],
}


@pytest.mark.parametrize("values", ROUND_TRIPS.values(), ids=ROUND_TRIPS.keys())
def test_rows_come_back_as_they_were(values: list[Any]) -> None:
    rows = [{"value": value, "index": index} for index, value in enumerate(values)]
    table = block.from_rows(rows)
    # Whole, sliced in the middle of a chunk, and in several chunks.
    chunked = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    for piece, start in ((table, 0), (table.slice(1), 1), (chunked, 0)):
        found = list(block.rows(piece))
        assert [row["index"] for row in found] == list(range(start, len(values)))
        assert all(
            equal(row["value"], value) for row, value in zip(found, values[start:], strict=True)
        ), found


@pytest.mark.parametrize("batch_format", ["numpy", "pandas", "pyarrow"])
@pytest.mark.parametrize("values", ROUND_TRIPS.values(), ids=ROUND_TRIPS.keys())
def test_every_column_survives_every_batch_format(values: list[Any], batch_format: Any) -> None:
    table = block.from_rows([{"value": value} for value in values])
    again = block.from_batch(block.to_batch(table, batch_format))
    assert again.num_rows == len(values)
    nulls = [value is None for value in values]
    if again["value"].type in (pa.float64(), pa.float16()):
        found = [value is None or value != value for value in again["value"].to_pylist()]
        assert all(now for now, before in zip(found, nulls, strict=True) if before)
    elif block.to_batch(table, "numpy")["value"].dtype.kind != "f":
        assert [value is None for value in again["value"].to_pylist()] == nulls


def test_missing_keys_are_null_and_columns_keep_their_order() -> None:
    table = block.from_rows([{"b": 1, "a": 2}, {"c": 3, "b": 4}])
    assert table.to_pydict() == {"b": [1, 4], "a": [2, None], "c": [None, 3]}


def test_a_stream_of_rows_becomes_blocks_of_equal_length() -> None:
    rows = [{"a": number} for number in range(5)]
    made = list(block.from_row_stream(iter(rows), None, rows_per_block=2))
    assert [each.to_pylist() for each in made] == [rows[:2], rows[2:4], rows[4:]]
    schema = pa.schema([("a", pa.int8()), ("b", pa.string())])
    (typed,) = block.from_row_stream(rows, schema, rows_per_block=9)
    assert (typed.schema, typed.num_rows) == (schema, 5)
    assert list(block.from_row_stream([], schema, rows_per_block=2)) == []
    with pytest.raises(TypeError, match="row 2"):
        list(block.from_row_stream([*rows[:3], {"a": "x"}], None, rows_per_block=2))


def test_int_and_float_become_float() -> None:
    assert block.from_rows([{"x": 1}, {"x": 2.5}, {"x": 2**60 + 1}])["x"].to_pylist() == [
        1.0,
        2.5,
        float(2**60 + 1),
    ]
    assert block.from_rows([{"x": np.float32(1)}, {"x": np.int8(2)}])["x"].to_pylist() == [1.0, 2.0]


def test_times_of_numpy_are_taken_in_all_units_and_beside_pythons() -> None:
    def column(*values: Any) -> pa.ChunkedArray:
        return block.from_rows([{"time": value} for value in values])["time"]

    assert column(np.datetime64("2020-01-01T05", "h"), None).to_pylist() == [
        datetime.datetime(2020, 1, 1, 5),
        None,
    ]
    assert column(np.datetime64("2020-01-01"), None).to_pylist() == [
        datetime.date(2020, 1, 1),
        None,
    ]
    assert column(np.timedelta64(2, "D")).to_pylist() == [datetime.timedelta(days=2)]
    assert column(datetime.datetime(2020, 1, 1, 5), np.datetime64("2020-01-02")).to_pylist() == [
        datetime.datetime(2020, 1, 1, 5),
        datetime.datetime(2020, 1, 2),
    ]


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_nanoseconds_of_pandas_are_kept(zone: str | None) -> None:
    times = pd.to_datetime(["2024-01-01 00:00:00.123456789", None], utc=True).tz_convert(zone)
    table = pa.table({"t": pa.array(times), "d": pa.array([5, None], pa.duration("ns"))})
    again = block.from_rows(block.row_list(table))
    assert again.schema.types == [pa.timestamp("ns", zone), pa.duration("ns")]
    assert again["t"].to_pylist() == [times[0], None]
    old = [pd.Timestamp(2024, 1, 1), datetime.datetime(1, 1, 1)]  # before the first nanosecond
    assert block.from_rows([{"t": time} for time in old])["t"].to_pylist() == old


def test_dates_beside_datetimes_keep_the_time_of_day() -> None:
    values = [datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1, 5)]
    assert block.from_rows([{"x": value} for value in values])["x"].to_pylist() == [
        datetime.datetime(2020, 1, 1),
        values[1],
    ]


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ([None, 1, "a"], ("'x'", "an int (1) in row 11", "a str ('a') in row 12")),
        ([True, 1], ("a bool (True) in row 10", "an int (1) in row 11")),
        ([b"a", "a"], ("bytes", "str")),
        ([1, 2.5, [3]], ("an int (1) in row 10", "a list ([3]) in row 12")),
        ([{"a": 1}, 2], ("dict", "int")),
        ([np.zeros(2), 1.0], ("ndarray", "float")),
        ([np.zeros(2), np.array(["a", "b"])], ("float64", "<U1")),
    ],
)
def test_values_that_do_not_fit_together_are_named(
    values: list[Any], parts: tuple[str, ...]
) -> None:
    with pytest.raises(TypeError) as caught:
        block.from_rows([{"x": value} for value in values], first_row=10)
    assert all(part in str(caught.value) for part in parts), caught.value


def test_what_cannot_be_pickled_is_named() -> None:
    with pytest.raises(TypeError, match="column 'x' holds generator"):
        block.from_rows([{"x": (i for i in [1])}])


def test_array_likes_and_arrays_of_one_value_are_taken_as_what_they_hold() -> None:
    table = block.from_rows(
        [
            {"vector": ArrayLike([1, 2]), "scalar": ArrayLike(3)},
            {"vector": ArrayLike([3, 4]), "scalar": np.array(4)},
        ]
    )
    assert table["vector"].type == pa.fixed_shape_tensor(pa.int64(), (2,))
    assert table["scalar"].to_pylist() == [3, 4]
    assert block.from_batch({"x": ArrayLike([[1, 2], [3, 4]])})["x"].type == pa.fixed_shape_tensor(
        pa.int64(), (2,)
    )


def test_rows_without_columns_are_counted() -> None:
    table = block.from_rows([{}, {}])
    assert table.num_rows == 2
    assert list(block.rows(table)) == [{}, {}]
    assert block.from_rows([]).num_rows == 0


def test_numpy_batches_are_views_where_the_layout_allows() -> None:
    arrays = {
        "x": np.arange(10),
        "image": np.arange(120, dtype=np.uint8).reshape(10, 2, 6),
        "half": np.zeros((10, 3), np.float16),
    }
    batch = block.to_batch(block.from_batch(arrays))
    for name, array in arrays.items():
        assert address(batch[name]) == address(array)
        assert not batch[name].flags.writeable
    part = block.to_batch(block.from_batch(arrays).slice(3, 2))
    assert address(part["image"]) == address(arrays["image"][3:])
    assert part["image"].shape == (2, 2, 6)


def test_writable_batches_leave_the_block_alone() -> None:
    table = block.from_batch({"x": np.arange(3), "text": ["a", "b", "c"]})
    batch = block.to_batch(table, writable=True)
    batch["x"] += 1
    assert table["x"].to_pylist() == [0, 1, 2]
    frame = block.to_batch(table, "pandas", writable=True)
    frame["x"] += 1
    assert table["x"].to_pylist() == [0, 1, 2]


def test_numpy_batches_of_nulls() -> None:
    rows = [
        {"i": 1, "b": True, "s": "a", "t": np.array([1, 2]), "m": np.array([True])},
        dict.fromkeys("ibstm"),
    ]
    batch = block.to_batch(block.from_rows(rows))
    assert batch["i"].dtype == np.float64
    assert np.isnan(batch["i"][1])
    assert batch["b"].tolist() == [True, None]
    assert batch["s"].tolist() == ["a", None]
    assert batch["t"].dtype == np.float64
    assert np.isnan(batch["t"][1]).all()
    assert batch["m"][1] is None


def test_ragged_and_equal_object_columns_stay_one_array_per_row() -> None:
    ragged = block.from_rows([{"x": np.zeros(2)}, {"x": np.zeros((3, 1))}])
    assert isinstance(ragged["x"].type, RaggedTensorType)
    assert [array.shape for array in block.to_batch(ragged)["x"]] == [(2,), (3, 1)]
    # Two rows of the same shape out of a ragged column are not stacked, since the next batch could
    # not be.
    assert block.to_batch(ragged.slice(0, 1))["x"].shape == (1,)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (">i4", pa.int32()),
        ("M8[h]", pa.timestamp("s")),
        ("M8[D]", pa.date32()),
        ("U3", pa.string()),
        ("S3", pa.binary()),
    ],
)
def test_dtypes_that_arrow_lacks_become_its_nearest(dtype: str, expected: pa.DataType) -> None:
    assert block.from_batch({"x": np.zeros(2, dtype)})["x"].type == expected


def test_masked_arrays_are_null_where_masked() -> None:
    assert block.from_batch({"x": np.ma.array([1, 2], mask=[False, True])})["x"].to_pylist() == [
        1,
        None,
    ]
    tensor = block.to_batch(
        block.from_batch({"x": np.ma.array([[1.0, 2.0]], mask=[[False, True]])})
    )["x"]
    assert np.isnan(tensor[0, 1])


def test_arrays_that_are_not_contiguous_are_copied_rightly() -> None:
    array = np.arange(24).reshape(2, 3, 4).transpose(1, 2, 0)[:, ::2]
    assert np.array_equal(block.to_batch(block.from_batch({"x": array}))["x"], array)


def test_batches_without_rows_keep_their_types() -> None:
    table = block.from_batch(
        {"i": np.zeros(0, np.int32), "t": np.zeros((0, 2, 3), np.float32), "l": []}
    )
    assert table.schema.types == [
        pa.int32(),
        pa.fixed_shape_tensor(pa.float32(), (2, 3)),
        pa.null(),
    ]
    assert block.to_batch(table)["t"].shape == (0, 2, 3)
    assert block.to_batch(table, "pandas").shape == (0, 3)
    assert list(block.rows(table)) == []
    assert block.empty(table.schema).schema == table.schema
    assert block.to_batch(
        pa.table({"x": pa.chunked_array([], pa.fixed_shape_tensor(pa.int8(), (2,)))})
    )["x"].shape == (0, 2)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (3, "this one is int"),
        ([1, 2], "this one is list"),
        (np.zeros(3), "this one is ndarray.*give the values a name"),
        ({"x": 1}, "column 'x' of the batch is int"),
        ({"x": "text"}, "column 'x' of the batch is str"),
        ({"x": np.array(1)}, "'x' is a single value"),
        ({"x": [1], "y": [1, 2]}, "'x': 1, 'y': 2"),
        (pa.table([[1], [2]], names=["x", "x"]), "several columns named 'x'"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), "several columns named 'x'"),
    ],
)
def test_what_is_no_batch_is_refused(batch: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        block.from_batch(batch)


def test_names_that_are_no_text_are_refused() -> None:
    with pytest.raises(TypeError, match="one is 1 of type int"):
        block.from_batch({1: [1]})


def test_an_unknown_batch_format_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_format='arrow'"):
        block.to_batch(block.from_rows([{"x": 1}]), "arrow")


def test_frames_bring_no_index_and_no_metadata() -> None:
    frame = pd.DataFrame(
        {"x": [1, 2], "s": ["a", None], "f": [1.5, None], "o": [np.zeros(2), np.ones(2)]},
        index=[5, 6],
    )
    table = block.from_batch(frame)
    assert table.column_names == ["x", "s", "f", "o"]
    assert table.schema.types == [
        pa.int64(),
        pa.string(),
        pa.float64(),
        pa.fixed_shape_tensor(pa.float64(), (2,)),
    ]
    assert table.schema.metadata is None
    assert table["s"].to_pylist() == ["a", None]
    again = block.to_batch(table, "pandas")
    assert list(again.columns) == ["x", "s", "f", "o"]
    assert list(again.index) == [0, 1]
    assert np.array_equal(again["o"][1], np.ones(2))


def test_metadata_of_pandas_does_not_bring_an_index_back() -> None:
    table = pa.Table.from_pandas(pd.DataFrame({"x": [1]}, index=pd.Index([7], name="key")))
    assert list(block.to_batch(table, "pandas").columns) == ["x", "key"]


def test_concat_of_equal_schemas_copies_nothing_large() -> None:
    array = np.zeros((100, 64, 64))
    table = block.from_batch({"x": array})
    whole = block.concat([table, table])
    assert whole["x"].num_chunks == 2
    assert address(block.to_batch(whole.slice(0, 100))["x"]) == address(array)


def test_concat_of_many_small_blocks_is_one_chunk() -> None:
    table = block.from_rows([{"x": i, "t": np.array([i])} for i in range(100)])
    whole = block.concat([table.slice(i, 1) for i in range(100)])
    assert whole["x"].num_chunks == whole["t"].num_chunks == 1
    assert block.to_batch(whole)["t"][:, 0].tolist() == list(range(100))


def test_concat_joins_types() -> None:
    object_, tensor = {1: 2}, np.array([[1, 2]])
    blocks = [
        block.from_rows(
            [
                {
                    "a": 1,
                    "t": np.array([1, 2]),
                    "o": 1,
                    "d": datetime.date(2020, 1, 1),
                    "r": np.zeros(1),
                }
            ]
        ),
        block.from_rows(
            [
                {
                    "a": 2.5,
                    "t": np.array([1.5, 2.5]),
                    "o": object_,
                    "d": datetime.datetime(2020, 1, 1, 5),
                    "r": tensor,
                }
            ]
        ),
        block.from_rows([{"a": None, "b": "new"}]),
        block.from_rows([]),
    ]
    rows = list(block.rows(block.concat(blocks)))
    assert [row["a"] for row in rows] == [1.0, 2.5, None]
    assert [row["b"] for row in rows] == [None, None, "new"]
    assert np.array_equal(rows[0]["t"], [1.0, 2.0])
    assert [row["o"] for row in rows] == [1, object_, None]
    assert rows[0]["d"] == datetime.datetime(2020, 1, 1)
    assert np.array_equal(rows[0]["r"], [0.0])
    assert np.array_equal(rows[1]["r"], tensor)
    assert rows[2]["r"] is None


def test_concat_of_sliced_tensors_with_nulls_becomes_ragged_rightly() -> None:
    fixed = block.from_rows(
        [{"x": np.array([i, i])} if i != 2 else {"x": None} for i in range(4)]
    ).slice(1)
    rows = list(block.rows(block.concat([fixed, block.from_rows([{"x": np.array([9])}])])))
    assert [None if row["x"] is None else row["x"].tolist() for row in rows] == [
        [1, 1],
        None,
        [3, 3],
        [9],
    ]


def test_concat_decodes_dictionaries_that_meet_text() -> None:
    encoded = pa.table({"x": pa.array(["a", "b"]).dictionary_encode()})
    assert block.concat([encoded, pa.table({"x": ["c"]})])["x"].to_pylist() == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("left", "right"),
    [(1, "a"), (True, 1), ("a", b"a"), (np.zeros(2), np.array(["a"])), ([1], {"a": 1})],
)
def test_schemas_that_do_not_fit_are_told_apart(left: Any, right: Any) -> None:
    with pytest.raises(SchemaMismatchError, match="column 'x' is .* in one and .* in another"):
        block.concat(
            [block.from_rows([{"x": left, "same": 1}]), block.from_rows([{"x": right, "same": 1}])]
        )


def test_values_that_do_not_fit_the_joined_type_are_an_error() -> None:
    with pytest.raises(SchemaMismatchError, match="column 'x' is uint64"):
        block.concat([pa.table({"x": pa.array([2**63], pa.uint64())}), pa.table({"x": [1]})])


def test_take_reorders_every_kind_of_column() -> None:
    values = [
        {"i": i, "s": str(i), "t": np.full((2, 2), i), "r": np.zeros(i), "o": {i: i}, "l": [i] * i}
        for i in range(6)
    ]
    table = block.from_rows(values)
    order = [5, 0, 0, 3]
    for source in (
        table,
        block.concat([table.slice(0, 4), table.slice(4)]),
        pa.concat_tables([table.slice(0, 4), table.slice(4)]),
    ):
        taken = list(block.rows(block.take(source, np.array(order))))
        assert [row["i"] for row in taken] == order
        assert [row["s"] for row in taken] == [str(i) for i in order]
        assert [int(row["t"][0, 0]) for row in taken] == order
        assert [len(row["r"]) for row in taken] == order
        assert [row["o"] for row in taken] == [{i: i} for i in order]
        assert [row["l"] for row in taken] == [[i] * i for i in order]
    assert block.take(table, []).num_rows == 0


def test_size_counts_the_rows_of_a_slice_only() -> None:
    table = block.from_batch({"x": np.zeros(1000), "image": np.zeros((1000, 10), np.uint8)})
    assert block.size_bytes(table) == 18_000
    assert block.size_bytes(table.slice(10, 100)) == 1_800
    assert (
        block.size_bytes(block.from_rows([{"r": np.zeros(1000)}, {"r": np.zeros(1)}]).slice(1))
        < 200
    )


def test_compact_lets_go_of_what_a_slice_was_cut_from() -> None:
    table = block.from_batch({"x": np.zeros((1000, 100))})
    piece = block.compact(table.slice(500, 2))
    assert piece.get_total_buffer_size() < 4000
    assert piece.equals(table.slice(500, 2))
    assert block.compact(table).equals(table)


def test_looking_at_the_first_row_does_not_convert_all() -> None:
    class Unreadable:
        def __reduce__(self) -> Any:
            return (int, ("x",))  # unpickling fails

    values = [{"x": Color.RED}] * 5000 + [{"x": Unreadable()}]
    table = block.from_rows(values)
    assert isinstance(table["x"].type, PythonObjectType)
    assert next(block.rows(table)) == {"x": Color.RED}
    with pytest.raises(ValueError, match="invalid literal"):
        list(block.rows(table))


def test_an_unknown_column_names_the_nearest() -> None:
    assert (
        str(UnknownColumnError("prise", ["id", "price"]))
        == "there is no column 'prise' among 'id', 'price'. Did you mean 'price'?"
    )
    assert "Did you mean" not in str(UnknownColumnError("zzz", ["id", "price"]))


def test_importing_blocks_and_expressions_loads_neither_pandas_nor_torch() -> None:
    program = (
        "import sys, syncline.data.columnar.block, syncline.data.columnar.expressions; print([m "
        "for m in ('pandas', 'torch') if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert found.stdout.strip() == "[]"


def test_row_list_gives_the_rows_at_once_whatever_columns_are_called() -> None:
    table = pa.table({"it's": [1, 2], "a\n{}": ["x", None], "value_0": [0.5, 1.5]})
    expected = [
        {"it's": 1, "a\n{}": "x", "value_0": 0.5},
        {"it's": 2, "a\n{}": None, "value_0": 1.5},
    ]
    assert block.row_list(table) == list(block.rows(table)) == expected


def test_rows_of_very_many_columns() -> None:
    row = {f"column {number}": number for number in range(500)}
    assert list(block.rows(block.from_rows([row, row]))) == [row, row]


def test_concat_counts_rows_without_columns() -> None:
    nothing = pa.table({"a": [1, 2]}).select([])
    assert block.concat([nothing, nothing]).num_rows == 4
