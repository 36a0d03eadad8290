"""Helpers on top of tasks and actors.

`actor_pool`, `queue`, `placement_group` and `scheduling_strategies`; `dask`, a scheduler for Dask
graphs; `state`, lists of actors, tasks and others; `sgd`, the older training API.
"""

from __future__ import annotations

from typing import Any

from syncline.core.lifecycle import ensure_engine
from syncline.ray_paths.client import connect, disconnect
from syncline.util.actor_pool import ActorPool
from syncline.util.placement_group import (
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

__all__ = [
    "ActorPool",
    "connect",
    "disconnect",
    "get_current_placement_group",
    "get_node_ip_address",
    "get_placement_group",
    "list_named_actors",
    "placement_group",
    "placement_group_table",
    "remove_placement_group",
]


def list_named_actors(all_namespaces: bool = False) -> list[Any]:
    """Return the names of the living named actors of this program's namespace.

    With `all_namespaces`, return dicts with `namespace` and `name`.
    """
    found = ensure_engine().list_named_actors(all_namespaces=all_namespaces)
    if all_namespaces:
        return [{"namespace": namespace, "name": name} for namespace, name in found]
    return [name for _, name in found]


def get_node_ip_address() -> str:
    """Return the address of this node."""
    return ensure_engine().node_address()
