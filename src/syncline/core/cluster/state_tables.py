"""Rows of the state API from the tables of the cluster's head, with Ray's columns.

They need no dashboard. The head learns of tasks with a delay of about a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray
from google.protobuf.json_format import MessageToDict
from ray._private import internal_api
from ray.core.generated import common_pb2, gcs_pb2
from ray.exceptions import RayError

from syncline.core.cluster.cluster_state import plain_resources
from syncline.core.cluster.handles import RayObject
from syncline.core.engine import Row
from syncline.core.node_rows import with_both_spellings
from syncline.core.state_rows import (
    Filter,
    StateListing,
    StateResource,
    StateRow,
    node_state,
    plain_name,
    select,
)

_HEAD_ERRORS = (RayError, ConnectionError, TimeoutError, OSError, RuntimeError)
_HELD = (
    ("pinned_in_memory", "PINNED_IN_MEMORY"),
    ("submitted_task_ref_count", "USED_BY_PENDING_TASK"),
    ("local_ref_count", "LOCAL_REFERENCE"),
    ("contained_in_owned", "CAPTURED_IN_OBJECT"),
)
"""Ray's `reference_type` by field that is set, the first that applies."""

_CALL = ".call:"
"""Part of the names of methods in Ray's tables: the shell of actors has one method for each."""

Message = Any
"""A message of Ray."""


def listing(resource: StateResource, filters: Sequence[Filter], limit: int) -> StateListing:
    """See `Engine.state`."""
    try:
        return select(_ROWS[resource](), filters, limit)
    except _HEAD_ERRORS as error:
        return StateListing(unknown=f"the cluster did not return them: {error}")


def available_resources_per_node() -> dict[str, dict[str, float]]:
    """See `Engine.available_resources_per_node`."""
    return {
        node_id: dict(amounts)
        for node_id, amounts in ray._private.state.available_resources_per_node().items()
    }


def object_locations(refs: list[RayObject]) -> list[Row]:
    """See `Engine.object_locations`."""
    found = ray.experimental.get_object_locations(refs)
    return [dict(found[ref]) for ref in refs]


def _accessor() -> Any:
    return ray._private.state.state._connect_and_get_accessor()


def _actors() -> Iterator[StateRow]:
    for data in _accessor().get_actor_table(None, None):
        row = gcs_pb2.ActorTableData.FromString(data)
        has_process = row.state != gcs_pb2.ActorTableData.ActorState.PENDING_CREATION
        yield {
            "actor_id": row.actor_id.hex(),
            "class_name": row.class_name,
            "state": gcs_pb2.ActorTableData.ActorState.Name(row.state),
            "job_id": row.job_id.hex(),
            "name": row.name,
            "node_id": row.address.node_id.hex() or None,
            "pid": row.pid if has_process else 0,
            "ray_namespace": row.ray_namespace,
            "serialized_runtime_env": row.serialized_runtime_env,
            "required_resources": plain_resources(row.required_resources),
            "death_cause": _as_dict(row.death_cause) if row.HasField("death_cause") else None,
            "is_detached": row.is_detached,
            "placement_group_id": row.placement_group_id.hex() or None,
            "repr_name": row.repr_name,
            "num_restarts": row.num_restarts,
            "num_restarts_due_to_lineage_reconstruction": (
                row.num_restarts_due_to_lineage_reconstruction
            ),
            "num_restarts_due_to_node_preemption": row.num_restarts_due_to_node_preemption,
            "call_site": row.call_site or None,
        }


def _tasks() -> Iterator[StateRow]:
    for event in ray._private.state.state._get_all_task_events():
        if not event.HasField("task_info"):
            continue
        kind = common_pb2.TaskType.Name(event.task_info.type)
        if kind == "DRIVER_TASK":
            continue
        info, updates = event.task_info, event.state_updates
        times = {
            common_pb2.TaskStatus.Name(status): at_ns // 1_000_000
            for status, at_ns in updates.state_ts_ns.items()
            if at_ns
        }
        failed = updates.HasField("error_info")
        yield {
            "task_id": event.task_id.hex(),
            "attempt_number": event.attempt_number,
            "name": plain_name(info.name),
            "state": _last(times),
            "job_id": event.job_id.hex(),
            "actor_id": info.actor_id.hex() or None,
            "type": kind,
            "func_or_class_name": plain_name(info.func_or_class_name.replace(_CALL, ".")),
            "parent_task_id": info.parent_task_id.hex(),
            "node_id": updates.node_id.hex() or None,
            "worker_id": updates.worker_id.hex() or None,
            "worker_pid": updates.worker_pid or None,
            "error_type": (
                common_pb2.ErrorType.Name(updates.error_info.error_type) if failed else None
            ),
            "error_message": updates.error_info.error_message if failed else None,
            "language": common_pb2.Language.Name(info.language),
            "required_resources": plain_resources(info.required_resources),
            "runtime_env_info": _as_dict(info.runtime_env_info),
            "placement_group_id": info.placement_group_id.hex() or None,
            "events": [{"state": name, "created_ms": at_ms} for name, at_ms in times.items()],
            "creation_time_ms": min(times.values(), default=None),
            "start_time_ms": times.get("RUNNING"),
            "end_time_ms": times.get("FINISHED", times.get("FAILED")),
            "is_debugger_paused": updates.is_debugger_paused,
        }


