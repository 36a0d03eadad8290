"""`@serve.batch`: single calls of an async function, collected into calls with lists.

The decorated function stores its options. Each instance (of a method's class) and each event loop
has a `_Collector` with a `BatchQueue`, which makes decisions, and tasks that run the batches. Every
call ends with a result or an error, also if it is cancelled, if the function raises or returns an
invalid result, and if the loop stops.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import logging
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping, Sequence
from typing import Any, Literal, TypeVar, overload

from syncline.serve.batch_queue import (
    AdaptiveWait,
    BatchQueue,
    BatchQueueStatistics,
    FixedWait,
    WaitPolicy,
)
from syncline.serve.context import RequestContext, request_context
from syncline.serve.exceptions import RayServeException, RequestCancelledError
from syncline.serve.monitoring.call_times import batch_recorder

logger = logging.getLogger("syncline.serve")

F = TypeVar("F", bound=Callable[..., Any])

_COLLECTOR = "__serve_batch_collector_{}__"
TIMER_S = 0.001
"""Minimum duration of a timer."""
_END = object()  # the end of a caller's stream


@overload
def batch(function: F, /) -> F: ...
@overload
def batch(
    function: None = None,
    /,
    max_batch_size: int = 10,
    batch_wait_timeout_s: float | Literal["auto"] = 0.01,
    max_concurrent_batches: int = 1,
    batch_size_fn: Callable[[list[Any]], float] | None = None,
) -> Callable[[F], F]: ...
def batch(
    function: F | None = None,
    /,
    max_batch_size: int = 10,
    batch_wait_timeout_s: float | Literal["auto"] = 0.01,
    max_concurrent_batches: int = 1,
    batch_size_fn: Callable[[list[Any]], float] | None = None,
) -> F | Callable[[F], F]:
    """Collect single calls of an async function or method into calls with lists.

    The function takes lists and returns a list of results in the same order, or is an async
    generator that yields such lists; `StopIteration` in a list ends the stream of that caller. Each
    caller passes one item and awaits one result, or iterates over its stream. A batch never
    contains calls for different models (see `multiplexed`).

    The decorated function has the methods `set_max_batch_size(size)` and
    `set_batch_wait_timeout_s(seconds)`.

    Args:
        function: The function, if the decorator is used without parentheses.
        max_batch_size: Maximum number of items in a batch, or maximum of `batch_size_fn`.
        batch_wait_timeout_s: Seconds that the first item of a batch waits for others. "auto" waits
            only for callers that usually return within the duration of a batch.
        max_concurrent_batches: Maximum number of concurrent batches.
        batch_size_fn: Function that returns the size of a list of items; by default its length.

    Raises:
        TypeError: The function is not async, or an argument has a wrong type.
        ValueError: An argument has an invalid value.
    """
    options = _Options(max_batch_size, batch_wait_timeout_s, max_concurrent_batches, batch_size_fn)

    def decorate(function: F) -> F:
        return _decorated(function, options)

    return decorate if function is None else decorate(function)


class _Options:
    """The options of a decorated function, which setters may change at run time."""

    def __init__(
        self, max_batch_size: object, wait: object, max_concurrent_batches: object, size_fn: object
    ) -> None:
        self.max_batch_size = _whole("max_batch_size", max_batch_size)
        self.wait = _checked_wait(wait)
        self.max_concurrent_batches = _whole("max_concurrent_batches", max_concurrent_batches)
        if size_fn is not None and not callable(size_fn):
            raise TypeError(
                f"`batch_size_fn` got {size_fn!r}: give a function of a list that returns its size"
            )
        self.size_fn = size_fn
        self.version = 0
        """Number of changes."""

    def policy(self) -> WaitPolicy:
        """Return a new policy."""
        return AdaptiveWait() if self.wait == "auto" else FixedWait(self.wait)


def warn_of_batches(instance: object, max_ongoing_requests: int) -> None:
    """Log a warning for batches of a replica that can never be full."""
    for name in dir(type(instance)):
        method = inspect.getattr_static(type(instance), name)
        options = getattr(method, "_syncline_batch_options", None)
        if not isinstance(options, _Options) or options.size_fn is not None:
            continue
        needed = options.max_batch_size * options.max_concurrent_batches
        if max_ongoing_requests < needed:
            logger.warning(
                "The batches of `%s` will not be full: they take %d requests, but "
                "`max_ongoing_requests` is %d. Raise it to at least %d.",
                name,
                needed,
                max_ongoing_requests,
                needed,
            )


def statistics_of(instance: object) -> dict[str, BatchQueueStatistics]:
    """Return the counts of the queues of an instance, by name of the method."""
    return {
        value.name: value.queue.statistics()
        for value in list(getattr(instance, "__dict__", {}).values())
        if isinstance(value, _Collector)
    }


def _decorated(function: F, options: _Options) -> F:
    is_stream = inspect.isasyncgenfunction(function)
    if not is_stream and not inspect.iscoroutinefunction(function):
        raise TypeError(
            f"`@serve.batch` decorates async functions, but got {function!r}: declare it with "
            f"`async def`"
        )
    name = function.__name__
    owner = _Owner(function)

    if is_stream:

        @functools.wraps(function)
        async def wrapper(*args: object, **kwargs: object) -> AsyncGenerator[Any, None]:
            instance, args = owner.split(args)
            collector = _collector(owner, instance, name, function, options)
            stream = collector.submit_stream(args, kwargs)
            try:
                while (item := await stream.next()) is not _END:
                    yield item
            finally:
                collector.abandon(stream)

    else:

        @functools.wraps(function)
        async def wrapper(*args: object, **kwargs: object) -> Any:
            instance, args = owner.split(args)
            collector = _collector(owner, instance, name, function, options)
            return await collector.submit(args, kwargs)

    def set_max_batch_size(size: int) -> None:
        """Set `max_batch_size`; raise TypeError or ValueError if invalid."""
        options.max_batch_size = _whole("max_batch_size", size)
        options.version += 1

    def set_batch_wait_timeout_s(seconds: float | Literal["auto"]) -> None:
        """Set `batch_wait_timeout_s`; raise TypeError or ValueError if invalid."""
        options.wait = _checked_wait(seconds)
        options.version += 1

    wrapper.set_max_batch_size = set_max_batch_size  # type: ignore[attr-defined]
    wrapper.set_batch_wait_timeout_s = set_batch_wait_timeout_s  # type: ignore[attr-defined]
    wrapper.get_max_batch_size = lambda: options.max_batch_size  # type: ignore[attr-defined]
    wrapper.get_batch_wait_timeout_s = lambda: options.wait  # type: ignore[attr-defined]
    wrapper._syncline_batch_options = options  # type: ignore[attr-defined]
    return wrapper  # type: ignore[return-value]


class _Owner:
    """Separates the instance of a method from the arguments, and holds the collector of a
    function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = function.__name__
        outer = function.__qualname__.rpartition(".")[0]
        self._is_method = bool(outer) and not outer.endswith("<locals>")
        self.collector: _Collector | None = None

    def split(self, args: tuple[object, ...]) -> tuple[Any, tuple[Any, ...]]:
        """Return the instance, or None, and the arguments after it."""
        if self._is_method and args and hasattr(type(args[0]), self._name):
            return args[0], args[1:]
        return None, args

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "collector": None}  # it is specific to a process

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def _collector(
    owner: _Owner, instance: object, name: str, function: Callable[..., object], options: _Options
) -> _Collector:
    """Return the collector of an instance (None: of the function) on the running loop."""
    loop = asyncio.get_running_loop()
    place, attribute = (owner, "collector") if instance is None else (instance, "")
    attribute = attribute or _COLLECTOR.format(name)
    collector: _Collector | None = getattr(place, attribute, None)
    if collector is None or collector.loop is not loop:
        call = function if instance is None else functools.partial(function, instance)
        collector = _Collector(loop, name, call, options, inspect.isasyncgenfunction(function))
        object.__setattr__(place, attribute, collector)
    return collector


