"""The page of what runs where: the cluster, if there is one, and the programs of this machine that
run the embedded engine.

What it shows is gathered by `engines` and `cluster_watch`; here it is drawn. Nothing on this page
acts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from nicegui import ui

from syncline import settings
from syncline.core.engine import ActorListing, TaskListing
from syncline.dashboard import engine_rows, look
from syncline.dashboard.cluster_watch import ClusterLook, watch_of
from syncline.dashboard.engines import EngineLook, MachineLook, ProgramLook, programs_here
from syncline.dashboard.look import Column
from syncline.dashboard.pages.view import in_thread

NOTHING = (
    "Nothing runs: there is no program with workers of its own on this machine, and no cluster. A program appears here as soon as it calls "
    "`syncline.init()`, `fit()` or its first task; a cluster with `syncline dashboard --address HOST:PORT`, or once `syncline start` has "
    "started a node here."
)
NODES_AT_ONCE = 50
STACKED = "display: grid; grid-template-columns: minmax(0, 1fr); gap: 12px; width: 100%"
NODES = (
    Column(name="host", label="Host", yielding=True),
    Column(name="address", label="Address"),
    Column(name="state", label="State", kind="state"),
    Column(name="resources", label="Has", yielding=True),
    Column(name="accelerators", label="Accelerators", minor=True),
    Column(name="short", label="Id", kind="mono", minor=True),
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
    Column(name="resources", label="Holds", minor=True),
    Column(name="restarts", label="Restarts", number=True, minor=True),
    Column(name="pending", label="Unanswered calls", number=True, minor=True),
)
COUNTS = (
    Column(name="name", label="Task", yielding=True),
    Column(name="state", label="State", kind="state"),
    Column(name="count", label="How many", number=True),
)
RUNNING = (
    Column(name="name", label="Runs now", yielding=True),
    Column(name="pid", label="Process", number=True),
    Column(name="node", label="Node", minor=True),
    Column(name="since", label="For", number=True),
)


class ClusterPage:
    """Nodes, resources, actors and tasks. `update` is called on the event loop every two
    seconds.
    """

    def __init__(self, address: str | None, may_act: bool) -> None:
        self._watch = watch_of(address or settings.address())
        self._programs: dict[str, ProgramPanel] = {}
        self._cluster: ClusterPanel | None = None
        with ui.element("div").classes("sl-title-row"):
            look.Text("h1", "What runs where", "sl-title")
        self._note = look.note("Looking …")
        self._note.props["role"] = "status"
        self._cluster_place, self._programs_place = (
            ui.element("div").style(STACKED) for _ in range(2)
        )

    async def update(self) -> None:
        """Look again, and show what is different."""
        machine = await in_thread(programs_here)
        self.show(machine, self._watch.look(), time.time())

    def show(self, machine: MachineLook, cluster: ClusterLook | None, now: float) -> None:
        """Show these looks; `now` in seconds since the epoch."""
        self._show_cluster(cluster, now)
        self._show_programs(machine, now)
        text = NOTHING if cluster is None and not machine.programs else ""
        if machine.others:
            text = f"{machine.others} programs that began earlier are not shown."
        self._note.put(text)
        self._note.visible = bool(text)

    def _show_cluster(self, cluster: ClusterLook | None, now: float) -> None:
        self._cluster_place.visible = cluster is not None
        if cluster is None:
            self._cluster_place.clear()
            self._cluster = None
            return
        if self._cluster is None:
            with self._cluster_place:
                self._cluster = ClusterPanel()
        self._cluster.show(cluster, now)

    def _show_programs(self, machine: MachineLook, now: float) -> None:
        there = {program.key: program for program in machine.programs}
        for key in [key for key in self._programs if key not in there]:
            self._programs.pop(key).delete()
        for place, (key, program) in enumerate(there.items()):
            if key not in self._programs:
                with self._programs_place:
                    self._programs[key] = ProgramPanel(program)
                self._programs[key].move_to(place)
            self._programs[key].show(program, now)


class ClusterPanel:
    """The cluster."""

    def __init__(self) -> None:
        with look.section("Cluster", anchor="cluster"):
            self._state = look.note("")
            self._engine = EnginePanel(with_nodes=True)

    def show(self, cluster: ClusterLook, now: float) -> None:
        """Show a look at it."""
        where = "of this machine" if cluster.address == "auto" else f"at {cluster.address}"
        if cluster.problem is not None:
            older = " What is below is from before." if cluster.engine is not None else ""
            text = f"The cluster {where} cannot be asked: {cluster.problem}.{older}"
        else:
            text = "" if cluster.engine is not None else f"Connecting to the cluster {where} …"
        self._state.put(text)
        self._state.visible = bool(text)
        self._engine.show(cluster.engine, now)


class ProgramPanel:
    """One program of this machine."""

    def __init__(self, program: ProgramLook) -> None:
        with look.section(
            f"Process {program.pid}", anchor=f"process-{program.pid}"
        ) as self._element:
            look.Mono(program.command, label=f"Command of process {program.pid}")
            look.Text(
                "p",
                f"Runs since {look.moment(program.started)}, with workers of its own on this machine.",
                "sl-soft",
            )
            self._problem = look.note("", "warning")
            self._engine = EnginePanel(with_nodes=False)

    def show(self, program: ProgramLook, now: float) -> None:
        """Show a look at it."""
        self._problem.put(program.problem or "")
        self._problem.visible = program.problem is not None
        self._engine.show(program.engine, now)

    def move_to(self, place: int) -> None:
        """Put it before those that are at this place and beyond."""
        self._element.move(target_index=place)

    def delete(self) -> None:
        """It has ended."""
        self._element.delete()


class EnginePanel:
    """What an engine says: counts, then tables that open."""

    def __init__(self, *, with_nodes: bool) -> None:
        with ui.element("div").style(STACKED) as self._element:
            with look.facts():
                self._facts = {
                    label: look.Fact(label)
                    for label in ("Nodes", "CPU in use", "GPU in use", "Actors", "Tasks and calls")
                }
            self._nodes: look.DataTable | None = None
            if with_nodes:
                with look.Expandable("Nodes", opened=True):
                    self._nodes = look.DataTable(
                        NODES, row_key="id", label="Nodes", rows_per_page=NODES_AT_ONCE
                    )
            with look.Expandable("Resources", opened=with_nodes):
                self._resources = look.DataTable(RESOURCES, row_key="name", label="Resources")
            with look.Expandable("Actors", opened=True):
                self._actors = look.DataTable(ACTORS, row_key="id", label="Actors")
                self._actors_note = look.Text("p", "", "sl-soft")
            with look.Expandable("Tasks and calls", opened=True):
                self._counts = look.DataTable(COUNTS, row_key="id", label="Tasks by name and state")
                self._running = look.DataTable(RUNNING, row_key="id", label="Running tasks")
                self._tasks_note = look.Text("p", "", "sl-soft")

    def show(self, engine: EngineLook | None, now: float) -> None:
        """Show a look at it; nothing where there is none."""
        self._element.visible = engine is not None
        if engine is None:
            return
        names = engine_rows.node_names(engine.nodes)
        alive = sum(node.alive for node in engine.nodes)
        dead = len(engine.nodes) - alive
        self._facts["Nodes"].set(f"{alive}, and {dead} dead" if dead else alive)
        self._facts["CPU in use"].set(engine_rows.in_use(engine, "CPU"))
        self._facts["GPU in use"].set(engine_rows.in_use(engine, "GPU"))
        self._facts["Actors"].set("unknown" if engine.actors.unknown else engine.actors.total)
        self._facts["Tasks and calls"].set(
            "unknown" if engine.tasks.unknown else engine.tasks.total
        )
        if self._nodes is not None:
            self._nodes.set(engine_rows.node_rows(engine.nodes))
        self._resources.set(engine_rows.resource_rows(engine.resources))
        self._show_actors(engine.actors, names)
        self._show_tasks(engine.tasks, names, now)

    def _show_actors(self, listing: ActorListing, names: Mapping[str, str]) -> None:
        self._actors.set(engine_rows.actor_rows(listing, names))
        self._actors.element.visible = bool(listing.actors)
        nothing = "" if listing.actors else "No actors."
        self._actors_note.put(
            listing.unknown
            or engine_rows.left_out(len(listing.actors), listing.total, "actors")
            or nothing
        )

    def _show_tasks(self, listing: TaskListing, names: Mapping[str, str], now: float) -> None:
        self._counts.set(engine_rows.count_rows(listing))
        self._running.set(engine_rows.running_rows(listing, names, now))
        self._counts.element.visible = bool(listing.counts)
        self._running.element.visible = bool(listing.running)
        running = sum(row.count for row in listing.counts if row.state == "RUNNING")
        nothing = "" if listing.counts else "No task runs or waits."
        self._tasks_note.put(
            listing.unknown
            or engine_rows.left_out(len(listing.running), running, "running tasks")
            or nothing
        )
