"""On which node of a cluster a worker process starts.

Worker processes hold no CPU of the engine's, so the engine would put any number of them on one
node. `Places` counts them instead: the next one starts where there are the fewest for each CPU. Not
covered: processes that ask for GPUs, memory or custom resources, or have a `scheduling_strategy`;
which nodes these fit on, and which of them are free, the engine knows.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from syncline.core import api
from syncline.core.placement import NodeAffinitySchedulingStrategy

_SOME_BYTES = 1
"""Of memory: where Ray should put an actor that asks for nothing at all, it does not heed."""


class Places:
    """Where this program's worker processes are. Thread-safe."""

    def __init__(self, nodes: Callable[[], Sequence[Mapping[str, Any]]] = api.nodes) -> None:
        self._nodes = nodes
        self._lock = threading.Lock()
        self._taken: WeakKeyDictionary[object, str] = WeakKeyDictionary()

    def options_for(self, process: object) -> dict[str, Any]:
        """Options of `remote` for a process that starts, and is counted as long as the object
        exists.
        """
        with self._lock:
            node = roomiest(self._nodes(), Counter(self._taken.values()))
            if node is None:
                return {}
            self._taken[process] = node
        return _at(node)


def here() -> dict[str, Any]:
    """Options of `remote` for what had better not die apart from the calling process: the same
    node, on a cluster.
    """
    if api.ensure_engine().address == "local":
        return {}
    return _at(api.get_runtime_context().get_node_id())


def _at(node: str) -> dict[str, Any]:
    return {
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id=node, soft=True),
        "memory": _SOME_BYTES,
    }


def roomiest(nodes: Sequence[Mapping[str, Any]], taken: Mapping[str, int]) -> str | None:
    """The node with the fewest processes for each of its CPUs, counting the one to come; None where
    no living node has CPUs.

    Args:
        nodes: What `syncline.nodes()` tells.
        taken: Processes that there are already, by node.
    """
    cpus = {node["NodeID"]: node["Resources"].get("CPU", 0.0) for node in nodes if node["Alive"]}
    with_cpus = [node for node, count in cpus.items() if count > 0]
    return min(with_cpus, key=lambda node: (taken.get(node, 0) + 1) / cpus[node], default=None)
