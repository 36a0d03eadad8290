"""Compact tables: sorted by their headings (buttons, so the keyboard reaches them), with links in
cells where a column says so.

Not covered: paging on the server, which the list of runs does itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from nicegui import ui

from syncline.dashboard.look.parts import STATES
from syncline.dashboard.look.text import plain_value, printable

HEADER = """
<q-th :props="props" scope="col" :aria-sort="props.col.__thClass.includes('sort-desc') ? 'descending'
    : props.col.__thClass.includes('sorted') ? 'ascending' : undefined">
  <button v-if="props.col.sortable" type="button" class="sl-sort" :data-sl-key="'heading ' + props.col.name">{{ props.col.label }}</button>
  <template v-else>{{ props.col.label }}</template>
</q-th>
"""
CELL = """
<q-td :props="props">
  <a v-if="props.row[props.col.name + ':link']" class="sl-link" :href="props.row[props.col.name + ':link']"
    :data-sl-key="props.key + ' ' + props.col.name">{{
    props.row[props.col.name + ':text'] ?? props.value }}</a>
  <span v-else-if="props.col.kind === 'state'" class="sl-badge" :data-state="props.row[props.col.name + ':state']">{{
    props.value }}</span>
  <code v-else-if="props.col.kind === 'mono'" class="sl-cell-mono">{{ props.value }}</code>
  <template v-else>{{ props.row[props.col.name + ':text'] ?? props.value }}</template>
  <span v-if="props.row[props.col.name + ':sub']" class="sl-sub">{{ props.row[props.col.name + ':sub'] }}</span>
</q-td>
"""

Row = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table."""

    name: str
    """Key of its values in the rows. Not from a run, but a word of the page: columns for metrics
    are "metric0", "metric1", …
    """
    label: str
    """Its heading; any text."""
    number: bool = False
    """Aligned at its right end."""
    kind: Literal["text", "state", "mono"] = "text"
    """A state has a badge, mono is code."""
    sortable: bool = True
    """Whether its heading sorts."""
    minor: bool = False
    """Left out on small screens."""
    yielding: bool = False
    """Folds where there is little room, and takes what is left."""


class DataTable:
    """A table whose rows are replaced by `set`; what is sorted and focused stays.

    A row is a mapping from names of columns to values. Besides, for a column `x`: `x:text` is what
    is shown instead of a value that only sorts, `x:link` an address that the dashboard made,
    `x:sub` a second line on small screens, where minor columns are left out.

    Args:
        columns: What it shows.
        row_key: The column whose values tell rows apart.
        label: What the table is, for those who do not see it.
        rows_per_page: Rows shown at once; 0 for all.
        sort_by: The column that it is sorted by at first; the order of the rows if not given.
        descending: Whether the largest are first then.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        *,
        row_key: str,
        label: str = "",
        rows_per_page: int = 0,
        sort_by: str | None = None,
        descending: bool = False,
    ) -> None:
        self._states = [column.name for column in columns if column.kind == "state"]
        self._rows: list[Row] = []
        self._columns = list(columns)
        self._rows_per_page = rows_per_page
        pagination: dict[str, object] = {"rowsPerPage": rows_per_page}
        if sort_by:
            pagination |= {"sortBy": sort_by, "descending": descending}
        self.element = ui.table(
            columns=[described(column) for column in columns],
            rows=[],
            row_key=row_key,
            pagination=pagination,
        )
        self.element.props("flat dense binary-state-sort wrap-cells").classes("sl-table")
        self.element.props["hide-pagination"] = True
        self.element.props["aria-label"] = printable(label, 200)
        self.element.props["no-data-label"] = "Nothing yet"
        self.element.add_slot("header-cell", HEADER)
        self.element.add_slot("body-cell", CELL)

    def set(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Show these rows instead."""
        clean = [self._clean(row) for row in rows]
        if clean != self._rows:
            self._rows = clean
            self.element.props["hide-pagination"] = not 0 < self._rows_per_page < len(clean)
            self.element.rows = clean

    def set_columns(self, columns: Sequence[Column]) -> None:
        """Show other columns: where metrics appear as a run goes on."""
        if list(columns) != self._columns:
            self._columns = list(columns)
            self._states = [column.name for column in columns if column.kind == "state"]
            self.element.columns = [described(column) for column in columns]

    def _clean(self, row: Mapping[str, object]) -> Row:
        return clean_row(row, self._states)


def clean_row(row: Mapping[str, object], states: Sequence[str] = ()) -> Row:
    """A row that can be sent whatever is in it; `states` names the columns that have badges."""
    clean: Row = {name: plain_value(value) for name, value in row.items()}
    for name in states:
        clean[f"{name}:state"] = clean.get(name) if clean.get(name) in STATES else "other"
    return clean


def described(column: Column) -> dict[str, object]:
    """The column as Quasar's table wants it."""
    classes = " ".join(
        name
        for name, has in (
            ("sl-minor", column.minor),
            ("sl-yielding", column.yielding),
            ("sl-number", column.number),
        )
        if has
    )
    return {
        "name": column.name,
        "label": printable(column.label, 120),
        "field": column.name,
        "align": "right" if column.number else "left",
        "sortable": column.sortable,
        "kind": column.kind,
        "classes": classes,
        "headerClasses": classes,
    }
