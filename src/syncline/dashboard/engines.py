"""What runs where: the engines of programs on this machine, and a cluster's, as the cluster page
and `syncline status` show them.

Everything here is a frozen snapshot with plain values. `programs_here` asks the programs through
their control sockets, and `described` makes the snapshot of what an engine said; a cluster is asked
by `cluster_watch`. Command lines are shown without what looks like a secret.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import psutil

from syncline.core import control
from syncline.core.control import ActionFailed, NobodyAnswers, Program
from syncline.core.engine import ActorFacts, ActorListing, TaskCount, TaskFacts, TaskListing
from syncline.runs.secrets import masked_code

LIMIT_S = 3.0
"""How long one program may take over one answer."""
ROWS = 200
"""Actors, running tasks and kinds of tasks that are asked for."""
MOST_PROGRAMS = 50
"""Programs that are asked, the latest; others are only counted."""
COMMAND_LENGTH = 500
UNREADABLE = (TypeError, KeyError, ValueError, AttributeError)
_AT_ONCE = 8
_BOOKKEEPING = ("node:", "accelerator_type:")
_ORDER = ("CPU", "GPU", "memory", "object_store_memory")


@dataclass(frozen=True, kw_only=True)
class Node:
    """One machine of an engine; the `--json` of commands gives these names."""

    node_id: str
    address: str
    hostname: str
    alive: bool
    head: bool
    resources: Mapping[str, float]
    """What it has for tasks."""
    accelerators: Sequence[str]
    """Models of its GPUs."""
    labels: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class EngineLook:
    """An engine at one moment."""

    nodes: tuple[Node, ...]
    resources: Mapping[str, Mapping[str, float]]
    """{resource: {"used", "total"}}."""
    actors: ActorListing
    tasks: TaskListing


@dataclass(frozen=True, kw_only=True)
class ProgramLook:
    """A program of this user on this machine."""

    key: str
    """Tells it from all others, also from a later one with the same process id."""
    pid: int
    command: str
    """Its command line in one text, without secrets."""
    started: float
    """When the process began, in seconds since the epoch."""
    engine: EngineLook | None
    problem: str | None = None
    """Why nothing is known of its engine."""


@dataclass(frozen=True, kw_only=True)
class MachineLook:
    """The programs of this machine at one moment."""

    programs: tuple[ProgramLook, ...]
    """Those with an engine, the latest first."""
    others: int = 0
    """How many more there are."""


# -- programs of this machine


def programs_here() -> MachineLook:
    """The programs of this user on this machine that run the embedded engine. Takes milliseconds;
    seconds where one does not answer.
    """
    found = [
        program
        for program in control.programs()
        if program.subjects is None or control.ENGINE in program.subjects
    ]
    asked = found[:MOST_PROGRAMS]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        looks = list(threads.map(_look_at, asked))
    return MachineLook(
        programs=tuple(look for look in looks if look is not None), others=len(found) - len(asked)
    )


def _look_at(program: Program) -> ProgramLook | None:
    """What a program tells of its engine; None if it ended meanwhile."""
    engine, problem = None, None
    if program.subjects is None:
        problem = "It does not answer: it is stopped, or very busy."
    else:
        try:
            engine = _engine_of(program)
        except ActionFailed as error:
            problem = f"It cannot tell: {error}"
        except NobodyAnswers as error:
            if not psutil.pid_exists(program.pid):
                return None
            problem = f"It does not answer: {error}"
        except UNREADABLE as error:
            problem = (
                f"Its answers cannot be read; it may run another version of syncline ({error!r})."
            )
    return ProgramLook(
        key=program.socket,
        pid=program.pid,
        command=shown_command(program.command),
        started=program.started,
        engine=engine,
        problem=problem,
    )


def _engine_of(program: Program) -> EngineLook:
    def ask(action: str, arguments: Mapping[str, Any] | None = None) -> Any:
        return control.ask(program, control.ENGINE, action, arguments, LIMIT_S)

    limit = {"limit": ROWS}
    return described(
        {
            "nodes": ask("nodes"),
            "resources": ask("resources"),
            "actors": ask("actors", limit),
            "tasks": ask("tasks", limit),
        }
    )


def shown_command(command: Sequence[str]) -> str:
    """A command line as one text of bounded length, without secrets."""
    text = masked_code(shlex.join(command)) if command else "(unknown)"
    return text if len(text) <= COMMAND_LENGTH else f"{text[:COMMAND_LENGTH]}…"


# -- what engines say


def described(facts: Mapping[str, Any]) -> EngineLook:
    """The snapshot of what an engine said: "nodes", "resources", "actors" and "tasks", as the
    control point gives them.

    One of `UNREADABLE` for what another version of syncline says.
    """
    actors, tasks = facts["actors"], facts["tasks"]
    return EngineLook(
        nodes=tuple(sorted_nodes(map(node_of, facts["nodes"]))),
        resources=resources_in_use(facts["resources"]["total"], facts["resources"]["available"]),
        actors=ActorListing(
            actors=tuple(ActorFacts(**row) for row in actors["actors"]),
            total=actors["total"],
            unknown=actors.get("unknown"),
        ),
        tasks=TaskListing(
            counts=tuple(TaskCount(**row) for row in tasks["counts"]),
            running=tuple(TaskFacts(**row) for row in tasks["running"]),
            total=tasks["total"],
            unknown=tasks.get("unknown"),
        ),
    )


def node_of(fields: Mapping[str, Any]) -> Node:
    """A node in our words from the fields of `syncline.nodes()`."""
    resources = fields.get("Resources") or {}
    return Node(
        node_id=fields["NodeID"],
        address=fields.get("NodeManagerAddress", ""),
        hostname=fields.get("NodeManagerHostname", ""),
        alive=bool(fields.get("Alive")),
        head="node:__internal_head__" in resources,
        resources=people_resources(resources),
        accelerators=sorted(
            name.partition(":")[2] for name in resources if name.startswith("accelerator_type:")
        ),
        labels=fields.get("Labels") or {},
    )


def sorted_nodes(nodes: Iterable[Node]) -> list[Node]:
    """The living first, the head before all others."""
    return sorted(nodes, key=lambda node: (not node.alive, not node.head, node.address))


def people_resources(resources: Mapping[str, float]) -> dict[str, float]:
    """Resources without those that only serve the scheduler, the well-known first."""
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
    """{resource: {"used", "total"}}; a resource that is not free at all is missing in `free`."""
    return {
        name: {"used": max(0.0, value - free.get(name, 0.0)), "total": value}
        for name, value in people_resources(total).items()
    }
