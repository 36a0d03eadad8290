"""State of the cluster: the calling code's ids, draining nodes, actors, tasks and the timeline.

Listings come from the tables of the cluster's head and need no dashboard. The head learns of tasks
with a delay of about a second and stores the latest hundred thousand. Reading them takes time in
proportion to their number: do not poll without pauses.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import ray
from ray.core.generated import common_pb2, gcs_pb2
from ray.exceptions import RayError

from syncline.core.engine import (
    ActorInfo,
    ActorListing,
    ActorRecord,
    ActorStateName,
    Row,
    RuntimeInfo,
    TaskInfo,
    TaskListing,
    TaskStateName,
    trace_event,
)
from syncline.core.runtime_env import Env

_IN_GROUP = re.compile(r"_group_(\d+_)?[0-9a-f]{36}$")
_ACTOR_STATES: dict[str, ActorStateName] = {
    "DEPENDENCIES_UNREADY": "PENDING",
    "PENDING_CREATION": "PENDING",
    "ALIVE": "ALIVE",
    "RESTARTING": "RESTARTING",
}
"""Our state by Ray's, for actors that have not ended."""
_WAITING = (common_pb2.TaskStatus.NIL, common_pb2.TaskStatus.PENDING_ARGS_AVAIL)
_RUNNING = (
    common_pb2.TaskStatus.RUNNING,
    common_pb2.TaskStatus.RUNNING_IN_RAY_GET,
    common_pb2.TaskStatus.RUNNING_IN_RAY_WAIT,
)
_ENDED = (common_pb2.TaskStatus.FINISHED, common_pb2.TaskStatus.FAILED)
_HEAD_ERRORS = (RayError, ConnectionError, TimeoutError, OSError, RuntimeError)

TaskEvent = Any
"""Ray's message `TaskEvents`, or a row of its actor table."""
TaskEvents = Iterable[TaskEvent]


# -- the calling code


_actor_here: ActorRecord | None = None
"""The actor that this Ray worker is."""


def set_actor(record: ActorRecord) -> None:
    """Record that this worker is an actor."""
    global _actor_here
    _actor_here = record


def is_worker() -> bool:
    """Return True in a Ray worker, False in the driver."""
    return bool(ray._private.worker.global_worker.mode == ray.WORKER_MODE)


def runtime_info(environment: Env) -> RuntimeInfo:
    """Return facts about the calling thread; `environment` is the driver's."""
    context = ray.get_runtime_context()
    common = {
        "job_id": context.get_job_id(),
        "node_id": context.get_node_id(),
        "worker_id": context.get_worker_id(),
        "namespace": context.namespace,
    }
    if not is_worker():
        return RuntimeInfo(**common, runtime_env=environment)
    group = context.get_placement_group_id()
    actor = _actor_here
    return RuntimeInfo(
        **common,
        task_id=context.get_task_id(),
        task_name=context.get_task_name(),
        actor_id=context.get_actor_id(),
        actor_name=context.get_actor_name() or None if actor is not None else None,
        actor=actor,
        was_restarted=actor is not None and _was_restarted(context.get_actor_id()),
        placement_group_id=None if group is None else int(group, 16),
        captures_child_tasks=group is None or context.should_capture_child_tasks_in_placement_group,
        assigned_resources=plain_resources(context.get_assigned_resources()),
        gpu_ids=tuple(str(gpu) for gpu in context.get_accelerator_ids().get("GPU", ())),
        runtime_env=dict(context.runtime_env),
    )


@lru_cache(maxsize=1)
def _was_restarted(actor_id: str) -> bool:
    """Return True if this process's actor has restarted.

    Ray's own property sends a request each time and prints a warning.
    """
    row = ray._private.state.actors(actor_id=actor_id)
    return bool(row and row["NumRestarts"])


