"""Compact tables that sort by their headings (buttons, for the keyboard) and can link cells.

The browser sorts and pages a `DataTable`, the server a `PagedTable`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from nicegui import ui
from nicegui.events import GenericEventArguments

from syncline.dashboard.formatting import plain_value, printable
from syncline.dashboard.widgets.elements import STATES, Text, button

HEADER = """
<q-th :props="props" scope="col" :aria-sort="
    props.col.__thClass.includes('sort-desc') ? 'descending'
    : props.col.__thClass.includes('sorted') ? 'ascending' : undefined">
  <button v-if="props.col.sortable" type="button" class="sl-sort"
    :data-sl-key="'heading ' + props.col.name">{{ props.col.label }}</button>
  <template v-else>{{ props.col.label }}</template>
</q-th>
"""
CELL = """
<q-td :props="props" :class="props.row[props.col.name + ':mark'] ? 'sl-differs' : ''">
  <input v-if="props.col.kind === 'pick'" type="checkbox" :checked="props.value"
    :aria-label="'Select ' + props.row.name" :data-sl-key="props.key + ' pick'"
    @change="$parent.$emit('pick', {key: props.row.key, picked: $event.target.checked})">
  <a v-else-if="props.row[props.col.name + ':link']" class="sl-link"
    :title="props.row[props.col.name + ':title']"
    :href="props.row[props.col.name + ':link']"
    :data-sl-key="props.key + ' ' + props.col.name">{{
    props.row[props.col.name + ':text'] ?? props.value }}</a>
  <span v-else-if="props.col.kind === 'state'" class="sl-badge"
    :data-state="props.row[props.col.name + ':state']">{{ props.value }}</span>
  <code v-else-if="props.col.kind === 'mono'" class="sl-cell-mono">{{ props.value }}</code>
  <template v-else>{{ props.row[props.col.name + ':text'] ?? props.value }}</template>
  <template v-if="props.row[props.col.name + ':tags']">
    <span v-for="tag in props.row[props.col.name + ':tags'].split(',')" class="sl-tag">{{
      tag }}</span>
  </template>
  <span v-if="props.row[props.col.name + ':sub']" class="sl-sub">{{
    props.row[props.col.name + ':sub'] }}</span>
</q-td>
"""

Row = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table."""

    name: str
    """Key of its values in the rows; a fixed word, never a name from a run. Columns of metrics are
    "metric0", "metric1", …
    """
    label: str
    """Heading; any text."""
    number: bool = False
    """Align right."""
    kind: Literal["text", "state", "mono", "pick"] = "text"
    """Display as text, badge or code, or as a checkbox that sends the event `pick`."""
    sortable: bool = True
    """The heading sorts the table."""
    minor: bool = False
    """Hide on small screens."""
    yielding: bool = False
    """Take the remaining width and wrap."""


