"""Panels of the serving page: one deployment, and its replicas."""

from __future__ import annotations

from collections.abc import Callable

from nicegui import ui

from syncline.core.control import ActionFailed, ProgramUnreachable
from syncline.dashboard import widgets
from syncline.dashboard.pages.run_view import in_thread
from syncline.dashboard.pages.serving_record import (
    RangeChoice,
    ServingRecord,
    chart,
    curve,
    latency_curves,
    milliseconds,
    rate_curves,
)
from syncline.dashboard.serving_control import ServingActions
from syncline.dashboard.serving_figures import (
    PARTS,
    RECENT_S,
    ApplicationLine,
    DeploymentLine,
    Lines,
    error_share,
    mean_parts,
    quantile_ms,
    queue_with_others,
)
from syncline.dashboard.serving_state import DeploymentView, ReplicaView
from syncline.dashboard.widgets import Column, Line
from syncline.runs.json_values import finite

_STATES = {"RUNNING": "running", "STARTING": "pending", "STOPPING": "paused"}


class DeploymentPanel:
    """One deployment: where the time goes, its replicas and decisions."""

    def __init__(self, record: ServingRecord, app: str, name: str) -> None:
        self._record = record
        self._app = app
        self._name = name
        widgets.link(f"← Application {widgets.printable(app, 80)}", record.url(app))
        self._gone = widgets.note("", "warning")
        with widgets.section(f"Deployment {name}"):
            with ui.element("div").classes("sl-bar"):
                self._state = widgets.StateBadge()
                self._message = widgets.Text("span", "", "sl-soft")
                self._range = RangeChoice(self.update)
            self._facts = widgets.Facts(_FACTS)
            widgets.Text("h3", "Where a mean request spends its time")
            self._parts = widgets.ShareBars(PARTS, label="Shares of the time of a mean request")
            self._parts_text = widgets.Text("p", "", "sl-soft")
            with ui.element("div").classes("sl-charts"):
                self._rates = chart("Calls per second")
                self._latency = chart("Time in the replica", "ms")
                self._split = chart("Mean time by part", "ms")
                self._queue = chart("Waits, p99", "ms")
                self._load = chart("Calls in flight and queued")
                self._replicas = chart("Replicas")
                self._batches = chart("Items per batch")
        self._replicas_panel = ReplicasPanel(record, app, name)
        with widgets.section("Scaling decisions") as self._scaling:
            self._decisions = widgets.DataTable(
                [
                    Column(name="time", label="Time"),
                    Column(name="change", label="Replicas"),
                    Column(name="what", label="Reason", yielding=True, sortable=False),
                ],
                row_key="number",
                label="Scaling decisions",
                rows_per_page=20,
            )

    def update(self) -> None:
        """Show the current record."""
        record = self._record
        application = record.state.application(self._app)
        deployment = application.deployment(self._name) if application is not None else None
        self._gone.show("" if deployment else "The deployment does not run any more.")
        self._state.set(record.status(deployment.status) if deployment else "stopped")
        self._message.put(deployment.message if deployment else "")
        is_ingress = application is not None and application.ingress == self._name
        self._show_figures(deployment, is_ingress)
        self._show_charts(is_ingress)
        self._replicas_panel.update()
        self._show_decisions()

    def _show_figures(self, deployment: DeploymentView | None, is_ingress: bool) -> None:
        whole = self._record.deployment(self._app, self._name).whole
        http = self._record.application(self._app).whole if is_ingress else None
        queue = queue_with_others(whole)
        batch = whole.batch_items / whole.batches if whole.batches else None
        self._facts.set(
            {
                "Calls/s": f"{whole.requests / RECENT_S:,.1f}",
                "Errors": widgets.percent(error_share(whole)) if whole.errors else "0",
                "p50": f"{milliseconds(quantile_ms(whole.handling, 0.5))} ms",
                "p99": f"{milliseconds(quantile_ms(whole.handling, 0.99))} ms",
                "Queue p99": f"{milliseconds(quantile_ms(queue, 0.99))} ms",
                "Queued": deployment.queued if deployment else 0,
                "In flight": deployment.ongoing if deployment else 0,
                "Replicas": f"{deployment.running} of {deployment.wanted}" if deployment else "0",
                **({"Items per batch": f"{batch:.1f}"} if batch is not None else {}),
                **({"Blocked loop": widgets.duration(whole.lag_s)} if whole.lag_s > 0.1 else {}),
            }
        )
        parts = mean_parts(whole, http)
        if parts is None or parts.total <= 0:
            self._parts.set({})
            self._parts_text.put(f"No calls in the last {RECENT_S:.0f} seconds.")
            return
        mean = f"{milliseconds(parts.total)} ms"
        self._parts.set({mean: [value / parts.total for value in parts.values()]})
        said = [
            f"{name} {milliseconds(value)} ms"
            for name, value in zip(PARTS, parts.values(), strict=True)
        ]
        if parts.transfer is None:
            said[-1] = "transfer is measured for the ingress only"
        self._parts_text.put(f"{', '.join(said)}; means of the last {RECENT_S:.0f} seconds.")

    def _show_charts(self, is_ingress: bool) -> None:
        range_ = self._range.value
        record = self._record
        lines = record.deployment(self._app, self._name, range_.file, range_.seconds)
        self._rates.set(rate_curves(lines))
        self._latency.set(latency_curves(lines, lambda line: line.handling))
        self._split.set(self._split_lines(lines, is_ingress))
        has_batches = bool(lines.whole.batches)
        waits = [curve(lines, "queue", lambda line: quantile_ms(queue_with_others(line), 0.99))]
        if has_batches:
            waits.append(
                curve(lines, "batch wait", lambda line: quantile_ms(line.batch_wait, 0.99))
            )
        self._queue.set(waits)
        self._load.set(
            [
                curve(lines, "in flight", lambda line: float(line.ongoing)),
                curve(lines, "queued", lambda line: float(line.queued)),
            ]
        )
        self._replicas.set(
            [
                curve(lines, "running", lambda line: float(line.running)),
                curve(lines, "wanted", lambda line: float(line.wanted), dashed=True),
            ]
        )
        self._batches.element.visible = has_batches
        self._batches.set(
            [
                curve(
                    lines,
                    "mean size",
                    lambda line: line.batch_items / line.batches if line.batches else None,
                )
            ]
        )

    def _split_lines(self, lines: Lines[DeploymentLine], is_ingress: bool) -> list[Line]:
        range_ = self._range.value
        http: dict[float, ApplicationLine] = {}
        if is_ingress:
            found = self._record.application(self._app, range_.file, range_.seconds)
            http = {round(line.time): line for line in found.points}
        parts = [mean_parts(line, http.get(round(line.time))) for line in lines.points]
        times = [line.time for line in lines.points]
        values = [each.values() if each is not None else None for each in parts]
        curves: list[list[float | None]] = [
            [None if each is None else each[part] for each in values] for part in range(len(PARTS))
        ]
        return [
            Line(name=name, x=times, y=[value or None for value in found], color=place)
            for place, (name, found) in enumerate(zip(PARTS, curves, strict=True))
            if any(found)
        ]

    def _show_decisions(self) -> None:
        rows = [
            {
                "number": number,
                "time": widgets.clock(finite(event.get("time"))),
                "change": f"{event.get('before')} → {event.get('after')}",
                "what": widgets.printable(event.get("message") or "", 500),
            }
            for number, event in enumerate(self._record.lines("events"))
            if event.get("event") == "scaled"
            and event.get("app") == self._app
            and event.get("deployment") == self._name
        ]
        self._scaling.visible = bool(rows)
        self._decisions.set(rows[::-1][:200])


