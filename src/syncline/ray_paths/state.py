"""`ray._private.state` and `ray.state`: tables of the engine with Ray's older keys.

The state API, `syncline.util.state`, has newer names for most of this.
"""

from __future__ import annotations

from typing import Any

from syncline.core.engine import Engine
from syncline.core.ids import JobID
from syncline.core.lifecycle import ensure_engine
from syncline.core.state_rows import StateResource, StateRow

_ALL = 100_000


def actors(
    actor_id: str | None = None, job_id: JobID | None = None, actor_state_name: str | None = None
) -> dict[str, Any]:
    """Return the actors by id, or the row of one; states are those of `util.state.ActorState`."""
    rows = {
        row["actor_id"]: _actor(row)
        for row in _rows("actors")
        if (job_id is None or row["job_id"] == job_id.hex())
        and actor_state_name in (None, row["state"])
    }
    return rows if actor_id is None else rows.get(actor_id, {})


def jobs() -> list[dict[str, Any]]:
    """Return the programs that use the engine."""
    return [
        {
            "JobID": row["job_id"],
            "DriverIPAddress": (row["driver_info"] or {}).get("node_ip_address", ""),
            "DriverPid": int((row["driver_info"] or {}).get("pid") or 0),
            "Entrypoint": row["entrypoint"],
            "IsDead": row["status"] in ("SUCCEEDED", "FAILED", "STOPPED"),
            "StartTime": row["start_time"] or 0,
            "EndTime": row["end_time"] or 0,
        }
        for row in _rows("jobs")
    ]


def workers() -> dict[str, dict[str, Any]]:
    """Return the living worker processes by id."""
    return {
        row["worker_id"]: {"node_ip_address": row["ip"], "pid": str(row["pid"])}
        for row in _rows("workers")
        if row["is_alive"] and row["worker_type"] == "WORKER"
    }


def current_node_id() -> str:
    """Return the id of this node as a resource, such as "node:127.0.0.1"."""
    return f"node:{ensure_engine().node_address()}"


def node_ids() -> list[str]:
    """Return the ids of the living nodes as resources, such as "node:127.0.0.1"."""
    return [f"node:{row['NodeManagerAddress']}" for row in _living(ensure_engine())]


def total_resources_per_node() -> dict[str, dict[str, float]]:
    """Return the total amounts of each living node by node id."""
    return {row["NodeID"]: dict(row["Resources"]) for row in _living(ensure_engine())}


def available_resources_per_node() -> dict[str, dict[str, float]]:
    """Return the free amounts of each living node by node id."""
    return ensure_engine().available_resources_per_node()


def _living(engine: Engine) -> list[dict[str, Any]]:
    return [row for row in engine.nodes() if row["Alive"]]


def _rows(resource: StateResource) -> tuple[StateRow, ...]:
    listing = ensure_engine().state(resource, (), _ALL)
    if listing.unknown is not None:
        raise RuntimeError(f"the {resource} cannot be listed: {listing.unknown}")
    return listing.rows


def _actor(row: StateRow) -> dict[str, Any]:
    return {
        "ActorID": row["actor_id"],
        "ActorClassName": row["class_name"],
        "IsDetached": row["is_detached"],
        "Name": row["name"] or "",
        "RayNamespace": row["ray_namespace"],
        "JobID": row["job_id"],
        "Address": {"NodeID": row["node_id"] or ""},
        "State": row["state"],
        "NumRestarts": row["num_restarts"],
        "DeathCause": row["death_cause"],
        "Pid": row["pid"] or 0,
    }
