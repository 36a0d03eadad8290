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

from syncline.dashboard import widgets
from syncline.dashboard.pages.run_view import in_thread, url_of
from syncline.dashboard.run_index import (
    PAGE_ROWS,
    Query,
    Row,
    RunIndex,
    Selection,
    metrics_text,
    progress_text,
)
from syncline.dashboard.widgets import Column

INTERVAL_S = 2.0
AT_ONCE_S = 2.0
"""Seconds that the response waits for the list; slower lists are shown when they are ready."""
ANY = ""
COLUMNS = (
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


async def show_list(run_index: RunIndex, query: Query) -> None:
    """Build the list in the visitor's page and keep it up to date."""
    with widgets.frame("Runs", place="/", wide=True):
        listing = Listing(run_index, query)
    await asyncio.wait({asyncio.create_task(listing.show())}, timeout=AT_ONCE_S)
    ui.timer(INTERVAL_S, listing.show, immediate=False)


class Listing:
    """List of one visitor."""

    def __init__(self, run_index: RunIndex, query: Query) -> None:
        self._run_index = run_index
        self._query = query
        self._client = ui.context.client
        self._asked = 0
        with ui.element("div").classes("sl-title-row"):
            widgets.Text("h1", "Runs", "sl-title")
            self._count = widgets.Text("span", "", "sl-soft")
            self._count.props["role"] = "status"
        with ui.element("div").classes("sl-bar").props('role="search"'):
            self._filter = widgets.filter_field(
                "Filter runs", "Filter: name, state, host, metric", self._filtered, query.q
            )
            self._state, self._kind = (
                widgets.choice(label, _options(label, [value]), value, self._filtered)
                for label, value in (("State", query.state), ("Kind", query.kind))
            )
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
        shows_storage = len(run_index.storages) > 1
        self._table.set_columns(
            [column for column in COLUMNS if column.name != "storage" or shows_storage]
        )
        for element in (self._problems, self._empty, self._table.pages):
            element.visible = False

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
        asked = Query.of({"sort": f"{'-' * descending}{column}"})
        await self._ask(replace(self._query, sort=asked.sort, descending=asked.descending, page=0))

    async def _turn(self, pages: int) -> None:
        await self._ask(replace(self._query, page=max(0, self._query.page + pages)))

    async def _ask(self, query: Query) -> None:
        if query != self._query:
            self._query = query
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
        self._table.set(
            [shown_row(row, self._run_index.storages[row.storage].path) for row in chosen.rows],
            page=chosen.page,
            found=chosen.matching,
            sort_by=self._query.sort,
            descending=self._query.descending,
            text=f"{first + 1}-{first + len(chosen.rows)} of {chosen.matching}",
        )
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


def _options(label: str, values: Sequence[str]) -> dict[str, str]:
    return {ANY: f"any {label.lower()}"} | {
        value: widgets.printable(value, 40) for value in values if value
    }


def shown_row(row: Row, storage_path: str) -> dict[str, object]:
    """Return the table row of a run."""
    run = row.summary
    name = widgets.printable(run.name if run is not None else row.directory, 200)
    shown: dict[str, object] = {
        "key": f"{row.storage}/{widgets.printable(row.directory)}",
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
        }
    last = widgets.printable(run.cause or metrics_text(run.metrics), 160)
    return {
        **shown,
        "name:sub": last,
        "state": widgets.printable(run.state, 30),
        "kind": widgets.printable(run.kind, 30),
        "duration": widgets.duration(row.duration_s),
        "reports": widgets.printable(progress_text(run), 60),
        "last": last,
        "workers": "" if run.workers is None else str(run.workers),
    }


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
