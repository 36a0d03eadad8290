"""Table of a search's trials: filtered, sorted and paged on the server, so that the cost does not
depend on the number of trials.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from nicegui import ui

from syncline.dashboard import widgets
from syncline.dashboard.search_table import Field, Page, Query, page_of
from syncline.dashboard.search_trials import STATUSES, SearchSnapshot, TrialView, Value, short_names
from syncline.dashboard.widgets import Column

PAGE_ROWS = 25
FIRST_PARAMETERS = 8
"""Number of parameters with a column by default; others can be selected."""
MAX_COLUMNS = 30
"""Maximum selected columns."""
MAX_OFFERED = 500
"""Maximum selectable columns."""
ANY = ""
STATES = {
    "RUNNING": "running",
    "PENDING": "pending",
    "PAUSED": "paused",
    "TERMINATED": "finished",
    "ERROR": "errored",
}
"""Display names of the statuses."""
CUT_OFF = "killed"
"""Display name of a running trial whose search no longer runs."""
# The first cell is a button, so that the keyboard reaches it.
OPENER = """
<q-td :props="props">
  <button type="button" class="sl-sort sl-link"
    @click="$parent.$emit('open', props.row.key)">{{ props.value }}</button>
</q-td>
"""


@dataclass(frozen=True, kw_only=True)
class TableContents:
    """Contents of the table."""

    snapshot: SearchSnapshot
    """Trials."""
    metric: str | None
    """Metric with its own column."""
    is_alive: bool
    """True if the search is running."""


@dataclass(frozen=True, kw_only=True)
class _TableColumn:
    """A column and its values."""

    column: Column
    field: Field


def state_of(trial: TrialView, is_alive: bool) -> str:
    """Return the display name of a trial's state."""
    return CUT_OFF if trial.status == "RUNNING" and not is_alive else STATES[trial.status]


class TrialTable:
    """Table of one visitor. `on_open` is called with the ID of a selected trial."""

    def __init__(self, on_open: Callable[[str], object]) -> None:
        self._on_open = on_open
        self._shown = TableContents(snapshot=SearchSnapshot(), metric=None, is_alive=True)
        self._query = Query(page_size=PAGE_ROWS)
        self._chosen: tuple[Field, ...] | None = None  # selected by the visitor
        self._table_columns: list[_TableColumn] = []
        self._offered: dict[str, Field] = {}
        with ui.element("div").classes("sl-bar").props('role="search"'):
            self._filter = widgets.filter_field(
                "Filter trials",
                "Filter: name, status, lr<0.01, loss<=0.3, act=relu",
                self._filtered,
            )
            options = {ANY: "any status"} | {status: STATES[status] for status in STATUSES}
            self._status = widgets.choice("Status", options, ANY, self._filtered)
            self._columns = ui.select(
                [], multiple=True, with_input=True, on_change=self._columns_chosen, label="Columns"
            )
            self._columns.props('outlined dense options-dense display-value="…"').classes(
                "sl-choice"
            )
            self._columns.props["aria-label"] = "Columns"
        self._table = widgets.PagedTable(
            "Trials",
            page_rows=PAGE_ROWS,
            on_sort=self._sorted,
            on_turn=self._turn,
            no_data="No matching trials",
        )
        self._table.element.add_slot("body-cell-trial", OPENER)
        self._table.element.on("open", lambda event: self._on_open(str(event.args)))

    def show(self, shown: TableContents) -> None:
        """Show these trials; keep filter, order and page."""
        self._shown = shown
        self._update_choices()
        self._update_columns()
        self._apply()

    # -- events

    def _filtered(self) -> None:
        statuses = (self._status.value,) if self._status.value else ()
        self._query = replace(self._query, text=self._filter.value or "", statuses=statuses, page=0)
        self._apply()

    def _sorted(self, column: str, descending: bool) -> None:
        field = next(
            (each.field for each in self._table_columns if each.column.name == column), None
        )
        if field is not None:
            self._query = replace(self._query, sort_by=field, descending=descending, page=0)
            self._apply()

    def _turn(self, pages: int) -> None:
        self._query = replace(self._query, page=max(0, self._query.page + pages))
        self._apply()

    def _columns_chosen(self) -> None:
        chosen = [
            self._offered[label] for label in self._columns.value or () if label in self._offered
        ]
        self._chosen = tuple(chosen[:MAX_COLUMNS])
        self._update_columns()
        self._apply()

    # -- display

    def _update_choices(self) -> None:
        """Update the selectable columns."""
        snapshot = self._shown.snapshot
        shorts = short_names(snapshot.varying)
        fields = {
            f"{shorts[name]}": Field(source="parameter", name=name)
            for name in snapshot.varying[:MAX_OFFERED]
        }
        metrics = {
            name: Field(source="metric", name=name)
            for name in snapshot.metrics[: MAX_OFFERED - len(fields)]
        }
        offered = {
            widgets.printable(label, 120): field for label, field in {**metrics, **fields}.items()
        }
        if offered != self._offered:
            self._offered = offered
            chosen = [label for label, field in offered.items() if field in self._fields()]
            given, self._chosen = self._chosen, ()
            self._columns.set_options(list(offered), value=chosen)
            self._chosen = given

    def _fields(self) -> tuple[Field, ...]:
        if self._chosen is not None:
            return self._chosen
        return tuple(
            Field(source="parameter", name=name)
            for name in self._shown.snapshot.varying[:FIRST_PARAMETERS]
        )

    def _update_columns(self) -> None:
        columns = table_columns(self._shown, self._fields())
        if columns != self._table_columns:
            self._table_columns = columns
            self._table.set_columns([each.column for each in columns])

    def _apply(self) -> None:
        shorts = {short: name for name, short in short_names(self._shown.snapshot.varying).items()}
        page = page_of(self._shown.snapshot.trials, self._query, shorts)
        self._query = replace(self._query, page=page.number)
        sorted_by = next(
            (each.column.name for each in self._table_columns if each.field == self._query.sort_by),
            None,
        )
        self._table.set(
            [row_of(trial, self._table_columns, self._shown.is_alive) for trial in page.trials],
            page=page.number,
            found=page.found,
            sort_by=sorted_by,
            descending=self._query.descending,
            text=self._range_text(page),
        )

    def _range_text(self, page: Page) -> str:
        first = page.number * PAGE_ROWS
        total = len(self._shown.snapshot.trials)
        if not page.found:
            return f"0 of {total}"
        of = f"{page.found}" if page.found == total else f"{page.found} matching (of {total})"
        return f"{first + 1}-{first + len(page.trials)} of {of}"


