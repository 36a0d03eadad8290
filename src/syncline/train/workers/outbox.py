"""A worker's outgoing messages: bounded, batched, in order. The training function puts; the stream of messages takes.

A batch costs both ends a third of a millisecond, and a message in it some microseconds. So what nobody waits for, reports without a
checkpoint and samples, leaves at once where there was nothing for a while, and otherwise gathers for some hundredths of a second. All else
leaves at once, and what was said before with it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from syncline.train.workers.messages import Reported, Spent, WorkerMessage


@dataclass(frozen=True, kw_only=True)
class OutboxStatistics:
    """What has gone through an outbox."""

    messages: int
    """Put so far."""
    batches: int
    """Given out so far."""
    waiting: int
    """Messages not given out yet."""


class Outbox:
    """A queue of messages that leaves in batches.

    A few batches may be under way unread (`window`); then messages gather here, into larger batches; only when `max_messages` have
    gathered does `put` wait, so that a loop that reports faster than the controller writes cannot fill the memory. `gap_s`: so long after a
    batch, messages that nobody waits for gather for the next.
    """

    def __init__(
        self,
        *,
        max_messages: int = 16_384,
        max_batch: int = 2_048,
        window: int = 8,
        gap_s: float = 0.05,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_messages = max_messages
        self._max_batch = max_batch
        self._window = window
        self._gap_s = gap_s
        self._clock = clock
        self._quiet_until = 0.0
        self._hurries = False  # one of those that are here cannot wait
        self._messages: deque[WorkerMessage] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._put = 0
        self._sent_batches = 0
        self._read_batches = 0

    def put(self, message: WorkerMessage) -> None:
        """Say something; waits only while the outbox is full. After `close`, nothing is said any more."""
        with self._changed:
            while len(self._messages) >= self._max_messages and not self._closed:
                self._changed.wait()
            if self._closed:
                return
            self._messages.append(message)
            self._put += 1
            if not _can_wait(message):
                self._hurries = True
            # The one who sends sleeps on through the others: a thread that wakes for nothing takes the interpreter from the training.
            if self._hurries or len(self._messages) in (1, self._max_batch):
                self._changed.notify_all()

    def close(self, last: WorkerMessage | None = None) -> None:
        """End the stream after what has been put and `last`; the first call counts."""
        with self._changed:
            if self._closed:
                return
            if last is not None:
                self._messages.append(last)
                self._put += 1
            self._closed = True
            self._changed.notify_all()

    def consumed(self, batches: int) -> None:
        """The reader has read the first `batches` batches."""
        with self._changed:
            self._read_batches = max(self._read_batches, batches)
            self._changed.notify_all()

    def batches(self) -> Iterator[tuple[WorkerMessage, ...]]:
        """Batches in order, each waited for, until the outbox is closed and empty."""
        while True:
            with self._changed:
                while not self._may_send() and not (self._closed and not self._messages):
                    self._changed.wait(self._pause_s())
                if not self._messages:
                    return
                batch = tuple(self._messages.popleft() for _ in range(min(len(self._messages), self._max_batch)))
                self._hurries = self._hurries and bool(self._messages)
                self._quiet_until = self._clock() + self._gap_s
                self._sent_batches += 1
                self._changed.notify_all()
            yield batch

    def statistics(self) -> OutboxStatistics:
        """What has gone through."""
        with self._changed:
            return OutboxStatistics(messages=self._put, batches=self._sent_batches, waiting=len(self._messages))

    def _may_send(self) -> bool:
        # The end is told at once, whatever the reader does.
        return bool(self._messages) and (self._closed or (self._sent_batches - self._read_batches < self._window and self._is_time()))

    def _is_time(self) -> bool:
        return self._hurries or len(self._messages) >= self._max_batch or self._clock() >= self._quiet_until

    def _pause_s(self) -> float | None:
        """How long there is nothing to send unless something is said; None: for ever."""
        return None if not self._messages or self._is_time() else max(0.0, self._quiet_until - self._clock())


def _can_wait(message: WorkerMessage) -> bool:
    return isinstance(message, Spent) or (isinstance(message, Reported) and message.part is None and not message.uploading)
