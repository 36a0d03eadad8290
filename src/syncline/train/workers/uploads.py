"""The thread that does what `report` does not wait for: uploads with ASYNC, and the disk. First in,
first out, and never far behind.

Every waiting upload is a checkpoint on the disk of this machine. Where uploads are slower than
reports, they would fill it, so `submit` waits once `MOST_WAITING` of them wait: training then goes
at the pace of the storage, which is told once.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
logger = logging.getLogger("syncline")

MOST_WAITING = 4
"""So many uploads of a rank may wait beside the one that runs."""


@dataclass(frozen=True, kw_only=True)
class UploadStatistics:
    """What has gone through an uploader."""

    submitted: int
    done: int
    """Uploaded, or dropped after one had failed."""
    waits: int
    """How often `submit` had to wait."""


class Uploader(Generic[T]):
    """Calls `upload` with what is submitted, in order, in a thread of its own that begins with the
    first.

    Args:
        upload: Brings one checkpoint to the storage. fail: Is told the first error, in the thread;
        what was submitted after it is dropped, also later.
    """

    def __init__(self, upload: Callable[[T], None], fail: Callable[[BaseException], None]) -> None:
        self._upload = upload
        self._fail = fail
        self._queue: queue.Queue[T | None] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._submitted = 0
        self._done = 0
        self._waits = 0

    def submit(self, upload: T) -> None:
        """Put one at the end; waits while `MOST_WAITING` are there."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="syncline-upload", daemon=True)
            self._thread.start()
        self._submitted += 1
        try:
            self._queue.put_nowait(upload)
        except queue.Full:
            self._waits += 1
            if self._waits == 1:
                logger.warning(
                    "uploads of checkpoints are slower than reports: `report` waits while %d of them wait, so that they do not fill this "
                    "machine's disk; report checkpoints less often, or smaller ones",
                    MOST_WAITING,
                )
            self._queue.put(upload)

    def finish(self, limit_s: float | None = None) -> None:
        """Wait until all that was submitted is uploaded, or for so long. Nothing may be submitted
        any more.
        """
        if self._thread is None:
            return
        began = time.monotonic()
        try:
            self._queue.put(None, timeout=limit_s)
        except queue.Full:
            return
        self._thread.join(
            None if limit_s is None else max(0.0, limit_s - (time.monotonic() - began))
        )

    def statistics(self) -> UploadStatistics:
        """What has gone through."""
        return UploadStatistics(submitted=self._submitted, done=self._done, waits=self._waits)

    def _run(self) -> None:
        failed = False
        while (upload := self._queue.get()) is not None:
            try:
                if not failed:
                    self._upload(upload)
            except BaseException as error:
                failed = True
                self._fail(error)
            self._done += 1
