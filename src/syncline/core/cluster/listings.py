"""The cluster's actors and tasks as people look at them, from the tables of its head; that needs no
dashboard on the head.

The head learns of tasks with a delay of about a second, and keeps the latest hundred thousand.
Reading them takes as long as there are many: those who look again and again should leave pauses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import ray
from ray.core.generated import common_pb2, gcs_pb2
from ray.exceptions import RayError

from syncline.core.cluster.facts import plain_resources
from syncline.core.engine import (
    ActorFacts,
    ActorListing,
    ActorStateName,
    TaskCount,
    TaskFacts,
    TaskListing,
    TaskStateName,
)

_ACTOR_STATES: dict[str, ActorStateName] = {
    "DEPENDENCIES_UNREADY": "PENDING",
    "PENDING_CREATION": "PENDING",
    "ALIVE": "ALIVE",
    "RESTARTING": "RESTARTING",
}
"""Ours by Ray's, of those that have not ended."""
_WAITING = (common_pb2.TaskStatus.NIL, common_pb2.TaskStatus.PENDING_ARGS_AVAIL)
_RUNNING = (
    common_pb2.TaskStatus.RUNNING,
    common_pb2.TaskStatus.RUNNING_IN_RAY_GET,
    common_pb2.TaskStatus.RUNNING_IN_RAY_WAIT,
)
_ENDED = (common_pb2.TaskStatus.FINISHED, common_pb2.TaskStatus.FAILED)
_HEAD_ERRORS = (RayError, ConnectionError, TimeoutError, OSError, RuntimeError)


def actors(limit: int) -> ActorListing:
    """As `Engine.actors`."""
    try:
        accessor = ray._private.state.state._connect_and_get_accessor()
        data = [row for name in _ACTOR_STATES for row in accessor.get_actor_table(None, name)]
    except _HEAD_ERRORS as error:
        return ActorListing(unknown=_unknown("actors", error))
    rows = [gcs_pb2.ActorTableData.FromString(row) for row in data[:limit]]
    return ActorListing(actors=tuple(_actor(row) for row in rows), total=len(data))


def tasks(limit: int) -> TaskListing:
    """As `Engine.tasks`."""
    try:
        events = ray._private.state.state._get_all_task_events()
    except _HEAD_ERRORS as error:
        return TaskListing(unknown=_unknown("tasks", error))
    return task_listing(events, limit)


def task_listing(events: Iterable[Any], limit: int) -> TaskListing:
    """What Ray's events of tasks come to; of several attempts at a task the last counts."""
    latest: dict[bytes, Any] = {}
    for event in events:
        known = latest.get(event.task_id)
        if known is None or known.attempt_number <= event.attempt_number:
            latest[event.task_id] = event
    living = [(event, state) for event in latest.values() if (state := _state(event)) is not None]
    counts = Counter((event.task_info.name, state) for event, state in living)
    running = [event for event, state in living if state == "RUNNING"]
    return TaskListing(
        counts=tuple(
            TaskCount(name=name, state=state, count=count)
            for (name, state), count in counts.most_common(limit)
        ),
        running=tuple(map(_task, running[:limit])),
        total=len(living),
    )


def _actor(row: Any) -> ActorFacts:
    lives = bool(row.pid) and row.state == gcs_pb2.ActorTableData.ActorState.ALIVE
    return ActorFacts(
        actor_id=row.actor_id.hex(),
        class_name=row.class_name,
        name=row.name or None,
        state=_ACTOR_STATES[gcs_pb2.ActorTableData.ActorState.Name(row.state)],
        pid=row.pid if lives else None,
        node_id=row.address.node_id.hex() if lives else None,
        resources=plain_resources(row.required_resources),
        restarts=row.num_restarts,
        pending_calls=None,  # each caller counts its own
    )


def _task(event: Any) -> TaskFacts:
    updates = event.state_updates
    began_ns = updates.state_ts_ns.get(common_pb2.TaskStatus.RUNNING)
    return TaskFacts(
        task_id=event.task_id.hex(),
        name=event.task_info.name,
        state="RUNNING",
        pid=updates.worker_pid or None,
        node_id=updates.node_id.hex() or None,
        started=began_ns / 1e9 if began_ns else None,
    )


def _state(event: Any) -> TaskStateName | None:
    """None for what has ended, and for the program itself, which Ray counts among its tasks."""
    times = event.state_updates.state_ts_ns
    if (
        event.task_info.type == common_pb2.TaskType.DRIVER_TASK
        or not event.HasField("task_info")
        or any(map(times.get, _ENDED))
    ):
        return None
    if any(map(times.get, _RUNNING)):
        return "RUNNING"
    return "WAITING" if all(status in _WAITING for status in times) else "QUEUED"


def _unknown(what: str, error: Exception) -> str:
    return f"the cluster's head does not tell its {what}: {error}"