class DataTable:
    """Table whose rows are replaced by `set`; order and focus are kept.

    A row maps names of columns to values. Optional keys for a column `x`: `x:text` is shown instead
    of the value, which then only sorts; `x:link` is a URL of the dashboard; `x:tags` are tags,
    separated by commas, after the value; `x:title` appears under the mouse; `x:mark` highlights
    the cell; `x:sub` is a second line on small screens, where minor columns are hidden.

    Args:
        columns: Columns.
        row_key: Name of the column whose values identify rows.
        label: Description for screen readers.
        rows_per_page: Rows per page; 0 for all.
    """

    def __init__(
        self, columns: Sequence[Column], *, row_key: str, label: str = "", rows_per_page: int = 0
    ) -> None:
        self._states = [column.name for column in columns if column.kind == "state"]
        self._rows: list[Row] = []
        self._rows_per_page = rows_per_page
        self.element = ui.table(
            columns=[column_definition(column) for column in columns],
            rows=[],
            row_key=row_key,
            pagination={"rowsPerPage": rows_per_page},
        )
        self.element.props("flat dense binary-state-sort wrap-cells").classes("sl-table")
        self.element.props["hide-pagination"] = True
        self.element.props["aria-label"] = printable(label, 200)
        self.element.props["no-data-label"] = "Nothing yet"
        self.element.add_slot("header-cell", HEADER)
        self.element.add_slot("body-cell", CELL)

    def set(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Replace the rows."""
        clean = [clean_row(row, self._states) for row in rows]
        if clean != self._rows:
            self._rows = clean
            self.element.props["hide-pagination"] = not 0 < self._rows_per_page < len(clean)
            self.element.rows = clean


class PagedTable:
    """Table that the server sorts and pages, with buttons to turn the pages.

    Args:
        label: Description for screen readers.
        page_rows: Rows per page.
        on_sort: Called with the name of the column and whether to sort in descending order.
        on_turn: Called with the number of pages to advance (1 or -1).
        no_data: Text of an empty table; None to show nothing.
        announce: Announce a new range of rows to screen readers.
    """

    def __init__(
        self,
        label: str,
        *,
        page_rows: int,
        on_sort: Callable[[str, bool], object],
        on_turn: Callable[[int], object],
        no_data: str | None = None,
        announce: bool = True,
    ) -> None:
        self._page_rows = page_rows
        self._on_sort = on_sort
        self._states: list[str] = []
        self.element = ui.table(
            columns=[],
            rows=[],
            row_key="key",
            pagination={"rowsNumber": 0, "rowsPerPage": page_rows},
        )
        self.element.props("flat dense binary-state-sort hide-pagination wrap-cells")
        self.element.classes("sl-table").props["aria-label"] = label
        if no_data is None:
            self.element.props("hide-no-data")
        else:
            self.element.props["no-data-label"] = no_data
        self.element.add_slot("header-cell", HEADER)
        self.element.add_slot("body-cell", CELL)
        self.element.on("request", self._sorted, ["pagination"])
        with ui.element("nav").classes("sl-bar") as self.pages:
            self._previous = button("Previous", lambda: on_turn(-1), flat=True)
            self._range = Text("span", "", "sl-soft")
            if announce:
                self._range.props["role"] = "status"
            self._next = button("Next", lambda: on_turn(1), flat=True)
        self.pages.props["aria-label"] = f"Pages of {label.lower()}"

    def set_columns(self, columns: Sequence[Column]) -> None:
        """Replace the columns."""
        self._states = [column.name for column in columns if column.kind == "state"]
        self.element.columns = [column_definition(column) for column in columns]

    def set(
        self,
        rows: Sequence[Mapping[str, object]],
        *,
        page: int,
        found: int,
        sort_by: str | None,
        descending: bool,
        text: str,
    ) -> None:
        """Show a page of the table.

        Args:
            rows: Rows of the page.
            page: Number of the page, from 0.
            found: Number of rows on all pages.
            sort_by: Sort column.
            descending: Sort direction.
            text: Text between the buttons.
        """
        clean = [clean_row(row, self._states) for row in rows]
        if clean != self.element.rows:
            self.element.rows = clean
        pagination = {
            "sortBy": sort_by,
            "descending": descending,
            "page": page + 1,
            "rowsPerPage": self._page_rows,
            "rowsNumber": found,  # setting it makes the server sort and page
        }
        if pagination != self.element.pagination:
            self.element.pagination = pagination
        self._range.put(text)
        self._previous.set_enabled(page > 0)
        self._next.set_enabled((page + 1) * self._page_rows < found)

    def _sorted(self, event: GenericEventArguments) -> object:
        wanted = event.args.get("pagination") or {}
        return self._on_sort(str(wanted.get("sortBy")), bool(wanted.get("descending")))


def clean_row(row: Mapping[str, object], states: Sequence[str] = ()) -> Row:
    """Return a row that is safe to send; `states` names the columns with badges."""
    clean: Row = {name: plain_value(value) for name, value in row.items()}
    for name in states:
        clean[f"{name}:state"] = clean.get(name) if clean.get(name) in STATES else "other"
    return clean


def column_definition(column: Column) -> dict[str, object]:
    """Return the column definition of Quasar's table."""
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
