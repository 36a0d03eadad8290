"""Page "Serving": the applications of all running serves below the storage paths."""

from __future__ import annotations

import asyncio

from nicegui import Client, ui

from syncline.dashboard import widgets
from syncline.dashboard.pages.run_view import OpenRun, OpenRuns, RunView
from syncline.dashboard.pages.serving_application import OverviewPanel
from syncline.dashboard.pages.serving_record import ServingRecord
from syncline.dashboard.run_index import RunIndex
from syncline.dashboard.run_query import Key, Query

INTERVAL_S = 2.0
AT_ONCE_S = 2.0
MAX_RUNS = 20
"""Running serves that are shown, the latest ones."""
NOTHING = (
    "Nothing is served. Applications appear after `serve.run(app)` or `syncline serve run`; the "
    "records of ended serves are in the list of runs."
)
ENDED = Query(kind="serve")


async def show_serving(run_index: RunIndex, opened_runs: OpenRuns, may_act: bool) -> None:
    """Build the list in the visitor's page and keep it up to date."""
    client = ui.context.client
    with widgets.frame("Serving", place="/serving", wide=True):
        with ui.element("div").classes("sl-title-row"):
            widgets.Text("h1", "Serving", "sl-title")
            widgets.link("all records", f"/?{ENDED.address()}")
        listing = ServingList(client, run_index, opened_runs, may_act)
    await asyncio.wait({asyncio.create_task(listing.update())}, timeout=AT_ONCE_S)
    ui.timer(INTERVAL_S, listing.update, immediate=False)


class ServingList:
    """Running serves of one visitor."""

    def __init__(
        self, client: Client, run_index: RunIndex, opened_runs: OpenRuns, may_act: bool
    ) -> None:
        self._client = client
        self._run_index = run_index
        self._opened_runs = opened_runs
        self._may_act = may_act
        self._shown: dict[Key, _Shown] = {}
        self._empty = widgets.note("Loading …")
        self._place = ui.element("div").classes("sl-run")
        client.on_delete(self._leave)

    async def update(self) -> None:
        """Show the serves that run now."""
        chosen = await asyncio.to_thread(
            self._run_index.select_fresh, Query(kind="serve", state="running")
        )
        rows = chosen.rows[:MAX_RUNS]
        keys = {row.key for row in rows}
        for key in [key for key in self._shown if key not in keys]:
            self._remove(key)
        for row in rows:
            if row.key not in self._shown:
                await self._add(row.key)
        for shown in list(self._shown.values()):
            await shown.update()
        self._empty.show("" if self._shown else NOTHING)

    async def _add(self, key: Key) -> None:
        try:
            place = self._run_index.run_directory(*key)
            opened = await self._opened_runs.enter(place)
        except (ValueError, LookupError, OSError):  # it has just ended or been deleted
            return
        if self._client.is_deleted or key in self._shown:
            self._opened_runs.leave(opened)
            return
        view = RunView(run=opened.run, storage=key[0], directory=key[1], may_act=self._may_act)
        with self._place, ui.element("div").classes("sl-run") as element:
            self._shown[key] = _Shown(opened, element, view)

    def _remove(self, key: Key) -> None:
        shown = self._shown.pop(key)
        shown.element.delete()
        self._opened_runs.leave(shown.opened)

    def _leave(self) -> None:
        for shown in self._shown.values():
            self._opened_runs.leave(shown.opened)
        self._shown.clear()


class _Shown:
    """One serve in the list."""

    def __init__(self, opened: OpenRun, element: ui.element, view: RunView) -> None:
        self.opened = opened
        self.element = element
        self._record = ServingRecord(view)
        program = view.run.environment.get("program")
        widgets.link(f"{view.run.name} · {program}", self._record.url())
        self._panel = OverviewPanel(self._record)

    async def update(self) -> None:
        """Read new data and show it."""
        async with self.opened.lock:
            try:
                await self.opened.refresh()
            except (ValueError, OSError):
                return
            self._record.update()
            self._panel.update()
