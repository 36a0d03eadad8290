"""The page of one run: its name and state above the page for its kind, kept up to date; and what is
said where there is no such page.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass

from nicegui import Client, ui

from syncline.dashboard import look
from syncline.dashboard.catalogue import Catalogue, error_line
from syncline.dashboard.pages.dataset import DatasetPage
from syncline.dashboard.pages.opened import OpenRun, OpenRuns
from syncline.dashboard.pages.training import TrainingPage
from syncline.dashboard.pages.tuning import TuningPage
from syncline.dashboard.pages.view import RunPage, RunView
from syncline.runs.secrets import masked

INTERVAL_S = 2.0
SHOWN_EVENTS = 300
AT_ONCE_S = 1.2
"""So long the answer waits for the record; a longer one is shown when it has been read."""
PAGES: dict[str, Callable[[RunView], RunPage]] = {
    "train": TrainingPage,
    "data": DatasetPage,
    "tune": TuningPage,
}
"""Of each kind of run; others get the plain one."""

log = logging.getLogger("syncline.dashboard")


@dataclass(frozen=True, kw_only=True)
class Visit:
    """Which run a visitor asks for, and what the visitor may do."""

    storage: int
    directory: str
    may_act: bool
    address: str | None


async def show_run(catalogue: Catalogue, opened_runs: OpenRuns, visit: Visit) -> None:
    """Build the page of a run in the present visitor's page, and keep it up to date."""
    client = ui.context.client
    with look.frame(look.printable(visit.directory, 80), place="/", wide=True):
        look.link("← Runs", "/")
        box = ui.element("div").classes("sl-run")
        waiting = look.note("Reading the record …")
    task = asyncio.create_task(_fill(client, box, catalogue, opened_runs, visit))
    task.add_done_callback(lambda _: waiting.delete() if not waiting.is_deleted else None)
    await asyncio.wait({task}, timeout=AT_ONCE_S)


async def _fill(
    client: Client, box: ui.element, catalogue: Catalogue, opened_runs: OpenRuns, visit: Visit
) -> None:
    try:
        opened = await opened_runs.enter(catalogue.place_of(visit.storage, visit.directory))
    except (ValueError, LookupError, OSError) as error:
        with box:
            look.Text("h1", visit.directory, "sl-title")
            look.note(f"This run cannot be shown: {error}", "error")
        return
    if client.is_deleted:
        opened_runs.leave(opened)
        return
    client.on_delete(lambda: opened_runs.leave(opened))
    with box:
        view = RunView(
            run=opened.run,
            may_act=visit.may_act,
            storage=visit.storage,
            directory=visit.directory,
            address=visit.address,
        )
        try:
            shown = Shown(opened, view)
        except Exception as error:
            log.exception("the page of %r could not be built", view.run.path)
            look.note(
                f"This run cannot be shown ({type(error).__name__}): its record has an unknown form.",
                "error",
            )
            return
        ui.timer(INTERVAL_S, shown.tick, immediate=False)


class Shown:
    """A visitor's page of a run."""

    def __init__(self, opened: OpenRun, view: RunView) -> None:
        self._opened = opened
        self._head = Head(opened)
        self._trouble = look.note("", "error")
        self._trouble.visible = False
        with ui.element("div").classes("sl-run") as body:
            self._page = built(view, opened.run.kind, body)
        self._say(self._update())

    async def tick(self) -> None:
        """Read on, and show it."""
        async with self._opened.lock:
            try:
                await self._opened.refresh()
            except (ValueError, OSError) as error:
                self._say(f"The record cannot be read any more: {error}")
                return
            self._say(self._update())

    def _update(self) -> str:
        """What went wrong, or nothing."""
        try:
            self._head.update()
            self._page.update()
        except Exception as error:
            said = f"This page could not be brought up to date ({type(error).__name__}: {error}): its record has an unknown form."
            if said != self._trouble.text:
                log.exception("the page of %r could not be updated", self._opened.run.path)
            return said
        problems = self._opened.run.problems
        return (
            f"Parts of the record cannot be read, and are left out: {', '.join(problems)}"
            if problems
            else ""
        )

    def _say(self, text: str) -> None:
        self._trouble.put(text)
        self._trouble.visible = bool(text)


def built(view: RunView, kind: str, body: ui.element) -> RunPage:
    """The page for a kind of run, or the plain one where there is none, or where it cannot show
    this record.
    """
    made = PAGES.get(kind, PlainPage)
    try:
        return made(view)
    except Exception:
        if made is PlainPage:
            raise
        log.exception("the page of %r could not be built", view.run.path)
        body.clear()
        with body:
            look.note(
                "The page for this kind of run cannot show its record. This is what can be read of it.",
                "warning",
            )
            return PlainPage(view)


class Head:
    """Name, state and place of a run, above its page."""

    def __init__(self, opened: OpenRun) -> None:
        self._opened = opened
        with ui.element("div").classes("sl-title-row"):
            look.Text("h1", look.printable(opened.run.name, 300), "sl-title")
            self._state = look.StateBadge()
            look.Text("span", look.printable(opened.run.kind, 40), "sl-soft")
        look.Text("p", look.printable(opened.run.path, 1_000), "sl-soft sl-path")

    def update(self) -> None:
        """Show the present state."""
        self._state.set(look.printable(self._opened.summary.state, 40))


class PlainPage:
    """What every run has: facts, the last report, the error, events, configuration and
    environment.
    """

    def __init__(self, view: RunView) -> None:
        self._view = view
        with look.section("Facts"), look.facts():
            names = ("Started", "Ended", "Host", "Workers", "Starts", "Checkpoints")
            self._facts = {name: look.Fact(name) for name in names}
        with look.section("Last report"):
            self._metrics = look.DataTable(
                [
                    look.Column(name="name", label="Metric", yielding=True),
                    look.Column(name="value", label="Value", number=True),
                ],
                row_key="name",
                label="Last report",
            )
        with look.section("Error") as self._error_section:
            self._error = look.Mono(label="The error")
        with look.section("Events"):
            columns = [
                look.Column(name="time", label="Time"),
                look.Column(name="event", label="Event"),
            ]
            columns.append(
                look.Column(name="what", label="What", kind="mono", yielding=True, sortable=False)
            )
            self._events = look.DataTable(
                columns, row_key="number", label="Events", rows_per_page=20
            )
        with look.section("Configuration"):
            look.Mono(_as_text(view.run.config), label="Configuration")
            with look.Expandable("Environment"):
                look.Mono(_as_text(view.run.environment), label="Environment")

    def update(self) -> None:
        """Show what the record says by now."""
        run = self._view.run
        outcome, attempts, last = run.outcome or {}, run.attempts, run.series.last("0")
        self._facts["Started"].set(look.moment(run.started))
        ended = outcome.get("time")
        self._facts["Ended"].set(look.moment(ended if isinstance(ended, (int, float)) else None))
        self._facts["Host"].set(look.printable(run.environment.get("hostname") or "-", 200))
        self._facts["Workers"].set(len(attempts[-1].workers) if attempts else "-")
        self._facts["Starts"].set(len(attempts))
        self._facts["Checkpoints"].set(len(run.checkpoints))
        self._metrics.set(
            [
                {"name": look.printable(name, 200), "value": look.number(value)}
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
    shown = error_line(text) if len(text) > 300 else text
    time_text = look.moment(when if isinstance(when, (int, float)) else None)
    return {"number": number, "time": time_text, "event": look.printable(what, 60), "what": shown}


def _as_text(value: object) -> str:
    return json.dumps(value, indent=2, default=str, ensure_ascii=False)
