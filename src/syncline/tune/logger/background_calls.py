"""`BackgroundCalls`: threads for network calls, so that their delays and failures do not affect the
run.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import zlib
from collections.abc import Callable
from functools import partial

logger = logging.getLogger("syncline")


class BackgroundCalls:
    """Makes calls in daemon threads; calls with the same key keep their order.

    The first call that raises is logged with its traceback; later calls are still made. The threads
    start with the first call, and a program that exits without `close` does not wait for them. A
    pickled instance has no pending calls.

    Args:
        purpose: Description of the calls as the subject of a sentence: "Uploading result.json".
        threads: Maximum number of concurrent calls.
    """

    def __init__(self, purpose: str, *, threads: int = 1) -> None:
        self._purpose = purpose
        self._threads = threads
        self._queues: list[queue.SimpleQueue[Callable[[], object] | None]] = []
        self._warned = False

    def call(self, function: Callable[..., object], *arguments: object, key: str = "") -> None:
        """Call `function(*arguments)` in a thread, without waiting."""
        if not self._queues:
            self._start()
        self._queues[zlib.crc32(key.encode()) % self._threads].put(partial(function, *arguments))

    @property
    def backlog(self) -> int:
        """Number of waiting calls."""
        return sum(waiting.qsize() for waiting in self._queues)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the calls made so far are done; return False after `timeout_s`."""
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
        """Wait like `wait`, log a warning if calls are left, and end the threads."""
        if not self.wait(timeout_s):
            logger.warning(
                "%s took more than %.0f s at the end of the run; %d calls were not made.",
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
                if not self._warned:
                    self._warned = True
                    logger.warning(
                        "%s failed; the run continues. Further failures are not logged.",
                        self._purpose,
                        exc_info=True,
                    )

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_queues": []}
