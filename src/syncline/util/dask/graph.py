"""What may run next of a Dask graph: a pure state machine, without tasks, objects or clocks.

Its state is kept in the dict that Dask's own local schedulers keep, under the same keys, because
Dask's callbacks read that dict. The policy is theirs too: what became ready last runs first, by
Dask's static order, so that few intermediate values live at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from dask._task_spec import DataNode, GraphNode

Key = Any
"""A string, bytes, a number, or a tuple of keys."""

LEAST_IN_FLIGHT = 8
MOST_IN_FLIGHT = 512
SECONDS_IN_FLIGHT = 0.05


def in_flight_limit(cpus: float, seconds_each: float | None) -> int:
    """How many tasks to have submitted at once: two for each CPU, and more when they are short, so
    that workers never wait for the program.

    seconds_each: what a task takes on average; None while nothing is known. Few in flight means few
    values that wait in memory.
    """
    per_cpu = 2.0 if seconds_each is None else max(2.0, SECONDS_IN_FLIGHT / max(seconds_each, 1e-6))
    most = max(MOST_IN_FLIGHT, int(2 * cpus))
    return max(LEAST_IN_FLIGHT, min(most, int(cpus * per_cpu)))


class GraphState:
    """The tasks below the wanted keys, each waiting, ready, running or finished; `values` are those
    that are still needed.

    Thread safety: none; but other threads may read the length of the sets in `state` at any time,
    as progress bars do.
    """

    def __init__(
        self,
        nodes: Mapping[Key, GraphNode],
        wanted: Collection[Key],
        values: Mapping[Key, Any],
        priority: Callable[[Key], Any],
    ) -> None:
        """nodes: the whole graph. values: those of keys that are known and need no task. priority:
        smaller runs earlier.

        KeyError for a wanted key, ValueError for a dependency that is neither in the graph nor in
        `values`.
        """
        self._wanted = frozenset(wanted)
        self._priority = priority
        self.values: dict[Key, Any] = dict(values)
        self._dependencies: dict[Key, Collection[Key]] = {}
        self._dependents: dict[Key, set[Key]] = {}
        self._waiting: dict[Key, set[Key]] = {}
        self._waiting_data: dict[Key, set[Key]] = {}
        self._running: set[Key] = set()
        self._finished: set[Key] = set()
        self._released: set[Key] = set()
        self._ready = sorted(self._discover(nodes), key=priority, reverse=True)
        self.state: dict[str, Any] = {
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
        """Everything that the wanted keys need, found from their side; returns what can run at
        once.
        """
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
        """Nothing waits, is ready or runs."""
        return not (self._waiting or self._ready or self._running)

    def next_ready(self) -> Key | None:
        """The key that should run next, which `start` takes; None where everything waits for
        something that runs.
        """
        return self._ready[-1] if self._ready else None

    def start(self) -> Key:
        """Take the next key: it runs now."""
        key = self._ready.pop()
        self._running.add(key)
        return key

    def finish(self, key: Key, value: Any) -> None:
        """`key` has this value: what waited for it alone becomes ready, and values that nobody
        needs any more are let go.
        """
        assert key in self._running, f"{key!r} does not run; it is {self.place_of(key)}"
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

    def place_of(self, key: Key) -> str:
        """Where a key is in its life, for messages."""
        for name in ("running", "finished", "released", "ready", "waiting"):
            if key in self.state[name]:
                return name
        return "unknown"


def _missing(key: Key, needed_by: Key | None) -> Exception:
    if needed_by is None:
        return KeyError(key)
    return ValueError(
        f"the Dask graph has no task for the key {key!r}, which the task {needed_by!r} needs: compute the collection that both come from, "
        "and keep a persisted collection alive as long as others depend on it"
    )
