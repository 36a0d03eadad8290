"""Functions and classes that run in Ray's workers: remote functions, and hosts of actors.

A host is an instance of one of our classes that holds the instance of the user's class. One remote
function per user function and result mode, and one actor class per user class, are registered with
Ray under the user's name, so that Ray's logs and tools show it. All of them first call `Enter`,
which connects syncline to the cluster in the worker.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from types import GeneratorType
from typing import Any, ClassVar, Literal

import ray
import ray.exceptions
from ray.core.generated import gcs_pb2

from syncline.core import definitions, serialization, termination
from syncline.core import engine as engines
from syncline.core.cluster import cluster_state
from syncline.core.cluster.handles import ClusterRef, RayObject
from syncline.core.cluster.ray_errors import task_failure
from syncline.core.definitions import (
    ActorDefinition,
    AnyFunction,
    CallDefinition,
    as_async_iterator,
)
from syncline.core.embedded.invocation import collected
from syncline.core.engine import ActorRecord, Args, Kwargs, current_engine
from syncline.core.options import ASYNC_CONCURRENCY, MethodOptions
from syncline.core.refs import AnyRef, DynamicObjectRefGenerator

Enter = Callable[[AnyFunction | type], None]
"""Prepares a Ray worker for a function or actor class: sets its engine. An importable function, so
that it is pickled by reference.
"""

ResultMode = Literal["plain", "streaming", "dynamic", "retried"]
"""Return value; item by item; all items behind one reference; the same, but errors are raised, so
that Ray retries them.
"""

KILL_WAIT_S = 5.0
"""Seconds to wait for the death of a killed actor; usually it takes milliseconds."""

Limits = tuple[tuple[str, int], ...]
"""Maximum number of concurrent calls by concurrency group."""

MethodName = str | tuple[str, str]
"""A method of the user's class, or (method, concurrency group of the call)."""


# -- tasks


@lru_cache(maxsize=1024)
def remote_function(
    function: AnyFunction, mode: ResultMode, max_calls: int, enter: Enter
) -> RayObject:
    """Return Ray's remote function; TypeError that names the part that cannot be pickled."""
    serialization.pack_callable(function)
    body = _BODIES[mode](function, enter)
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(body, name, getattr(function, name, None) or getattr(body, name))
    return ray.remote(max_calls=max_calls)(body)


@contextmanager
def _user_errors() -> Iterator[None]:
    """Wrap exceptions of user code, and call the hooks of results after it."""
    try:
        yield
    except Exception as error:
        raise task_failure(error) from None
    finally:
        engines.call_result_hooks()


def _with_user_errors(result: object) -> object:
    """Return a result; Ray iterates over a generator, whose errors are those of user code too."""
    return _items(result) if isinstance(result, GeneratorType) else result


def _items(items: Iterator[object]) -> Iterator[object]:
    with _user_errors():
        yield from (item for item in items)


def _references(items: Iterable[object]) -> DynamicObjectRefGenerator[object]:
    """Return references to the items of a generator; if it raises, the last has the error."""
    made: list[AnyRef] = []
    put = current_engine().put
    try:
        for item in items:
            made.append(put(item))
    except Exception as error:
        made.append(ClusterRef(_fail.remote(task_failure(error))))
    return DynamicObjectRefGenerator(made)


def _raise(error: BaseException) -> None:
    raise error


_fail: RayObject = ray.remote(num_cpus=0)(_raise)


def _plain(function: AnyFunction, enter: Enter) -> AnyFunction:
    def body(*args: object, **kwargs: object) -> object:
        enter(function)
        with _user_errors():
            return _with_user_errors(function(*args, **kwargs))

    return body


def _streaming(function: AnyFunction, enter: Enter) -> AnyFunction:
    def body(*args: object, **kwargs: object) -> Iterator[object]:
        enter(function)
        with _user_errors():
            # Not the iterator itself: Ray calls `send`, which only generators have.
            yield from (item for item in function(*args, **kwargs))

    return body


def _dynamic(function: AnyFunction, enter: Enter) -> AnyFunction:
    def body(*args: object, **kwargs: object) -> object:
        enter(function)
        with _user_errors():
            return _references(function(*args, **kwargs))

    return body


