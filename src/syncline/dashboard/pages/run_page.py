"""Page of one run: name and state above the page for its kind, updated live."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable

from nicegui import Client, ui

from syncline.dashboard import widgets
from syncline.dashboard.pages.dataset_page import DatasetPage
from syncline.dashboard.pages.rl_page import RlPage
from syncline.dashboard.pages.run_header import RunHeader
from syncline.dashboard.pages.run_view import OpenRun, OpenRuns, RunPage, RunView, Visit
from syncline.dashboard.pages.serving_page import ServingPage
from syncline.dashboard.pages.training_page import TrainingPage
from syncline.dashboard.pages.tuning_page import TuningPage
from syncline.dashboard.run_index import RunIndex
from syncline.runs.secrets import masked

INTERVAL_S = 2.0
SHOWN_EVENTS = 300
AT_ONCE_S = 1.2
"""Seconds that the response waits for the record; longer records are shown when they are read."""
PAGES: dict[str, Callable[[RunView], RunPage]] = {
    "train": TrainingPage,
    "data": DatasetPage,
    "tune": TuningPage,
    "serve": ServingPage,
    "rl": RlPage,
}
"""Pages by kind of run; other kinds get `PlainPage`."""

log = logging.getLogger("syncline.dashboard")


async def show_run(run_index: RunIndex, opened_runs: OpenRuns, visit: Visit) -> None:
    """Build the page of a run in the visitor's page and keep it up to date."""
    client = ui.context.client
    with widgets.frame(widgets.printable(visit.directory, 80), place="/", wide=True):
        widgets.link("← Runs", "/")
        box = ui.element("div").classes("sl-run")
        waiting = widgets.note("Loading the record …")
    task = asyncio.create_task(_fill(client, box, run_index, opened_runs, visit))
    task.add_done_callback(lambda _: waiting.delete() if not waiting.is_deleted else None)
    await asyncio.wait({task}, timeout=AT_ONCE_S)


async def _fill(
    client: Client, box: ui.element, run_index: RunIndex, opened_runs: OpenRuns, visit: Visit
) -> None:
    try:
        opened = await opened_runs.enter(run_index.run_directory(visit.storage, visit.directory))
    except (ValueError, LookupError, OSError) as error:
        with box:
            widgets.Text("h1", visit.directory, "sl-title")
            widgets.note(f"Cannot show this run: {error}", "error")
        return
    if client.is_deleted:
        opened_runs.leave(opened)
        return
    client.on_delete(lambda: opened_runs.leave(opened))
    with box:
        view = RunView(run=opened.run, **vars(visit))
        try:
            frame = RunFrame(opened, view, run_index)
        except Exception as error:
            log.exception("Cannot build the page of %r", view.run.path)
            widgets.note(
                f"Cannot show this run: its record has an unknown form ({type(error).__name__}).",
                "error",
            )
            return
        ui.timer(INTERVAL_S, frame.refresh, immediate=False)


class RunFrame:
    """Page of a run for one visitor."""

    def __init__(self, opened: OpenRun, view: RunView, run_index: RunIndex) -> None:
        self._opened = opened
        self._header = RunHeader(opened, view, run_index)
        self._warning = widgets.note("", "error")
        with ui.element("div").classes("sl-run") as body:
            self._page = build_page(view, opened.run.kind, body)
        self._warning.show(self._update())

    async def refresh(self) -> None:
        """Read new data and show it."""
        async with self._opened.lock:
            try:
                await self._opened.refresh()
            except (ValueError, OSError) as error:
                self._warning.show(f"Cannot read the record any more: {error}")
                return
            self._warning.show(self._update())

    def _update(self) -> str:
        """Update the page; return a warning or ""."""
        try:
            self._header.update()
            self._page.update()
        except Exception as error:
            said = (
                "Cannot update this page: the record has an unknown form "
                f"({type(error).__name__}: {error})."
            )
            if said != self._warning.text:
                log.exception("Cannot update the page of %r", self._opened.run.path)
            return said
        problems = self._opened.run.problems
        return (
            f"Unreadable parts of the record are skipped: {', '.join(problems)}" if problems else ""
        )


def build_page(view: RunView, kind: str, body: ui.element) -> RunPage:
    """Build the page for a kind of run; fall back to `PlainPage` for unknown kinds and for records
    that the page cannot show.
    """
    made = PAGES.get(kind, PlainPage)
    try:
        return made(view)
    except Exception:
        if made is PlainPage:
            raise
        log.exception("Cannot build the page of %r", view.run.path)
        body.clear()
        with body:
            widgets.note(
                "The page for this kind of run cannot show its record. The readable parts follow.",
                "warning",
            )
            return PlainPage(view)


class PlainPage:
    """Generic page: facts, latest report, error, events, configuration and environment."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        with widgets.section("Facts"):
            self._facts = widgets.Facts()
        with widgets.section("Latest report"):
            self._metrics = widgets.DataTable(
                [
                    widgets.Column(name="name", label="Metric", yielding=True),
                    widgets.Column(name="value", label="Value", number=True),
                ],
                row_key="name",
                label="Latest report",
            )
        with widgets.section("Error") as self._error_section:
            self._error = widgets.Mono(label="Error")
        with widgets.section("Events"):
            columns = [
                widgets.Column(name="time", label="Time"),
                widgets.Column(name="event", label="Event"),
                widgets.Column(
                    name="what", label="Details", kind="mono", yielding=True, sortable=False
                ),
            ]
            self._events = widgets.DataTable(
                columns, row_key="number", label="Events", rows_per_page=20
            )
        with widgets.section("Configuration"):
            widgets.Mono(widgets.json_text(view.run.config), label="Configuration")
            with widgets.Expandable("Environment"):
                widgets.Mono(widgets.json_text(view.run.environment), label="Environment")

    def update(self) -> None:
        """Show the current record."""
        run = self._view.run
        outcome, attempts, last = run.outcome or {}, run.attempts, run.series.last("0")
        ended = outcome.get("time")
        self._facts.set(
            {
                "Started": widgets.moment(run.started),
                "Ended": widgets.moment(ended if isinstance(ended, (int, float)) else None),
                "Host": widgets.printable(run.environment.get("hostname") or "-", 200),
                "Workers": len(attempts[-1].workers) if attempts else "-",
                "Attempts": len(attempts),
                "Checkpoints": len(run.checkpoints),
            }
        )
        self._metrics.set(
            [
                {"name": widgets.printable(name, 200), "value": widgets.number(value)}
                for name, value in list(last.items())[:200]
            ]
        )
        error = outcome.get("error")
        self._error_section.visible = error is not None
        self._error.set(error or "")
        self._events.set(
            [
                _event_row(number, event)
                for number, event in list(enumerate(run.events))[-SHOWN_EVENTS:]
            ][::-1]
        )


def _event_row(number: int, event: object) -> dict[str, object]:
    fields = dict(event) if isinstance(event, dict) else {}
    when, what = fields.pop("time", None), fields.pop("event", "?")
    text = json.dumps(masked(fields), default=str, ensure_ascii=False) if fields else ""
    time_text = widgets.moment(when if isinstance(when, (int, float)) else None)
    return {
        "number": number,
        "time": time_text,
        "event": widgets.printable(what, 60),
        "what": widgets.printable(text, 300),
    }