def table_columns(shown: TableContents, chosen: Sequence[Field]) -> list[_TableColumn]:
    """Return the columns of the table."""
    shorts = short_names(shown.snapshot.varying)

    def fact(name: str, label: str, *, number: bool = False, minor: bool = False) -> _TableColumn:
        column = Column(
            name=name,
            label=label,
            number=number,
            minor=minor,
            kind="state" if name == "status" else "text",
        )
        return _TableColumn(column=column, field=Field(source="fact", name=name))

    columns = [
        fact("trial", "Trial"),
        fact("status", "Status"),
        fact("iteration", "Iteration", number=True, minor=True),
    ]
    if shown.metric is not None:
        column = Column(name="metric", label=shown.metric, number=True)
        columns.append(_TableColumn(column=column, field=Field(source="metric", name=shown.metric)))
    for place, field in enumerate(chosen):
        if field == Field(source="metric", name=shown.metric or ""):
            continue
        label = shorts.get(field.name, field.name) if field.source == "parameter" else field.name
        columns.append(
            _TableColumn(
                column=Column(name=f"chosen{place}", label=label, number=True), field=field
            )
        )
    columns += [fact("time", "Time", number=True, minor=True), fact("host", "Host", minor=True)]
    error = Column(name="error", label="Error", yielding=True, minor=True)
    return [*columns, _TableColumn(column=error, field=Field(source="fact", name="error"))]


def row_of(trial: TrialView, columns: Sequence[_TableColumn], is_alive: bool) -> dict[str, object]:
    """Return the row of a trial. All values are texts, because the server sorts."""
    row: dict[str, object] = {"key": trial.id}
    for each in columns:
        row[each.column.name] = _text(each.field.of(trial))
    row |= {
        "trial": widgets.printable(trial.name or trial.id, 80),
        "status": state_of(trial, is_alive),
        "time": widgets.duration(trial.time_s) if trial.time_s is not None else "",
        "host": widgets.printable(f"{trial.host}:{trial.pid}" if trial.pid else trial.host, 80),
        "error": widgets.printable(trial.cause or _ended_early(trial), 160),
    }
    return row


def _ended_early(trial: TrialView) -> str:
    return (
        f"stopped by the {trial.stopped_by}"
        if trial.stopped_by and trial.status == "TERMINATED"
        else ""
    )


def _text(value: Value) -> str:
    if value is None:
        return ""
    return (
        str(value)
        if isinstance(value, bool)
        else widgets.number(value)
        if not isinstance(value, str)
        else widgets.printable(value, 60)
    )
