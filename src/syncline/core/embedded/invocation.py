"""Arguments, results and errors of one task or actor call in a worker, and the exit of a worker
whose user code asks for it.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import pickle
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import GeneratorType
from typing import Any, NoReturn

from syncline.core import engine as engines
from syncline.core import serialization
from syncline.core.embedded import messages as m
from syncline.core.embedded.hub_connection import RemoteHubConnection
from syncline.core.embedded.messages import Value, make_value, open_value
from syncline.core.refs import DynamicObjectRefGenerator, ObjectRef, journal
from syncline.core.tracebacks import task_error
from syncline.exceptions import TaskCancelledError

logger = logging.getLogger("syncline")

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""(positional, keyword)."""


def load_arguments(args: Value, values: dict[int, Value]) -> Arguments:
    """Return the arguments, with references replaced by their `values`."""
    positional, keyword = open_value(args)
    if values:
        positional = tuple(
            open_value(values[a.id]) if type(a) is ObjectRef else a for a in positional
        )
        keyword = {
            name: open_value(values[a.id]) if type(a) is ObjectRef else a
            for name, a in keyword.items()
        }
    return positional, keyword


def is_retryable(error: BaseException, retry_on: bytes | None) -> bool:
    """Return True if the call's options ask for a retry after this error."""
    return retry_on is not None and isinstance(error, pickle.loads(retry_on)())


def cancelled() -> bytes:
    """Return the pickled error of a cancelled call."""
    return serialization.pack_error(TaskCancelledError())