def _dynamic_or_error(function: AnyFunction, enter: Enter) -> AnyFunction:
    def body(*args: object, **kwargs: object) -> object:
        enter(function)
        with _user_errors():
            put = current_engine().put
            return DynamicObjectRefGenerator([put(item) for item in function(*args, **kwargs)])

    return body


_BODIES: dict[ResultMode, Callable[[AnyFunction, Enter], AnyFunction]] = {
    "plain": _plain,
    "streaming": _streaming,
    "dynamic": _dynamic,
    "retried": _dynamic_or_error,
}


# -- actors


class _Host:
    """Holds the instance of the user's class."""

    _user_class: ClassVar[type]
    _record: ClassVar[ActorRecord]
    """Record of the class, with the id 0."""
    _enter: ClassVar[staticmethod[[AnyFunction | type], None]]

    def __init__(self, /, *args: object, **kwargs: object) -> None:
        self._enter(self._user_class)
        termination.prepare()
        context = ray.get_runtime_context()
        actor_id = int(context.get_actor_id() or "0", 16)
        cluster_state.set_actor(replace(self._record, actor_id=actor_id))
        self._instance = self._user_class(*args, **kwargs)

    def _run(self, name: str, args: Args, kwargs: Kwargs) -> Any:
        return definitions.bound_method(self._instance, name)(*args, **kwargs)


class Host(_Host):
    """An actor that runs each call in a thread. Ray enforces its concurrency groups."""

    def call(self, name: str, /, *args: object, **kwargs: object) -> object:
        """Run a method."""
        with _user_errors():
            return _with_user_errors(self._run(name, args, kwargs))

    def stream(self, name: str, /, *args: object, **kwargs: object) -> Iterator[object]:
        """Run a generator method and yield its items."""
        with _user_errors():
            # Not the iterator itself: Ray calls `send`, which only generators have.
            yield from (item for item in self._run(name, args, kwargs))

    def gather(self, name: str, /, *args: object, **kwargs: object) -> object:
        """Run a generator method to its end and return references to its items."""
        with _user_errors():
            return _references(self._run(name, args, kwargs))


