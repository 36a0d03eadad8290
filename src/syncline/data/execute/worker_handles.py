"""Handles of worker processes, idle workers that outlive an execution, and node assignment.

A worker without special resources stays idle for a while after an execution, so that the next epoch
starts quickly. Workers with GPUs, memory or custom resources end with their execution, because
others may wait for these resources.

On a cluster, workers reserve no CPU, so the engine would place any number of them on one node.
`NodeAssignment` places each on the node with the fewest workers per CPU. Not covered: workers with
GPUs, memory, custom resources or a `scheduling_strategy`; the engine knows which nodes have them.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any
from weakref import WeakKeyDictionary

from syncline.core import api, lifecycle, worker_imports
from syncline.core.placement import NodeAffinitySchedulingStrategy
from syncline.data.execute.data_worker import DataWorker, TaskCodeKey
from syncline.data.execute.task_attempts import ActiveTask
from syncline.data.plan.compute import Resources

IDLE_S = 30.0
"""Seconds that an idle worker waits for another execution."""

# Options of tasks and actors that do not apply: the executor restarts workers and tasks itself.
_NOT_FOR_WORKERS = frozenset(
    {
        "max_calls",
        "max_concurrency",
        "max_restarts",
        "max_retries",
        "max_task_retries",
        "name",
        "num_cpus",
        "num_returns",
        "retry_exceptions",
    }
)

_PLACEMENT_OPTIONS = frozenset(
    {"accelerator_type", "label_selector", "memory", "num_gpus", "resources", "scheduling_strategy"}
)
"""Options that restrict the nodes of a worker."""


class WorkerHandle:
    """The driver's handle of a `DataWorker`. Not thread-safe.

    Args:
        options: `remote` options.
        may_use_torch: False to start the process without torch, which takes less time.
    """

    def __init__(self, options: Mapping[str, Any], *, may_use_torch: bool = True) -> None:
        self.may_use_torch = may_use_torch
        # Workers reserve no CPU in the engine: the scheduler counts CPUs as slots, so that the
        # workers of a training run cannot starve their own input.
        actor_class = api.remote(DataWorker).options(
            **{"num_cpus": 0, **self._placement(options), **options}
        )
        with nullcontext() if may_use_torch else worker_imports.without_torch():
            self.actor = actor_class.remote()
        self.begin = self.actor.begin.options(num_returns=2)
        self.resume = self.actor.resume.options(num_returns=2)
        self.known: set[TaskCodeKey] = set()
        """Task code that was sent to the worker."""
        self.active: ActiveTask | None = None
        self.idle_since = time.monotonic()

    def _placement(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return options that spread workers over the nodes of a cluster."""
        if api.ensure_engine().address == "local":
            return {}
        return (
            node_assignment.options_for(self)
            if _PLACEMENT_OPTIONS.isdisjoint(options)
            else {"scheduling_strategy": "SPREAD"}
        )

    def kill(self) -> None:
        """Kill the process."""
        try:
            api.kill(self.actor)
        except Exception:  # the engine ended, and the process with it
            return

    def close(self, execution: int) -> None:
        """Release what belongs to an execution."""
        if not any(key.execution == execution for key in self.known):
            return
        self.known = {key for key in self.known if key.execution != execution}
        try:
            self.actor.close.remote(execution)
        except Exception:  # the engine ended, and the process with it
            return


def options_of(
    resources: Resources, more: Callable[[], Mapping[str, Any]] | None
) -> dict[str, Any]:
    """Return the actor options of a worker with these resources."""
    options = {**resources.options, **((more() if more is not None else None) or {})}
    options = {name: value for name, value in options.items() if name not in _NOT_FOR_WORKERS}
    if resources.num_gpus:
        options["num_gpus"] = resources.num_gpus
    if resources.memory:
        options["memory"] = int(resources.memory)
    return options


class WarmWorkers:
    """Idle workers without an execution; the last used is taken first. Thread-safe."""

    def __init__(
        self, *, idle_s: float = IDLE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._idle_s = idle_s
        self._clock = clock
        self._lock = threading.Lock()
        self._idle: list[WorkerHandle] = []
        self._timer: threading.Timer | None = None

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, *, may_use_torch: bool = True) -> WorkerHandle:
        """Return an idle worker, or a new one; one that started with torch if that may be used."""
        with self._lock:
            for at in reversed(range(len(self._idle))):
                if self._idle[at].may_use_torch >= may_use_torch:
                    return self._idle.pop(at)
        return WorkerHandle({}, may_use_torch=may_use_torch)

    def give(self, worker: WorkerHandle) -> None:
        """Keep a worker for the next execution."""
        worker.idle_since = self._clock()
        worker.active = None
        with self._lock:
            self._idle.append(worker)
            self._start_timer()

    def clear(self) -> None:
        """End all workers."""
        with self._lock:
            self._idle.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _start_timer(self) -> None:
        if self._timer is None and self._idle:
            wait_s = self._idle[0].idle_since + self._idle_s - self._clock()
            self._timer = threading.Timer(max(wait_s, 0.01), self._end_expired)
            self._timer.daemon = True
            self._timer.name = "syncline-data-warm"
            self._timer.start()

    def _end_expired(self) -> None:
        """End the workers that were idle too long: an actor without a handle ends."""
        with self._lock:
            self._timer = None
            oldest = self._clock() - self._idle_s
            self._idle = [worker for worker in self._idle if worker.idle_since > oldest]
            self._start_timer()


warm_workers = WarmWorkers()
"""Idle workers of this process; cleared when its engine ends."""

lifecycle.shutdown_hooks.append(warm_workers.clear)


_MIN_MEMORY_BYTES = 1
"""Memory request of placed workers: Ray ignores the node of an actor that requests nothing."""


class NodeAssignment:
    """Counts this program's workers per node. Thread-safe."""

    def __init__(self, nodes: Callable[[], Sequence[Mapping[str, Any]]] = api.nodes) -> None:
        self._nodes = nodes
        self._lock = threading.Lock()
        self._nodes_by_worker: WeakKeyDictionary[object, str] = WeakKeyDictionary()

    def options_for(self, worker: object) -> dict[str, Any]:
        """Return `remote` options for a new worker, which counts as long as the object exists."""
        with self._lock:
            node = least_loaded_node(self._nodes(), Counter(self._nodes_by_worker.values()))
            if node is None:
                return {}
            self._nodes_by_worker[worker] = node
        return _on_node(node)


def same_node_options() -> dict[str, Any]:
    """Return `remote` options that place an actor on the node of the calling process."""
    if api.ensure_engine().address == "local":
        return {}
    return _on_node(api.get_runtime_context().get_node_id())


def _on_node(node: str) -> dict[str, Any]:
    return {
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id=node, soft=True),
        "memory": _MIN_MEMORY_BYTES,
    }


def least_loaded_node(nodes: Sequence[Mapping[str, Any]], workers: Mapping[str, int]) -> str | None:
    """Return the node with the fewest workers per CPU, counting the new one; None without nodes.

    Args:
        nodes: Result of `syncline.nodes()`.
        workers: Existing workers by node.
    """
    cpus = {node["NodeID"]: node["Resources"].get("CPU", 0.0) for node in nodes if node["Alive"]}
    with_cpus = [node for node, count in cpus.items() if count > 0]
    return min(with_cpus, key=lambda node: (workers.get(node, 0) + 1) / cpus[node], default=None)


node_assignment = NodeAssignment()
