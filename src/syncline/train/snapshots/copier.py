"""`SnapshotCopier`: copies snapshots of one rank to another node while training continues.

The controller asks all ranks for a copy of the same step, because a restart needs one step of all
ranks: "the first snapshot at or after step N". A rank answers when its copy is complete and the
next one may begin, or immediately if it has passed that step. Until the controller knows that all
ranks have copied a later snapshot, the rank keeps the snapshot itself too, for a restart in which
the node with the copy is the one that is gone. One copy is on its way at a time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from syncline.train.snapshots.slot import SnapshotSlot

logger = logging.getLogger("syncline")

STOP_LIMIT_S = 5.0
"""Seconds to wait at the end of training for the part of a copy that is on its way."""

Send = Callable[[SnapshotSlot, "int | None", Callable[[], bool]], None]
"""Copies a snapshot: (slot, step of the last snapshot that all ranks have copied, is stopped)."""
Ready = Callable[["int | None", int], None]
"""Tells the controller (step of the copy or None, newest step)."""


class SnapshotCopier:
    """Copies snapshots of one rank. Thread-safe.

    Args:
        send: Copies a snapshot.
        ready: Tells the controller that this rank can copy the next snapshot.
        every_s: Seconds from the start of one copy to the next one.
        step: Step that the attempt starts from.
        clock: Monotonic clock in seconds.
    """

    def __init__(
        self,
        send: Send,
        ready: Ready,
        *,
        every_s: float,
        step: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send = send
        self._ready = ready
        self._every_s = every_s
        self._clock = clock
        self._changed = threading.Condition()
        self._newest = step
        self._wanted: int | None = None  # copy the first snapshot at or after this step
        self._slot: SnapshotSlot | None = None  # to copy
        self._copied: int | None = None  # step of the last copy, also of one on its way
        self._kept: int | None = None  # the last step that all ranks have copied
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    @property
    def pinned(self) -> frozenset[int]:
        """Steps of snapshots that must not be overwritten."""
        with self._changed:
            return frozenset(step for step in (self._kept, self._copied) if step is not None)

    def request(self, from_step: int, kept_step: int | None) -> None:
        """Copy the first snapshot at or after a step.

        Args:
            from_step: The step.
            kept_step: The last step that all ranks have copied; None for none.
        """
        with self._changed:
            self._kept, self._copied = kept_step, None
            newest = self._newest
            has_passed = newest >= from_step
            self._wanted = None if has_passed else from_step
        if has_passed:
            self._ready(None, newest)

    def taken(self, slot: SnapshotSlot, step: int) -> None:
        """Start a copy of the newest snapshot if it was requested. Does not wait."""
        with self._changed:
            is_first, self._newest = self._thread is None, step
            if self._is_stopped:
                return
            if is_first:
                self._thread = threading.Thread(
                    target=self._run, name="syncline-snapshot-copies", daemon=True
                )
            elif self._wanted is not None and step >= self._wanted:
                self._wanted, self._slot, self._copied = None, slot, step
                self._changed.notify_all()
        if is_first:
            assert self._thread is not None
            self._thread.start()
            self._ready(None, step)

    def stop(self, limit_s: float = STOP_LIMIT_S) -> None:
        """Take no more copies, and release the pinned snapshots. Waits up to `limit_s`."""
        with self._changed:
            self._is_stopped = True
            self._kept = self._copied = self._wanted = None
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(limit_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_stopped or self._slot is not None)
                slot, self._slot = self._slot, None
                step, kept = self._copied, self._kept
                if self._is_stopped or slot is None:
                    return
            began = self._clock()
            reader = SnapshotSlot(slot.path)  # the descriptor of `slot` is the training thread's
            try:
                self._send(reader, kept, lambda: self._is_stopped)
            except Exception as error:
                self._fail(step, error)
                return
            finally:
                reader.close()
            with self._changed:
                left_s = began + self._every_s - self._clock()
                if self._changed.wait_for(lambda: self._is_stopped, max(0.0, left_s)):
                    return
                newest = self._newest
            self._ready(step, newest)

    def _fail(self, step: int | None, error: Exception) -> None:
        with self._changed:
            if not self._is_stopped:
                logger.warning(
                    "The memory snapshot of step %s was not copied to another node: %s. Until the "
                    "next restart, no more copies are made; after the crash of a node, training "
                    "continues from the last copy or checkpoint.",
                    step,
                    error,
                )
            self._is_stopped = True
