"""What a task or a call gave, as it goes to the hub: packing results, streaming items, telling
errors.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from syncline.core import serialization
from syncline.core.embedded import messages as m
from syncline.core.embedded.link import Link
from syncline.core.embedded.messages import Value
from syncline.core.embedded.values import make_value
from syncline.core.refs import DynamicObjectRefGenerator, ObjectRef, journal
from syncline.core.tracebacks import task_error


class Results:
    """Makes the values of one process's results. Thread-safe."""

    def __init__(self, link: Link, new_id: Callable[[], int]) -> None:
        self._link = link
        self._new_id = new_id

    def pack(
        self, result: Any, name: str, mode: int, count: int, ids: tuple[int, ...]
    ) -> list[Value]:
        """The values of a finished call; `ids` are those of its results. ValueError where `result`
        is not what was announced.

        What they refer to is held until `sent`: the result itself may be dropped before, and
        whatever another thread sends meanwhile tells the hub of that.
        """
        values = self._values(result, name, mode, count, ids)
        journal.extend(id for value in values for id in value[3])
        return values

    def sent(self, values: list[Value]) -> None:
        """The hub has been sent the values of `pack`, and holds what they refer to."""
        journal.extend(-id for value in values for id in value[3])

    def _values(
        self, result: Any, name: str, mode: int, count: int, ids: tuple[int, ...]
    ) -> list[Value]:
        if mode == m.ONE:
            return [self._value(result, ids[0], name)]
        if mode == m.MANY:
            return [
                self._value(part, id, name)
                for part, id in zip(_parts(result, name, count), ids, strict=True)
            ]
        if mode == m.DYNAMIC:
            made = [self._put(item, name) for item in _iterable(result, name)]
            return [self._value(DynamicObjectRefGenerator(made), ids[0], name)]
        for index, item in enumerate(_iterable(result, name)):
            self.send_item(ids[0], index, item, name)
        return [m.NONE_VALUE]

    async def pack_stream(
        self, items: AsyncIterator[Any], name: str, ids: tuple[int, ...]
    ) -> list[Value]:
        """The same for an asynchronous generator, as a stream."""
        index = 0
        async for item in items:
            self.send_item(ids[0], index, item, name)
            index += 1
        return [m.NONE_VALUE]

    def send_item(self, stream_id: int, index: int, item: Any, name: str) -> None:
        """Tell the hub one item of a stream."""
        id = self._new_id()
        self._link.send((m.ITEM, stream_id, index, id, self._value(item, id, name)))

    def error(self, error: BaseException, name: str) -> bytes:
        """An error of user code, as bytes."""
        return serialization.pack_error(task_error(name, error))

    def _value(self, result: Any, id: int, name: str) -> Value:
        if result is None:
            return m.NONE_VALUE
        return make_value(
            serialization.pack(result, what=f"the result of {name}()"), id, self._link.allocate
        )

    def _put(self, item: Any, name: str) -> ObjectRef[Any]:
        id = self._new_id()
        self._link.send((m.PUT, id, self._value(item, id, name)))
        return ObjectRef(id, counted=True)


def _parts(result: Any, name: str, count: int) -> list[Any]:
    if count == 0:
        return []
    try:
        parts = list(result)
    except TypeError:
        raise ValueError(
            f"{name}() has num_returns={count} but returned one {type(result).__name__}: return a tuple or list of {count} values"
        ) from None
    if len(parts) != count:
        raise ValueError(
            f"{name}() has num_returns={count} but returned {len(parts)} values: make the two agree"
        )
    return parts


def _iterable(result: Any, name: str) -> Iterator[Any]:
    try:
        return iter(result)
    except TypeError:
        raise ValueError(
            f"{name}() streams its results but returned a {type(result).__name__}: use `yield`, or leave out `num_returns`"
        ) from None