def was_interrupted(error: BaseException | None) -> bool:
    """Return True for a KeyboardInterrupt, and for an error that followed from one."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


@dataclass(slots=True)
class Outcome:
    """Values or error of one attempt of a task or call."""

    id: int
    started: float = field(default_factory=time.time)
    values: list[Value] = field(default_factory=list)
    """Values of the first results; an `error` is the value of the remaining ones."""
    error: bytes | None = None
    retry: bool = False


class ResultPacker:
    """Packs and sends the results of one process. Thread-safe."""

    def __init__(self, connection: RemoteHubConnection, new_id: Callable[[], int]) -> None:
        self._connection = connection
        self._new_id = new_id

    def pack(
        self,
        outcome: Outcome,
        result: object,
        name: str,
        mode: int,
        count: int,
        ids: tuple[int, ...],
        ahead: int = 0,
    ) -> None:
        """Add the values of a call's results, whose ids are `ids`, to its outcome.

        A stream has at most `ahead` items that were not requested; 0: no limit.

        Their references are held until `sent`: the result may be dropped earlier, and messages of
        other threads would then release them. Raises errors of generators, and ValueError for a
        wrong number of values; the outcome has the values before the error.
        """
        if mode == m.ONE and type(result) is not GeneratorType:
            _add(outcome, self._value(result, ids[0], name))
        elif mode in (m.ONE, m.MANY):
            parts = zip(ids, split_result(result, name, count), strict=False)
            values = (self._value(part, id, name) for id, part in parts)
            # Values before an error stay readable if a generator yields them one by one.
            for value in values if type(result) is GeneratorType else list(values):
                _add(outcome, value)
        elif mode == m.DYNAMIC:
            self._pack_dynamic(outcome, result, name, ids[0])
        else:
            for index, item in enumerate(_iterable(result, name)):
                self._send_item(ids[0], index, item, name)
                if ahead:
                    self._connection.await_demand(ids[0], index + 2 - ahead)
            outcome.values.append(m.NONE_VALUE)

    def _pack_dynamic(self, outcome: Outcome, result: object, name: str, id: int) -> None:
        made: list[ObjectRef[object]] = []
        failure: Exception | None = None
        try:
            for item in _iterable(result, name):
                made.append(self._put(item, name))
        except Exception as error:
            failure = error
            made.append(self._put_value(self._new_id(), m.failure(self.error(error, name))))
        _add(outcome, self._value(DynamicObjectRefGenerator(made), id, name))
        if failure is not None:
            raise failure

    def fail(
        self, outcome: Outcome, error: BaseException, name: str, retry_on: bytes | None
    ) -> None:
        """Record an error of user code."""
        outcome.error, outcome.retry = self.error(error, name), is_retryable(error, retry_on)

    def send(self, outcome: Outcome) -> None:
        """Send an outcome to the hub."""
        engines.call_result_hooks()
        o = outcome
        self._connection.send((m.DONE, o.id, o.values, o.error, o.retry, o.started, time.time()))
        self.sent(o.values)

    def sent(self, values: list[Value]) -> None:
        """Release the references of packed values; the hub holds them after it got the message."""
        for value in values:
            if value[3]:
                journal.extend([-id for id in value[3]])

    async def pack_async(
        self,
        outcome: Outcome,
        items: AsyncIterator[object],
        name: str,
        mode: int,
        count: int,
        ids: tuple[int, ...],
        ahead: int = 0,
    ) -> None:
        """Add the values of an asynchronous generator to its outcome, like `pack`."""
        if mode != m.STREAM:
            self.pack(outcome, await collected(items), name, mode, count, ids)
            return
        index = 0
        async for item in items:
            self._send_item(ids[0], index, item, name)
            index += 1
            if ahead:
                await asyncio.to_thread(self._connection.await_demand, ids[0], index + 1 - ahead)
        outcome.values.append(m.NONE_VALUE)

    def error(self, error: BaseException, name: str) -> bytes:
        """Return an error of user code, pickled."""
        return serialization.pack_error(task_error(name, error))

    def _send_item(self, stream_id: int, index: int, item: object, name: str) -> None:
        id = m.result_id(stream_id, index + 1)
        self._connection.send((m.ITEM, stream_id, index, id, self._value(item, id, name)))

    def _value(self, result: object, id: int, name: str) -> Value:
        if result is None:
            return m.NONE_VALUE
        return make_value(
            serialization.pack(result, what=f"the result of {name}()"),
            id,
            self._connection.allocate,
        )

    def _put(self, item: object, name: str) -> ObjectRef[object]:
        id = self._new_id()
        return self._put_value(id, self._value(item, id, name))

    def _put_value(self, id: int, value: Value) -> ObjectRef[object]:
        self._connection.send((m.PUT, id, value))
        return ObjectRef(id, counted=True)


def _add(outcome: Outcome, value: Value) -> None:
    outcome.values.append(value)
    if value[3]:
        journal.extend(value[3])


def repeat(values: Sequence[object], failure: Exception | None) -> Iterator[object]:
    """Yield the values that a generator has yielded, and raise the error at its end."""
    yield from values
    if failure is not None:
        raise failure


async def collected(items: AsyncIterator[object]) -> Iterator[object]:
    """Return a generator that repeats an asynchronous one, with its error at the end."""
    values: list[object] = []
    failure: Exception | None = None
    try:
        async for item in items:
            values.append(item)
    except Exception as error:
        failure = error
    return repeat(values, failure)


def split_result(result: Any, name: str, count: int) -> Iterator[object]:
    """Yield the `count` values of a result.

    Raises ValueError if it has another number of values, before the first value unless it is a
    generator. Further values of a generator are logged and ignored.
    """
    if count == 0:
        return
    if isinstance(result, GeneratorType):
        yield from _take(result, name, count)
        return
    try:
        parts = list(result)
    except TypeError:
        raise ValueError(
            f"{name}() has num_returns={count} but returned one {type(result).__name__}: return a "
            f"tuple or list of {count} values"
        ) from None
    if len(parts) != count:
        raise ValueError(_miscount(name, count, len(parts)))
    yield from parts


def _take(items: Iterator[object], name: str, count: int) -> Iterator[object]:
    given = 0
    for item in items:
        if given == count:
            logger.error("%s", _miscount(name, count, f"more than {count}"))
            return
        given += 1
        yield item
    if given < count:
        raise ValueError(_miscount(name, count, given))


def _miscount(name: str, count: int, given: int | str) -> str:
    return (
        f"{name}() has num_returns={count} but returned {given} values: return {count} "
        "values, or change `num_returns`"
    )


def _iterable(result: Any, name: str) -> Iterator[object]:
    try:
        return iter(result)
    except TypeError:
        raise ValueError(
            f"{name}() streams its results but returned a {type(result).__name__}: use `yield`, or "
            "leave out `num_returns`"
        ) from None


def exit_process(connection: RemoteHubConnection, leaving: SystemExit) -> NoReturn:
    """Exit as the interpreter does after `sys.exit`, once the hub has all messages."""
    code = 0 if leaving.code is None else leaving.code
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    end_process(connection, code & 0xFF)


def end_process(connection: RemoteHubConnection, code: int) -> NoReturn:
    """Exit after running the registered exit functions."""
    try:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                continue
        connection.send_all()
    finally:
        os._exit(code)
