"""Rows of the state API: what exists and existed, with Ray's columns; their filters. Pure.

An engine makes the rows of a resource (`Engine.state`); `util.state` has the public functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from syncline.records import dataclass

StateResource = Literal[
    "actors", "jobs", "nodes", "objects", "placement_groups", "runtime_envs", "tasks", "workers"
]
Filter = tuple[str, str, object]
"""(column, "=" or "!=", value)."""
StateRow = dict[str, Any]
"""Columns of a row by name, or members of an object in a column."""


@dataclass(frozen=True, kw_only=True)
class StateListing:
    """The rows of a resource that pass the filters."""

    rows: tuple[StateRow, ...] = ()
    total: int = 0
    """Number of rows that pass, also those beyond the limit."""
    unknown: str | None = None
    """Reason why the engine has no list; None if it has one."""


def select(rows: Iterable[StateRow], filters: Sequence[Filter], limit: int) -> StateListing:
    """Return the first `limit` rows that pass all filters, and the number of all matches."""
    tests = [_test(*each) for each in filters]
    kept: list[StateRow] = []
    total = 0
    for row in rows:
        if all(test(row) for test in tests):
            total += 1
            if len(kept) < limit:
                kept.append(row)
    return StateListing(rows=tuple(kept), total=total)


def _test(column: str, predicate: str, value: object) -> Callable[[StateRow], bool]:
    wanted = predicate == "="
    return lambda row: _equal(row.get(column), value) is wanted


def _equal(found: object, value: object) -> bool:
    """Compare as the state API does: text without case, and text with numbers and truth values."""
    if isinstance(value, str) and isinstance(found, str):
        return found.lower() == value.lower()
    if isinstance(value, str) and isinstance(found, bool):
        return str(found).lower() == value.lower() or str(int(found)) == value
    if isinstance(value, str) and isinstance(found, (int, float)):
        try:
            return found == float(value)
        except ValueError:
            return False
    return found == value


def plain_name(name: str) -> str:
    """Return a task's name without the function around it: `main.<locals>.f` is f."""
    return name.rpartition("<locals>.")[2]


def node_state(row: Mapping[str, Any]) -> StateRow:
    """Return the state row of a row of `nodes()`."""
    return {
        "node_id": row["NodeID"],
        "node_ip": row["NodeManagerAddress"],
        "is_head_node": "node:__internal_head__" in row["Resources"],
        "state": "ALIVE" if row["Alive"] else "DEAD",
        "state_message": row.get("DeathReasonMessage") or None,
        "node_name": row["NodeName"],
        "resources_total": dict(row["Resources"]),
        "labels": dict(row["Labels"]),
        "start_time_ms": None,
        "end_time_ms": None,
    }


def group_state(row: Mapping[str, Any], job_id: str) -> StateRow:
    """Return the state row of a row of `Engine.placement_groups`; `job_id` created it."""
    return {
        "placement_group_id": f"{row['id']:032x}",
        "name": row["name"],
        "creator_job_id": job_id,
        "state": row["state"],
        "bundles": [
            {
                "bundle_id": {"placement_group_id": f"{row['id']:032x}", "bundle_index": index},
                "node_id": node_id,
                "unit_resources": dict(bundle),
            }
            for index, (bundle, node_id) in enumerate(
                zip(row["bundles"], row["nodes"], strict=True)
            )
        ],
        "is_detached": bool(row.get("detached")),
        "stats": dict(row["stats"]),
    }
