"""Rows of the state API of the inline engine: actors, calls that have ended, and this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping

from syncline.core import serialization
from syncline.core.embedded.messages import ERROR
from syncline.core.engine import Row, RuntimeInfo
from syncline.core.inline.inline_actor import InlineActor
from syncline.core.inline.inline_objects import InlineObjects
from syncline.core.state_rows import StateRow, plain_name
from syncline.exceptions import RayTaskError


def actor_rows(actors: Iterable[InlineActor], here: RuntimeInfo) -> Iterator[StateRow]:
    """Yield the actors that have a handle, dead ones included."""
    for actor in actors:
        yield {
            "actor_id": f"{actor.record.actor_id:032x}",
            "class_name": actor.record.class_name,
            "state": "ALIVE" if actor.death is None else "DEAD",
            "job_id": here.job_id,
            "name": actor.options.name or "",
            "node_id": here.node_id,
            "pid": os.getpid(),
            "ray_namespace": actor.namespace,
            "serialized_runtime_env": "{}",
            "required_resources": dict(actor.context.resources),
            "death_cause": None
            if actor.death is None
            else {"actor_died_error_context": {"error_message": str(actor.death)}},
            "is_detached": actor.options.lifetime == "detached",
            "num_restarts": 0,
        }


def task_rows(
    events: Iterable[Row], objects: InlineObjects, here: RuntimeInfo
) -> Iterator[StateRow]:
    """Yield the calls that have ended, as far as the timeline remembers them.

    A call has failed if a reference to its error exists.
    """
    for event in events:
        task_id = event["args"]["task_id"]
        error = _error(objects, int(task_id, 16))
        yield {
            "task_id": task_id,
            "attempt_number": 0,
            "name": plain_name(event["name"]),
            "func_or_class_name": plain_name(event["name"]),
            "state": "FINISHED" if error is None else "FAILED",
            "job_id": here.job_id,
            "actor_id": None,
            "type": "ACTOR_TASK" if event["cat"] == "actor" else "NORMAL_TASK",
            "parent_task_id": "",
            "node_id": here.node_id,
            "worker_id": here.worker_id,
            "worker_pid": os.getpid(),
            "error_type": None if error is None else "TASK_EXECUTION_EXCEPTION",
            "error_message": None if error is None else error,
            "start_time_ms": round(event["ts"] / 1000),
            "end_time_ms": round((event["ts"] + event["dur"]) / 1000),
        }


def process_rows(here: RuntimeInfo, node: Mapping[str, object]) -> Iterator[StateRow]:
    """Yield the only process."""
    yield {
        "worker_id": here.worker_id,
        "is_alive": True,
        "worker_type": "DRIVER",
        "node_id": here.node_id,
        "ip": node["NodeManagerAddress"],
        "pid": os.getpid(),
    }


def job_rows(here: RuntimeInfo, node: Mapping[str, object]) -> Iterator[StateRow]:
    """Yield the program."""
    yield {
        "type": "DRIVER",
        "job_id": here.job_id,
        "driver_info": {
            "id": here.job_id,
            "node_id": here.node_id,
            "node_ip_address": node["NodeManagerAddress"],
            "pid": str(os.getpid()),
        },
        "status": "RUNNING",
        "entrypoint": " ".join(sys.argv),
        "start_time": None,
        "end_time": None,
        "driver_node_id": here.node_id,
    }


def _error(objects: InlineObjects, task_id: int) -> str | None:
    entry = objects.entries.get(task_id)
    if entry is None or entry.value is None or entry.value[0] != ERROR:
        return None
    error = serialization.unpack_error(entry.value[1])
    return error.traceback_str if isinstance(error, RayTaskError) else str(error)
