"""Send buffer of a worker: bounded, batched, in order.

The training function puts messages; the message stream takes batches. Sending a batch takes the
interpreter from the training for about a millisecond, a message in it for some microseconds.
Therefore messages that no caller waits for (reports without a checkpoint, usage samples) are sent
with `put_batched`: immediately if nothing was sent recently, else together after a quarter of a
second. All other messages are sent immediately with `put`, after all messages before them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

from syncline.train.workers.messages import StreamItem


class SendBuffer:
    """Queue of messages that is sent in batches.

    Args:
        max_messages: Capacity; a call waits while the buffer is full, so that a loop that reports
            faster than the controller writes cannot fill the memory.
        max_batch: Messages of one batch.
        window: Batches that may be sent before the reader has acknowledged one.
        gap_s: Seconds between two batches of messages put with `put_batched`.
        clock: Monotonic clock in seconds.
    """

    def __init__(
        self,
        *,
        max_messages: int = 16_384,
        max_batch: int = 2_048,
        window: int = 8,
        gap_s: float = 0.25,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_messages = max_messages
        self._max_batch = max_batch
        self._nearly_full = min(max_batch, max_messages) - 1
        self._window = window
        self._gap_s = gap_s
        self._clock = clock
        self._quiet_until = 0.0
        self._is_urgent = False  # the buffer has a message of `put`
        self._messages: deque[StreamItem] = deque()
        self._changed = threading.Condition()
        self._sender_polls = False  # the sender will look for messages without a notification
        self._closed = False
        self._last: StreamItem | None = None
        self._sent_batches = 0
        self._read_batches = 0

    def put(self, message: StreamItem) -> None:
        """Send a message immediately. Waits while the buffer is full; no effect after `close`."""
        self._put(message, urgent=True)

    def put_batched(self, message: StreamItem) -> None:
        """Send a message with the next batch. Waits while the buffer is full; no effect after
        `close`.
        """
        # A training step has evicted the processor's caches: each function call costs
        # microseconds, and a lock costs more.
        if self._closed or len(self._messages) >= self._nearly_full:
            self._put(message, urgent=False)
            return
        self._messages.append(message)
        # Checked after the append: the sender looks for messages after it has set the flag.
        if not self._sender_polls:
            with self._changed:
                self._changed.notify_all()

    def close(self, last: StreamItem | None = None) -> None:
        """End the stream after the buffered messages and `last`. Only the first call counts."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._last = last
            self._changed.notify_all()

    def consumed(self, batches: int) -> None:
        """Record that the reader has read the first `batches` batches."""
        with self._changed:
            self._read_batches = max(self._read_batches, batches)
            self._changed.notify_all()

    def batches(self) -> Iterator[tuple[StreamItem, ...]]:
        """Yield batches in order until the buffer is closed and empty."""
        while batch := self._next_batch():
            yield batch

    def _put(self, message: StreamItem, *, urgent: bool) -> None:
        with self._changed:
            while len(self._messages) >= self._max_messages and not self._closed:
                self._changed.wait()
            if self._closed:
                return
            self._messages.append(message)
            self._is_urgent = self._is_urgent or urgent
            # Wake the sender only for a reason: it takes the interpreter from the training.
            if self._is_urgent or not self._sender_polls or len(self._messages) == self._max_batch:
                self._changed.notify_all()

    def _next_batch(self) -> tuple[StreamItem, ...]:
        """Wait for the next batch; empty at the end of the stream."""
        with self._changed:
            while not self._may_send() and not self._closed:
                # From here on `put_batched` notifies; messages put before are seen in the next
                # line.
                self._sender_polls = False
                self._sender_polls = bool(self._messages)
                self._changed.wait(self._pause_s() if self._sender_polls else None)
                self._sender_polls = True
            batch = [
                self._messages.popleft() for _ in range(min(len(self._messages), self._max_batch))
            ]
            if self._last is not None and len(batch) < self._max_batch:
                batch.append(self._last)
                self._last = None
                self._messages.clear()  # messages put after `close`
            self._is_urgent = self._is_urgent and bool(self._messages)
            self._quiet_until = self._clock() + self._gap_s
            self._sent_batches += bool(batch)
            self._changed.notify_all()
        return tuple(batch)

    def _may_send(self) -> bool:
        return bool(self._messages) and self._has_window() and self._is_due()

    def _has_window(self) -> bool:
        return self._sent_batches - self._read_batches < self._window

    def _is_due(self) -> bool:
        return (
            self._is_urgent
            or len(self._messages) >= self._max_batch
            or self._clock() >= self._quiet_until
        )

    def _pause_s(self) -> float | None:
        """Return the seconds until a batch is due; None to wait for an acknowledgement."""
        return max(0.0, self._quiet_until - self._clock()) if self._has_window() else None
