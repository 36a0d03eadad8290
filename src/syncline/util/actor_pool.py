"""`ActorPool`: a fixed set of actors that share a stream of work.

Results come in the order of submission, or as they become ready. A function that returns a list of
references, as methods with several return values do, has a list of values as its result.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from syncline.core import api
from syncline.core.refs import AnyRef, ObjectRef
from syncline.exceptions import ActorDiedError

V = TypeVar("V")
Refs = tuple[AnyRef, ...]
"""References of one call."""

Call = Callable[[Any, V], Any]
"""`(actor, value) -> reference`, for example ``lambda actor, value: actor.f.remote(value)``."""


class ActorPool(Generic[V]):
    """Passes each value to an idle actor; values wait while all actors are busy.

    Not thread-safe: one thread submits and collects.
    """

    def __init__(self, actors: Iterable[object]) -> None:
        """`actors`: handles. The pool neither creates nor kills the actors."""
        self._idle: list[Any] = list(actors)
        self._pending_submits: deque[tuple[Call[V], V]] = deque()
        self._running: dict[int, tuple[object, Any, Refs]] = {}
        """Actor, result of the function, and its references, by number of the submission."""
        self._submitted = 0
        self._next_in_order = 0

    def map(self, fn: Call[V], values: Iterable[V]) -> Iterator[Any]:
        """Return the results of `fn(actor, value)` in the order of `values`.

        Submits everything immediately, and discards results of earlier calls.
        """
        return self._map(fn, values, self.get_next)

    def map_unordered(self, fn: Call[V], values: Iterable[V]) -> Iterator[Any]:
        """Return the results of `fn(actor, value)` as they become ready; otherwise like `map`."""
        return self._map(fn, values, self.get_next_unordered)

    def submit(self, fn: Call[V], value: V) -> None:
        """Call `fn(actor, value)` on an idle actor, now or when one becomes idle."""
        if not self._idle:
            self._pending_submits.append((fn, value))
            return
        actor = self._idle.pop()
        result = fn(actor, value)
        refs = tuple(result) if isinstance(result, (list, tuple)) else (result,)
        if not refs or not all(isinstance(ref, ObjectRef) for ref in refs):
            self._idle.append(actor)
            raise TypeError(
                f"The function of an ActorPool returned {result!r}, but it must return a reference "
                "or a list of references: return the result of `actor.method.remote(value)`."
            )
        self._running[self._submitted] = (actor, result, refs)
        self._submitted += 1

    def has_next(self) -> bool:
        """Return True if a result is outstanding."""
        return bool(self._running)

    def get_next(self, timeout: float | None = None, ignore_if_timedout: bool = False) -> Any:
        """Return the next result in the order of submission.

        Args:
            timeout: Seconds to wait; None waits forever.
            ignore_if_timedout: Also discard the result after a timeout, so that the next call
                returns the one after it.

        Raises:
            TimeoutError: The result was not ready in time.
            StopIteration: No result is outstanding.
            ValueError: `get_next_unordered` may have taken the result.
        """
        self._expect_result()
        if self._next_in_order not in self._running:
            raise ValueError(
                "`get_next` was called after `get_next_unordered`, which may have taken its "
                "result: collect one batch of work with one of the two."
            )
        number = self._next_in_order
        refs = self._running[number][2]
        ready, _ = api.wait(refs, num_returns=len(refs), timeout=timeout)
        timed_out = len(ready) < len(refs)
        if timed_out and not ignore_if_timedout:
            raise TimeoutError(
                f"The next result of the ActorPool was not ready within {timeout} s: increase "
                "`timeout`, or omit it."
            )
        self._next_in_order += 1
        return self._take(number, timed_out=timed_out)

    def get_next_unordered(
        self, timeout: float | None = None, ignore_if_timedout: bool = False
    ) -> Any:
        """Return the result that is ready first; arguments and errors as in `get_next`."""
        self._expect_result()
        number = self._first_ready(timeout)
        if number is None and not ignore_if_timedout:
            raise TimeoutError(
                f"No result of the ActorPool was ready within {timeout} s: increase `timeout`, or "
                "omit it."
            )
        taken = next(iter(self._running)) if number is None else number
        self._next_in_order = max(self._next_in_order, taken + 1)
        return self._take(taken, timed_out=number is None)

    def has_free(self) -> bool:
        """Return True if an actor is idle and no value waits for one."""
        return bool(self._idle) and not self._pending_submits

    def pop_idle(self) -> Any | None:
        """Remove an idle actor from the pool and return it; None if all are busy."""
        return self._idle.pop() if self.has_free() else None

    def push(self, actor: object) -> None:
        """Add an idle actor. Raises ValueError if the pool already contains it."""
        if any(
            actor == other
            for other in (*self._idle, *(busy for busy, _, _ in self._running.values()))
        ):
            raise ValueError(f"{actor!r} is already in this ActorPool: push each actor once.")
        self._give_back(actor)

    def _expect_result(self) -> None:
        if not self.has_next():
            raise StopIteration("The ActorPool has no more results: submit a value first.")

    def _first_ready(self, timeout: float | None) -> int | None:
        """Wait for a submission whose references are all ready; return its number, or None."""
        deadline = None if timeout is None else time.monotonic() + timeout
        waiting = {ref: number for number, (_, _, refs) in self._running.items() for ref in refs}
        missing = {number: len(refs) for number, (_, _, refs) in self._running.items()}
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready, _ = api.wait(list(waiting), num_returns=1, timeout=left)
            if not ready:
                return None
            number = waiting.pop(ready[0])
            missing[number] -= 1
            if not missing[number]:
                return number

    def _take(self, number: int, *, timed_out: bool) -> Any:
        actor, result, _ = self._running.pop(number)
        if timed_out:
            self._give_back(actor)
            raise TimeoutError(
                f"A result of the ActorPool was not ready in time and is discarded: {result!r}."
            )
        try:
            value = api.get(result)
        except ActorDiedError:  # the others take its share
            self._submit_waiting()
            raise
        except BaseException:
            self._give_back(actor)
            raise
        self._give_back(actor)
        return value

    def _give_back(self, actor: object) -> None:
        self._idle.append(actor)
        self._submit_waiting()

    def _submit_waiting(self) -> None:
        if self._pending_submits and self._idle:
            self.submit(*self._pending_submits.popleft())

    def _map(self, fn: Call[V], values: Iterable[V], take: Callable[[], object]) -> Iterator[Any]:
        while self._running:  # results of earlier calls, which may still run
            actor, _, _ = self._running.pop(next(iter(self._running)))
            self._give_back(actor)
        self._next_in_order = self._submitted
        for value in values:
            self.submit(fn, value)
        return self._drain(take)

    def _drain(self, take: Callable[[], object]) -> Iterator[object]:
        while self.has_next():
            yield take()
