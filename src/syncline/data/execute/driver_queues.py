"""What is to be done by the driver's thread, in order. Anything may put something in: tasks that
end, the program, a garbage collection.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TypeAlias

from syncline.data.execute.block_store import OutputBlock
from syncline.data.execute.program import CacheWriter, Stage, TeeBlocks

Thunk: TypeAlias = Callable[[], None]


class Inbox:
    """A queue that can be closed. It never waits for a lock, so that a finalizer may use it at any
    moment.
    """

    def __init__(self) -> None:
        self._thunks: SimpleQueue[Thunk] = SimpleQueue()
        self._is_closed = False

    def put(self, thunk: Thunk) -> None:
        """Have something done; nothing happens once the inbox is closed."""
        if not self._is_closed:
            self._thunks.put(thunk)

    def run(self, wait_s: float | None) -> None:
        """Do all that is there; if there is nothing, wait for it, up to `wait_s` seconds or without
        end.
        """
        try:
            self._thunks.get(timeout=wait_s)()
            while not self._is_closed:
                self._thunks.get_nowait()()
        except Empty:
            return

    def run_next(self) -> bool:
        """Do the next thing; False if there is none."""
        try:
            thunk = self._thunks.get_nowait()
        except Empty:
            return False
        thunk()
        return True

    def close(self) -> None:
        """Let go of what is there, and of what still comes."""
        self._is_closed = True
        try:
            while True:
                self._thunks.get_nowait()
        except Empty:
            return


class CacheWriters:
    """The keepers of an execution. For the driver's thread."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._cache_writers: dict[int, CacheWriter] = {}
        self._before: dict[int, set[int]] = {}
        for number, stage in enumerate(stages):
            before = set(stage.inputs).union(*(self._before[each] for each in stage.inputs))
            self._before[number] = before
            if isinstance(stage.grouping, TeeBlocks) and stage.grouping.writer is not None:
                self._cache_writers[number] = stage.grouping.writer

    def add(self, stage: int, block: OutputBlock) -> None:
        """The next rows of a stage."""
        if stage in self._cache_writers:
            self._cache_writers[stage].add(block)

    def complete(self, stage: int) -> None:
        """They were all."""
        if stage in self._cache_writers:
            self._cache_writers[stage].complete()
            del self._cache_writers[stage]

    def spoil(self, stage: int) -> None:
        """Blocks of a stage are missing: nothing is kept of what comes after it."""
        for number in [number for number in self._cache_writers if stage in self._before[number]]:
            self._cache_writers.pop(number).discard()

    def close(self) -> None:
        """Nothing more comes."""
        writers, self._cache_writers = list(self._cache_writers.values()), {}
        for writer in writers:
            writer.discard()


class Outbox:
    """Blocks in order, then perhaps an error, then the end. Any thread may use it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ready: deque[OutputBlock] = deque()
        self._ended = False
        self._error: BaseException | None = None
        self._waited_s = 0.0
        self._waits_since: float | None = None
        self.first_at: float | None = None
        """When the first block was there."""

    @property
    def waited_s(self) -> float:
        """How long `take` waited, all in all, and still waits."""
        since = self._waits_since
        return self._waited_s + (0.0 if since is None else time.monotonic() - since)

    def deliver(self, block: OutputBlock) -> None:
        """One more block."""
        with self._changed:
            if self._ended:
                return
            if self.first_at is None:
                self.first_at = time.monotonic()
            self._ready.append(block)
            self._changed.notify_all()

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more comes after what is there; only the first call counts."""
        with self._changed:
            if not self._ended:
                self._ended, self._error = True, error
                self._changed.notify_all()

    def clear(self) -> None:
        """Let go of blocks that nobody will take, and of the error."""
        with self._changed:
            self._ready.clear()
            self._ended, self._error = True, None
            self._changed.notify_all()

    @property
    def is_open(self) -> bool:
        """Whether there is neither a block nor an end yet."""
        return not self._ready and not self._ended

    def take(self, timeout_s: float | None) -> OutputBlock | None:
        """The next block, waited for; None after `timeout_s` seconds. Raises the error, once, and
        StopIteration at the end.
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
