"""Previews: the table in a terminal and in a notebook, cells and types."""

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from syncline.data.columnar import block, tensors
from syncline.data.columnar.preview import Preview, cell, type_name

TABLE = block.from_rows([{"a": 1, "s": "x"}, {"a": 2, "s": None}])


def test_a_table_has_names_types_and_rows() -> None:
    preview = Preview(num_rows=2, schema=TABLE.schema, head=TABLE, name="two", note="(a note)")
    assert preview.text(80).splitlines() == [
        "name: two",
        "shape: (2, 2)",
        "┌───────┬────────┐",
        "│ a     ┆ s      │",
        "│ ---   ┆ ---    │",
        "│ int64 ┆ string │",
        "╞═══════╪════════╡",
        "│ 1     ┆ x      │",
        "│ 2     ┆ null   │",
        "└───────┴────────┘",
        "(a note)",
    ]


def test_last_rows_follow_after_a_gap() -> None:
    preview = Preview(num_rows=1000, schema=TABLE.schema, head=TABLE, tail=TABLE.slice(1))
    assert [line.split("┆")[0].strip("│ ") for line in preview.text(80).splitlines()[6:-1]] == [
        *("1", "2", "…", "2")
    ]


def test_unknown_columns_are_a_question_mark() -> None:
    assert Preview(num_rows=None, schema=None).text(80) == "shape: (?, ?)"
    assert Preview(num_rows=3, schema=pa.schema([])).text(80) == "shape: (3, 0)"


@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_columns_in_the_middle_are_left_out_of_narrow_terminals(width: int) -> None:
    schema = pa.schema([(f"column{number}", pa.int64()) for number in range(12)])
    lines = Preview(num_rows=0, schema=schema).text(width).splitlines()
    assert {len(line) for line in lines[1:]} == {len(lines[1])}
    assert len(lines[1]) <= width
    assert lines[2].startswith("│ column0 ")
    assert ("…" in lines[2]) == (width < 150)
    assert ("column11" in lines[2]) == (width > 20)


def test_wide_letters_take_two_cells() -> None:
    table = block.from_rows([{"日本": "日本語"}, {"日本": "ab"}])
    lines = Preview(num_rows=2, schema=table.schema, head=table).text(80).splitlines()
    assert lines[6:8] == ["│ 日本語 │", "│ ab     │"]


def test_html_escapes_what_the_data_holds() -> None:
    table = block.from_rows([{"<b>": "<script>"}])
    text = Preview(num_rows=1, schema=table.schema, head=table, name="<i>").html()
    for forbidden in ("<b>", "<script>", "<i>"):
        assert forbidden not in text
    assert "&lt;script&gt;" in text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "null"),
        (True, "True"),
        (1.0, "1.0"),
        (1 / 3, "0.333333"),
        (1e300, "1e+300"),
        (float("nan"), "nan"),
        (np.float32(2.5), "2.5"),
        ("two\nlines", "two lines"),
        ("x" * 100, "x" * 31 + "…"),
        (b"ab\0", r"b'ab\x00'"),
        ([1, 2], "[1, 2]"),
        ([1, 2, 3, 4], "[1, 2, 3, …]"),
        (np.zeros((2, 2), np.uint8), "[0, 0, 0, …]"),
        (np.array(3), "[3]"),
        ({"x": [0.5], "y": None}, "{x: [0.5], y: null}"),
        (datetime.date(2024, 1, 1), "2024-01-01"),
    ],
)
def test_cells(value: Any, expected: str) -> None:
    assert cell(value) == expected


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (pa.float32(), "float32"),
        (pa.float64(), "float64"),
        (pa.list_(pa.float64()), "list[float64]"),
        (pa.struct([("x", pa.float16())]), "struct{x: float16}"),
        (pa.dictionary(pa.int8(), pa.string()), "dictionary[string]"),
        (pa.fixed_shape_tensor(pa.uint8(), (4, 4)), "uint8[4, 4]"),
        (tensors.RaggedTensorType(pa.float32()), "float32[…]"),
        (tensors.PythonObjectType(), "object"),
        (pa.timestamp("us"), "timestamp[us]"),
    ],
)
def test_names_of_types(type_: pa.DataType, expected: str) -> None:
    assert type_name(type_) == expected
