"""`NodeExchange`: what is known of the ranks of all nodes, for the launcher of the first node.

A thread of each node's agent uses the store of the job, which torch has on the first node: the
other nodes write the latest state of their ranks into one key each, and the first one reads them
twice a second. It also asks for their time when it hears of them first. Without a connection
to the store there is no exchange, and each launcher knows its own ranks.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Protocol, TypeVar

from syncline.diagnosis.clock_offset import QUESTIONS, clock_offset
from syncline.launcher.messages import RankSeen

T = TypeVar("T")

INTERVAL_S = 0.5
"""Seconds between two looks of the first node."""
LAST_S = 0.05
"""The same at the end."""
CLOSE_S = 1.0
"""Longest wait for the last messages at the end."""


class Store(Protocol):
    """The methods of `torch.distributed.Store` that are used. `get` waits for the key, but not
    without end.
    """

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def check(self, keys: list[str]) -> bool: ...


class NodeExchange:
    """The exchange of one start of the workers. One thread may call its methods.

    Args:
        node: Number of this node.
        nodes: Number of nodes.
        connect: Returns the job's store. Called on the thread of the exchange.
    """

    def __init__(self, node: int, nodes: int, connect: Callable[[], Store]) -> None:
        self._node = node
        self._nodes = nodes
        self._connect = connect
        self._given: SimpleQueue[RankSeen | None] = SimpleQueue()
        self._found: SimpleQueue[RankSeen] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="syncline-nodes", daemon=True)
        self._thread.start()

    def put(self, seen: RankSeen) -> None:
        """Pass on the state of a rank of this node."""
        if self._thread.is_alive():
            self._given.put(seen)

    def take(self) -> list[RankSeen]:
        """Return new states of ranks of other nodes."""
        return _all_of(self._found)

    def close(self) -> None:
        """Pass on what is left: on the first node until all ranks have ended, for at most
        `CLOSE_S`.
        """
        self._given.put(None)
        self._thread.join(CLOSE_S + LAST_S)

    def _run(self) -> None:
        with suppress(Exception):  # the store ends with the first node, and may not be reachable
            store = self._connect()
            if self._node == 0:
                self._read(store)
            else:
                write_ranks(store, self._node, self._given)

    def _read(self, store: Store) -> None:
        reader = RankReader(store, self._nodes)
        closes_at = math.inf
        while not reader.have_all_ended and time.monotonic() < closes_at:
            is_closing = closes_at < math.inf
            with suppress(Empty):
                if self._given.get(timeout=LAST_S if is_closing else INTERVAL_S) is None:
                    closes_at = time.monotonic() + CLOSE_S
            for each in reader.read():
                self._found.put(each)


def write_ranks(store: Store, node: int, given: SimpleQueue[RankSeen | None]) -> None:
    """Write states of ranks until None is given."""
    ranks: dict[int, RankSeen] = {}
    is_known = False
    while True:
        news = [given.get(), *_all_of(given)]
        ranks.update({each.rank: each for each in news if each is not None})
        content = {rank: vars(each) for rank, each in ranks.items()}
        store.set(str(node), json.dumps(content))
        if None in news:
            return
        if not is_known:
            is_known = True
            for number in range(QUESTIONS):
                store.get(f"question/{node}/{number}")
                store.set(f"answer/{node}/{number}", repr(time.time()))


class RankReader:
    """Reads the states of the ranks of all nodes but the first.

    Args:
        store: The job's store.
        nodes: Number of nodes.
    """

    def __init__(self, store: Store, nodes: int) -> None:
        self._store = store
        self._nodes = nodes
        self._before: dict[int, bytes] = {}
        self._running: dict[int, bool] = dict.fromkeys(range(1, nodes), True)
        self._clocks: dict[int, float] = {}

    @property
    def have_all_ended(self) -> bool:
        """True if all ranks of these nodes have ended."""
        return not any(self._running.values())

    def read(self) -> list[RankSeen]:
        """Return the states of the ranks of each node that has written anew."""
        found = []
        for node in range(1, self._nodes):
            if not self._store.check([str(node)]):
                continue
            if node not in self._clocks:
                self._clocks[node] = self._clock_of(node)
            content = self._store.get(str(node))
            if content == self._before.get(node):
                continue
            self._before[node] = content
            ranks = [
                RankSeen(**{**fields, "clock_ahead_s": self._clocks[node]})
                for fields in json.loads(content).values()
            ]
            self._running[node] = not all(each.has_ended for each in ranks)
            found += ranks
        return found

    def _clock_of(self, node: int) -> float:
        numbers = iter(range(QUESTIONS))

        def ask() -> float:
            number = next(numbers)
            self._store.set(f"question/{node}/{number}", "")
            return float(self._store.get(f"answer/{node}/{number}"))

        return clock_offset(ask)


def _all_of(queue: SimpleQueue[T]) -> list[T]:
    found: list[T] = []
    with suppress(Empty):
        while True:
            found.append(queue.get_nowait())
    return found
