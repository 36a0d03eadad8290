"""`@serve.multiplexed`: a replica that loads models by id and keeps the most recently used ones.

The routers of the callers decide which replica gets the requests of a model.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from syncline.serve.context import request_context
from syncline.serve.destructors import destroy

logger = logging.getLogger("syncline.serve")

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])

_CACHE = "__serve_model_cache_{}__"


@overload
def multiplexed(function: F, /) -> F: ...
@overload
def multiplexed(
    function: None = None, /, max_num_models_per_replica: int = 3
) -> Callable[[F], F]: ...
def multiplexed(
    function: F | None = None, /, max_num_models_per_replica: int = 3
) -> F | Callable[[F], F]:
    """Cache the models that an async function or method loads, by model id.

    The function takes a model id (a method: after `self`) and returns the model. At most
    `max_num_models_per_replica` models stay loaded (-1: unlimited); the least recently used one is
    evicted first, and its `__del__` is called (sync or async). Models are loaded one at a time;
    calls for a loaded model do not wait.

    Raises:
        TypeError: The function is not async or has other parameters, or the number is no integer.
        ValueError: The number is 0 or below -1. When called: the model id is empty.
    """
    limit = max_num_models_per_replica
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise TypeError(f"`max_num_models_per_replica` got {limit!r}: give a whole number")
    if limit != -1 and limit < 1:
        raise ValueError(
            f"`max_num_models_per_replica={limit}` is invalid: give at least 1, or -1 for no limit"
        )
    decorate = functools.partial(_decorated, limit=limit)
    return decorate if function is None else decorate(function)


def get_multiplexed_model_id() -> str:
    """Return the model id of the request that the calling code handles; empty without one."""
    context = request_context.get()
    return "" if context is None else context.multiplexed_model_id


@dataclass(frozen=True, kw_only=True)
class ModelCacheStatistics:
    """Counts of a cache of models."""

    models: tuple[str, ...]
    """Ids of the loaded models, the latest used one last."""
    loads: int
    unloads: int
    limit: int


class ModelCache:
    """The loaded models of one function, or of one instance of its class."""

    def __init__(
        self, load: Callable[[str], Awaitable[object]], limit: int, loop: asyncio.AbstractEventLoop
    ) -> None:
        """`limit` -1: unlimited."""
        self.loop = loop
        self._load = load
        self._limit = limit
        self._models: OrderedDict[str, Any] = OrderedDict()
        self._loading: dict[str, asyncio.Task[Any]] = {}
        self._lock = asyncio.Lock()
        self._loads = 0
        self._unloads = 0

    async def get(self, model_id: str) -> Any:
        """Return the model; load it if necessary. Raises the error of the load."""
        if model_id in self._models:
            self._models.move_to_end(model_id)
            return self._models[model_id]
        task = self._loading.get(model_id)
        if task is None:
            task = self._loading[model_id] = self.loop.create_task(self._add(model_id))
            task.add_done_callback(functools.partial(self._loaded, model_id))
        # A caller that is cancelled does not stop the load, for which others may wait.
        return await asyncio.shield(task)

    def statistics(self) -> ModelCacheStatistics:
        """Return the current counts."""
        return ModelCacheStatistics(
            models=tuple(self._models), loads=self._loads, unloads=self._unloads, limit=self._limit
        )

    async def _add(self, model_id: str) -> Any:
        async with self._lock:
            if self._limit != -1:
                while len(self._models) >= self._limit:
                    await self._remove_oldest()
            self._loads += 1
            began = self.loop.time()
            model = await self._load(model_id)
            self._models[model_id] = model
            logger.info("Loaded model %r in %.1f s.", model_id, self.loop.time() - began)
            return model

    async def _remove_oldest(self) -> None:
        model_id, model = self._models.popitem(last=False)
        self._unloads += 1
        logger.info("Unloading model %r.", model_id)
        try:
            await destroy(model, is_final=False)  # Python runs a sync one with the last reference
        except Exception:
            logger.exception("`__del__` of model %r failed.", model_id)

    def _loaded(self, model_id: str, task: asyncio.Task[Any]) -> None:
        del self._loading[model_id]
        if not task.cancelled():
            task.exception()  # callers may all have left

    def __reduce__(self) -> tuple[Any, ...]:
        return _nothing, ()  # an instance that is copied loads its own models


def _nothing() -> None:
    """Return None in place of a cache."""


def _decorated(function: F, *, limit: int) -> F:
    if not inspect.iscoroutinefunction(function):
        raise TypeError(
            f"`@serve.multiplexed` decorates async functions, but got {function!r}: declare it "
            f"with `async def`"
        )
    parameters = len(inspect.signature(function).parameters)
    if parameters not in (1, 2):
        raise TypeError(
            f"`{function.__qualname__}` has {parameters} parameters: a function with "
            f"`@serve.multiplexed` takes the model id only, a method `self` and the model id"
        )
    place = _Place()

    @functools.wraps(function)
    async def wrapper(*args: object, **kwargs: object) -> Any:
        instance = args[0] if parameters == 2 and args else None
        model_id = _model_id(function.__name__, args[parameters - 1 :], kwargs)
        cache = _cache(function, place, instance, limit)
        return await cache.get(model_id)

    return wrapper  # type: ignore[return-value]


class _Place:
    """Holds the cache of a function."""

    cache: ModelCache | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {}  # it belongs to one process

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin without a cache."""


def _cache(function: Callable[..., Any], place: _Place, instance: Any, limit: int) -> ModelCache:
    loop = asyncio.get_running_loop()
    holder, name = (place, "cache") if instance is None else (instance, "")
    name = name or _CACHE.format(function.__name__)
    cache: ModelCache | None = getattr(holder, name, None)
    if cache is None or cache.loop is not loop:
        load = function if instance is None else functools.partial(function, instance)
        cache = ModelCache(load, limit, loop)
        object.__setattr__(holder, name, cache)
    return cache


def _model_id(name: str, args: tuple[object, ...], kwargs: dict[str, Any]) -> str:
    given = [*args, *kwargs.values()]
    if len(given) != 1:
        raise TypeError(f"`{name}` takes one model id, but got {len(given)} arguments")
    model_id = given[0]
    if not isinstance(model_id, str):
        raise TypeError(f"`{name}` got the model id {model_id!r}: give a string")
    if not model_id:
        raise ValueError(
            f"`{name}` got an empty model id: set the header `serve_multiplexed_model_id`, or "
            f"`handle.options(multiplexed_model_id=...)`"
        )
    return model_id