class AsyncHost(_Host):
    """An actor that runs all calls on one event loop.

    It enforces its concurrency groups itself, because Ray gives each group its own loop, and code
    on one loop cannot await code on another.
    """

    _limits: ClassVar[Limits]

    def __init__(self, /, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self._slots = {group: asyncio.Semaphore(limit) for group, limit in self._limits}

    async def call_on_loop(self, name: MethodName, /, *args: object, **kwargs: object) -> object:
        """Run a method and await its result."""
        method, slot = self._slot_of(name)
        with _user_errors():
            async with slot:
                result = self._run(method, args, kwargs)
                if inspect.isawaitable(result):
                    result = await result
                elif inspect.isasyncgen(result):
                    result = await collected(result)
                return _with_user_errors(result)

    async def stream_on_loop(
        self, name: MethodName, /, *args: object, **kwargs: object
    ) -> AsyncIterator[object]:
        """Run a sync or async generator method and yield its items."""
        method, slot = self._slot_of(name)
        with _user_errors():
            async with slot:
                async for item in as_async_iterator(self._run(method, args, kwargs)):
                    yield item

    async def gather_on_loop(self, name: MethodName, /, *args: object, **kwargs: object) -> object:
        """Run a sync or async generator method to its end; return references to its items."""
        method, slot = self._slot_of(name)
        with _user_errors():
            async with slot:
                items = as_async_iterator(self._run(method, args, kwargs))
                return _references(await collected(items))

    def _slot_of(self, name: MethodName) -> tuple[str, AbstractAsyncContextManager[object]]:
        method, group = (name, "") if isinstance(name, str) else name
        return method, self._slots.get(group) or nullcontext()


_METHOD_OF_MODE = {"streaming": "stream", "dynamic": "gather"}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The host's method that runs a call."""

    method: RayObject
    """Ray's handle of the method."""
    first: tuple[MethodName, ...]
    """Arguments before those of the call."""
    has_loop: bool
    """True if the method runs on an event loop."""


def entry_of(ray_actor: RayObject, definition: CallDefinition) -> Entry:
    """Return the method of the host that runs `definition`.

    A plain call has its own method, because passing the name as an argument costs a sixth of a
    call. Other calls pass the name to a general method.
    """
    group, has_loop = definition.options.concurrency_group, hasattr(ray_actor, "call_on_loop")
    mode = _METHOD_OF_MODE.get(str(definition.options.num_returns), "call")
    own = getattr(ray_actor, _own_name(definition.method), None)
    if own is not None and mode == "call" and not (has_loop and group):
        return Entry(method=own, first=(), has_loop=has_loop)
    named: MethodName = (definition.method, group) if has_loop and group else definition.method
    return Entry(
        method=getattr(ray_actor, f"{mode}_on_loop" if has_loop else mode),
        first=(named,),
        has_loop=has_loop,
    )


def _own_name(method: str) -> str:
    return f"call:{method}"  # not a valid identifier, so no user method has this name


def _own_call(method: str, *, is_async: bool) -> AnyFunction:
    """Return a method of a host that runs this method of the user's class."""

    def call(self: Host, /, *args: object, **kwargs: object) -> object:
        return self.call(method, *args, **kwargs)

    async def call_on_loop(self: AsyncHost, /, *args: object, **kwargs: object) -> object:
        return await self.call_on_loop(method, *args, **kwargs)

    return call_on_loop if is_async else call


def await_death(ray_actor: RayObject) -> None:
    """Wait up to `KILL_WAIT_S` until this process knows that a killed actor is dead.

    Until then Ray would still send calls, and the actor might answer.
    """
    # Missing in handles of Ray Client and in some versions of Ray.
    state = getattr(ray_actor, "_get_local_state", None)
    deadline = time.monotonic() + KILL_WAIT_S
    while (
        _answers(ray_actor) if state is None else state() == gcs_pb2.ActorTableData.ALIVE
    ) and time.monotonic() < deadline:
        time.sleep(0.001)


def _answers(ray_actor: RayObject) -> bool:
    call = ray_actor.call_on_loop if hasattr(ray_actor, "call_on_loop") else ray_actor.call
    try:
        ray.get(call.remote("__ray_ready__"), timeout=KILL_WAIT_S)
    except ray.exceptions.ActorUnavailableError:
        return True
    except ray.exceptions.RayError:
        return False
    return True


def remote_class(definition: ActorDefinition, enter: Enter) -> RayObject:
    """Return Ray's actor class; TypeError that names the part that cannot be pickled."""
    options = definition.options
    limits: Limits = tuple(options.concurrency_groups.items())
    if definition.is_async and limits:
        limits = (("", options.max_concurrency or ASYNC_CONCURRENCY), *limits)
    return _remote_class(
        definition.cls,
        definition.name,
        tuple(definition.methods.items()),
        tuple(definition.signatures.items()),
        definition.groups,
        limits,
        definition.is_async,
        enter,
    )


def clear_caches() -> None:
    """Register every function and class again, because the connection has changed."""
    remote_function.cache_clear()
    _remote_class.cache_clear()


@lru_cache(maxsize=1024)
def _remote_class(
    cls: type,
    name: str,
    methods: tuple[tuple[str, MethodOptions], ...],
    signatures: tuple[tuple[str, str], ...],
    groups: tuple[str, ...],
    limits: Limits,
    is_async: bool,
    enter: Enter,
) -> RayObject:
    serialization.pack_callable(cls)
    body = {
        "_user_class": cls,
        "_record": ActorRecord(
            actor_id=0,
            class_name=name,
            methods=dict(methods),
            groups=groups,
            signatures=dict(signatures),
        ),
        "_enter": staticmethod(enter),
        "__module__": cls.__module__,
    }
    body |= {_own_name(method): _own_call(method, is_async=is_async) for method, _ in methods}
    if is_async:
        return ray.remote(type(name, (AsyncHost,), {**body, "_limits": limits}))
    host = type(name, (Host,), body)
    return ray.remote(concurrency_groups=dict(limits))(host) if limits else ray.remote(host)
