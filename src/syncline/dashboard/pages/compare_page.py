"""Comparison of runs: their curves in the same charts, and tables of their configurations, metrics
and environments with the differences marked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from nicegui import Client, ui

from syncline.dashboard import comparison, training_figures, widgets
from syncline.dashboard.comparison import ComparedRow
from syncline.dashboard.metric_curves import Curve, CurveStyle, curve_of
from syncline.dashboard.pages import rl_comparison
from syncline.dashboard.pages.curves_panel import CurveCharts
from syncline.dashboard.pages.rl_comparison import ReturnsComparison, group_of
from syncline.dashboard.pages.run_view import OpenRun, OpenRuns, url_of
from syncline.dashboard.rl_figures import RETURN
from syncline.dashboard.run_index import RunIndex
from syncline.dashboard.run_query import Key
from syncline.dashboard.widgets.charts import PALETTE
from syncline.runs import Run

INTERVAL_S = 2.0
AT_ONCE_S = 1.5
"""Seconds that the response waits for the records."""
MAX_METRICS = 300


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One of the compared runs."""

    key: Key
    opened: OpenRun
    color: int
    """Index of its color."""


def address_of(keys: Sequence[Key]) -> str:
    """Return the URL of the comparison of these runs."""
    return f"/compare?{urlencode([('run', f'{storage}/{name}') for storage, name in keys])}"


def keys_of(values: Sequence[str]) -> list[Key]:
    """Parse the parameters `run` of the URL; ignore invalid and repeated ones."""
    found: dict[Key, None] = {}
    for value in values:
        storage, _, name = value.partition("/")
        if storage.isascii() and storage.isdigit() and len(storage) < 6 and name:
            found[int(storage), name] = None
    return list(found)[: comparison.MAX_RUNS]


async def show_comparison(run_index: RunIndex, opened_runs: OpenRuns, keys: Sequence[Key]) -> None:
    """Build the comparison in the visitor's page and keep it up to date."""
    client = ui.context.client
    with widgets.frame("Compare runs", place="/", wide=True):
        widgets.link("← Runs", "/")
        widgets.Text("h1", f"Compare {len(keys)} runs", "sl-title")
        box = ui.element("div").classes("sl-run")
        if len(keys) < 2:
            widgets.note("Select at least two runs in the list of runs, then press “Compare”.")
    task = asyncio.create_task(_fill(client, box, run_index, opened_runs, keys))
    await asyncio.wait({task}, timeout=AT_ONCE_S)


async def _fill(
    client: Client, box: ui.element, run_index: RunIndex, opened_runs: OpenRuns, keys: Sequence[Key]
) -> None:
    found: list[Compared] = []

    def leave() -> None:
        for each in found:
            opened_runs.leave(each.opened)

    client.on_delete(leave)
    for color, key in enumerate(keys):
        try:
            opened = await opened_runs.enter(run_index.run_directory(*key))
        except (ValueError, LookupError, OSError) as error:
            with box:
                widgets.note(f"Cannot show {key[1]}: {error}", "error")
            continue
        if client.is_deleted:
            opened_runs.leave(opened)
            return
        found.append(Compared(key=key, opened=opened, color=color))
    if not found:
        return
    with box:
        page = ComparePage(found)
        ui.timer(INTERVAL_S, page.refresh, immediate=False)


