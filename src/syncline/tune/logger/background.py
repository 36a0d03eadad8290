"""`Background`: calls that a network may delay, made in threads, so that a run neither waits for
them nor fails with them.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

logger = logging.getLogger("syncline")


class Background:
    """Makes calls in threads: those with one key in the order in which they were given, the others
    in any.

    A call that raises is logged with its traceback the first time; the others are made all the
    same. The threads start with the first call and are daemons: a program that ends without `close`
    does not wait for them. Pickled, it is as it was before the first call.

    Args:
        purpose: What the calls are for, as the subject of a sentence: "Uploading result.json".
        threads: How many calls may run at a time.
    """

    def __init__(self, purpose: str, *, threads: int = 1) -> None:
        self._purpose = purpose
        self._threads = threads
        self._queues: list[queue.SimpleQueue[Callable[[], object] | None]] = []
        self._told = False

    def call(self, function: Callable[..., object], *arguments: Any, key: str = "") -> None:
        """Have `function(*arguments)` called; returns at once."""
        if not self._queues:
            self._start()
        self._queues[zlib.crc32(key.encode()) % self._threads].put(partial(function, *arguments))

    @property
    def backlog(self) -> int:
        """How many calls wait."""
        return sum(waiting.qsize() for waiting in self._queues)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until every call given so far has been made; False if that takes longer than
        `timeout_s`.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        for waiting in self._queues:
            reached = threading.Event()
            waiting.put(reached.set)
            if not reached.wait(
                None if deadline is None else max(0.0, deadline - time.monotonic())
            ):
                return False
        return True

    def close(self, timeout_s: float) -> None:
        """As `wait`, and the threads end; a warning if calls are left."""
        if not self.wait(timeout_s):
            logger.warning(
                "%s took more than %.0f s at the end of the run; %d steps are left out.",
                self._purpose,
                timeout_s,
                self.backlog,
            )
        for waiting in self._queues:
            waiting.put(None)
        self._queues = []

    def _start(self) -> None:
        self._queues = [queue.SimpleQueue() for _ in range(self._threads)]
        for waiting in self._queues:
            threading.Thread(
                target=self._work, args=(waiting,), name="syncline-logger", daemon=True
            ).start()

    def _work(self, waiting: queue.SimpleQueue[Callable[[], object] | None]) -> None:
        for function in iter(waiting.get, None):
            try:
                function()
            except Exception:
                if not self._told:
                    self._told = True
                    logger.warning(
                        "%s failed; the run goes on. Further failures are not shown.",
                        self._purpose,
                        exc_info=True,
                    )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_queues": []}
