"""What Ray's workers run for an actor: an instance of the user's class inside one of ours, whose few methods run the user's by name.

Each class of the user's gets a class of Ray's that carries its name, so that logs and tools show it.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import lru_cache
from typing import Any, ClassVar

import ray

from syncline.core import actor_methods, serialization
from syncline.core.cluster import facts
from syncline.core.cluster.errors import failure
from syncline.core.engine import ActorRecord
from syncline.core.options import MethodOptions
from syncline.core.refs import DynamicObjectRefGenerator, current_engine


class _Host:
    """The instance of the user's class, and what it says of itself."""

    _user_class: ClassVar[type]
    _methods: ClassVar[Mapping[str, Any]]
    _actor_name: ClassVar[str]

    def __init__(self, /, *args: Any, **kwargs: Any) -> None:
        facts.enter()
        context = ray.get_runtime_context()
        actor_id = int(context.get_actor_id() or "0", 16)
        facts.become(ActorRecord(actor_id=actor_id, class_name=self._actor_name, methods=self._methods))
        self._instance = self._user_class(*args, **kwargs)

    def _run(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return actor_methods.bound_method(self._instance, name)(*args, **kwargs)


class Host(_Host):
    """An actor whose calls run in a thread each."""

    def call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Run a method."""
        try:
            return self._run(name, args, kwargs)
        except Exception as error:
            raise failure(error) from None

    def stream(self, name: str, /, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Run a generator method."""
        try:
            yield from (item for item in self._run(name, args, kwargs))  # Ray sends into it, which not every iterator takes
        except Exception as error:
            raise failure(error) from None

    def gather(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Run a generator method to its end; references to its items."""
        try:
            return DynamicObjectRefGenerator([current_engine().put(item) for item in self._run(name, args, kwargs)])
        except Exception as error:
            raise failure(error) from None


class AsyncHost(_Host):
    """An actor whose calls run on an event loop."""

    async def call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Run a method, and wait for what it awaits."""
        try:
            result = self._run(name, args, kwargs)
            return await result if inspect.isawaitable(result) else result
        except Exception as error:
            raise failure(error) from None

    async def stream(self, name: str, /, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Run a generator method of either kind."""
        try:
            async for item in _items(self._run(name, args, kwargs)):
                yield item
        except Exception as error:
            raise failure(error) from None

    async def gather(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        """Run a generator method of either kind to its end; references to its items."""
        try:
            return DynamicObjectRefGenerator([current_engine().put(item) async for item in _items(self._run(name, args, kwargs))])
        except Exception as error:
            raise failure(error) from None


async def _items(values: Any) -> AsyncIterator[Any]:
    if hasattr(values, "__aiter__"):
        async for value in values:
            yield value
    else:
        for value in values:
            yield value


METHOD_OF_MODE = {"streaming": "stream", "dynamic": "gather"}
"""Which method of a host runs a call, by `num_returns`; `call` for all others."""


@lru_cache(maxsize=1024)
def remote_class(
    cls: type, name: str, methods: tuple[tuple[str, MethodOptions], ...], groups: tuple[tuple[str, int], ...], is_async: bool
) -> Any:
    """Ray's actor class for `cls`. TypeError, naming the part, where it cannot be pickled."""
    serialization.pack_callable(cls)
    body = {"_user_class": cls, "_methods": dict(methods), "_actor_name": name, "__module__": cls.__module__}
    host = type(name, (AsyncHost if is_async else Host,), body)
    return ray.remote(concurrency_groups=dict(groups))(host) if groups else ray.remote(host)
