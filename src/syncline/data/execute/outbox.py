"""What is ready for the program: filled by the driver, emptied by the thread that consumes the
execution.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from syncline.core import api
from syncline.core.refs import ObjectRef
from syncline.data.columnar import block as blocks
from syncline.data.execute.store import Stored
from syncline.data.iterate.position import Restart
from syncline.exceptions import ObjectLostError

MadeAgain: TypeAlias = Callable[[Restart, int, ObjectLostError], pa.Table]
"""(where to start, rows, how they were lost) -> the rows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OutputBlock:
    """The next rows of an execution's output."""

    num_rows: int
    size_bytes: int
    restart: Restart
    """Where an execution may start to deliver exactly what comes from this block on;
    `restart.index` is the number of its first row.
    """
    _stored: Stored = field(repr=False)
    _start: int = field(repr=False)
    _again: MadeAgain | None = field(default=None, repr=False)
    """Makes the rows again when they are lost."""

    def table(self) -> pa.Table:
        """The rows, in this process; from the object store without a copy where the engine can.

        Rows that a cluster has lost with one of its nodes are made again. ObjectLostError where
        that is not possible.
        """
        stored = self._stored
        try:
            table: pa.Table = (
                stored.table if stored.table is not None else api.get(stored.in_store())
            )
        except ObjectLostError as error:
            if self._again is None:
                raise
            return self._again(self.restart, self.num_rows, error)
        return table if self.num_rows == stored.rows else table.slice(self._start, self.num_rows)

    def reference(self) -> ObjectRef[Any]:
        """The rows in the object store; put there if they are not yet."""
        if self.num_rows == self._stored.rows:
            return self._stored.in_store()
        return api.put(blocks.compact(self.table()))


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
