"""Arguments, results and errors of one task or actor call in a worker."""

from __future__ import annotations

import pickle
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from syncline.core import serialization
from syncline.core.embedded import messages as m
from syncline.core.embedded.hub_connection import HubConnection
from syncline.core.embedded.messages import Value, make_value, open_value
from syncline.core.refs import DynamicObjectRefGenerator, ObjectRef, journal
from syncline.core.tracebacks import task_error
from syncline.exceptions import TaskCancelledError

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


@dataclass(slots=True)
class Outcome:
    """Values or error of one attempt of a task or call."""

    id: int
    started: float = field(default_factory=time.time)
    values: list[Value] = field(default_factory=list)
    error: bytes | None = None
    retry: bool = False


class ResultPacker:
    """Packs and sends the results of one process. Thread-safe."""

    def __init__(self, connection: HubConnection, new_id: Callable[[], int]) -> None:
        self._connection = connection
        self._new_id = new_id

    def pack(
        self, result: Any, name: str, mode: int, count: int, ids: tuple[int, ...]
    ) -> list[Value]:
        """Return the values of a finished call's results, whose ids are `ids`.

        Their references are held until `sent`: the result may be dropped earlier, and messages of
        other threads would then release them. Raises ValueError for a wrong number of values.
        """
        values = self._values(result, name, mode, count, ids)
        journal.extend(id for value in values for id in value[3])
        return values

    def fail(
        self, outcome: Outcome, error: BaseException, name: str, retry_on: bytes | None
    ) -> None:
        """Record an error of user code."""
        outcome.error, outcome.retry = self.error(error, name), is_retryable(error, retry_on)

    def send(self, outcome: Outcome) -> None:
        """Send an outcome to the hub."""
        o = outcome
        self._connection.send((m.DONE, o.id, o.values, o.error, o.retry, o.started, time.time()))
        self.sent(o.values)

    def sent(self, values: list[Value]) -> None:
        """Release the references of packed values; the hub holds them after it got the message."""
        journal.extend(-id for value in values for id in value[3])

    def _values(
        self, result: Any, name: str, mode: int, count: int, ids: tuple[int, ...]
    ) -> list[Value]:
        if mode == m.ONE:
            return [self._value(result, ids[0], name)]
        if mode == m.MANY:
            return [
                self._value(part, id, name)
                for part, id in zip(split_result(result, name, count), ids, strict=True)
            ]
        if mode == m.DYNAMIC:
            made = [self._put(item, name) for item in _iterable(result, name)]
            return [self._value(DynamicObjectRefGenerator(made), ids[0], name)]
        for index, item in enumerate(_iterable(result, name)):
            self._send_item(ids[0], index, item, name)
        return [m.NONE_VALUE]

    async def pack_stream(
        self, items: AsyncIterator[object], name: str, ids: tuple[int, ...]
    ) -> list[Value]:
        """Send the items of an asynchronous generator as a stream; return its end."""
        index = 0
        async for item in items:
            self._send_item(ids[0], index, item, name)
            index += 1
        return [m.NONE_VALUE]

    def error(self, error: BaseException, name: str) -> bytes:
        """Return an error of user code, pickled."""
        return serialization.pack_error(task_error(name, error))

    def _send_item(self, stream_id: int, index: int, item: object, name: str) -> None:
        id = self._new_id()
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
        self._connection.send((m.PUT, id, self._value(item, id, name)))
        return ObjectRef(id, counted=True)


def split_result(result: Any, name: str, count: int) -> list[object]:
    """Return the `count` values of a result; ValueError if it has another number of values."""
    if count == 0:
        return []
    try:
        parts = list(result)
    except TypeError:
        raise ValueError(
            f"{name}() has num_returns={count} but returned one {type(result).__name__}: return a "
            f"tuple or list of {count} values"
        ) from None
    if len(parts) != count:
        raise ValueError(
            f"{name}() has num_returns={count} but returned {len(parts)} values: return {count} "
            "values, or change `num_returns`"
        )
    return parts


def _iterable(result: Any, name: str) -> Iterator[object]:
    try:
        return iter(result)
    except TypeError:
        raise ValueError(
            f"{name}() streams its results but returned a {type(result).__name__}: use `yield`, or "
            "leave out `num_returns`"
        ) from None
