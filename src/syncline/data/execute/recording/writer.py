"""`Writer`: the thread that writes records, one per process; whoever records only hands it what is
to be done.

A disk that does not answer holds up this thread alone. What it cannot do is dropped: so is what
comes while too much waits already.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable

logger = logging.getLogger("syncline")

_MOST_WAITING = 2000
"""So many jobs wait at once; a disk that answers leaves none waiting."""

_IDLE_S = 3.0
"""A thread without work ends after so long: programs may count their threads."""


class Writer:
    """Does one job after the other, in a thread that starts with the first one and ends when there
    is none for a while.

    May be used from several threads.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def post(self, job: Callable[[], None]) -> None:
        """Have something done; returns at once. What it raises is logged."""
        if self._jobs.qsize() >= _MOST_WAITING:
            return
        self._put(job)

    def drain(self, limit_s: float) -> bool:
        """Wait until all that was posted is done, for so long at most; whether it is."""
        if self._thread is None:
            return True
        done = threading.Event()
        self._put(done.set)
        return done.wait(limit_s)

    def _put(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="syncline-data-records", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=_IDLE_S)
            except queue.Empty:
                with self._lock:  # whoever puts something in then starts another thread
                    if self._jobs.empty():
                        self._thread = None
                        return
                continue
            try:
                job()
            except Exception:  # a record must not end anything
                logger.debug("an execution could not be recorded", exc_info=True)


_writer = Writer()


def writer() -> Writer:
    """That of this process."""
    return _writer


def _after_fork_in_child() -> None:
    global _writer
    _writer = Writer()  # threads stay with the parent


os.register_at_fork(after_in_child=_after_fork_in_child)
