"""Panels of the serving page: all applications, and one application with its deployments."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from syncline.dashboard import widgets
from syncline.dashboard.pages.serving_record import (
    RangeChoice,
    ServingRecord,
    chart,
    latency_curves,
    milliseconds,
    percentile_cells,
    rate_curves,
)
from syncline.dashboard.serving_figures import RECENT_S, error_share, quantile_ms
from syncline.dashboard.serving_state import ApplicationView, DeploymentView, graph_levels
from syncline.dashboard.widgets import Column

MAX_BOXES = 60

# -- overview

_APPLICATIONS = (
    Column(name="name", label="Application", yielding=True),
    Column(name="status", label="Status", kind="state"),
    Column(name="route", label="Route"),
    Column(name="rate", label="Requests/s", number=True),
    Column(name="errors", label="Errors", number=True),
    Column(name="p50", label="p50 ms", number=True),
    Column(name="p99", label="p99 ms", number=True),
    Column(name="replicas", label="Replicas", number=True, minor=True),
    Column(name="deployed", label="Deployed", number=True, minor=True),
)


class OverviewPanel:
    """All applications and proxies."""

    def __init__(self, record: ServingRecord) -> None:
        self._record = record
        with widgets.section(
            "Applications", f"Rates and percentiles of the last {RECENT_S:.0f} seconds."
        ):
            self._table = widgets.DataTable(
                _APPLICATIONS, row_key="key", label="Applications", rows_per_page=50
            )
            self._proxies = widgets.Text("p", "", "sl-soft")

    def update(self) -> None:
        """Show the current record."""
        state = self._record.state
        self._table.set([application_row(self._record, each) for each in state.applications])
        said = [
            f"{each.address or each.node[:12]}: {each.status.lower()}" for each in state.proxies
        ]
        self._proxies.show(f"Proxies: {', '.join(said[:20])}" if said else "")


def application_row(record: ServingRecord, application: ApplicationView) -> dict[str, object]:
    """Return the table row of an application."""
    whole = record.application(application.name).whole
    requests = whole.requests / RECENT_S
    replicas = sum(each.running for each in application.deployments)
    return {
        "key": application.name,
        "name": application.name,
        "name:link": record.url(application.name),
        "name:title": application.message,
        "name:sub": application.message.partition("\n")[0][:160],
        "status": record.status(application.status),
        "route": application.route or "-",
        "rate": requests,
        "rate:text": f"{requests:,.1f}",
        "errors": whole.errors,
        "errors:text": widgets.percent(error_share(whole)) if whole.errors else "0",
        **percentile_cells(quantile_ms(whole.total, 0.5), quantile_ms(whole.total, 0.99)),
        "replicas": replicas,
        "deployed": widgets.ago(application.deployed),
    }


# -- one application

_DEPLOYMENTS = (
    Column(name="name", label="Deployment", yielding=True),
    Column(name="status", label="Status", kind="state"),
    Column(name="replicas", label="Replicas", number=True),
    Column(name="rate", label="Calls/s", number=True),
    Column(name="errors", label="Errors", number=True),
    Column(name="p50", label="p50 ms", number=True),
    Column(name="p99", label="p99 ms", number=True),
    Column(name="queued", label="Queued", number=True),
    Column(name="ongoing", label="In flight", number=True, minor=True),
)


class ApplicationPanel:
    """One application: its requests, and its deployments as a graph and a table."""

    def __init__(self, record: ServingRecord, name: str) -> None:
        self._record = record
        self._name = name
        widgets.link("← Applications", record.url())
        self._gone = widgets.note("", "warning")
        with widgets.section(f"Application {name}"):
            with ui.element("div").classes("sl-bar"):
                self._state = widgets.StateBadge()
                self._message = widgets.Text("span", "", "sl-soft")
                self._range = RangeChoice(self.update)
            self._facts = widgets.Facts()
            with ui.element("div").classes("sl-charts"):
                self._rates = chart("Requests per second")
                self._latency = chart("Latency at the proxy", "ms")
        with widgets.section("Deployments", "In the order of calls, from the ingress on."):
            self._graph = DeploymentGraph(record)
            self._table = widgets.DataTable(
                _DEPLOYMENTS, row_key="key", label="Deployments", rows_per_page=50
            )

    def update(self) -> None:
        """Show the current record."""
        application = self._record.state.application(self._name)
        self._gone.show("" if application else "The application does not run any more.")
        range_ = self._range.value
        lines = self._record.application(self._name, range_.file, range_.seconds)
        self._rates.set(rate_curves(lines))
        self._latency.set(latency_curves(lines, lambda line: line.total))
        whole = self._record.application(self._name).whole
        self._facts.set(
            {
                "Route": application.route if application and application.route else "-",
                "Requests/s": f"{whole.requests / RECENT_S:,.1f}",
                "Errors": widgets.percent(error_share(whole)) if whole.errors else "0",
                "p50": f"{milliseconds(quantile_ms(whole.total, 0.5))} ms",
                "p99": f"{milliseconds(quantile_ms(whole.total, 0.99))} ms",
                "Status codes": ", ".join(
                    f"{code}: {widgets.number(count)}" for code, count in whole.status.items()
                )
                or "-",
            }
        )
        if application is None:
            self._state.set("stopped")
            return
        self._state.set(self._record.status(application.status))
        self._message.put(application.message)
        self._graph.set(application)
        ordered = [each for level in graph_levels(application) for each in level]
        self._table.set([deployment_row(self._record, each) for each in ordered])


def deployment_row(record: ServingRecord, deployment: DeploymentView) -> dict[str, object]:
    """Return the table row of a deployment."""
    whole = record.deployment(deployment.app, deployment.name).whole
    calls = whole.requests / RECENT_S
    return {
        "key": deployment.key,
        "name": deployment.name,
        "name:link": record.url(deployment.app, deployment.name),
        "name:sub": deployment.message.partition("\n")[0][:160],
        "status": record.status(deployment.status),
        "replicas": deployment.running,
        "replicas:text": f"{deployment.running} of {deployment.wanted}",
        "rate": calls,
        "rate:text": f"{calls:,.1f}",
        "errors": whole.errors,
        "errors:text": widgets.percent(error_share(whole)) if whole.errors else "0",
        **percentile_cells(quantile_ms(whole.handling, 0.5), quantile_ms(whole.handling, 0.99)),
        "queued": deployment.queued,
        "ongoing": deployment.ongoing,
    }


class DeploymentGraph:
    """Deployments as boxes, in the direction of their calls."""

    def __init__(self, record: ServingRecord) -> None:
        self._record = record
        self._shape: object = None
        self._figures: dict[str, widgets.Text] = {}
        self.element = ui.element("ol").classes("sl-graph")
        self.element.props["aria-label"] = "Deployments in the order of calls"

    def set(self, application: ApplicationView) -> None:
        """Show the deployments of an application."""
        levels = graph_levels(application)
        shape = [[(each.key, each.calls) for each in level] for level in levels]
        if shape != self._shape:
            self._shape = shape
            self._build(levels)
        for each in application.deployments:
            figures = self._figures.get(each.key)
            if figures is not None:
                whole = self._record.deployment(each.app, each.name).whole
                p99 = milliseconds(quantile_ms(whole.handling, 0.99))
                figures.put(
                    f"{whole.requests / RECENT_S:,.1f}/s · p99 {p99} ms · "
                    f"{each.running} of {each.wanted} replicas"
                )

    def _build(self, levels: Sequence[Sequence[DeploymentView]]) -> None:
        self.element.clear()
        self._figures.clear()
        room = MAX_BOXES
        with self.element:
            for level in levels:
                with ui.element("li"), ui.element("div").classes("sl-level"):
                    for each in level[:room]:
                        self._box(each)
                room = max(0, room - len(level))

    def _box(self, deployment: DeploymentView) -> None:
        with ui.element("div").classes("sl-operator"):
            widgets.link(deployment.name, self._record.url(deployment.app, deployment.name))
            self._figures[deployment.key] = widgets.Text("span", "", "sl-soft")
            own = f"{deployment.app}#"
            called = [key.removeprefix(own) for key in deployment.calls]
            if called:
                widgets.Text("span", f"calls {', '.join(called[:20])}", "sl-soft")
