"""Summaries of rows: how many actors, tasks and objects there are, by class, function and state.

Pure. The keys are Ray's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from syncline.core.state_rows import StateRow

Rows = Iterable[StateRow]
Summary = dict[str, Any]

_BYTES_PER_MB = 1024**2


def of_actors(rows: Rows) -> Summary:
    """Count actors by class and state."""
    classes: dict[str, Counter[str]] = {}
    for row in rows:
        classes.setdefault(row["class_name"], Counter())[row["state"]] += 1
    return {
        "summary": {
            name: {"class_name": name, "state_counts": dict(counts)}
            for name, counts in classes.items()
        },
        "total_actors": sum(counts.total() for counts in classes.values()),
        "summary_by": "class",
    }


def of_tasks(rows: Rows) -> Summary:
    """Count tasks by function and state, and by type."""
    functions: dict[str, Summary] = {}
    types: Counter[str] = Counter()
    for row in rows:
        name = row["func_or_class_name"]
        entry = functions.setdefault(
            name, {"func_or_class_name": name, "type": row["type"], "state_counts": Counter()}
        )
        entry["state_counts"][row["state"]] += 1
        types[row["type"]] += 1
    for entry in functions.values():
        entry["state_counts"] = dict(entry["state_counts"])
    return {
        "summary": functions,
        "total_tasks": types["NORMAL_TASK"],
        "total_actor_tasks": types["ACTOR_TASK"],
        "total_actor_scheduled": types["ACTOR_CREATION_TASK"],
        "summary_by": "func_name",
    }


def of_objects(rows: Rows) -> Summary:
    """Count objects by call site; the size of an object counts once."""
    sites: dict[str, list[StateRow]] = {}
    for row in rows:
        sites.setdefault(row["call_site"], []).append(row)
    summary = {site: _site(listed) for site, listed in sites.items()}
    return {
        "summary": summary,
        "total_objects": sum(entry["total_objects"] for entry in summary.values()),
        "total_size_mb": sum(entry["total_size_mb"] for entry in summary.values()),
        "callsite_enabled": any(site != "disabled" for site in sites),
        "summary_by": "callsite",
    }


def _site(rows: list[StateRow]) -> Summary:
    sizes = {row["object_id"]: max(row["object_size"], 0) for row in rows}
    return {
        "total_objects": len(sizes),
        "total_size_mb": sum(sizes.values()) / _BYTES_PER_MB,
        "total_num_workers": len({(row["ip"], row["pid"]) for row in rows}),
        "total_num_nodes": len({row["ip"] for row in rows}),
        "task_state_counts": dict(Counter(row["task_status"] for row in rows)),
        "task_attempt_number_counts": dict(Counter(str(row["attempt_number"]) for row in rows)),
        "ref_type_counts": dict(Counter(row["reference_type"] for row in rows)),
    }