def plain_resources(assigned: Mapping[str, float]) -> dict[str, float]:
    """Return amounts by plain resource name.

    Inside a placement group, Ray calls the group's part of CPU `CPU_group_…`.
    """
    plain: dict[str, float] = {}
    for name, amount in assigned.items():
        base = _IN_GROUP.sub("", name)
        if base != "bundle":
            plain[base] = max(plain.get(base, 0), amount)
    return plain


def draining_nodes() -> dict[str, float | None]:
    """Return the nodes that the cluster will lose, as `Engine.draining_nodes` does."""
    deadlines_ms = ray._private.state.state.get_draining_nodes()
    return {node_id: deadline_ms / 1000 or None for node_id, deadline_ms in deadlines_ms.items()}


# -- listings


def actors(limit: int) -> ActorListing:
    """See `Engine.actors`."""
    try:
        accessor = ray._private.state.state._connect_and_get_accessor()
        data = [row for name in _ACTOR_STATES for row in accessor.get_actor_table(None, name)]
    except _HEAD_ERRORS as error:
        return ActorListing(unknown=_unknown("actors", error))
    rows = [gcs_pb2.ActorTableData.FromString(row) for row in data[:limit]]
    return ActorListing(actors=tuple(_actor(row) for row in rows), total=len(data))


def tasks(limit: int) -> TaskListing:
    """See `Engine.tasks`."""
    try:
        events = ray._private.state.state._get_all_task_events()
    except _HEAD_ERRORS as error:
        return TaskListing(unknown=_unknown("tasks", error))
    return task_listing(events, limit)


def task_listing(events: TaskEvents, limit: int) -> TaskListing:
    """Summarize Ray's task events; of several attempts at a task, the last counts."""
    latest: dict[bytes, TaskEvent] = {}
    for event in events:
        known = latest.get(event.task_id)
        if known is None or known.attempt_number <= event.attempt_number:
            latest[event.task_id] = event
    living = [(event, state) for event in latest.values() if (state := _state(event)) is not None]
    counts = Counter((event.task_info.name, state) for event, state in living)
    running = (_task(event) for event, state in living if state == "RUNNING")
    return TaskListing.of(counts, running, limit)


def _actor(row: TaskEvent) -> ActorInfo:
    lives = bool(row.pid) and row.state == gcs_pb2.ActorTableData.ActorState.ALIVE
    return ActorInfo(
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


def _task(event: TaskEvent) -> TaskInfo:
    updates = event.state_updates
    began_ns = updates.state_ts_ns.get(common_pb2.TaskStatus.RUNNING)
    return TaskInfo(
        task_id=event.task_id.hex(),
        name=event.task_info.name,
        state="RUNNING",
        pid=updates.worker_pid or None,
        node_id=updates.node_id.hex() or None,
        started=began_ns / 1e9 if began_ns else None,
    )


def _state(event: TaskEvent) -> TaskStateName | None:
    """Return the state; None for a finished task and for the driver, which Ray counts as one."""
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
    return f"the cluster's head did not return its {what}: {error}"


# -- timeline


def timeline() -> list[Row]:
    """Return one event per finished task and call, with a delay of about a second."""
    return trace_events(ray._private.state.state._get_all_task_events())


def trace_events(events: TaskEvents) -> list[Row]:
    """Convert to Chrome trace events, sorted by start time. Times are in microseconds."""
    found = [event for event in map(_trace_event, events) if event is not None]
    return sorted(found, key=lambda event: event["ts"])


def _trace_event(task: TaskEvent) -> Row | None:
    updates = task.state_updates
    times = updates.state_ts_ns
    began = times.get(common_pb2.TaskStatus.RUNNING)
    ended = next((times[status] for status in _ENDED if times.get(status)), 0)
    if not began or not ended:
        return None
    return trace_event(
        task.task_info.name,
        pid=updates.node_id.hex(),
        tid=updates.worker_pid,
        started=began / 1e9,
        ended=ended / 1e9,
        args={"task_id": task.task_id.hex(), "attempt": task.attempt_number},
    )
