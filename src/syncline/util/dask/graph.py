"""State of a running Dask graph: a pure state machine without tasks, objects or clocks.

The state is the dict of Dask's local schedulers, with the same keys, because Dask's callbacks read
it. The policy is the same too: the task that became ready last runs first, by Dask's static order,
so that few intermediate values exist at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeAlias

from dask._task_spec import DataNode, GraphNode

Key: TypeAlias = Any
"""The key of a node: a string, bytes, a number, or a tuple of keys."""

State: TypeAlias = dict[str, Any]
"""Dask's record of a computation, as its callbacks get it."""

LEAST_IN_FLIGHT = 8
MOST_IN_FLIGHT = 512
SECONDS_IN_FLIGHT = 0.05


def in_flight_limit(cpus: float, seconds_each: float | None) -> int:
    """Return the number of tasks to keep submitted: two per CPU, and more if tasks are short.

    Short tasks need a queue so that workers never wait for the program; few tasks in flight keep
    few values in memory.

    Args:
        cpus: Number of CPUs.
        seconds_each: Average duration of a task; None if unknown.
    """
    per_cpu = 2.0 if seconds_each is None else max(2.0, SECONDS_IN_FLIGHT / max(seconds_each, 1e-6))
    most = max(MOST_IN_FLIGHT, int(2 * cpus))
    return max(LEAST_IN_FLIGHT, min(most, int(cpus * per_cpu)))


class GraphState:
    """The tasks below the wanted keys: waiting, ready, running or finished.

    `values` holds the values that are still needed. Not thread-safe, but other threads may read the
    lengths of the sets in `state` at any time, as progress bars do.
    """

    def __init__(
        self,
        nodes: Mapping[Key, GraphNode],
        wanted: Collection[Key],
        values: Mapping[Key, object],
        priority: Callable[[Key], Any],
    ) -> None:
        """Find the tasks that the wanted keys need.

        Args:
            nodes: The whole graph.
            wanted: Keys of the results.
            values: Known values by key; they need no task.
            priority: Function of a key; smaller values run earlier.

        Raises:
            KeyError: A wanted key is not in the graph.
            ValueError: A dependency is neither in the graph nor in `values`.
        """
        self._wanted = frozenset(wanted)
        self._priority = priority
        self.values: dict[Key, object] = dict(values)
        self._dependencies: dict[Key, Collection[Key]] = {}
        self._dependents: dict[Key, set[Key]] = {}
        self._waiting: dict[Key, set[Key]] = {}
        self._waiting_data: dict[Key, set[Key]] = {}
        self._running: set[Key] = set()
        self._finished: set[Key] = set()
        self._released: set[Key] = set()
        self._ready = sorted(self._discover(nodes), key=priority, reverse=True)
        self.state: State = {
            "dependencies": self._dependencies,
            "dependents": self._dependents,
            "waiting": self._waiting,
            "waiting_data": self._waiting_data,
            "cache": self.values,
            "ready": self._ready,
            "running": self._running,
            "finished": self._finished,
            "released": self._released,
        }

    def _discover(self, nodes: Mapping[Key, GraphNode]) -> Iterable[Key]:
        """Collect the tasks below the wanted keys; return the runnable ones."""
        ready: list[Key] = []
        stack = [(key, None) for key in self._wanted]
        while stack:
            key, needed_by = stack.pop()
            if key in self._dependencies:
                continue
            node = nodes.get(key)
            self._dependents.setdefault(key, set())
            self._waiting_data.setdefault(key, set())
            self._dependencies[key] = ()
            if key in self.values:
                continue
            if node is None:
                raise _missing(key, needed_by)
            if isinstance(node, DataNode):
                self.values[key] = node.value
                continue
            self._dependencies[key] = node.dependencies
            for dependency in node.dependencies:
                self._dependents.setdefault(dependency, set()).add(key)
                self._waiting_data.setdefault(dependency, set()).add(key)
                stack.append((dependency, key))
            unmet = {
                d
                for d in node.dependencies
                if d not in self.values and not isinstance(nodes.get(d), DataNode)
            }
            if unmet:
                self._waiting[key] = unmet
            else:
                ready.append(key)
        return ready

    @property
    def is_done(self) -> bool:
        """True if no task waits, is ready or runs."""
        return not (self._waiting or self._ready or self._running)

    def next_ready(self) -> Key | None:
        """Return the key that `start` would take; None if all tasks wait for running ones."""
        return self._ready[-1] if self._ready else None

    def start(self) -> Key:
        """Take the next ready key and mark it as running."""
        key = self._ready.pop()
        self._running.add(key)
        return key

    def finish(self, key: Key, value: object) -> None:
        """Store the value of `key`, release its dependents, and drop values without users."""
        assert key in self._running, f"{key!r} is {self.phase(key)}, not running"
        self.values[key] = value
        self._running.remove(key)
        self._finished.add(key)
        for dependent in sorted(self._dependents[key], key=self._priority, reverse=True):
            unmet = self._waiting.get(dependent)
            if unmet is None:
                continue
            unmet.discard(key)
            if not unmet:
                del self._waiting[dependent]
                self._ready.append(dependent)
        for dependency in self._dependencies[key]:
            users = self._waiting_data.get(dependency)
            if users is None:
                continue
            users.discard(key)
            if not users and dependency not in self._wanted:
                del self._waiting_data[dependency]
                self._released.add(dependency)
                del self.values[dependency]

    def phase(self, key: Key) -> str:
        """Return the phase of a key, for messages."""
        for name in ("running", "finished", "released", "ready", "waiting"):
            if key in self.state[name]:
                return name
        return "unknown"


def _missing(key: Key, needed_by: Key | None) -> Exception:
    if needed_by is None:
        return KeyError(key)
    return ValueError(
        f"The Dask graph has no task for the key {key!r}, which the task {needed_by!r} needs: "
        "compute both from the same collection, and keep a persisted collection alive while "
        "others depend on it."
    )