class _Item:
    """One call: its arguments and the future of its result."""

    __slots__ = ("args", "context", "future", "kwargs", "queued_at")

    def __init__(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        context: RequestContext | None,
        future: asyncio.Future[Any] | None,
    ) -> None:
        self.args = args
        self.kwargs = kwargs
        self.context = context
        self.future = future
        self.queued_at = 0.0

    @property
    def is_open(self) -> bool:
        """True while the caller waits."""
        return self.future is not None and not self.future.done()

    def give(self, result: object) -> None:
        """Deliver the result to the caller."""
        if self.future is not None and not self.future.done():
            self.future.set_result(result)

    def fail(self, error: BaseException) -> None:
        """Deliver an error to the caller."""
        if self.future is not None and not self.future.done():
            self.future.set_exception(error)


class _StreamItem(_Item):
    """One call of an async generator: its arguments and the items for its caller."""

    __slots__ = ("_is_ended", "_loop", "_ready")

    def __init__(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        context: RequestContext | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(args, kwargs, context, None)
        self._loop = loop
        self._ready: deque[tuple[Any, BaseException | None]] = deque()
        self._is_ended = False

    @property
    def is_open(self) -> bool:
        """True while the caller waits for more."""
        return not self._is_ended

    def give(self, result: object) -> None:
        """Deliver an item to the caller."""
        self._put(result, None)

    def fail(self, error: BaseException) -> None:
        """End the stream with an error."""
        self._put(None, error)
        self._is_ended = True

    def end(self) -> None:
        """End the stream."""
        self._put(_END, None)
        self._is_ended = True

    def _put(self, item: object, error: BaseException | None) -> None:
        if not self._is_ended:
            self._ready.append((item, error))
            if self.future is not None and not self.future.done():
                self.future.set_result(None)

    async def next(self) -> Any:
        """Return the next item, or `_END`; raises the error."""
        while not self._ready:
            self.future = self._loop.create_future()
            await self.future
        item, error = self._ready.popleft()
        if error is not None:
            raise error
        return item


class _Collector:
    """The queue of one function or instance, and the tasks that run its batches."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        function: Callable[..., Any],
        options: _Options,
        is_stream: bool,
    ) -> None:
        self.loop = loop
        self.name = name
        self._function = function
        self._options = options
        self._is_stream = is_stream
        size_fn = options.size_fn
        self.queue: BatchQueue[_Item] = BatchQueue(
            options.policy(),
            max_batch_size=options.max_batch_size,
            max_concurrent_batches=options.max_concurrent_batches,
            size_of=None if size_fn is None else lambda items: size_fn(_first_arguments(items)),
        )
        self._version = options.version
        self._tasks: dict[asyncio.Task[None], list[_Item]] = {}
        self._recorder = batch_recorder(name)
        self._is_planned = False
        self._timer: asyncio.TimerHandle | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return _nothing, ()  # a copied instance creates its own collector

    async def submit(self, args: tuple[object, ...], kwargs: dict[str, Any]) -> Any:
        """Queue a call and return its result."""
        item = _Item(args, kwargs, request_context.get(), self.loop.create_future())
        self._add(item)
        assert item.future is not None
        try:
            return await item.future
        except asyncio.CancelledError:
            self.abandon(item)
            raise

    def submit_stream(self, args: tuple[object, ...], kwargs: dict[str, Any]) -> _StreamItem:
        """Queue a call of an async generator."""
        item = _StreamItem(args, kwargs, request_context.get(), self.loop)
        self._add(item)
        return item

    def abandon(self, item: _Item) -> None:
        """Remove a call without a waiting caller; cancel its batch if no caller is left."""
        if isinstance(item, _StreamItem):
            item.end()
        if self.queue.remove(item):
            self._plan()
            return
        for task, batch in self._tasks.items():
            if item in batch and not any(other.is_open for other in batch):
                task.cancel()

    # -- decisions

    def _add(self, item: _Item) -> None:
        model = item.context.multiplexed_model_id if item.context is not None else ""
        names = tuple(item.kwargs)
        key: Hashable = (model, len(item.args), names) if names else (model, len(item.args))
        item.queued_at = time.monotonic()
        self.queue.add(item, key, item.queued_at)
        self._plan()

    def _plan(self) -> None:
        """Decide at the end of this iteration of the loop, when all of its calls are queued."""
        if not self._is_planned:
            self._is_planned = True
            self.loop.call_soon(self._decide)

    def _decide(self) -> None:
        self._is_planned = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._version != self._options.version:
            self._version = self._options.version
            self.queue.max_batch_size = self._options.max_batch_size
            self.queue.policy = self._options.policy()
        while True:
            now = time.monotonic()
            batch, failed = self.queue.take(now)
            for item, error in failed:
                item.fail(error)
            if not batch:
                break
            self._start(batch)
        moment = self.queue.next_moment()
        if moment is not None:
            # Loop timers have a resolution of milliseconds; arrivals trigger decisions earlier.
            self._timer = self.loop.call_later(max(moment - now, TIMER_S), self._decide)

    def _start(self, batch: list[_Item]) -> None:
        first = batch[0].context or RequestContext()
        context = RequestContext(  # without deadline and cancellation of the single callers
            request_id=first.request_id,
            route=first.route,
            app_name=first.app_name,
            multiplexed_model_id=first.multiplexed_model_id,
        )
        token = request_context.set(context)
        task = self.loop.create_task(self._run(batch))
        request_context.reset(token)
        self._tasks[task] = batch
        self._note_waits(batch)
        task.add_done_callback(functools.partial(self._ended, batch, time.monotonic()))

    def _note_waits(self, batch: Sequence[_Item]) -> None:
        now = time.monotonic()
        waits_s = [now - item.queued_at for item in batch]
        for item, wait_s in zip(batch, waits_s, strict=True):
            if item.context is not None:
                item.context.batch_wait_s += wait_s
        self._recorder.began(waits_s)

    # -- batches

    async def _run(self, batch: list[_Item]) -> None:
        """Run a batch and deliver each result; deliver errors to all callers."""
        try:
            args, kwargs = _as_lists(batch)
            if self._is_stream:
                await self._run_stream(batch, self._function(*args, **kwargs))
            else:
                results = await self._function(*args, **kwargs)
                checked = _checked(results, len(batch), self.name)
                for item, result in zip(batch, checked, strict=True):
                    item.give(result)
        except BaseException as error:
            _fail_all(batch, error)
            if isinstance(error, asyncio.CancelledError):
                raise

    async def _run_stream(
        self, batch: Sequence[_Item], results: AsyncGenerator[object, None]
    ) -> None:
        try:
            async for step in results:
                checked = _checked(step, len(batch), self.name)
                for item, result in zip(batch, checked, strict=True):
                    if _is_end(result):
                        item.end()  # type: ignore[attr-defined]
                    else:
                        item.give(result)
                if not any(item.is_open for item in batch):
                    break
            for item in batch:
                item.end()  # type: ignore[attr-defined]
        finally:
            await results.aclose()

    def _ended(self, batch: list[_Item], began: float, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if task.cancelled():  # also before its first step
            _fail_all(batch, asyncio.CancelledError())
        now = time.monotonic()
        self.queue.ended(len(batch), now - began, now)
        self._recorder.ended(now - began)
        # Decide two iterations later, because items in the sockets arrive in the next one.
        self.loop.call_soon(self._plan)


def _nothing() -> None:
    """Return None as replacement for a collector."""


def _first_arguments(items: Sequence[_Item]) -> list[Any]:
    return [item.args[0] if item.args else next(iter(item.kwargs.values())) for item in items]


def _as_lists(batch: Sequence[_Item]) -> tuple[list[list[Any]], dict[str, list[Any]]]:
    first = batch[0]
    if not first.args and not first.kwargs:
        raise TypeError("a batched function takes at least one argument: pass one item")
    args = [[item.args[i] for item in batch] for i in range(len(first.args))]
    kwargs = {name: [item.kwargs[name] for item in batch] for name in first.kwargs}
    return args, kwargs


def _checked(results: Any, count: int, name: str) -> Sequence[object]:
    if isinstance(results, (str, bytes, Mapping, set, frozenset)) or not (
        hasattr(results, "__len__") and hasattr(results, "__iter__")
    ):
        raise RayServeException(
            f"batched function `{name}` returned a {type(results).__name__}: return a list with "
            f"one result for each of the {count} items"
        )
    if len(results) != count:
        raise RayServeException(
            f"batched function `{name}` returned {len(results)} results for {count} items: return "
            f"one result for each item, in the same order"
        )
    return results  # type: ignore[no-any-return]


def _is_end(result: object) -> bool:
    ends = (StopIteration, StopAsyncIteration)
    return result in ends if isinstance(result, type) else isinstance(result, ends)


def _fail_all(batch: Sequence[_Item], error: BaseException) -> None:
    if isinstance(error, asyncio.CancelledError):
        error = RequestCancelledError(batch[0].context.request_id if batch[0].context else None)
    elif isinstance(error, (StopIteration, StopAsyncIteration)):
        cause, error = error, RuntimeError(f"the batched function raised {error!r}")
        error.__cause__ = cause
    for item in batch:
        item.fail(_copied(error))


def _copied(error: BaseException) -> BaseException:
    """Return a copy of an error, because each caller that raises it extends its traceback."""
    try:
        other = copy.copy(error)
    except Exception:
        return error
    if type(other) is not type(error) or other.args != error.args:
        return error
    other.__cause__, other.__context__ = error.__cause__, error.__context__
    other.__suppress_context__ = error.__suppress_context__
    return other.with_traceback(error.__traceback__)


# -- checks


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
        raise TypeError(f"`{name}` got {value!r}: give a whole number")
    if value < 1:
        raise ValueError(f"`{name}={value}` is impossible: give at least 1")
    return int(value)


def _checked_wait(value: object) -> Any:
    if value == "auto":
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f'`batch_wait_timeout_s` got {value!r}: give seconds, or "auto"')
    if not value >= 0 or math.isinf(value):
        raise ValueError(f"`batch_wait_timeout_s={value}` is impossible: give 0 or more seconds")
    return float(value)
