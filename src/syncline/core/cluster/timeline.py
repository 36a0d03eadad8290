"""What ran where and when, from the events that Ray keeps of every task, as Chrome trace events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import ray
from ray.core.generated import common_pb2

_BEGUN = (common_pb2.TaskStatus.RUNNING,)
_ENDED = (common_pb2.TaskStatus.FINISHED, common_pb2.TaskStatus.FAILED)


def events() -> list[dict[str, Any]]:
    """One event for every task and call that has ended; Ray reports them with a delay of about a
    second.
    """
    return trace_events(ray._private.state.state._get_all_task_events())


def trace_events(task_events: Iterable[Any]) -> list[dict[str, Any]]:
    """Chrome trace events, in the order of their beginnings. Times in microseconds."""
    found = [event for event in map(_trace_event, task_events) if event is not None]
    return sorted(found, key=lambda event: event["ts"])


def _trace_event(task: Any) -> dict[str, Any] | None:
    updates = task.state_updates
    began = _first(updates.state_ts_ns, _BEGUN)
    ended = _first(updates.state_ts_ns, _ENDED)
    if not began or not ended:
        return None
    return {
        "name": task.task_info.name,
        "cat": "task",
        "ph": "X",
        "pid": updates.node_id.hex(),
        "tid": updates.worker_pid,
        "ts": began / 1000,
        "dur": max(0.0, (ended - began) / 1000),
        "args": {"task_id": task.task_id.hex(), "attempt": task.attempt_number},
    }


def _first(times: Any, states: Iterable[int]) -> int:
    return next((times[state] for state in states if times.get(state)), 0)
