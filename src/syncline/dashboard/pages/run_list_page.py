"""List of runs: filtered, sorted and paged on the server, updated live.

The URL contains filter, order and page, so that it can be bookmarked. Updates replace the text of
rows, which keeps focus and scroll position.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace

from nicegui import ui
from nicegui.events import GenericEventArguments

from syncline.dashboard import widgets
from syncline.dashboard.comparison import MAX_RUNS
from syncline.dashboard.pages import run_actions
from syncline.dashboard.pages.compare_page import address_of
from syncline.dashboard.pages.run_view import in_thread, url_of
from syncline.dashboard.run_index import RunIndex
from syncline.dashboard.run_query import (
    MAX_COLUMNS,
    PAGE_ROWS,
    SORTS,
    Key,
    Query,
    Row,
    Selection,
    column_value,
    progress_text,
    report_text,
)
from syncline.dashboard.widgets import Column

INTERVAL_S = 2.0
AT_ONCE_S = 2.0
"""Seconds that the response waits for the list; slower lists are shown when they are ready."""
ANY = ""
COLUMNS = (
    Column(name="pick", label="", kind="pick", sortable=False),
    Column(name="name", label="Run", yielding=True),
    Column(name="state", label="State", kind="state"),
    Column(name="kind", label="Kind", minor=True),
    Column(name="started", label="Started", number=True),
    Column(name="duration", label="Duration", number=True, minor=True),
    Column(name="reports", label="Progress", number=True, minor=True),
    Column(name="last", label="Latest/best metrics", yielding=True, sortable=False, minor=True),
    Column(name="workers", label="Workers", number=True, minor=True),
    Column(name="storage", label="Storage", minor=True),
)


async def show_list(run_index: RunIndex, query: Query, may_act: bool) -> None:
    """Build the list in the visitor's page and keep it up to date."""
    with widgets.frame("Runs", place="/", wide=True):
        listing = Listing(run_index, query, may_act)
    await asyncio.wait({asyncio.create_task(listing.show())}, timeout=AT_ONCE_S)
    ui.timer(INTERVAL_S, listing.show, immediate=False)


