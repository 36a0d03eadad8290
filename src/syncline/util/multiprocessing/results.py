"""`AsyncResult` of the asynchronous methods of a pool, and the iterators of `imap`.

They receive the outcomes of chunks from the dispatcher's thread; callbacks also run there.
"""

from __future__ import annotations

import logging
import multiprocessing
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from syncline.util.multiprocessing.chunks import Chunk, Outcome

logger = logging.getLogger("syncline")

Callback = Callable[[Any], object]


class AsyncResult:
    """Result of one call of a pool: a value, or a list of values in the order of the items."""

    def __init__(
        self,
        chunks: int,
        *,
        single: bool,
        wait_in_engine: Callable[[AsyncResult, float | None], None] | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> None:
        self._outcomes: list[Outcome | None] = [None] * chunks
        self._missing = chunks
        self._single = single
        self._wait_in_engine = wait_in_engine
        self._callback = callback
        self._error_callback = error_callback
        self._done = threading.Event()
        if not chunks:
            self._finish()

    def get(self, timeout: float | None = None) -> Any:
        """Wait for the result and return it.

        Raises:
            multiprocessing.TimeoutError: It was not complete within `timeout` seconds.
            Exception: The exception of the first item that raised.
        """
        self.wait(timeout)
        if not self._done.is_set():
            raise multiprocessing.TimeoutError(
                f"The result of the pool was not complete within {timeout} s: {self._missing} of "
                f"{len(self._outcomes)} chunks are missing. Increase `timeout`, or omit it."
            )
        error = self._error
        if error is not None:
            raise error
        return self._value

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the result is complete, at most `timeout` seconds."""
        started = time.monotonic()
        wait_in_engine = self._wait_in_engine
        if wait_in_engine is not None and not self._done.is_set():
            wait_in_engine(self, timeout)
        left = None if timeout is None else max(0.0, started + timeout - time.monotonic())
        self._done.wait(left)

    def ready(self) -> bool:
        """Return True if the result is complete."""
        return self._done.is_set()

    def successful(self) -> bool:
        """Return True if no item raised. Raises ValueError if the result is not complete."""
        if not self.ready():
            raise ValueError(
                f"{self!r} is not ready: call `successful` after `wait`, or if `ready()` is True."
            )
        return self._error is None

    @property
    def has_callback(self) -> bool:
        """True if `deliver` runs functions of the user."""
        return self._callback is not None or self._error_callback is not None

    def deliver(self, index: int, outcome: Outcome) -> None:
        """Take the outcome of chunk `index`."""
        self._outcomes[index] = outcome
        self._missing -= 1
        if not self._missing:
            self._finish()

    def _finish(self) -> None:
        outcomes = [outcome for outcome in self._outcomes if outcome is not None]
        errors = (outcome.first_error for outcome in outcomes)
        self._error = next((error for error in errors if error is not None), None)
        values = list(chain.from_iterable(outcome.values for outcome in outcomes))
        self._value = values[0] if self._single and self._error is None else values
        callback = self._callback if self._error is None else self._error_callback
        try:
            if callback is not None:
                callback(self._value if self._error is None else self._error)
        except Exception:  # it would end the thread that all results share
            logger.exception("A callback of a pool raised an exception; the result is not changed.")
        finally:
            self._wait_in_engine = None  # it keeps the pool alive
            self._done.set()


class PoolIterator(Iterator[Any]):
    """Results of `imap` or `imap_unordered`, while the items are read as results are taken.

    Like Ray's, it yields the exception of an item that raised, instead of raising it, and continues
    behind it. A worker that died, or a failure before the calls, is raised.

    Args:
        ordered: Yield results in the order of the items.
        read: Returns the next chunk, with this number; None at the end of the items.
        submit: Submits chunks. Like `read`, it runs in the thread that takes results.
        ahead: Returns the largest number of chunks whose results were not taken.
    """

    def __init__(
        self,
        *,
        ordered: bool,
        read: Callable[[int], Chunk | None],
        submit: Callable[[list[Chunk]], None],
        ahead: Callable[[], int],
    ) -> None:
        self._ordered = ordered
        self._read = read
        self._submit = submit
        self._ahead = ahead
        self._submitted = 0
        self._taken = 0
        self._at_end = False
        self._items: deque[object] = deque()
        self._arrived: dict[int, Outcome] = {}
        self._changed = threading.Condition()

    def __next__(self) -> Any:
        return self.next()

    def next(self, timeout: float | None = None) -> Any:
        """Return the next result.

        Raises:
            StopIteration: There is none.
            multiprocessing.TimeoutError: There was none within `timeout` seconds; call again.
        """
        if not self._items:
            self.submit_ahead()
            self._items.extend(self._next_outcome(timeout))
            self.submit_ahead()
        return self._items.popleft()

    has_callback = False

    def deliver(self, index: int, outcome: Outcome) -> None:
        """Take the outcome of chunk `index`."""
        with self._changed:
            self._arrived[index] = outcome
            self._changed.notify_all()

    def submit_ahead(self) -> None:
        """Submit chunks until enough are ahead of the results that were taken."""
        room = self._ahead() - (self._submitted - self._taken)
        if self._at_end or room < self._ahead() // 4:  # together, because short chunks form groups
            return
        chunks: list[Chunk] = []
        for _ in range(room):
            chunk = self._read(self._submitted)
            if chunk is None:
                self._at_end = True
                break
            chunks.append(chunk)
            self._submitted += 1
        self._submit(chunks)

    def _next_outcome(self, timeout: float | None) -> Iterator[object]:
        if self._taken == self._submitted:
            raise StopIteration
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while True:
                wanted = self._taken if self._ordered else next(iter(self._arrived), -1)
                if wanted in self._arrived:
                    break
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise multiprocessing.TimeoutError(
                        f"The next result of the pool was not ready within {timeout} s: call "
                        "`next` again, or increase `timeout`."
                    )
                self._changed.wait(left)
            outcome = self._arrived.pop(wanted)
        self._taken += 1
        if outcome.failure is not None:
            raise outcome.failure
        errors = outcome.errors or {}
        return (errors.get(index, value) for index, value in enumerate(outcome.values))
