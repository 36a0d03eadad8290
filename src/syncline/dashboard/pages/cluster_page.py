"""Page of the cluster, if there is one, and of the programs on this machine that run the embedded
engine. Read-only.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from nicegui import ui

from syncline import settings
from syncline.core.engine import ActorListing, TaskListing
from syncline.dashboard import widgets
from syncline.dashboard.cluster_poller import ClusterSnapshot, shared_poller
from syncline.dashboard.engine_snapshots import (
    EngineSnapshot,
    MachineSnapshot,
    Node,
    ProgramSnapshot,
    machine_snapshot,
)
from syncline.dashboard.formatting import amount, duration, percent
from syncline.dashboard.pages.run_view import in_thread
from syncline.dashboard.program_metrics import metric_rows
from syncline.dashboard.widgets import Column

NOTHING = (
    "There is no cluster, and no program on this machine has workers. Programs appear after "
    "`syncline.init()`, `fit()` or their first task. A cluster appears with "
    "`syncline dashboard --address HOST:PORT`, or after `syncline start` on this machine."
)
NODES_AT_ONCE = 50
STACKED = "display: grid; grid-template-columns: minmax(0, 1fr); gap: 12px; width: 100%"
NODES = (
    Column(name="host", label="Host", yielding=True),
    Column(name="address", label="Address"),
    Column(name="state", label="State", kind="state"),
    Column(name="resources", label="Resources", yielding=True),
    Column(name="accelerators", label="Accelerators", minor=True),
    Column(name="short", label="ID", kind="mono", minor=True),
)
RESOURCES = (
    Column(name="name", label="Resource", yielding=True),
    Column(name="used", label="In use", number=True),
    Column(name="total", label="Total", number=True),
    Column(name="share", label="Share", number=True),
)
ACTORS = (
    Column(name="class", label="Class", yielding=True),
    Column(name="name", label="Name", yielding=True, minor=True),
    Column(name="state", label="State", kind="state"),
    Column(name="pid", label="Process", number=True),
    Column(name="node", label="Node", minor=True),
    Column(name="resources", label="Resources", minor=True),
    Column(name="restarts", label="Restarts", number=True, minor=True),
    Column(name="pending", label="Pending calls", number=True, minor=True),
)
COUNTS = (
    Column(name="name", label="Task", yielding=True),
    Column(name="state", label="State", kind="state"),
    Column(name="count", label="Count", number=True),
)
RUNNING = (
    Column(name="name", label="Running task", yielding=True),
    Column(name="pid", label="Process", number=True),
    Column(name="node", label="Node", minor=True),
    Column(name="since", label="Running for", number=True),
)
METRICS = (
    Column(name="name", label="Metric", yielding=True),
    Column(name="tags", label="Tags", yielding=True),
    Column(name="value", label="Value", number=True),
)


class ClusterPage:
    """Nodes, resources, actors and tasks. `update` runs on the event loop every two seconds."""

    def __init__(self, address: str | None) -> None:
        self._poller = shared_poller(address or settings.address())
        self._programs: dict[str, ProgramPanel] = {}
        self._cluster: ClusterPanel | None = None
        with ui.element("div").classes("sl-title-row"):
            widgets.Text("h1", "Nodes, actors and tasks", "sl-title")
        self._note = widgets.note("Loading …")
        self._note.props["role"] = "status"
        self._cluster_place, self._programs_place = (
            ui.element("div").style(STACKED) for _ in range(2)
        )

    async def update(self) -> None:
        """Take new snapshots and show them."""
        machine = await in_thread(machine_snapshot)
        self.show(machine, self._poller.snapshot(), time.time())

    def show(self, machine: MachineSnapshot, cluster: ClusterSnapshot | None, now: float) -> None:
        """Show snapshots; `now` in seconds since the epoch."""
        self._show_cluster(cluster, now)
        self._show_programs(machine, now)
        text = NOTHING if cluster is None and not machine.programs else ""
        if machine.others:
            text = f"{machine.others} older programs are not shown."
        self._note.show(text)

    def _show_cluster(self, cluster: ClusterSnapshot | None, now: float) -> None:
        self._cluster_place.visible = cluster is not None
        if cluster is None:
            self._cluster_place.clear()
            self._cluster = None
            return
        if self._cluster is None:
            with self._cluster_place:
                self._cluster = ClusterPanel()
        self._cluster.show(cluster, now)

    def _show_programs(self, machine: MachineSnapshot, now: float) -> None:
        there = {program.key: program for program in machine.programs}
        for key in [key for key in self._programs if key not in there]:
            self._programs.pop(key).element.delete()
        for place, (key, program) in enumerate(there.items()):
            if key not in self._programs:
                with self._programs_place:
                    self._programs[key] = ProgramPanel(program)
                self._programs[key].element.move(target_index=place)
            self._programs[key].show(program, now)


class ClusterPanel:
    """Section of the cluster."""

    def __init__(self) -> None:
        with widgets.section("Cluster", anchor="cluster"):
            self._state = widgets.note("")
            self._engine = EnginePanel(with_nodes=True)

    def show(self, cluster: ClusterSnapshot, now: float) -> None:
        """Show a snapshot."""
        where = "on this machine" if cluster.address == "auto" else f"at {cluster.address}"
        if cluster.problem is not None:
            older = " The values below are outdated." if cluster.engine is not None else ""
            text = f"Cannot query the cluster {where}: {cluster.problem.rstrip('.')}.{older}"
        else:
            text = "" if cluster.engine is not None else f"Connecting to the cluster {where} …"
        self._state.show(text)
        self._engine.show(cluster.engine, now)


class ProgramPanel:
    """Section of one program on this machine."""

    def __init__(self, program: ProgramSnapshot) -> None:
        with widgets.section(
            f"Process {program.pid}", anchor=f"process-{program.pid}"
        ) as self.element:
            widgets.Mono(program.command, label=f"Command of process {program.pid}")
            widgets.Text(
                "p",
                f"Running since {widgets.moment(program.started)} with its own workers.",
                "sl-soft",
            )
            self._problem = widgets.note("", "warning")
            self._engine = EnginePanel(with_nodes=False)
            with widgets.Expandable("Metrics", opened=True) as self._metrics_panel:
                self._metrics = widgets.DataTable(METRICS, row_key="id", label="Metrics")

    def show(self, program: ProgramSnapshot, now: float) -> None:
        """Show a snapshot."""
        self._problem.show(program.problem or "")
        self._engine.show(program.engine, now)
        rows = metric_rows(program.metrics)
        self._metrics_panel.element.visible = bool(rows)
        self._metrics.set(rows)


class EnginePanel:
    """Counts and tables of one engine."""

    def __init__(self, *, with_nodes: bool) -> None:
        with ui.element("div").style(STACKED) as self._element:
            self._facts = widgets.Facts()
            self._nodes: widgets.DataTable | None = None
            if with_nodes:
                with widgets.Expandable("Nodes", opened=True):
                    self._nodes = widgets.DataTable(
                        NODES, row_key="id", label="Nodes", rows_per_page=NODES_AT_ONCE
                    )
            with widgets.Expandable("Resources", opened=with_nodes):
                self._resources = widgets.DataTable(RESOURCES, row_key="name", label="Resources")
            with widgets.Expandable("Actors", opened=True):
                self._actors = widgets.DataTable(ACTORS, row_key="id", label="Actors")
                self._actors_note = widgets.Text("p", "", "sl-soft")
            with widgets.Expandable("Tasks and calls", opened=True):
                self._counts = widgets.DataTable(
                    COUNTS, row_key="id", label="Tasks by name and state"
                )
                self._running = widgets.DataTable(RUNNING, row_key="id", label="Running tasks")
                self._tasks_note = widgets.Text("p", "", "sl-soft")

    def show(self, engine: EngineSnapshot | None, now: float) -> None:
        """Show a snapshot, or hide the panel without one."""
        self._element.visible = engine is not None
        if engine is None:
            return
        names = node_names(engine.nodes)
        alive = sum(node.alive for node in engine.nodes)
        dead = len(engine.nodes) - alive
        self._facts.set(
            {
                "Nodes": f"{alive} ({dead} dead)" if dead else alive,
                "CPU in use": in_use(engine, "CPU"),
                "GPU in use": in_use(engine, "GPU"),
                "Actors": "unknown" if engine.actors.unknown else engine.actors.total,
                "Tasks and calls": "unknown" if engine.tasks.unknown else engine.tasks.total,
            }
        )
        if self._nodes is not None:
            self._nodes.set(node_rows(engine.nodes))
        self._resources.set(resource_rows(engine.resources))
        self._show_actors(engine.actors, names)
        self._show_tasks(engine.tasks, names, now)

    def _show_actors(self, listing: ActorListing, names: Mapping[str, str]) -> None:
        self._actors.set(actor_rows(listing, names))
        self._actors.element.visible = bool(listing.actors)
        nothing = "" if listing.actors else "No actors."
        self._actors_note.put(
            listing.unknown or left_out(len(listing.actors), listing.total, "actors") or nothing
        )

    def _show_tasks(self, listing: TaskListing, names: Mapping[str, str], now: float) -> None:
        self._counts.set(count_rows(listing))
        self._running.set(running_rows(listing, names, now))
        self._counts.element.visible = bool(listing.counts)
        self._running.element.visible = bool(listing.running)
        running = sum(row.count for row in listing.counts if row.state == "RUNNING")
        nothing = "" if listing.counts else "No tasks."
        self._tasks_note.put(
            listing.unknown or left_out(len(listing.running), running, "running tasks") or nothing
        )


Row = dict[str, object]


def amounts(resources: Mapping[str, float]) -> str:
    """Format several resources: "1 CPU, 2.0 GiB memory"."""
    return ", ".join(f"{amount(name, value)} {name}" for name, value in resources.items())


def in_use(engine: EngineSnapshot, resource: str) -> str:
    """Format the used share of a resource: "3 of 4"."""
    if resource not in engine.resources:
        return "-"
    both = engine.resources[resource]
    return f"{amount(resource, both['used'])} of {amount(resource, both['total'])}"


def node_names(nodes: Iterable[Node]) -> dict[str, str]:
    """Return display names of nodes by ID: the host, with part of the ID if it is not unique."""
    nodes = list(nodes)
    hosts = [node.hostname for node in nodes]
    return {
        node.node_id: node.hostname
        if node.hostname and hosts.count(node.hostname) == 1
        else f"{node.hostname} {node.node_id[:8]}".strip()
        for node in nodes
    }


def node_rows(nodes: Sequence[Node]) -> list[Row]:
    """Return a table row for each node."""
    return [
        {
            "id": node.node_id,
            "short": node.node_id[:12],
            "address": node.address,
            "host": node.hostname + (" (head)" if node.head else ""),
            "state": "alive" if node.alive else "dead",
            "resources": amounts(
                {
                    name: value
                    for name, value in node.resources.items()
                    if name != "object_store_memory"
                }
            ),
            "accelerators": ", ".join(node.accelerators),
        }
        for node in nodes
    ]


def resource_rows(resources: Mapping[str, Mapping[str, float]]) -> list[Row]:
    """Return a table row for each resource."""
    return [
        {
            "name": name,
            "used": both["used"],
            "used:text": amount(name, both["used"]),
            "total": both["total"],
            "total:text": amount(name, both["total"]),
            "share": both["used"] / both["total"] if both["total"] else None,
            "share:text": percent(both["used"] / both["total"] if both["total"] else None),
        }
        for name, both in resources.items()
    ]


def actor_rows(listing: ActorListing, names: Mapping[str, str]) -> list[Row]:
    """Return a table row for each actor; `names` are the display names of nodes."""
    return [
        {
            "id": actor.actor_id,
            "class": actor.class_name,
            "name": actor.name or "",
            "state": actor.state.lower(),
            "pid": actor.pid,
            "node": names.get(actor.node_id, actor.node_id[:8]) if actor.node_id else "",
            "resources": amounts(actor.resources),
            "restarts": actor.restarts,
            "pending": actor.pending_calls,
        }
        for actor in listing.actors
    ]


def count_rows(listing: TaskListing) -> list[Row]:
    """Return a table row for each task name and state."""
    return [
        {
            "id": f"{row.state} {row.name}",
            "name": row.name,
            "state": row.state.lower(),
            "count": row.count,
        }
        for row in listing.counts
    ]


def running_rows(listing: TaskListing, names: Mapping[str, str], now: float) -> list[Row]:
    """Return a table row for each running task; `now` in seconds since the epoch."""
    return [
        {
            "id": task.task_id,
            "name": task.name,
            "pid": task.pid,
            "node": names.get(task.node_id, task.node_id[:8]) if task.node_id else "",
            "since": None if task.started is None else now - task.started,
            "since:text": "-" if task.started is None else duration(max(0.0, now - task.started)),
        }
        for task in listing.running
    ]


def left_out(shown: int, total: int, what: str) -> str:
    """Return a note if a table is incomplete, otherwise ""."""
    return f"{shown} of {total} {what} are shown." if shown < total else ""
