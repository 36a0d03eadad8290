"""Async user functions: several calls at once, results in the order of the calls."""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import pyarrow as pa

from syncline.data.columnar import schemas
from syncline.data.columnar.schemas import SchemaMismatchError
from syncline.data.execute.program import SkippedRows, Step, TaskState, rows_text
from syncline.data.plan.nodes import UserFunction

T = TypeVar("T")

# How long `close` waits for calls to notice that they are cancelled.
_CLOSE_S = 5.0


class EventLoop:
    """An event loop on a thread of its own, for as long as a process works on a chain: what the
    program's object keeps (sessions, connections) stays on one loop from task to task.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="syncline-async-functions", daemon=True
        )
        self._thread.start()

    def in_order(
        self,
        call: Callable[[T], Awaitable[Any]],
        items: Iterator[T],
        *,
        at_once: int,
        timeout_s: float | None,
    ) -> Generator[tuple[T, Future[Any]], None, None]:
        """(item, its result to come) for each item, in order; up to `at_once` calls run, each for
        at most `timeout_s`.

        Items are taken from the iterator when there is room for their calls. Closing the generator
        cancels the calls that run.
        """
        running: deque[tuple[T, Future[Any]]] = deque()
        try:
            for item in items:
                running.append(
                    (
                        item,
                        asyncio.run_coroutine_threadsafe(
                            _limited(call, item, timeout_s), self._loop
                        ),
                    )
                )
                if len(running) >= at_once:
                    yield running.popleft()
            while running:
                yield running.popleft()
        finally:
            for _, future in running:
                future.cancel()

    def close(self) -> None:
        """Stop the thread; calls that still run are cancelled. A call that blocks the loop is left
        to its daemon thread.
        """
        try:
            asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result(_CLOSE_S)
        except FutureTimeoutError:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def result_of(future: Future[T]) -> T:
    """What the call returned, waited for; or its error, with the frames of the function alone."""
    error = future.exception()
    if error is not None:
        raise error
    return future.result()


async def _limited(call: Callable[[T], Awaitable[Any]], item: T, timeout_s: float | None) -> Any:
    if timeout_s is None:
        return await call(item)
    running = asyncio.ensure_future(call(item))
    try:
        done, _ = await asyncio.wait({running}, timeout=timeout_s)
    finally:
        running.cancel()
    if not done:
        raise TimeoutError(f"the call took longer than {timeout_s} s")
    return running.result()


async def _cancel_all() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


_LONGEST_ERROR_TEXT = 300


class UserFunctionError(Exception):
    """A function of the program's raised, or returned what it must not.

    Attributes:
        operator: The operator, as people see it. rows: Numbers of the rows that it was called with,
        counted among the rows that the operator got in this task; empty where it was
            not called yet, because its class could not be constructed.
        original: What it raised, with its traceback; also the `__cause__`.
    """

    def __init__(self, operator: str, rows: range, original: BaseException) -> None:
        super().__init__(operator, rows, original)
        self.operator = operator
        self.rows = rows
        self.original = original
        self.__cause__ = original

    def __str__(self) -> str:
        return f"{self.operator} failed {self.where}: {one_line(self.original)}"

    @property
    def where(self) -> str:
        """The rows in words."""
        return (
            f"on {rows_text(self.rows.start, len(self.rows))} of its task"
            if self.rows
            else "before its first call"
        )


def one_line(error: BaseException) -> str:
    """Type and text of an error, in one line that is not too long."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= _LONGEST_ERROR_TEXT else text[: _LONGEST_ERROR_TEXT - 3] + "..."


CallKind = Literal["plain", "coroutine", "async generator"]


@dataclass(kw_only=True)
class _Opened:
    """What a step has between `open` and `close`."""

    call: Callable[[Any], Any] | None = None
    kind: CallKind = "plain"
    loop: EventLoop | None = None
    key: str = ""
    """Tells the step apart from others of its chain, for `TaskState.in_call` and
    `TaskState.failing`.
    """

    def __reduce__(self) -> tuple[type[_Opened], tuple[()]]:
        return _Opened, ()  # what is open stays in its process


