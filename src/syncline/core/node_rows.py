"""Rows of `nodes()`: one dict per node, with Ray's fields. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NodeRow = dict[str, Any]


def node_row(
    *,
    node_id: str,
    hostname: str,
    labels: Mapping[str, str],
    resources: Mapping[str, float],
    address: str = "127.0.0.1",
) -> NodeRow:
    """Return the row of this machine for an engine that opens no ports.

    Ports are 0, and names of sockets are empty. Keys that programs spell in two ways, `Alive` and
    `Resources`, exist in both.
    """
    return with_both_spellings(
        {
            "NodeID": node_id,
            "Alive": True,
            "NodeManagerAddress": address,
            "NodeManagerHostname": hostname,
            "NodeManagerPort": 0,
            "ObjectManagerPort": 0,
            "ObjectStoreSocketName": "",
            "RayletSocketName": "",
            "MetricsExportPort": 0,
            "RuntimeEnvAgentPort": 0,
            "NodeName": address,
            "DeathReason": 0,
            "DeathReasonMessage": "",
            "Resources": dict(resources),
            "Labels": dict(labels),
        }
    )


def with_both_spellings(row: Mapping[str, object]) -> NodeRow:
    """Return the row with `alive` and `resources` in addition to `Alive` and `Resources`."""
    return {**row, "alive": row["Alive"], "resources": row["Resources"]}