class Listing:
    """List of one visitor."""

    def __init__(self, run_index: RunIndex, query: Query, may_act: bool) -> None:
        self._run_index = run_index
        self._query = query
        self._client = ui.context.client
        self._asked = 0
        self._picked: dict[str, Key] = {}
        self._shown: tuple[Key, ...] = ()
        with ui.element("div").classes("sl-title-row"):
            widgets.Text("h1", "Runs", "sl-title")
            self._count = widgets.Text("span", "", "sl-soft")
            self._count.props["role"] = "status"
        with ui.element("div").classes("sl-bar").props('role="search"'):
            self._filter = widgets.filter_field(
                "Filter runs", "Filter: name, tag, state, host, metric", self._filtered, query.q
            )
            self._state, self._kind = (
                widgets.choice(label, _options(label, [value]), value, self._filtered)
                for label, value in (("State", query.state), ("Kind", query.kind))
            )
            self._columns = ui.select(
                {}, multiple=True, with_input=True, on_change=self._columns_chosen, label="Columns"
            )
            self._columns.props('outlined dense options-dense display-value="…"').classes(
                "sl-choice"
            )
            self._columns.props["aria-label"] = "Columns"
            self._archived = ui.switch(
                "archived", value=query.archived, on_change=self._archive_chosen
            )
        self._create_actions(may_act)
        self._problems = widgets.note("", "error")
        self._empty = widgets.note("")
        with ui.element("div").classes("sl-section sl-list").props("data-sl-rows"):
            self._table = widgets.PagedTable(
                "Runs",
                page_rows=PAGE_ROWS,
                on_sort=self._sorted,
                on_turn=self._turn,
                announce=False,
            )
        self._table.element.on("pick", self._pick)
        self._set_columns()
        for element in (self._problems, self._empty, self._table.pages):
            element.visible = False

    def _create_actions(self, may_act: bool) -> None:
        """Create the bar of actions on the selected runs."""
        with ui.element("div").classes("sl-actions") as self._actions:
            self._chosen = widgets.Text("span", "", "sl-soft")
            self._chosen.props["role"] = "status"
            self._compare = widgets.button("Compare", self._show_comparison)
            self._archive = widgets.action("Archive", self._archive_picked, may_act)
            widgets.action("Delete …", self._delete_picked, may_act)
            widgets.button("Clear selection", self._clear, flat=True)
        self._actions.visible = False

    def _set_columns(self) -> None:
        shows_storage = len(self._run_index.storages) > 1
        columns = [column for column in COLUMNS if column.name != "storage" or shows_storage]
        chosen = [
            Column(name=f"column{place}", label=column.partition(":")[2], number=True, minor=True)
            for place, column in enumerate(self._query.columns)
        ]
        at = next(place for place, column in enumerate(columns) if column.name == "last")
        self._table.set_columns([*columns[:at], *chosen, *columns[at:]])

    async def _columns_chosen(self) -> None:
        known = self._columns.options
        chosen = [name for name in self._columns.value or () if name in known][:MAX_COLUMNS]
        if tuple(chosen) != self._query.columns:
            query = replace(self._query, columns=tuple(chosen))
            if query.sort not in (*SORTS, *chosen):
                query = replace(query, sort="started", descending=True)
            await self._ask(query)

    async def _archive_chosen(self) -> None:
        self._clear()
        await self._ask(replace(self._query, archived=bool(self._archived.value), page=0))

    # -- selected runs

    def _pick(self, event: GenericEventArguments) -> None:
        wanted = event.args if isinstance(event.args, dict) else {}
        name = str(wanted.get("key"))
        key = next((key for key in self._shown if row_key(key) == name), None)
        if wanted.get("picked") is True and key is not None:
            self._picked[name] = key
        else:
            self._picked.pop(name, None)
        self._show_picked()

    def _show_picked(self) -> None:
        count = len(self._picked)
        self._actions.visible = count > 0
        self._chosen.put(f"{count} selected")
        self._compare.set_enabled(2 <= count <= MAX_RUNS)
        self._archive.text = "Bring back" if self._query.archived else "Archive"
        rows = [{**row, "pick": row["key"] in self._picked} for row in self._table.element.rows]
        if rows != self._table.element.rows:
            self._table.element.rows = rows

    def _clear(self) -> None:
        self._picked.clear()
        self._show_picked()

    def _show_comparison(self) -> None:
        ui.navigate.to(address_of(list(self._picked.values())))

    async def _archive_picked(self) -> None:
        keys = list(self._picked.values())
        self._clear()
        await run_actions.archive(self._run_index, keys, not self._query.archived)
        await self.show()

    async def _delete_picked(self) -> None:
        if await run_actions.delete(self._run_index, list(self._picked.values())):
            self._clear()
            await self.show()

    # -- the list

    async def _filtered(self) -> None:
        await self._ask(
            replace(
                self._query,
                q=self._filter.value or "",
                state=self._state.value,
                kind=self._kind.value,
                page=0,
            )
        )

    async def _sorted(self, column: str, descending: bool) -> None:
        if column.startswith("column"):
            column = self._query.columns[int(column.removeprefix("column"))]
        asked = Query.of({"sort": f"{'-' * descending}{column}"})
        await self._ask(replace(self._query, sort=asked.sort, descending=asked.descending, page=0))

    async def _turn(self, pages: int) -> None:
        await self._ask(replace(self._query, page=max(0, self._query.page + pages)))

    async def _ask(self, query: Query) -> None:
        if query != self._query:
            is_new = query.columns != self._query.columns
            self._query = query
            if is_new:
                self._set_columns()
            address = f"/?{query.address()}".rstrip("?")
            self._client.run_javascript(f"history.replaceState(null, '', {json.dumps(address)})")
            await self.show()

    async def show(self) -> None:
        """Show the current list."""
        self._asked += 1
        number, query = self._asked, self._query
        chosen = await in_thread(self._run_index.select_fresh, query)
        if number == self._asked:  # no newer query meanwhile
            self._query = replace(self._query, page=chosen.page)
            self._apply(chosen)

    def _apply(self, chosen: Selection) -> None:
        first = chosen.page * PAGE_ROWS
        self._shown = tuple(row.key for row in chosen.rows)
        self._offer(chosen.offered)
        columns, sort = self._query.columns, self._query.sort
        self._table.set(
            [
                {
                    **shown_row(row, self._run_index.storages[row.storage].path, columns),
                    "pick": row_key(row.key) in self._picked,
                }
                for row in chosen.rows
            ],
            page=chosen.page,
            found=chosen.matching,
            sort_by=f"column{columns.index(sort)}" if sort in columns else sort,
            descending=self._query.descending,
            text=f"{first + 1}-{first + len(chosen.rows)} of {chosen.matching}",
        )
        self._show_picked()
        self._table.pages.visible = chosen.matching > PAGE_ROWS
        for choice, label, values in (
            (self._state, "State", chosen.states),
            (self._kind, "Kind", chosen.kinds),
        ):
            options = _options(label, [*values[:20], choice.value])
            if options != choice.options:
                choice.set_options(options, value=choice.value)
        self._count.put(count_text(chosen))
        self._problems.show("\n".join(chosen.problems))
        storage_paths = [storage.path for storage in self._run_index.storages]
        is_empty = not chosen.rows and not chosen.problems
        self._empty.show(empty_text(chosen, storage_paths) if is_empty else "")

    def _offer(self, offered: Sequence[str]) -> None:
        """Update the selectable columns."""
        names = dict.fromkeys((*offered, *self._query.columns))
        options = {name: widgets.printable(name.replace(":", ": ", 1), 120) for name in names}
        if options != self._columns.options:
            self._columns.set_options(options, value=list(self._query.columns))


