"""Table of a search's trials: filtered, sorted and paged on the server, so that the cost does not
depend on the number of trials.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from nicegui import ui
from nicegui.events import GenericEventArguments

from syncline.dashboard import widgets
from syncline.dashboard.search_table import Field, Page, Query, page_of
from syncline.dashboard.search_trials import STATUSES, SearchSnapshot, TrialView, Value, short_names
from syncline.dashboard.widgets.tables import CELL, HEADER, Column, clean_row, column_definition

PAGE_ROWS = 25
FIRST_PARAMETERS = 8
"""Number of parameters with a column by default; others can be selected."""
MOST_COLUMNS = 30
"""Maximum selected columns."""
MOST_OFFERED = 500
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
class Shown:
    """Contents of the table."""

    snapshot: SearchSnapshot
    """Trials."""
    metric: str | None
    """Metric with a column of its own."""
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
        self._shown = Shown(snapshot=SearchSnapshot(), metric=None, is_alive=True)
        self._query = Query(page_size=PAGE_ROWS)
        self._chosen: tuple[Field, ...] | None = None  # selected by the visitor
        self._shaped: list[_TableColumn] = []
        self._offered: dict[str, Field] = {}
        with ui.element("div").classes("sl-bar").props('role="search"'):
            self._filter = (
                ui.input(
                    placeholder="Filter: name, status, lr<0.01, loss<=0.3, act=relu   ( / )",
                    on_change=self._filtered,
                )
                .props(
                    'outlined dense clearable debounce="150" type="search" '
                    'aria-label="Filter trials" data-sl-filter maxlength="200"'
                )
                .classes("sl-field")
            )
            options = {ANY: "any status"} | {status: STATES[status] for status in STATUSES}
            self._status = (
                ui.select(options, value=ANY, on_change=self._filtered)
                .props("outlined dense options-dense")
                .classes("sl-choice")
            )
            self._status.props["aria-label"] = "Status"
            self._columns = ui.select(
                [], multiple=True, with_input=True, on_change=self._columns_chosen, label="Columns"
            )
            self._columns.props('outlined dense options-dense display-value="…"').classes(
                "sl-choice"
            )
            self._columns.props["aria-label"] = "Columns"
        self._table = self._make_table()
        with ui.element("nav").classes("sl-bar").props('aria-label="Pages of trials"'):
            self._before = (
                ui.button("Previous", on_click=lambda: self._turn(-1))
                .props("no-caps flat dense")
                .classes("sl-action")
            )
            self._range = widgets.Text("span", "", "sl-soft")
            self._range.props["role"] = "status"
            self._after = (
                ui.button("Next", on_click=lambda: self._turn(1))
                .props("no-caps flat dense")
                .classes("sl-action")
            )

    def _make_table(self) -> ui.table:
        table = ui.table(columns=[], rows=[], row_key="key", pagination=self._pagination(0))
        table.props("flat dense binary-state-sort hide-pagination wrap-cells").classes("sl-table")
        table.props["aria-label"] = "Trials"
        table.props["no-data-label"] = "No matching trials"
        table.add_slot("header-cell", HEADER)
        table.add_slot("body-cell", CELL)
        table.add_slot("body-cell-trial", OPENER)
        table.on("request", self._sorted, ["pagination"])
        table.on("open", lambda event: self._on_open(str(event.args)))
        return table

    def show(self, shown: Shown) -> None:
        """Show these trials; keep filter, order and page."""
        self._shown = shown
        self._offer()
        self._shape()
        self._apply()

    # -- events

    def _filtered(self) -> None:
        statuses = (self._status.value,) if self._status.value else ()
        self._query = replace(self._query, text=self._filter.value or "", statuses=statuses, page=0)
        self._apply()

    def _sorted(self, event: GenericEventArguments) -> None:
        wanted = event.args.get("pagination") or {}
        field = next(
            (shaped.field for shaped in self._shaped if shaped.column.name == wanted.get("sortBy")),
            None,
        )
        if field is not None:
            self._query = replace(
                self._query, sort_by=field, descending=bool(wanted.get("descending")), page=0
            )
            self._apply()

    def _turn(self, pages: int) -> None:
        self._query = replace(self._query, page=max(0, self._query.page + pages))
        self._apply()

    def _columns_chosen(self) -> None:
        chosen = [
            self._offered[label] for label in self._columns.value or () if label in self._offered
        ]
        self._chosen = tuple(chosen[:MOST_COLUMNS])
        self._shape()
        self._apply()

    # -- display

    def _offer(self) -> None:
        """Update the selectable columns."""
        snapshot = self._shown.snapshot
        shorts = short_names(snapshot.varying)
        fields = {
            f"{shorts[name]}": Field(source="parameter", name=name)
            for name in snapshot.varying[:MOST_OFFERED]
        }
        metrics = {
            name: Field(source="metric", name=name)
            for name in snapshot.metrics[: MOST_OFFERED - len(fields)]
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

    def _shape(self) -> None:
        shaped = table_columns(self._shown, self._fields())
        if shaped != self._shaped:
            self._shaped = shaped
            self._table.columns = [column_definition(each.column) for each in shaped]

    def _apply(self) -> None:
        shorts = {short: name for name, short in short_names(self._shown.snapshot.varying).items()}
        page = page_of(self._shown.snapshot.trials, self._query, shorts)
        self._query = replace(self._query, page=page.number)
        rows = [
            clean_row(row_of(trial, self._shaped, self._shown.is_alive), ("status",))
            for trial in page.trials
        ]
        if rows != self._table.rows:
            self._table.rows = rows
        pagination = self._pagination(page.found)
        if pagination != self._table.pagination:
            self._table.pagination = pagination
        self._say(page)

    def _say(self, page: Page) -> None:
        first = page.number * PAGE_ROWS
        all_trials = len(self._shown.snapshot.trials)
        of = (
            f"{page.found}"
            if page.found == all_trials
            else f"{page.found} matching (of {all_trials})"
        )
        self._range.put(
            f"{first + 1}-{first + len(page.trials)} of {of}"
            if page.found
            else f"0 of {all_trials}"
        )
        self._before.set_enabled(page.number > 0)
        self._after.set_enabled(first + PAGE_ROWS < page.found)

    def _pagination(self, found: int) -> dict[str, object]:
        sorted_by = next(
            (each.column.name for each in self._shaped if each.field == self._query.sort_by), None
        )
        return {
            "sortBy": sorted_by,
            "descending": self._query.descending,
            "page": self._query.page + 1,
            "rowsPerPage": PAGE_ROWS,
            "rowsNumber": found,  # setting it makes the server sort and page
        }


def table_columns(shown: Shown, chosen: Sequence[Field]) -> list[_TableColumn]:
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

    shaped = [
        fact("trial", "Trial"),
        fact("status", "Status"),
        fact("iteration", "Iteration", number=True, minor=True),
    ]
    if shown.metric is not None:
        column = Column(name="metric", label=shown.metric, number=True)
        shaped.append(_TableColumn(column=column, field=Field(source="metric", name=shown.metric)))
    for place, field in enumerate(chosen):
        if field == Field(source="metric", name=shown.metric or ""):
            continue
        label = shorts.get(field.name, field.name) if field.source == "parameter" else field.name
        shaped.append(
            _TableColumn(
                column=Column(name=f"chosen{place}", label=label, number=True), field=field
            )
        )
    shaped += [fact("time", "Time", number=True, minor=True), fact("host", "Host", minor=True)]
    error = Column(name="error", label="Error", yielding=True, minor=True)
    return [*shaped, _TableColumn(column=error, field=Field(source="fact", name="error"))]


def row_of(trial: TrialView, shaped: Sequence[_TableColumn], is_alive: bool) -> dict[str, object]:
    """Return the row of a trial. All values are texts, because the server sorts."""
    row: dict[str, object] = {"key": trial.id}
    for each in shaped:
        row[each.column.name] = _text(each.field.of(trial))
    row |= {
        "trial": widgets.printable(trial.name or trial.id, 80),
        "status": state_of(trial, is_alive),
        "time": widgets.duration(trial.time_s) if trial.time_s is not None else "",
        "host": widgets.printable(f"{trial.host}:{trial.pid}" if trial.pid else trial.host, 80),
        "error": widgets.printable(trial.last_error_line or _ended_early(trial), 160),
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