_FACTS = {
    "p50": "Median time in the replica",
    "p99": "99 % of the calls took at most this long in the replica",
    "Queue p99": "99 % of the calls waited at most this long for a free replica",
    "Queued": "Calls that wait for a free replica now",
    "In flight": "Calls that replicas handle now",
    "Blocked loop": "Longest time for which the event loop of a replica was blocked",
}


class ReplicasPanel:
    """Replicas of a deployment, with actions on live ones."""

    def __init__(self, record: ServingRecord, app: str, deployment: str) -> None:
        self._record = record
        self._app = app
        self._deployment = deployment
        self._names: list[str] = []
        may_act = record.view.may_act
        with widgets.section("Replicas"):
            self._table = widgets.DataTable(_REPLICAS, row_key="key", label="Replicas")
            with ui.element("div").classes("sl-actions") as self._bar:
                self._chosen = ui.select([], label="Replica").props("dense outlined options-dense")
                self._chosen.style("min-width: 9rem")
                widgets.action(
                    "Stack traces", self._show_stack, may_act, hint="Current stack of the replica"
                )
                widgets.action(
                    "Restart", self._restart, may_act, hint="Start another one, then drain this one"
                )
            widgets.read_only_note(may_act)
            self._said = widgets.note("")
            self._said.props["role"] = "status"
            self._said.visible = False
            self._stack = widgets.Mono(label="Stack of the replica", tall=True)
            self._stack.element.visible = False

    def update(self) -> None:
        """Show the current record."""
        application = self._record.state.application(self._app)
        found = application.deployment(self._deployment) if application is not None else None
        replicas = found.replicas if found is not None else ()
        self._table.set([_replica_row(each) for each in replicas] if self._record.lives else [])
        names = [each.short_id for each in replicas if each.pid is not None]
        names = names if self._record.lives else []
        self._bar.visible = bool(names)
        if names != self._names:
            self._names = names
            kept = self._chosen.value if self._chosen.value in names else next(iter(names), None)
            self._chosen.set_options(names, value=kept)

    async def _show_stack(self) -> None:
        await self._act("Reading the stack …", lambda actions, id: actions.stack(id))

    async def _restart(self) -> None:
        await self._act("Starting another replica …", lambda actions, id: actions.restart(id))

    async def _act(self, waiting: str, act: Callable[[ServingActions, str], str]) -> None:
        replica_id = f"{self._app}#{self._deployment}#{self._chosen.value}"
        if not self._chosen.value:
            return
        self._said.show(waiting)
        run = self._record.view.run
        try:
            answer = await in_thread(lambda: act(ServingActions(run), replica_id))
        except (ActionFailed, ProgramUnreachable, OSError, KeyError, RuntimeError) as error:
            self._said.show(widgets.printable(error, 500))
            return
        is_stack = "\n" in answer
        self._said.show("" if is_stack else answer)
        self._stack.element.visible = is_stack
        self._stack.set(answer if is_stack else "")


_REPLICAS = (
    Column(name="id", label="Replica", kind="mono"),
    Column(name="state", label="State", kind="state"),
    Column(name="ongoing", label="In flight", number=True),
    Column(name="rank", label="Rank", number=True),
    Column(name="pid", label="Process", number=True),
    Column(name="node", label="Node", kind="mono", minor=True),
    Column(name="started", label="Started", number=True, minor=True),
    Column(name="constructor", label="Constructor", number=True, minor=True),
    Column(name="message", label="Message", yielding=True, sortable=False),
)


def _replica_row(replica: ReplicaView) -> dict[str, object]:
    return {
        "key": replica.id,
        "id": replica.short_id,
        "state": _STATES.get(replica.state, replica.state.lower().replace("_", " ")),
        "ongoing": replica.ongoing,
        "rank": replica.rank,
        "pid": replica.pid if replica.pid is not None else "",
        "node": replica.node[-12:],
        "started": widgets.ago(replica.started),
        "constructor": widgets.duration(replica.constructor_s),
        "message": widgets.printable(replica.message, 300),
    }
