"""Generators over Ray Client, which knows none: an actor on the cluster makes the call, and hands
the items on as it is asked for them.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import ray
import ray.exceptions

from syncline.core.cluster import handles
from syncline.core.cluster.facts import enter
from syncline.core.plans import CallPlan, TaskPlan
from syncline.core.refs import Hold, ObjectRef, ObjectRefGenerator, current_engine

_CALLS_AT_A_TIME = 4
"""Of one relay: the next item, its end, and a cancellation beside them."""


class Relay:
    """In a process of the cluster: the owner of one generator, which ends with it."""

    def __init__(
        self,
        plan: TaskPlan | CallPlan,
        callee: Hold | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """`callee` keeps the actor of a call in reach."""
        enter()
        self._callee = callee
        engine = current_engine()
        made = (
            engine.submit_task(plan, args, kwargs)
            if isinstance(plan, TaskPlan)
            else engine.submit_call(plan, args, kwargs)
        )
        assert isinstance(made, ObjectRefGenerator)
        self._generator: ObjectRefGenerator[Any] = made

    def next(self) -> tuple[ObjectRef[Any]] | None:
        """The next item's reference; None at the end."""
        item = next(self._generator, None)
        return None if item is None else (item,)

    def completed(self) -> None:
        """Wait for the end, and raise what it ended with."""
        current_engine().get([self._generator.completed()], None)

    def cancel(self, force: bool, recursive: bool) -> None:
        """Cancel the task or call."""
        current_engine().cancel(self._generator, force=force, recursive=recursive)


class RelayedStream:
    """In the program: a generator of a relay, with the methods of one of Ray's."""

    def __init__(
        self,
        plan: TaskPlan | CallPlan,
        callee: Hold | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        relay_class = ray.remote(Relay).options(num_cpus=0, max_concurrency=_CALLS_AT_A_TIME)
        self._relay = relay_class.remote(plan, callee, args, kwargs)
        self._completed: Any = None
        self._asked: Any = None

    def completed(self) -> Any:
        """Ray's reference to the end."""
        if self._completed is None:
            self._completed = self._relay.completed.remote()
        return self._completed

    def cancel(self, *, force: bool, recursive: bool) -> None:
        """Cancel the call that makes the items."""
        ray.get(self._relay.cancel.remote(force, recursive))

    def _next_sync(self, timeout_s: float | None) -> Any:
        """Ray's reference to the next item, a nil one where it does not come in time. StopIteration
        at the end.
        """
        if self._asked is None:
            self._asked = self._relay.next.remote()
        try:
            item = ray.get(self._asked, timeout=timeout_s)
        except ray.exceptions.GetTimeoutError:
            return ray.ObjectRef.nil()
        self._asked = None
        if item is None:
            raise StopIteration
        return item[0].ray

    async def __anext__(self) -> Any:
        item = await asyncio.to_thread(self._next_or_none)
        if item is None:
            raise StopAsyncIteration
        return item

    def _next_or_none(self) -> Any:
        try:
            return self._next_sync(None)
        except StopIteration:
            return None


def relayed(
    plan: TaskPlan | CallPlan, callee: Hold | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> ObjectRefGenerator[Any]:
    """The generator of a call that a relay makes."""
    return handles.stream(RelayedStream(plan, callee, args, kwargs), secrets.randbits(128))
