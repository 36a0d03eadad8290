"""Engines as tables: rows for nodes, resources, actors and tasks, and sentences about them.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from syncline.core.engine import ActorListing, TaskListing
from syncline.dashboard.engines import EngineLook, Node
from syncline.dashboard.look.text import duration, percent, size

Row = dict[str, object]


def amount(resource: str, value: float) -> str:
    """An amount of a resource: memory in binary units, the rest as a short number."""
    return size(value) if resource.endswith("memory") else f"{value:g}"


def amounts(resources: Mapping[str, float]) -> str:
    """Several resources: "1 CPU, 2.0 GiB memory"."""
    return ", ".join(f"{amount(name, value)} {name}" for name, value in resources.items())


def in_use(engine: EngineLook, resource: str) -> str:
    """How much of a resource is in use: "3 of 4"."""
    both = engine.resources.get(resource)
    return (
        "-"
        if both is None
        else f"{amount(resource, both['used'])} of {amount(resource, both['total'])}"
    )


def node_names(nodes: Iterable[Node]) -> dict[str, str]:
    """What nodes are called by their ids: by host, and with the address where several are on one
    host.
    """
    nodes = list(nodes)
    hosts = [node.hostname for node in nodes]
    return {
        node.node_id: node.hostname
        if node.hostname and hosts.count(node.hostname) == 1
        else f"{node.hostname} {node.node_id[:8]}".strip()
        for node in nodes
    }


def node_rows(nodes: Sequence[Node]) -> list[Row]:
    """A row for each node."""
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
    """A row for each resource."""
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
    """A row for each actor; `names` are those of the nodes."""
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
    """A row for each name and state of tasks."""
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
    """A row for each task that runs; `now` in seconds since the epoch."""
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
    """What is said where a table does not show everything; empty where it does."""
    return f"{shown} of {total} {what} are shown." if shown < total else ""
