"""Snapshots of engines: those of programs on this machine, and that of a cluster.

Used by the cluster page and `syncline status`. `machine_snapshot` queries the programs through
their control sockets; `engine_snapshot` converts the answers of an engine. A cluster is queried by
`cluster_watch`. Command lines are shown with secrets masked.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import psutil

from syncline.core import control
from syncline.core.control import ActionFailed, Program, ProgramUnreachable
from syncline.core.engine import ActorInfo, ActorListing, TaskCount, TaskInfo, TaskListing
from syncline.core.resources import HEAD_NODE
from syncline.dashboard.program_metrics import metrics_of
from syncline.runs.json_values import Record
from syncline.runs.secrets import masked_code

LIMIT_S = 3.0
"""Seconds that one program may take for one answer."""
ROWS = 200
"""Maximum actors, running tasks and task counts in an answer."""
MAX_PROGRAMS = 50
"""Maximum number of programs queried, the latest first; others are only counted."""
COMMAND_LENGTH = 500
UNREADABLE = (TypeError, KeyError, ValueError, AttributeError)
_AT_ONCE = 8
_BOOKKEEPING = ("node:", "accelerator_type:")
_ORDER = ("CPU", "GPU", "memory", "object_store_memory")


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node of an engine; `--json` prints these fields."""

    node_id: str
    address: str
    hostname: str
    alive: bool
    head: bool
    resources: Mapping[str, float]
    """Resources for tasks."""
    accelerators: Sequence[str]
    """GPU models."""
    labels: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class EngineSnapshot:
    """State of an engine at one moment."""

    nodes: tuple[Node, ...]
    resources: Mapping[str, Mapping[str, float]]
    """{resource: {"used", "total"}}."""
    actors: ActorListing
    tasks: TaskListing


@dataclass(frozen=True, kw_only=True)
class ProgramSnapshot:
    """A program of this user on this machine."""

    key: str
    """Unique key, also among programs that reuse the PID."""
    pid: int
    command: str
    """Command line with secrets masked."""
    started: float
    """Start of the process in seconds since the epoch."""
    engine: EngineSnapshot | None
    problem: str | None = None
    """Reason why `engine` is None."""
    metrics: str = ""
    """Metrics of user code in the Prometheus format."""


@dataclass(frozen=True, kw_only=True)
class MachineSnapshot:
    """Programs of this machine at one moment."""

    programs: tuple[ProgramSnapshot, ...]
    """Programs with an engine, the latest first."""
    others: int = 0
    """Number of further programs."""


# -- programs of this machine


def machine_snapshot() -> MachineSnapshot:
    """Query the programs of this user that run the embedded engine. Takes milliseconds, or seconds
    if a program does not answer.
    """
    found = [
        program
        for program in control.programs()
        if program.subjects is None or control.ENGINE in program.subjects
    ]
    asked = found[:MAX_PROGRAMS]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        looks = list(threads.map(_program_snapshot, asked))
    return MachineSnapshot(
        programs=tuple(look for look in looks if look is not None), others=len(found) - len(asked)
    )


def _program_snapshot(program: Program) -> ProgramSnapshot | None:
    """Query the engine of a program; None if the program has ended since."""
    engine, problem, metrics = None, None, ""
    if program.subjects is None:
        problem = "The program does not answer: it is stopped or busy."
    else:
        try:
            engine = _engine_of(program)
            metrics = metrics_of(program)
        except ActionFailed as error:
            problem = f"The program reported an error: {error}"
        except ProgramUnreachable as error:
            if not psutil.pid_exists(program.pid):
                return None
            problem = f"The program does not answer: {error}"
        except UNREADABLE as error:
            problem = (
                f"The answers cannot be parsed; the program may run another version of syncline "
                f"({error!r})."
            )
    return ProgramSnapshot(
        key=program.socket,
        pid=program.pid,
        command=masked_command(program.command),
        started=program.started,
        engine=engine,
        problem=problem,
        metrics=metrics,
    )


def _engine_of(program: Program) -> EngineSnapshot:
    def ask(action: str, arguments: Record | None = None) -> Any:
        return control.request(program, control.ENGINE, action, arguments, LIMIT_S)

    limit = {"limit": ROWS}
    return engine_snapshot(
        {
            "nodes": ask("nodes"),
            "resources": ask("resources"),
            "actors": ask("actors", limit),
            "tasks": ask("tasks", limit),
        }
    )


def masked_command(command: Sequence[str]) -> str:
    """Return a command line as a text of bounded length with secrets masked."""
    text = masked_code(shlex.join(command)) if command else "(unknown)"
    return text if len(text) <= COMMAND_LENGTH else f"{text[:COMMAND_LENGTH]}…"


# -- answers of engines


def engine_snapshot(facts: Record) -> EngineSnapshot:
    """Convert the answers of an engine: "nodes", "resources", "actors" and "tasks", in the form of
    the control socket.

    Raises:
        TypeError, KeyError, ValueError, AttributeError: The answers come from another version of
            syncline (`UNREADABLE`).
    """
    actors, tasks = facts["actors"], facts["tasks"]
    return EngineSnapshot(
        nodes=tuple(sorted_nodes(map(parse_node, facts["nodes"]))),
        resources=resources_in_use(facts["resources"]["total"], facts["resources"]["available"]),
        actors=ActorListing(
            actors=tuple(ActorInfo(**row) for row in actors["actors"]),
            total=actors["total"],
            unknown=actors.get("unknown"),
        ),
        tasks=TaskListing(
            counts=tuple(TaskCount(**row) for row in tasks["counts"]),
            running=tuple(TaskInfo(**row) for row in tasks["running"]),
            total=tasks["total"],
            unknown=tasks.get("unknown"),
        ),
    )


def parse_node(fields: Record) -> Node:
    """Convert an item of `syncline.nodes()`."""
    resources = fields.get("Resources") or {}
    return Node(
        node_id=fields["NodeID"],
        address=fields.get("NodeManagerAddress", ""),
        hostname=fields.get("NodeManagerHostname", ""),
        alive=bool(fields.get("Alive")),
        head=HEAD_NODE in resources,
        resources=task_resources(resources),
        accelerators=sorted(
            name.partition(":")[2] for name in resources if name.startswith("accelerator_type:")
        ),
        labels=fields.get("Labels") or {},
    )


def sorted_nodes(nodes: Iterable[Node]) -> list[Node]:
    """Sort nodes: alive before dead, the head first."""
    return sorted(nodes, key=lambda node: (not node.alive, not node.head, node.address))


def task_resources(resources: Mapping[str, float]) -> dict[str, float]:
    """Return the resources without the scheduler's internal ones, CPU, GPU and memory first."""
    kept = {
        name: value
        for name, value in resources.items()
        if not name.startswith(_BOOKKEEPING)
        and not name.startswith("bundle")
        and "_group_" not in name
    }
    return dict(
        sorted(
            kept.items(),
            key=lambda item: (_ORDER.index(item[0]) if item[0] in _ORDER else len(_ORDER), item[0]),
        )
    )


def resources_in_use(
    total: Mapping[str, float], free: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """Return {resource: {"used", "total"}}; fully used resources are missing in `free`."""
    return {
        name: {"used": max(0.0, value - free.get(name, 0.0)), "total": value}
        for name, value in task_resources(total).items()
    }