def row_key(key: Key) -> str:
    """Return the key of a run's row in the table."""
    return f"{key[0]}/{widgets.printable(key[1])}"


def _options(label: str, values: Sequence[str]) -> dict[str, str]:
    return {ANY: f"any {label.lower()}"} | {
        value: widgets.printable(value, 40) for value in values if value
    }


def shown_row(row: Row, storage_path: str, columns: Sequence[str] = ()) -> dict[str, object]:
    """Return the table row of a run, with the values of selected columns."""
    run = row.summary
    name = widgets.printable(run.name if run is not None else row.directory, 200)
    shown: dict[str, object] = {
        "key": row_key(row.key),
        "name": name,
        "started": widgets.ago(row.started),
        "storage": storage_path,
    }
    if row.directory.isprintable():  # other names cannot be part of a URL
        shown["name:link"] = url_of(row.storage, row.directory)
    if run is None:
        return {
            **shown,
            "state": "…",
            "kind": "",
            "duration": "",
            "reports": "",
            "last": "",
            "workers": "",
            **dict.fromkeys((f"column{place}" for place in range(len(columns))), ""),
        }
    last = widgets.printable(run.cause or report_text(run), 160)
    return {
        **shown,
        "name:sub": last,
        "name:tags": ",".join(widgets.printable(tag, 64) for tag in run.tags),
        "name:title": widgets.printable(run.note, 500),
        "state": widgets.printable(run.state, 30),
        "kind": widgets.printable(run.kind, 30),
        "duration": widgets.duration(row.duration_s),
        "reports": widgets.printable(progress_text(run), 60),
        "last": last,
        "workers": "" if run.workers is None else str(run.workers),
        **{
            f"column{place}": _cell(column_value(run, column))
            for place, column in enumerate(columns)
        },
    }


def _cell(value: float | str | None) -> str:
    """Return the text of a selected column."""
    if value is None:
        return ""
    return widgets.printable(value, 80) if isinstance(value, (str, bool)) else widgets.number(value)


def count_text(chosen: Selection) -> str:
    """Return the number of runs: known, matching, and not yet read."""
    text = (
        f"{chosen.known}"
        if chosen.matching == chosen.known
        else f"{chosen.matching} of {chosen.known}"
    )
    return f"{text} · loading {chosen.unread}" if chosen.unread > 0 else text


def empty_text(chosen: Selection, storage_paths: list[str]) -> str:
    """Return the text shown instead of an empty list."""
    if chosen.known:
        return (
            "No runs match the filter."
            if not chosen.unread
            else "No runs match the filter so far; some are still loading."
        )
    return (
        f"No runs in {', '.join(storage_paths)} yet. "
        "Runs appear when `fit()` starts with this storage path."
    )
