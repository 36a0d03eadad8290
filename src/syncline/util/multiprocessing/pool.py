"""`Pool`: the interface of `multiprocessing.Pool`, whose workers are actors.

Workers therefore run on every node of a cluster. Items of `imap` are read as results are taken, so
endless iterables work. Not covered: `context`, because workers start as all workers do.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from typing import NoReturn, SupportsIndex, TypeVar

from syncline.core import api, lifecycle
from syncline.util.annotations import RayDeprecationWarning
from syncline.util.multiprocessing.chunks import (
    Chunk,
    Function,
    PoolWorker,
    Spread,
    default_chunk_size,
    split,
)
from syncline.util.multiprocessing.dispatcher import Dispatcher, PoolStatistics, group_size
from syncline.util.multiprocessing.results import AsyncResult, Callback, PoolIterator

logger = logging.getLogger("syncline")


T = TypeVar("T")
R = TypeVar("R")


class Pool:
    """Worker processes that call functions in parallel. Use it as a context manager, or `close` it.

    Args:
        processes: Number of workers; by default the CPUs of the engine.
        initializer: Function that each worker calls when it starts.
        initargs: Arguments of `initializer`.
        maxtasksperchild: Chunks after which a worker is replaced by a new process.
        context: Ignored; for the signature of `multiprocessing.Pool`.
        ray_address: `address` of `init`, if syncline does not run yet.
        ray_remote_args: Options of the actors, such as `{"num_cpus": 1}`; they hold no CPU by
            default.

    Raises:
        ValueError: `processes` or `maxtasksperchild` is below 1, or there are fewer CPUs than
            `processes`.
    """

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[object] | None = None,
        maxtasksperchild: int | None = None,
        context: object = None,
        ray_address: str | None = None,
        ray_remote_args: Mapping[str, object] | None = None,
    ) -> None:
        self._state = "CLOSED"
        if initializer is not None and not callable(initializer):
            raise TypeError(f"`initializer={initializer!r}` is not callable: pass a function.")
        if maxtasksperchild is not None and maxtasksperchild < 1:
            raise ValueError(
                f"`maxtasksperchild={maxtasksperchild}` is below 1: pass 1 or more, or None to "
                "keep the workers."
            )
        if context is not None:
            logger.warning("`context` of a Pool is ignored: workers start as all workers do.")
        self._processes = _checked_processes(processes, ray_address)
        options = {"num_cpus": 0, **(ray_remote_args or {})}
        worker = api.remote(PoolWorker).options(**options)
        arguments = tuple(initargs or ())
        self._dispatcher = Dispatcher(
            lambda: worker.remote(initializer, arguments), self._processes, maxtasksperchild
        )
        self._state = "RUNNING"

    # -- one call

    def apply(
        self,
        func: Callable[..., R],
        args: Iterable[object] | None = None,
        kwargs: Mapping[str, object] | None = None,
        *,
        kwds: Mapping[str, object] | None = None,
    ) -> R:
        """Return `func(*args, **kwargs)`, called in a worker."""
        self._check_running()
        result = AsyncResult(1, single=True, wait_in_engine=self._wait_in_engine)
        chunk = _call(result, func, args, kwargs or kwds)
        if not self._dispatcher.run_now(chunk):
            self._dispatcher.submit([chunk])
        value: R = result.get()
        return value

    def apply_async(
        self,
        func: Callable[..., object],
        args: Iterable[object] | None = None,
        kwargs: Mapping[str, object] | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
        *,
        kwds: Mapping[str, object] | None = None,
    ) -> AsyncResult:
        """Call `func(*args, **kwargs)` in a worker; return its result without waiting.

        `callback` gets the value, `error_callback` the exception. `kwds` is `kwargs` under the
        standard library's name.
        """
        self._check_running()
        result = AsyncResult(
            1,
            single=True,
            wait_in_engine=self._wait_in_engine,
            callback=callback,
            error_callback=error_callback,
        )
        self._dispatcher.submit([_call(result, func, args, kwargs or kwds)])
        return result

    # -- many calls

    def map(
        self, func: Callable[[T], R], iterable: Iterable[T], chunksize: int | None = None
    ) -> list[R]:
        """Return `func(item)` for each item, in order.

        `chunksize` items travel together; by default each worker gets four chunks.
        """
        values: list[R] = self.map_async(func, iterable, chunksize).get()
        return values

    def map_async(
        self,
        func: Callable[[T], object],
        iterable: Iterable[T],
        chunksize: int | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> AsyncResult:
        """Start `map`; `callback` gets the list, `error_callback` the first exception."""
        return self._map_async(func, iterable, chunksize, callback, error_callback, "one")

    def starmap(
        self,
        func: Callable[..., R],
        iterable: Iterable[Sequence[object]],
        chunksize: int | None = None,
    ) -> list[R]:
        """Return `func(*item)` for each item, in order; otherwise like `map`."""
        values: list[R] = self.starmap_async(func, iterable, chunksize).get()
        return values

    def starmap_async(
        self,
        func: Callable[..., object],
        iterable: Iterable[Sequence[object]],
        chunksize: int | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> AsyncResult:
        """Start `starmap`; callbacks as in `map_async`."""
        return self._map_async(func, iterable, chunksize, callback, error_callback, "star")

    def imap(
        self, func: Callable[[T], object], iterable: Iterable[T], chunksize: int | None = 1
    ) -> PoolIterator:
        """Return an iterator over `func(item)`, in order.

        Few items are read ahead. The exception of an item that raised is yielded, not raised, as
        Ray's pool does.
        """
        return self._imap(func, iterable, chunksize, ordered=True)

    def imap_unordered(
        self, func: Callable[[T], object], iterable: Iterable[T], chunksize: int | None = 1
    ) -> PoolIterator:
        """Return an iterator over `func(item)` as results arrive; otherwise like `imap`."""
        return self._imap(func, iterable, chunksize, ordered=False)

    # -- the end

    def close(self) -> None:
        """Take no more work; workers end when all work is done."""
        if self._state == "RUNNING":
            self._state = "CLOSED"

    def terminate(self) -> None:
        """End the workers now; results that are missing raise RayActorError."""
        self._state = "TERMINATED"
        self._dispatcher.end(cause="The pool was terminated before this result was complete.")

    def join(self) -> None:
        """Wait for the end of all work and of the workers.

        Raises ValueError before `close` or `terminate`.
        """
        if self._state == "RUNNING":
            raise ValueError("The pool still takes work: call `close` or `terminate` first.")
        self._dispatcher.wait()
        self._dispatcher.end(cause="The pool has ended.")

    def statistics(self) -> PoolStatistics:
        """Return the counters of the pool."""
        return self._dispatcher.statistics()

    def __enter__(self) -> Pool:
        self._check_running()
        return self

    def __exit__(self, *_: object) -> None:
        self.terminate()

    def __del__(self) -> None:
        if self._state == "RUNNING":
            self.terminate()

    def __reduce__(self) -> NoReturn:
        raise NotImplementedError("A Pool cannot be pickled: create one where it is used.")

    def __repr__(self) -> str:
        return f"Pool(processes={self._processes}, state={self._state})"

    def _map_async(
        self,
        func: Callable[..., object],
        iterable: Iterable[object],
        chunksize: int | None,
        callback: Callback | None,
        error_callback: Callback | None,
        spread: Spread,
    ) -> AsyncResult:
        self._check_running()
        items = iterable if isinstance(iterable, (list, tuple)) else list(iterable)
        chunks = list(split(items, self._chunk_size(chunksize, len(items))))
        result = AsyncResult(
            len(chunks),
            single=False,
            wait_in_engine=self._wait_in_engine,
            callback=callback,
            error_callback=error_callback,
        )
        function = Function(func, repeated=len(chunks) > 1)
        self._dispatcher.submit(
            Chunk(result, index, function, spread, chunk) for index, chunk in enumerate(chunks)
        )
        return result

    def _imap(
        self, func: Callable[..., object], iterable: object, chunksize: int | None, *, ordered: bool
    ) -> PoolIterator:
        self._check_running()
        if not isinstance(iterable, Iterable):
            warnings.warn(
                f"Passing a non-iterable argument ({iterable!r}) to `imap` is deprecated: pass a "
                "list.",
                RayDeprecationWarning,
                stacklevel=3,
            )
            iterable = [iterable]
        if chunksize is None:
            items = len(iterable) if isinstance(iterable, Sized) else 1
            chunksize = default_chunk_size(items, self._processes)
        chunks = split(iterable, self._chunk_size(chunksize, 0))
        function = Function(func, repeated=True)

        def read(number: int) -> Chunk | None:
            items = next(chunks, None)
            return None if items is None else Chunk(iterator, number, function, "one", items)

        # The iterator keeps the pool alive, by `submit`.
        iterator = PoolIterator(
            ordered=ordered,
            read=read,
            submit=self._submit,
            ahead=lambda: 2 * self._processes * group_size(function),
        )
        iterator.submit_ahead()
        return iterator

    def _submit(self, chunks: list[Chunk]) -> None:
        self._dispatcher.submit(chunks)

    def _wait_in_engine(self, result: AsyncResult, timeout_s: float | None) -> None:
        # A method of the pool, so that results keep the pool alive.
        self._dispatcher.wait_in_engine(result, timeout_s)

    def _chunk_size(self, chunksize: int | None, items: int) -> int:
        if chunksize is None:
            return default_chunk_size(items, self._processes)
        if chunksize < 1:
            raise ValueError(f"`chunksize={chunksize}` is below 1: pass 1 or more, or omit it.")
        return chunksize

    def _check_running(self) -> None:
        if self._state != "RUNNING":
            raise ValueError("The pool was closed: create another one.")


def _call(
    result: AsyncResult,
    func: Callable[..., object],
    args: Iterable[object] | None,
    kwargs: Mapping[str, object] | None,
) -> Chunk:
    """Return the chunk of a single call."""
    items = [tuple(args or ()), dict(kwargs or {})]
    return Chunk(result, 0, Function(func, repeated=False), "apply", items)


def _checked_processes(processes: int | None, address: str | None) -> int:
    if processes is not None and not isinstance(processes, SupportsIndex):
        raise TypeError(f"`processes={processes!r}` is not an integer.")
    if processes is not None and processes < 1:
        raise ValueError(f"`processes={processes}` is below 1: a pool needs a worker.")
    if not lifecycle.is_initialized():
        if address is None:
            api.init(num_cpus=processes)
        else:
            api.init(address)
    cpus = int(api.cluster_resources().get("CPU", 0))
    if processes is None:
        return max(1, cpus)
    if processes > cpus:
        raise ValueError(
            f"A pool of {processes} processes needs as many CPUs, but the engine has {cpus}: lower "
            f"`processes`, or start the engine with `init(num_cpus={processes})` before."
        )
    return processes
