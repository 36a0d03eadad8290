"""Worker processes: what the driver keeps of each, and the store of warm ones that outlive an
execution.

A process that holds nothing but its place is kept for a while when an execution has ended, so that
the next epoch starts at once. Those that hold GPUs, memory or custom resources end with their
execution: somebody else may wait for these.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from syncline.core import api, lifecycle
from syncline.core.placement import NodeAffinitySchedulingStrategy
from syncline.data.execute.data_worker import DataWorker, WorkKey
from syncline.data.execute.task_attempts import Job
from syncline.data.plan.compute import Resources

IDLE_S = 30.0
"""How long a warm process waits for another execution."""

# Options of tasks and of actors that run one another way: here the executor itself starts processes
# and tasks again.
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

_PLACING = frozenset(
    {"accelerator_type", "label_selector", "memory", "num_gpus", "resources", "scheduling_strategy"}
)
"""Options that not every node can fulfil."""


class Process:
    """One `DataWorker`, from the driver's side. Used by one thread at a time."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        # No CPU of the engine's: CPUs are slots, which the scheduler counts, so that training
        # workers cannot starve their own input.
        self.actor = (
            api.remote(DataWorker)
            .options(**{"num_cpus": 0, **self._place(options), **options})
            .remote()
        )
        self.begin = self.actor.begin.options(num_returns=2)
        self.resume = self.actor.resume.options(num_returns=2)
        self.known: set[WorkKey] = set()
        """Works that it has got."""
        self.job: Job | None = None
        self.idle_since = time.monotonic()

    def _place(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Options that spread processes over the nodes of a cluster."""
        if api.ensure_engine().address == "local":
            return {}
        return (
            places.options_for(self)
            if _PLACING.isdisjoint(options)
            else {"scheduling_strategy": "SPREAD"}
        )

    def kill(self) -> None:
        """End the process at once."""
        try:
            api.kill(self.actor)
        except Exception:  # the engine has ended, and the process with it
            return

    def close(self, execution: int) -> None:
        """Let go of what belongs to an execution."""
        if not any(key.execution == execution for key in self.known):
            return
        self.known = {key for key in self.known if key.execution != execution}
        try:
            self.actor.close.remote(execution)
        except Exception:  # the engine has ended, and the process with it
            return


def options_of(
    resources: Resources, more: Callable[[], Mapping[str, Any]] | None
) -> dict[str, Any]:
    """What the engine is asked for when a process starts."""
    options = {**resources.options, **((more() if more is not None else None) or {})}
    options = {name: value for name, value in options.items() if name not in _NOT_FOR_WORKERS}
    if resources.num_gpus:
        options["num_gpus"] = resources.num_gpus
    if resources.memory:
        options["memory"] = int(resources.memory)
    return options


class WarmProcesses:
    """Processes without an execution, the one that was used last first. Thread-safe."""

    def __init__(
        self, *, idle_s: float = IDLE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._idle_s = idle_s
        self._clock = clock
        self._lock = threading.Lock()
        self._idle: list[Process] = []
        self._timer: threading.Timer | None = None

    def __len__(self) -> int:
        return len(self._idle)

    def take(self) -> Process:
        """A warm process, or a new one."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return Process({})

    def give(self, process: Process) -> None:
        """Keep a process for the next execution."""
        process.idle_since = self._clock()
        process.job = None
        with self._lock:
            self._idle.append(process)
            self._watch()

    def clear(self) -> None:
        """Let go of all: they end."""
        with self._lock:
            self._idle.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _watch(self) -> None:
        if self._timer is None and self._idle:
            wait_s = self._idle[0].idle_since + self._idle_s - self._clock()
            self._timer = threading.Timer(max(wait_s, 0.01), self._let_go)
            self._timer.daemon = True
            self._timer.name = "syncline-data-warm"
            self._timer.start()

    def _let_go(self) -> None:
        """On the timer's thread: processes whose time is over end, because no handle of theirs is
        left.
        """
        with self._lock:
            self._timer = None
            over = self._clock() - self._idle_s
            self._idle = [process for process in self._idle if process.idle_since > over]
            self._watch()


warm = WarmProcesses()
"""Of this program. Empty whenever its engine ends."""

lifecycle.shutdown_hooks.append(warm.clear)


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


places = Places()
