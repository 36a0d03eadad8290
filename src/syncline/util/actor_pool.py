"""`ActorPool`: a fixed set of actors that share a stream of work.

Results come in the order of submission, or as they become ready.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from syncline.core import api
from syncline.core.refs import ObjectRef

V = TypeVar("V")

Call = Callable[[Any, V], Any]
"""`(actor, value) -> reference`, for example ``lambda actor, value: actor.f.remote(value)``."""


class ActorPool(Generic[V]):
    """Passes each value to an idle actor; values wait while all actors are busy.

    Not thread-safe: one thread submits and collects.
    """

    def __init__(self, actors: Iterable[Any]) -> None:
        """`actors`: handles. The pool neither creates nor kills the actors."""
        self._idle: list[Any] = list(actors)
        self._waiting: deque[tuple[Call[V], V]] = deque()
        self._actor_of: dict[ObjectRef[Any], Any] = {}
        self._number_of: dict[ObjectRef[Any], int] = {}
        self._running: dict[int, ObjectRef[Any]] = {}
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
            self._waiting.append((fn, value))
            return
        actor = self._idle.pop()
        ref = fn(actor, value)
        if not isinstance(ref, ObjectRef):
            self._idle.append(actor)
            raise TypeError(
                f"The function of an ActorPool returned {ref!r}, but it must return one reference "
                "per value: return the result of `actor.method.remote(value)`."
            )
        self._actor_of[ref] = actor
        self._number_of[ref] = self._submitted
        self._running[self._submitted] = ref
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
        ref = self._running[self._next_in_order]
        timed_out = not self._is_ready([ref], timeout)
        if timed_out and not ignore_if_timedout:
            raise TimeoutError(
                f"The next result of the ActorPool was not ready within {timeout} s: increase "
                "`timeout`, or omit it."
            )
        self._next_in_order += 1
        return self._take(ref, timed_out=timed_out)

    def get_next_unordered(
        self, timeout: float | None = None, ignore_if_timedout: bool = False
    ) -> Any:
        """Return the result that is ready first; arguments and errors as in `get_next`."""
        self._expect_result()
        refs = list(self._actor_of)
        ready = self._is_ready(refs, timeout)
        if not ready and not ignore_if_timedout:
            raise TimeoutError(
                f"No result of the ActorPool was ready within {timeout} s: increase `timeout`, or "
                "omit it."
            )
        ref = ready[0] if ready else refs[0]
        self._next_in_order = max(self._next_in_order, self._number_of[ref] + 1)
        return self._take(ref, timed_out=not ready)

    def has_free(self) -> bool:
        """Return True if an actor is idle and no value waits for one."""
        return bool(self._idle) and not self._waiting

    def pop_idle(self) -> Any | None:
        """Remove an idle actor from the pool and return it; None if all are busy."""
        return self._idle.pop() if self.has_free() else None

    def push(self, actor: Any) -> None:
        """Add an idle actor. Raises ValueError if the pool already contains it."""
        if any(actor == other for other in (*self._idle, *self._actor_of.values())):
            raise ValueError(f"{actor!r} is already in this ActorPool: push each actor once.")
        self._give_back(actor)

    def _expect_result(self) -> None:
        if not self.has_next():
            raise StopIteration("The ActorPool has no more results: submit a value first.")

    def _is_ready(self, refs: list[ObjectRef[Any]], timeout: float | None) -> list[ObjectRef[Any]]:
        return api.wait(refs, num_returns=1, timeout=timeout)[0]

    def _take(self, ref: ObjectRef[Any], *, timed_out: bool) -> Any:
        self._forget(ref)
        if timed_out:
            raise TimeoutError(
                f"A result of the ActorPool was not ready in time and is discarded: {ref!r}."
            )
        return api.get(ref)

    def _give_back(self, actor: Any) -> None:
        self._idle.append(actor)
        if self._waiting:
            self.submit(*self._waiting.popleft())

    def _forget(self, ref: ObjectRef[Any]) -> None:
        del self._running[self._number_of.pop(ref)]
        self._give_back(self._actor_of.pop(ref))

    def _map(self, fn: Call[V], values: Iterable[V], take: Callable[[], Any]) -> Iterator[Any]:
        while self.has_next():  # results of earlier calls
            ref = next(iter(self._actor_of))
            api.wait([ref], num_returns=1)
            self._forget(ref)
        self._next_in_order = self._submitted
        for value in values:
            self.submit(fn, value)
        return self._drain(take)

    def _drain(self, take: Callable[[], Any]) -> Iterator[Any]:
        while self.has_next():
            yield take()