class ComparePage:
    """Comparison for one visitor."""

    def __init__(self, runs: Sequence[Compared]) -> None:
        self._runs = runs
        names = [each.opened.run.name for each in runs]
        # Two lines of one name would share their legend entry.
        self._labels = [
            name if names.count(name) == 1 else f"{name} ({each.key[0]}/{each.key[1]})"
            for name, each in zip(names, runs, strict=True)
        ]
        self._states: list[widgets.StateBadge] = []
        with ui.element("div").classes("sl-section sl-compared"):
            for each in runs:
                self._create_legend(each)
        self._returns = ReturnsComparison()
        with widgets.section("Metrics", anchor="metrics"):
            self._charts = CurveCharts(self._lines)
        with ui.element("div").classes("sl-bar"):
            self._only = ui.switch(
                "only differences", value=len(runs) > 1, on_change=self._update_tables
            )
        self._tables = [
            (_Table("Latest metrics", runs), self._metric_rows),
            (_Table("Configuration", runs), self._configuration_rows),
            (_Table("Environment", runs), self._environment_rows),
        ]
        self._update()

    def _create_legend(self, each: Compared) -> None:
        rest = [other.key for other in self._runs if other is not each]
        with ui.element("div").classes("sl-actions"):
            color = PALETTE[each.color % len(PALETTE)]
            ui.element("i").classes("sl-dot").style(f"background: {color}")
            widgets.link(widgets.printable(each.opened.run.name, 200), url_of(*each.key))
            badge = widgets.StateBadge()
            self._states.append(badge)
            if len(self._runs) > 2:
                remove = widgets.link("remove", address_of(rest))
                remove.props["aria-label"] = f"Remove {widgets.printable(each.key[1], 200)}"

    async def refresh(self) -> None:
        """Read new data and show it."""
        for each in self._runs:
            async with each.opened.lock:
                try:
                    await each.opened.refresh()
                except (ValueError, OSError):  # deleted; the last state stays
                    continue
        self._update()

    def _update(self) -> None:
        for badge, each in zip(self._states, self._runs, strict=True):
            badge.set(widgets.printable(each.opened.summary.state, 40))
        self._returns.show(
            [
                _compared(each.opened.run, label)
                for each, label in zip(self._runs, self._labels, strict=True)
            ]
        )
        names = dict.fromkeys(name for each in self._runs for name in each.opened.run.series.names)
        self._charts.show(list(names)[:MAX_METRICS])
        self._update_tables()

    def _update_tables(self) -> None:
        for table, rows in self._tables:
            table.set(rows(), only_differences=bool(self._only.value))

    def _metric_rows(self) -> list[ComparedRow]:
        return comparison.metric_rows([each.opened.summary for each in self._runs])

    def _configuration_rows(self) -> list[ComparedRow]:
        return comparison.configuration_rows([each.opened.run for each in self._runs])

    def _environment_rows(self) -> list[ComparedRow]:
        return comparison.environment_rows([each.opened.run for each in self._runs])

    def _lines(self, name: str, style: CurveStyle) -> list[tuple[widgets.Line, Curve]]:
        found = []
        for each, label in zip(self._runs, self._labels, strict=True):
            run = each.opened.run
            if not run.series.members_of(name):
                continue
            member = comparison.curve_member(run, run.series, name)
            start = training_figures.first_start(run)
            line = widgets.Line(name=label, x=(), y=(), color=each.color)
            found.append((line, curve_of(run.series, name, member, style, start=start)))
        return found


def _compared(run: Run, label: str) -> rl_comparison.Compared:
    """Return a run for the charts of returns: its only rank, or its best trial."""
    member = comparison.curve_member(run, run.series, RETURN) or ""
    own = run.config.get("train_config")
    options = {**run.config, **(own if isinstance(own, Mapping) else {})}
    group = group_of(options, without=_OWN)
    return rl_comparison.Compared(label=label, series=run.series, member=member, group=group)


_OWN = ("seed", "record", "render_env", "train_config", "all_options")
"""Options in which runs of one experiment may differ."""


class _Table:
    """Table with a row for each value and a column for each run."""

    def __init__(self, title: str, runs: Sequence[Compared]) -> None:
        columns = [
            widgets.Column(name="name", label="", yielding=True),
            *(
                widgets.Column(name=f"run{place}", label=each.opened.run.name, yielding=True)
                for place, each in enumerate(runs)
            ),
        ]
        with widgets.section(title):
            self._note = widgets.Text("p", "", "sl-soft")
            with ui.element("div").classes("sl-scroll"):
                self._table = widgets.DataTable(
                    columns, row_key="name", label=title, rows_per_page=200
                )

    def set(self, rows: Sequence[ComparedRow], *, only_differences: bool) -> None:
        """Show the rows; mark the values that differ from those of the first run."""
        shown = [row for row in rows if row.differs or not only_differences]
        equal = len(rows) - len(shown)
        self._note.show(f"{equal} equal rows are hidden." if equal else "")
        self._table.element.visible = bool(shown)
        self._table.set([_table_row(row) for row in shown])


def _table_row(row: ComparedRow) -> dict[str, object]:
    made: dict[str, object] = {"name": row.name}
    for place, value in enumerate(row.values):
        made[f"run{place}"] = value
        made[f"run{place}:mark"] = value != row.values[0]
    return made
