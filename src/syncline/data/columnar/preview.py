"""Draw the columns of a dataset, and rows that are at hand, as a table: with box characters in the
style of Polars for terminals, and as HTML for notebooks.

Pure: callers decide which rows to show. Wide tables leave out columns in the middle.
"""

from __future__ import annotations

import html
import shutil
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from rich.cells import cell_len, set_cell_size

from syncline.data.columnar import block
from syncline.data.columnar.tensors import PythonObjectType, RaggedTensorType
from syncline.records import dataclass

GAP = "…"
"""Replaces rows, columns or text that are left out."""

_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}
_CELL_WIDTH = 32
_ELEMENTS = 3
_DEFAULT_WIDTH = 100
_HTML_COLUMNS = 20
_STYLE = (
    "<style>.syncline td, .syncline th {text-align: left; white-space: pre; padding: 2px 8px; "
    "border: 1px solid #8884} .syncline thead td {opacity: .65} "
    ".syncline {border-collapse: collapse}</style>"
)


@dataclass(frozen=True, kw_only=True)
class Preview:
    """Printed form of a dataset, as text or HTML."""

    num_rows: int | None
    """Number of rows; None if unknown."""
    schema: pa.Schema | None
    """The columns; None if unknown."""
    head: pa.Table | None = None
    """First rows; None if no rows are at hand."""
    tail: pa.Table | None = None
    """Last rows, after a gap; None if `head` has all rows, or the last ones are not at hand."""
    name: str | None = None
    """Name of the dataset."""
    note: str = ""
    """Sentence below the table."""

    @property
    def title(self) -> str:
        """The shape, after the name if there is one."""
        rows = "?" if self.num_rows is None else f"{self.num_rows:_}"
        columns = "?" if self.schema is None else len(self.schema)
        shape = f"shape: ({rows}, {columns})"
        return shape if self.name is None else f"name: {self.name}\n{shape}"

    def text(self, width: int | None = None) -> str:
        """Return the table for a terminal.

        Args:
            width: Columns of the terminal; None finds it out.
        """
        lines = [self.title]
        if self.schema is not None and len(self.schema):
            available = width or shutil.get_terminal_size((_DEFAULT_WIDTH, 24)).columns
            lines += _box(self._columns(), available)
        return "\n".join([*lines, *([self.note] if self.note else [])])

    def html(self) -> str:
        """Return the table for a notebook."""
        parts = [_small(self.title)]
        if self.schema is not None and len(self.schema):
            columns = self._columns()
            if len(columns) > _HTML_COLUMNS:
                columns = _without(columns, len(columns) - _HTML_COLUMNS)
            heads = "".join(f"<th>{html.escape(column[0])}</th>" for column in columns)
            types = "".join(f"<td>{html.escape(column[1])}</td>" for column in columns)
            rows = [
                "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
                for row in zip(*(column[2:] for column in columns), strict=True)
            ]
            body = "".join(f"<tr>{row}</tr>" for row in rows)
            parts.append(
                f'{_STYLE}<table class="syncline"><thead><tr>{heads}</tr><tr>{types}</tr></thead>'
                f"<tbody>{body}</tbody></table>"
            )
        if self.note:
            parts.append(_small(self.note))
        return f"<div>{''.join(parts)}</div>"

    def _columns(self) -> list[list[str]]:
        """Return for each column its name, its type and its cells."""
        assert self.schema is not None
        columns = [[_short(field.name), _short(type_name(field.type))] for field in self.schema]
        for table in (self.head, self.tail):
            if table is None:
                continue
            if table is self.tail:
                columns = [[*column, GAP] for column in columns]
            for row in block.rows(table):
                for column, name in zip(columns, self.schema.names, strict=True):
                    column.append(cell(row.get(name)))
        return columns


def type_name(type_: pa.DataType) -> str:
    """Return the short name of a type: `float32`, `uint8[32, 32, 3]` for tensors of one shape,
    `uint8[…]` for tensors of several shapes.
    """
    if isinstance(type_, pa.FixedShapeTensorType):
        return f"{type_name(type_.value_type)}[{', '.join(map(str, type_.shape))}]"
    if isinstance(type_, RaggedTensorType):
        return f"{type_name(type_.value_type)}[{GAP}]"
    if isinstance(type_, PythonObjectType):
        return "object"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return f"list[{type_name(type_.value_type)}]"
    if pa.types.is_struct(type_):
        fields = [type_.field(index) for index in range(type_.num_fields)]
        return f"struct{{{', '.join(f'{each.name}: {type_name(each.type)}' for each in fields)}}}"
    if pa.types.is_dictionary(type_):
        return f"dictionary[{type_name(type_.value_type)}]"
    text = str(type_)
    return _FLOATS.get(text, text)


def cell(value: object) -> str:
    """Return a value as one short line."""
    return _short(_cell(value))


def _cell(value: object) -> str:
    match value:
        case None:
            return "null"
        case str():
            return value
        case float() | np.floating():
            text = f"{value:.6g}"
            return f"{text}.0" if text.lstrip("-").isdigit() else text
        case np.ndarray():
            return _elements(value.ravel()[: _ELEMENTS + 1].tolist(), value.size)
        case bytes():
            return repr(value[:_CELL_WIDTH])
        case list() | tuple():
            return _elements(value, len(value))
        case dict():
            return "{" + ", ".join(f"{name}: {_cell(each)}" for name, each in value.items()) + "}"
    return str(value)


def _elements(values: Sequence[object], count: int) -> str:
    shown = [_cell(value) for value in values[:_ELEMENTS]]
    return f"[{', '.join([*shown, *([GAP] if count > _ELEMENTS else [])])}]"


def _short(text: str) -> str:
    line = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * _CELL_WIDTH])
    if cell_len(line) <= _CELL_WIDTH and len(text) <= 4 * _CELL_WIDTH:
        return line
    return set_cell_size(line, _CELL_WIDTH - 1).rstrip() + GAP


def _box(columns: list[list[str]], available: int) -> list[str]:
    """Draw columns that each consist of a name, a type and cells."""
    columns = [[name, "---", *rest] for name, *rest in columns]
    # No column is narrower than 4 with its border, so more columns do not fit.
    left_out = max(0, len(columns) - max(2, available // 4))
    shown = _without(columns, left_out) if left_out else columns
    while len(shown) > 2 and _width(shown) > available:
        left_out += 1
        shown = _without(columns, left_out)
    widths = [max(map(cell_len, column)) for column in shown]

    def rule(left: str, line: str, middle: str, right: str) -> str:
        return left + middle.join(line * (width + 2) for width in widths) + right

    rows = [
        "│ " + " ┆ ".join(map(set_cell_size, row, widths)) + " │"
        for row in zip(*shown, strict=True)
    ]
    return [
        rule("┌", "─", "┬", "┐"),
        *rows[:3],
        *([rule("╞", "═", "╪", "╡"), *rows[3:]] if len(rows) > 3 else []),
        rule("└", "─", "┴", "┘"),
    ]


def _small(text: str) -> str:
    return f'<div style="font-size: smaller">{html.escape(text)}</div>'


def _width(columns: list[list[str]]) -> int:
    return 1 + sum(max(map(cell_len, column)) + 3 for column in columns)


def _without(columns: list[list[str]], left_out: int) -> list[list[str]]:
    """Replace `left_out` columns in the middle by one of dots."""
    kept = max(1, len(columns) - left_out)
    first = -(-kept // 2)
    dots = [GAP] * len(columns[0])
    return [*columns[:first], dots, *columns[len(columns) - (kept - first) :]]