@dataclass(frozen=True, kw_only=True, eq=False)
class UserStep(Step):
    """Base of the steps that call a function of the program's."""

    function: UserFunction
    name: str
    _opened: _Opened = field(init=False, repr=False, default_factory=_Opened)

    @property
    def call(self) -> Callable[[Any], Any]:
        """The function, or the constructed object, that takes one row or batch. Of an open step
        only.
        """
        assert self._opened.call is not None, f"{self.name} is not open"
        return self._opened.call

    @property
    def kind(self) -> CallKind:
        """What a call returns: the result, something to wait for, or something to loop over
        asynchronously.
        """
        return self._opened.kind

    @property
    def loop(self) -> EventLoop:
        """Runs calls that are not plain."""
        assert self._opened.loop is not None, f"{self.name} is not open, or not async"
        return self._opened.loop

    @property
    def key(self) -> str:
        """The name, with a number where several steps of a chain have it."""
        return self._opened.key or self.name

    def awaitable(self) -> Callable[[Any], Awaitable[Any]]:
        """The call of an async function, whose result is waited for: for a generator the list of
        what it yields.
        """
        call = self.call

        async def collected(value: Any) -> list[Any]:
            return [made async for made in call(value)]

        return collected if self.kind == "async generator" else call

    def tell_apart(self, number: int) -> None:
        """The step is the `number`-th of its name in its chain, counted from 1."""
        self._opened.key = self.name if number == 1 else f"{self.name} ({number})"

    def open(self) -> None:
        spec, function = self.function, self.function.function
        if isinstance(function, type):
            try:
                function = function(*spec.constructor_args, **spec.constructor_kwargs)
            except Exception as error:
                raise UserFunctionError(self.name, range(0), error) from error
        self._opened.kind = _kind_of(function)
        if self.kind != "plain":
            self._opened.loop = EventLoop()
        self._opened.call = _with_arguments(function, spec)

    def close(self) -> None:
        if self._opened.loop is not None:
            self._opened.loop.close()
        self._opened.call = self._opened.loop = None


def _with_arguments(function: Callable[..., Any], spec: UserFunction) -> Callable[[Any], Any]:
    if not spec.args and not spec.kwargs:
        return function
    args, kwargs = tuple(spec.args), dict(spec.kwargs)
    return lambda value: function(value, *args, **kwargs)


def _kind_of(function: Any) -> CallKind:
    while isinstance(function, functools.partial):
        function = function.func
    target = function if inspect.isroutine(function) else type(function).__call__
    if inspect.isasyncgenfunction(target):
        return "async generator"
    return "coroutine" if inspect.iscoroutinefunction(target) else "plain"


class Calls:
    """The calls of one step in one run of a task: counts what they take, and decides what a failure
    means.
    """

    def __init__(self, step: UserStep, task: TaskState) -> None:
        self.step = step
        self.task = task
        self.skips = step.function.on_error == "skip"
        self.timeout_s = step.function.timeout_s

    def failed(self, first_row: int, rows: int, error: BaseException) -> None:
        """Rows on which the function failed: leaves them out and counts them, or raises
        UserFunctionError.
        """
        if not self.skips:
            raise UserFunctionError(
                self.step.name, range(first_row, first_row + rows), error
            ) from error
        self.task.skipped.append(
            SkippedRows(
                operator=self.step.name, first_row=first_row, rows=rows, error=one_line(error)
            )
        )

    @contextmanager
    def running(self, first_row: int, rows: int) -> Iterator[None]:
        """The function works on these rows until the end of the block: its time counts, and with a
        limit the watchdog knows of it.
        """
        began = time.monotonic()
        if self.timeout_s is not None:
            self.task.in_call = (self.step.key, began, first_row, rows)
        try:
            yield
        finally:
            self.task.in_call = None
            self.task.function_s += time.monotonic() - began

    def refuse(self, first_row: int) -> None:
        """TimeoutError for a call that took too long in an earlier run of this task."""
        if (self.step.key, first_row) in self.task.failing:
            raise TimeoutError(f"the call took longer than {self.timeout_s} s")

    def watched(self, call: Callable[[Any], Any], first_row: int) -> Callable[[Any], Any]:
        """The same call for one row after the other from `first_row` on, each of them known to the
        watchdog if there is a time limit.
        """
        if self.timeout_s is None:
            return call
        numbers = itertools.count(first_row)

        def watched_call(row: Any) -> Any:
            number = next(numbers)
            self.refuse(number)
            self.task.in_call = (self.step.key, time.monotonic(), number, 1)
            return call(row)

        return watched_call


class Results:
    """The schema that the results of a function have had so far, so that results of another type
    are noticed where they come from.
    """

    def __init__(self) -> None:
        self.schema: pa.Schema | None = None

    def check(self, table: pa.Table, first_row: int, rows: int) -> None:
        """TypeError that names columns, types and rows if the results for these rows do not go
        together with those before.
        """
        if self.schema is None:
            self.schema = table.schema
        elif not table.schema.equals(self.schema):
            try:
                self.schema = schemas.unify([self.schema, table.schema])
            except SchemaMismatchError as error:
                where = rows_text(first_row, rows)
                raise TypeError(
                    f"what the function returned for {where} does not go together with what it returned before: {error}"
                ) from error
