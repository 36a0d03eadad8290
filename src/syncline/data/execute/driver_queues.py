"""Queues of the driver's thread: calls to run, delivered blocks, and blocks for cache writers."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TypeAlias

from syncline.data.execute.block_store import OutputBlock
from syncline.data.execute.physical_plan import CacheWriter, Stage, TeeBlocks

Call: TypeAlias = Callable[[], None]


class CallQueue:
    """Calls for the driver's thread. Lock-free, so that finalizers may use it at any moment."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Call] = SimpleQueue()
        self._is_closed = False

    def put(self, call: Call) -> None:
        """Add a call; ignored after `close`."""
        if not self._is_closed:
            self._queue.put(call)

    def run(self, wait_s: float | None) -> None:
        """Run all waiting calls; wait up to `wait_s` seconds for the first, or forever if None."""
        try:
            self._queue.get(timeout=wait_s)()
            while not self._is_closed:
                self._queue.get_nowait()()
        except Empty:
            return

    def run_next(self) -> bool:
        """Run the next call; return False if the queue is empty."""
        try:
            call = self._queue.get_nowait()
        except Empty:
            return False
        call()
        return True

    def close(self) -> None:
        """Drop waiting and future calls."""
        self._is_closed = True
        try:
            while True:
                self._queue.get_nowait()
        except Empty:
            return


class CacheWriters:
    """Cache writers of an execution. Used by the driver's thread only."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._writers: dict[int, CacheWriter] = {}
        self._upstream: dict[int, set[int]] = {}
        for number, stage in enumerate(stages):
            upstream = set(stage.inputs).union(*(self._upstream[each] for each in stage.inputs))
            self._upstream[number] = upstream
            if isinstance(stage.grouping, TeeBlocks) and stage.grouping.writer is not None:
                self._writers[number] = stage.grouping.writer

    def add(self, stage: int, block: OutputBlock) -> None:
        """Pass the next block of a stage to its writer."""
        if stage in self._writers:
            self._writers[stage].add(block)

    def complete(self, stage: int) -> None:
        """Complete the writer of a stage."""
        if stage in self._writers:
            self._writers[stage].complete()
            del self._writers[stage]

    def discard_after(self, stage: int) -> None:
        """Discard the writers downstream of a stage that lost blocks."""
        for number in [number for number in self._writers if stage in self._upstream[number]]:
            self._writers.pop(number).discard()

    def close(self) -> None:
        """Discard the incomplete writers."""
        writers, self._writers = list(self._writers.values()), {}
        for writer in writers:
            writer.discard()


class OutputQueue:
    """Delivered blocks, then optionally an error, then the end. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ready: deque[OutputBlock] = deque()
        self._ended = False
        self._error: BaseException | None = None
        self._waited_s = 0.0
        self._waits_since: float | None = None
        self.first_at: float | None = None
        """When the first block arrived, on `time.monotonic`; None before."""

    @property
    def waited_s(self) -> float:
        """Seconds that `take` has waited in total."""
        since = self._waits_since
        return self._waited_s + (0.0 if since is None else time.monotonic() - since)

    def deliver(self, block: OutputBlock) -> None:
        """Add a block."""
        with self._changed:
            if self._ended:
                return
            if self.first_at is None:
                self.first_at = time.monotonic()
            self._ready.append(block)
            self._changed.notify_all()

    def end(self, error: BaseException | None = None) -> None:
        """End the output after the waiting blocks. Only the first call counts."""
        with self._changed:
            if not self._ended:
                self._ended, self._error = True, error
                self._changed.notify_all()

    def clear(self) -> None:
        """Drop the waiting blocks and the error, and end the output."""
        with self._changed:
            self._ready.clear()
            self._ended, self._error = True, None
            self._changed.notify_all()

    @property
    def is_open(self) -> bool:
        """True if there is neither a block nor an end yet."""
        return not self._ready and not self._ended

    def take(self, timeout_s: float | None) -> OutputBlock | None:
        """Wait for the next block; return None after `timeout_s` seconds.

        Raises the error once, then StopIteration.
        """
        with self._changed:
            if self.is_open:
                began = self._waits_since = time.monotonic()
                try:
                    self._changed.wait_for(lambda: not self.is_open, timeout_s)
                finally:
                    self._waits_since = None
                    self._waited_s += time.monotonic() - began
            if self._ready:
                return self._ready.popleft()
            if not self._ended:
                return None
            error, self._error = self._error, None
        if error is None:
            raise StopIteration
        try:
            raise error
        finally:
            del error  # the traceback refers to this frame
