"""A worker's outgoing messages: bounded, batched, in order. The training function puts; the stream
of messages takes.

A batch takes the interpreter from the training for about a millisecond, and a message in it for
some microseconds. So what nobody waits for, reports without a checkpoint and samples, is
*gathered*: it leaves at once where there was nothing for a while, and otherwise with what comes in
the next quarter of a second. All else is *put*: it leaves at once, and what was said before with
it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from syncline.train.workers.messages import Sent


@dataclass(frozen=True, kw_only=True)
class OutboxStatistics:
    """What has gone through an outbox."""

    messages: int
    """Given out so far."""
    batches: int
    """In so many batches."""
    waiting: int
    """Messages not given out yet."""


class Outbox:
    """A queue of messages that leaves in batches.

    A few batches may be under way unread (`window`); then messages gather here, into larger
    batches; only when `max_messages` have gathered does a call wait, so that a loop that reports
    faster than the controller writes cannot fill the memory. `gap_s`: so long after a batch,
    messages that nobody waits for gather for the next.
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
        self._few = min(max_batch, max_messages) - 1
        self._window = window
        self._gap_s = gap_s
        self._clock = clock
        self._quiet_until = 0.0
        self._hurries = False  # one of those that are here cannot wait
        self._messages: deque[Sent] = deque()
        self._changed = threading.Condition()
        self._looks_by_itself = False  # the one who sends: it does not sleep until it is told
        self._closed = False
        self._last: Sent | None = None
        self._sent_messages = 0
        self._sent_batches = 0
        self._read_batches = 0

    def put(self, message: Sent) -> None:
        """Say something that leaves at once; waits only while the outbox is full. After `close`,
        nothing is said any more.
        """
        self._put(message, hurries=True)

    def gather(self, message: Sent) -> None:
        """Say something that nobody waits for. Waits and ends as `put` does."""
        # A step of training has emptied the processor's caches: there each function that is called
        # costs microseconds, and a lock more.
        if self._closed or len(self._messages) >= self._few:
            self._put(message, hurries=False)
            return
        self._messages.append(message)
        if (
            not self._looks_by_itself
        ):  # asked after that: the one who sends looks for messages after it has said so
            with self._changed:
                self._changed.notify_all()

    def close(self, last: Sent | None = None) -> None:
        """End the stream after what has been put and `last`; the first call counts."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._last = last
            self._changed.notify_all()

    def consumed(self, batches: int) -> None:
        """The reader has read the first `batches` batches."""
        with self._changed:
            self._read_batches = max(self._read_batches, batches)
            self._changed.notify_all()

    def batches(self) -> Iterator[tuple[Sent, ...]]:
        """Batches in order, each waited for, until the outbox is closed and empty."""
        while batch := self._next_batch():
            yield batch

    def statistics(self) -> OutboxStatistics:
        """What has gone through."""
        with self._changed:
            return OutboxStatistics(
                messages=self._sent_messages,
                batches=self._sent_batches,
                waiting=len(self._messages),
            )

    def _put(self, message: Sent, *, hurries: bool) -> None:
        with self._changed:
            while len(self._messages) >= self._max_messages and not self._closed:
                self._changed.wait()
            if self._closed:
                return
            self._messages.append(message)
            self._hurries = self._hurries or hurries
            # Else the one who sends sleeps on: a thread that wakes for nothing takes the
            # interpreter from the training.
            if self._hurries or not self._looks_by_itself or len(self._messages) == self._max_batch:
                self._changed.notify_all()

    def _next_batch(self) -> tuple[Sent, ...]:
        """What leaves next, waited for; nothing at the end."""
        with self._changed:
            while not self._may_send() and not self._closed:
                self._looks_by_itself = False  # from here on, whoever gathers a message tells; those before are seen in the next line
                self._looks_by_itself = bool(self._messages)
                self._changed.wait(self._pause_s() if self._looks_by_itself else None)
                self._looks_by_itself = True
            batch = [
                self._messages.popleft() for _ in range(min(len(self._messages), self._max_batch))
            ]
            if self._last is not None and len(batch) < self._max_batch:
                batch.append(self._last)
                self._last = None
                self._messages.clear()  # what another thread has said since: nothing follows the last
            self._hurries = self._hurries and bool(self._messages)
            self._quiet_until = self._clock() + self._gap_s
            self._sent_messages += len(batch)
            self._sent_batches += bool(batch)
            self._changed.notify_all()
        return tuple(batch)

    def _may_send(self) -> bool:
        return bool(self._messages) and self._may_follow() and self._is_time()

    def _may_follow(self) -> bool:
        return self._sent_batches - self._read_batches < self._window

    def _is_time(self) -> bool:
        return (
            self._hurries
            or len(self._messages) >= self._max_batch
            or self._clock() >= self._quiet_until
        )

    def _pause_s(self) -> float | None:
        """How long messages that may not be sent yet wait; None: until the reader has read."""
        return max(0.0, self._quiet_until - self._clock()) if self._may_follow() else None
