"""What Ray's workers run for an actor: an instance of the user's class inside one of ours, whose
methods run the user's.

Each class of the user's gets a class of Ray's that carries its name, so that logs and tools show
it.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import ray
import ray.exceptions
from ray.core.generated import gcs_pb2

from syncline.core import actor_methods, serialization, termination
from syncline.core.cluster import facts
from syncline.core.cluster.errors import failure
from syncline.core.engine import ActorRecord
from syncline.core.options import ASYNC_CONCURRENCY, MethodOptions
from syncline.core.plans import ActorPlan, CallPlan
from syncline.core.refs import DynamicObjectRefGenerator, current_engine

KILL_WAIT_S = 5.0
"""How long the news of an actor's end may take; usually it is milliseconds."""

Limits = tuple[tuple[str, int], ...]
"""How many calls of each concurrency group run at once."""

MethodName = str | tuple[str, str]
"""A method of the user's class; with the concurrency group of the call where it has one."""


class _Host:
    """The instance of the user's class, and what it says of itself."""

    _user_class: ClassVar[type]
    _methods: ClassVar[Mapping[str, Any]]
    _actor_name: ClassVar[str]
    _groups: ClassVar[tuple[str, ...]]

    def __init__(self, /, *args: Any, **kwargs: Any) -> None:
        facts.enter()
        termination.prepare()
        context = ray.get_runtime_context()
        actor_id = int(context.get_actor_id() or "0", 16)
        facts.become(
            ActorRecord(
                actor_id=actor_id,
                class_name=self._actor_name,
                methods=self._methods,
                groups=self._groups,
            )
        )
        self._instance = self._user_class(*args, **kwargs)

    def _run(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return actor_methods.bound_method(self._instance, name)(*args, **kwargs)


class Host(_Host):
    """An actor whose calls run in a thread each. Ray keeps the limits of its concurrency groups."""

    def call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Run a method."""
        try:
            return self._run(name, args, kwargs)
        except Exception as error:
            raise failure(error) from None

    def stream(self, name: str, /, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Run a generator method."""
        try:
            yield from (
                item for item in self._run(name, args, kwargs)
            )  # Ray sends into it, which not every iterator takes
        except Exception as error:
            raise failure(error) from None

    def gather(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Run a generator method to its end; references to its items."""
        try:
            return DynamicObjectRefGenerator(
                [current_engine().put(item) for item in self._run(name, args, kwargs)]
            )
        except Exception as error:
            raise failure(error) from None


class AsyncHost(_Host):
    """An actor whose calls run on one event loop.

    It keeps the limits of its concurrency groups itself: Ray gives each group a loop of its own,
    between which nothing can be awaited.
    """

    _limits: ClassVar[Limits]

    def __init__(self, /, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._turns = {group: asyncio.Semaphore(most) for group, most in self._limits}

    async def call_on_loop(self, name: MethodName, /, *args: Any, **kwargs: Any) -> Any:
        """Run a method, and wait for what it awaits."""
        method, turn = self._turn_of(name)
        try:
            async with turn:
                result = self._run(method, args, kwargs)
                return await result if inspect.isawaitable(result) else result
        except Exception as error:
            raise failure(error) from None

    async def stream_on_loop(
        self, name: MethodName, /, *args: Any, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """Run a generator method of either kind."""
        method, turn = self._turn_of(name)
        try:
            async with turn:
                async for item in _items(self._run(method, args, kwargs)):
                    yield item
        except Exception as error:
            raise failure(error) from None

    async def gather_on_loop(self, name: MethodName, /, *args: Any, **kwargs: Any) -> Any:
        """Run a generator method of either kind to its end; references to its items."""
        method, turn = self._turn_of(name)
        try:
            async with turn:
                return DynamicObjectRefGenerator(
                    [
                        current_engine().put(item)
                        async for item in _items(self._run(method, args, kwargs))
                    ]
                )
        except Exception as error:
            raise failure(error) from None

    def _turn_of(self, name: MethodName) -> tuple[str, AbstractAsyncContextManager[Any]]:
        method, group = (name, "") if isinstance(name, str) else name
        return method, self._turns.get(group) or nullcontext()


async def _items(values: Any) -> AsyncIterator[Any]:
    if hasattr(values, "__aiter__"):
        async for value in values:
            yield value
    else:
        for value in values:
            yield value


_METHOD_OF_MODE = {"streaming": "stream", "dynamic": "gather"}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What runs the calls of a plan in a host."""

    method: Any
    """Ray's handle of it."""
    first: tuple[MethodName, ...]
    """What it is given before the arguments of the call."""
    has_loop: bool
    """Whether it runs on an event loop."""


def entry_of(ray_actor: Any, plan: CallPlan) -> Entry:
    """What runs `plan`: a method that runs the user's by name, or, for a plain call, one of its
    own, as an argument costs a sixth of it.
    """
    group, has_loop = plan.options.concurrency_group, hasattr(ray_actor, "call_on_loop")
    mode = _METHOD_OF_MODE.get(str(plan.options.num_returns), "call")
    own = getattr(ray_actor, _own_name(plan.method), None)
    if own is not None and mode == "call" and not (has_loop and group):
        return Entry(method=own, first=(), has_loop=has_loop)
    named: MethodName = (plan.method, group) if has_loop and group else plan.method
    return Entry(
        method=getattr(ray_actor, f"{mode}_on_loop" if has_loop else mode),
        first=(named,),
        has_loop=has_loop,
    )


def _own_name(method: str) -> str:
    return f"call:{method}"  # no name that a class can have otherwise


def _own_call(method: str, *, is_async: bool) -> Callable[..., Any]:
    """A method of a host that runs this one of the user's."""

    def call(self: Host, /, *args: Any, **kwargs: Any) -> Any:
        return self.call(method, *args, **kwargs)

    async def call_on_loop(self: AsyncHost, /, *args: Any, **kwargs: Any) -> Any:
        return await self.call_on_loop(method, *args, **kwargs)

    return call_on_loop if is_async else call


def await_end(ray_actor: Any) -> None:
    """Wait, a moment at most, until this process knows that a killed actor has ended: until then
    Ray would send it calls, and it answer.
    """
    state = getattr(
        ray_actor, "_get_local_state", None
    )  # not of a handle through Ray Client, nor in every version of Ray
    deadline = time.monotonic() + KILL_WAIT_S
    while (
        _answers(ray_actor) if state is None else state() == gcs_pb2.ActorTableData.ALIVE
    ) and time.monotonic() < deadline:
        time.sleep(0.001)


def _answers(ray_actor: Any) -> bool:
    """Whether a killed actor still takes calls."""
    call = ray_actor.call_on_loop if hasattr(ray_actor, "call_on_loop") else ray_actor.call
    try:
        ray.get(call.remote("__ray_ready__"), timeout=KILL_WAIT_S)
    except ray.exceptions.ActorUnavailableError:
        return True
    except ray.exceptions.RayError:
        return False
    return True


def remote_class(plan: ActorPlan) -> Any:
    """Ray's actor class for `plan`. TypeError, naming the part, where the user's class cannot be
    pickled.
    """
    options = plan.options
    limits: Limits = tuple(options.concurrency_groups.items())
    if plan.is_async and limits:
        limits = (("", options.max_concurrency or ASYNC_CONCURRENCY), *limits)
    return _remote_class(
        plan.cls, plan.name, tuple(plan.methods.items()), plan.groups, limits, plan.is_async
    )


def forget_classes() -> None:
    """Make every class of Ray's anew from now on."""
    _remote_class.cache_clear()


@lru_cache(maxsize=1024)
def _remote_class(
    cls: type,
    name: str,
    methods: tuple[tuple[str, MethodOptions], ...],
    groups: tuple[str, ...],
    limits: Limits,
    is_async: bool,
) -> Any:
    serialization.pack_callable(cls)
    body = {
        "_user_class": cls,
        "_methods": dict(methods),
        "_groups": groups,
        "_actor_name": name,
        "__module__": cls.__module__,
    }
    body |= {_own_name(method): _own_call(method, is_async=is_async) for method, _ in methods}
    if is_async:
        return ray.remote(type(name, (AsyncHost,), {**body, "_limits": limits}))
    host = type(name, (Host,), body)
    return ray.remote(concurrency_groups=dict(limits))(host) if limits else ray.remote(host)