def _last(times: dict[str, int]) -> str:
    """Return the latest state; of several at the same time, the furthest."""
    order = list(common_pb2.TaskStatus.keys())
    for ended in ("FAILED", "FINISHED"):
        if ended in times:
            return ended
    return max(times, key=lambda name: (times[name], order.index(name)), default="NIL")


def _objects() -> Iterator[StateRow]:
    workers = [
        worker
        for node in ray.nodes()
        if node["Alive"]
        for worker in internal_api.node_stats(
            node["NodeManagerAddress"], node["NodeManagerPort"]
        ).core_workers_stats
    ]
    for worker in workers:
        holder = {
            "type": common_pb2.WorkerType.Name(worker.worker_type),
            "pid": worker.pid,
            "ip": worker.ip_address,
        }
        for entry in worker.object_refs:
            held = next((kind for field, kind in _HELD if getattr(entry, field)), "UNKNOWN_STATUS")
            yield {
                "object_id": entry.object_id.hex(),
                "object_size": entry.object_size,
                "task_status": common_pb2.TaskStatus.Name(entry.task_status),
                "attempt_number": entry.attempt_number + 1,
                "reference_type": held,
                "call_site": entry.call_site or "disabled",
                **holder,
            }


def _workers() -> Iterator[StateRow]:
    for data in _accessor().get_worker_table():
        row = gcs_pb2.WorkerTableData.FromString(data)
        yield {
            "worker_id": row.worker_address.worker_id.hex(),
            "is_alive": row.is_alive,
            "worker_type": common_pb2.WorkerType.Name(row.worker_type),
            "exit_type": (
                common_pb2.WorkerExitType.Name(row.exit_type) if row.HasField("exit_type") else None
            ),
            "node_id": row.worker_address.node_id.hex(),
            "ip": row.worker_address.ip_address,
            "pid": row.pid,
            "exit_detail": row.exit_detail or None,
            "worker_launch_time_ms": row.worker_launch_time_ms or None,
            "worker_launched_time_ms": row.worker_launched_time_ms or None,
            "start_time_ms": row.start_time_ms or None,
            "end_time_ms": row.end_time_ms or None,
            "debugger_port": row.debugger_port or None,
            "num_paused_threads": row.num_paused_threads,
        }


def _nodes() -> Iterator[StateRow]:
    for row in ray.nodes():
        yield node_state(with_both_spellings(row))


def _groups() -> Iterator[StateRow]:
    for data in _accessor().get_placement_group_table():
        row = gcs_pb2.PlacementGroupTableData.FromString(data)
        group_id = f"{int(row.placement_group_id.hex(), 16):032x}"  # as our ids print it
        yield {
            "placement_group_id": group_id,
            "name": row.name,
            "creator_job_id": row.creator_job_id.hex(),
            "state": gcs_pb2.PlacementGroupTableData.PlacementGroupState.Name(row.state),
            "bundles": [
                {
                    "bundle_id": {
                        "placement_group_id": group_id,
                        "bundle_index": bundle.bundle_id.bundle_index,
                    },
                    "node_id": bundle.node_id.hex() or None,
                    "unit_resources": dict(bundle.unit_resources),
                }
                for bundle in row.bundles
            ],
            "is_detached": row.is_detached,
            "stats": _as_dict(row.stats),
        }


def _jobs() -> Iterator[StateRow]:
    for row in ray._private.state.jobs():
        yield {
            "type": "DRIVER",
            "job_id": row["JobID"],
            "submission_id": None,
            "driver_info": {
                "id": row["JobID"],
                "node_ip_address": row["DriverIPAddress"],
                "pid": str(row["DriverPid"]),
            },
            "status": "SUCCEEDED" if row["IsDead"] else "RUNNING",
            "entrypoint": row["Entrypoint"],
            "message": None,
            "error_type": None,
            "start_time": row["StartTime"],
            "end_time": row["EndTime"],
            "metadata": {},
            "runtime_env": {},
            "driver_agent_http_address": None,
            "driver_node_id": None,
            "driver_exit_code": None,
        }


def _runtime_envs() -> Iterator[StateRow]:
    raise RuntimeError("the agents of the nodes know the runtime environments, not the head")


def _as_dict(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    return fields


_ROWS: dict[StateResource, Callable[[], Iterator[StateRow]]] = {
    "actors": _actors,
    "jobs": _jobs,
    "nodes": _nodes,
    "objects": _objects,
    "placement_groups": _groups,
    "runtime_envs": _runtime_envs,
    "tasks": _tasks,
    "workers": _workers,
}
