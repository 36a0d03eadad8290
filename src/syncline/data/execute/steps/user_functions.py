"""Calling user functions: errors, skipped rows, time limits, and concurrent async calls.

Covered: functions, classes (constructed in `open`, once per process), async functions. Not covered:
the values passed and returned (`function_steps`).
"""

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
from dataclasses import field
from typing import Any, Literal, TypeAlias, TypeVar

import pyarrow as pa

from syncline.core.event_loops import cancel_all
from syncline.data.columnar import schemas
from syncline.data.columnar.schemas import SchemaMismatchError
from syncline.data.execute.physical_plan import SkippedRows, Step, TaskState, rows_text
from syncline.data.plan.nodes import UserFunction
from syncline.records import dataclass

T = TypeVar("T")

UserValue: TypeAlias = Any
"""A row, batch or result, as the user function sees it."""

# Seconds that `close` waits for cancelled calls.
_CLOSE_S = 5.0


class EventLoop:
    """An event loop on a separate thread.

    It lives as long as the process works on a chain: sessions and connections of the user's object
    stay on one loop.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="syncline-async-functions", daemon=True
        )
        self._thread.start()

    def in_order(
        self,
        call: Callable[[T], Awaitable[UserValue]],
        items: Iterator[T],
        *,
        max_concurrency: int,
        timeout_s: float | None,
    ) -> Generator[tuple[T, Future[UserValue]], None, None]:
        """Yield (item, future of its result) in order, with concurrent calls.

        An item is taken when its call can start. Closing the generator cancels the running calls.
        """
        running: deque[tuple[T, Future[UserValue]]] = deque()
        try:
            for item in items:
                result = _limited(call, item, timeout_s)
                running.append((item, asyncio.run_coroutine_threadsafe(result, self._loop)))
                if len(running) >= max_concurrency:
                    yield running.popleft()
            while running:
                yield running.popleft()
        finally:
            for _, future in running:
                future.cancel()

    def close(self) -> None:
        """Cancel running calls and stop the thread. A call that blocks stays on its thread."""
        try:
            asyncio.run_coroutine_threadsafe(cancel_all(), self._loop).result(_CLOSE_S)
        except FutureTimeoutError:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def result_of(future: Future[T]) -> T:
    """Wait for a result; raise the error of the call with the frames of the function alone."""
    error = future.exception()
    if error is not None:
        raise error
    return future.result()


async def _limited(
    call: Callable[[T], Awaitable[UserValue]], item: T, timeout_s: float | None
) -> UserValue:
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


_MAX_ERROR_LENGTH = 300


@contextmanager
def user_errors(operator: str, first_row: int, rows: int) -> Iterator[None]:
    """Raise errors of the block as UserFunctionErrors of these rows."""
    try:
        yield
    except Exception as error:
        raise UserFunctionError(operator, range(first_row, first_row + rows), error) from error


class UserFunctionError(Exception):
    """A user function raised an error or returned an invalid value.

    Attributes:
        operator: Display name of the operator.
        rows: Numbers of the input rows, counted in the task; empty if a class of the user could not
            be constructed.
        original: The error with its traceback; also the `__cause__`.
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
        """Description of the rows."""
        return (
            f"on {rows_text(self.rows.start, len(self.rows))} of its task"
            if self.rows
            else "before its first call"
        )


def one_line(error: BaseException) -> str:
    """Format an error in one line of limited length."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= _MAX_ERROR_LENGTH else text[: _MAX_ERROR_LENGTH - 3] + "..."


CallKind = Literal["plain", "coroutine", "async generator"]


@dataclass(kw_only=True)
class _Opened:
    """State of a step between `open` and `close`."""

    call: Callable[[UserValue], UserValue] | None = None
    kind: CallKind = "plain"
    loop: EventLoop | None = None
    key: str = ""
    """Identifies the step within its chain in `TaskState`."""

    def __reduce__(self) -> tuple[type[_Opened], tuple[()]]:
        return _Opened, ()  # open state stays in its process


@dataclass(frozen=True, kw_only=True, eq=False)
class UserStep(Step):
    """Base of the steps that call a user function."""

    function: UserFunction
    name: str
    _opened: _Opened = field(init=False, repr=False, default_factory=_Opened)

    @property
    def call(self) -> Callable[[UserValue], UserValue]:
        """Function or constructed object that takes one row or batch; for open steps only."""
        assert self._opened.call is not None, f"{self.name} is not open"
        return self._opened.call

    @property
    def kind(self) -> CallKind:
        """Kind of the function: plain, coroutine, or async generator."""
        return self._opened.kind

    @property
    def loop(self) -> EventLoop:
        """Event loop that runs async calls."""
        assert self._opened.loop is not None, f"{self.name} is not open, or not async"
        return self._opened.loop

    @property
    def key(self) -> str:
        """Name, with a number if several steps of a chain have the same name."""
        return self._opened.key or self.name

    def awaitable(self) -> Callable[[UserValue], Awaitable[UserValue]]:
        """Return the call of an async function; an async generator is collected into a list."""
        call = self.call

        async def collected(value: UserValue) -> list[UserValue]:
            return [made async for made in call(value)]

        return collected if self.kind == "async generator" else call

    def set_key_number(self, number: int) -> None:
        """Set the number of the step among those of the same name in its chain, from 1 on."""
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


def _with_arguments(
    function: Callable[..., UserValue], spec: UserFunction
) -> Callable[[UserValue], UserValue]:
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
    """Calls of one step in one task: counts their time and handles failures."""

    def __init__(self, step: UserStep, task: TaskState) -> None:
        self.step = step
        self.task = task
        self.skips = step.function.on_error == "skip"
        self.timeout_s = step.function.timeout_s

    def failed(self, first_row: int, rows: int, error: BaseException) -> None:
        """Skip and count rows on which the function failed, or raise UserFunctionError."""
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
        """Context of a call with these rows: counts its time and informs the watchdog."""
        began = time.monotonic()
        if self.timeout_s is not None:
            self.task.in_call = (self.step.key, began, first_row, rows)
        try:
            yield
        finally:
            self.task.in_call = None
            self.task.function_s += time.monotonic() - began

    def raise_known_timeout(self, first_row: int) -> None:
        """Raise TimeoutError for a call that timed out in an earlier attempt."""
        if (self.step.key, first_row) in self.task.timed_out_calls:
            raise TimeoutError(f"the call took longer than {self.timeout_s} s")

    def watched(
        self, call: Callable[[UserValue], UserValue], first_row: int
    ) -> Callable[[UserValue], UserValue]:
        """Return a call for successive rows that informs the watchdog if there is a time limit."""
        if self.timeout_s is None:
            return call
        numbers = itertools.count(first_row)

        def watched_call(row: UserValue) -> UserValue:
            number = next(numbers)
            self.raise_known_timeout(number)
            self.task.in_call = (self.step.key, time.monotonic(), number, 1)
            return call(row)

        return watched_call


class ResultSchema:
    """Common schema of a function's results, which detects mismatches where they occur."""

    def __init__(self) -> None:
        self.schema: pa.Schema | None = None

    def check(self, table: pa.Table, first_row: int, rows: int) -> None:
        """Raise a TypeError naming columns, types and rows if a result does not fit the schema."""
        if self.schema is None:
            self.schema = table.schema
        elif not table.schema.equals(self.schema):
            try:
                self.schema = schemas.unify([self.schema, table.schema])
            except SchemaMismatchError as error:
                where = rows_text(first_row, rows)
                raise TypeError(
                    f"what the function returned for {where} does not go together with what it "
                    f"returned before: {error}"
                ) from error
