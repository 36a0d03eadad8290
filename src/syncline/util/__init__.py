"""Helpers on top of tasks and actors. Names and submodules load on first use.

- `actor_pool`, `queue`, `multiprocessing`, `joblib`, `iter`, `helpers`: work on several actors or
  tasks; `collective`: operations between them; `dask`: a scheduler for Dask graphs
- `placement_group`, `scheduling_strategies`, `accelerators`: where work runs
- `state`: lists of actors, tasks and others; `metrics`: counters, gauges and histograms
- `serialization`, `check_serialize`: how values are sent, and what cannot be
- `rpdb`, `debugpy`, `debug`, `tracing`, `annotations`: debugging, logging, marks of names
- `sgd`: the older training API
"""

# No `from __future__ import annotations`: it would hide the submodule of that name.
import importlib
import sys
from typing import TYPE_CHECKING, Any

from syncline.core.lifecycle import ensure_engine
from syncline.ray_paths import finder
from syncline.ray_paths.client import connect, disconnect
from syncline.ray_paths.utilities import get_node_instance_id
from syncline.util.actor_pool import ActorPool
from syncline.util.placement_group import (
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

if TYPE_CHECKING:
    from syncline.util.check_serialize import inspect_serializability as inspect_serializability
    from syncline.util.debug import disable_log_once_globally as disable_log_once_globally
    from syncline.util.debug import enable_periodic_logging as enable_periodic_logging
    from syncline.util.debug import log_once as log_once
    from syncline.util.helpers import as_completed as as_completed
    from syncline.util.helpers import map_unordered as map_unordered
    from syncline.util.serialization import deregister_serializer as deregister_serializer
    from syncline.util.serialization import register_serializer as register_serializer

__all__ = [
    "ActorPool",
    "as_completed",
    "connect",
    "deregister_serializer",
    "disable_log_once_globally",
    "disconnect",
    "enable_periodic_logging",
    "get_current_placement_group",
    "get_node_instance_id",
    "get_node_ip_address",
    "get_placement_group",
    "inspect_serializability",
    "list_named_actors",
    "log_once",
    "map_unordered",
    "placement_group",
    "placement_group_table",
    "register_serializer",
    "remove_placement_group",
]

_HOMES = {
    "as_completed": "helpers",
    "deregister_serializer": "serialization",
    "disable_log_once_globally": "debug",
    "enable_periodic_logging": "debug",
    "inspect_serializability": "check_serialize",
    "log_once": "debug",
    "map_unordered": "helpers",
    "register_serializer": "serialization",
}
"""Submodules of names that load on first use."""
_SUBMODULES = {
    **{
        name: name
        for name in (
            "accelerators", "annotations", "check_serialize", "collective", "debug", "debugpy",
            "helpers", "iter", "joblib", "metrics", "multiprocessing", "queue", "rpdb",
            "scheduling_strategies", "serialization", "state", "tracing",
        )
    },
    "pdb": "rpdb",
    "ray_debugpy": "debugpy",
}  # fmt: skip
"""Submodules by the name under which they load on first use."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"{__name__}.{_SUBMODULES[name]}")
    else:
        return finder.attribute(__name__, name, {*__all__, *_SUBMODULES})
    setattr(sys.modules[__name__], name, value)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES, *finder.names_of(__name__)})


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
