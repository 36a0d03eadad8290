"""References: the handles by which programs hold values that exist, or will.

Every live `ObjectRef` (and every actor handle, through `Hold`) is written once into this process's
*journal* when it is made and once when it dies: `+id`, `-id`. The engine drains the journal into
its own count of holders; nothing here takes a lock, so a reference may die in a garbage collection
at any moment, inside the engine too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from syncline.core import serialization

if (
    TYPE_CHECKING
):  # asyncio takes a quarter of the time of `import syncline`: it is loaded by the first future
    import asyncio
    import concurrent.futures

    from syncline.core.engine import Engine

T = TypeVar("T")

journal: deque[int] = deque()
"""+id for a reference made, -id for one that died, in the order in which it happened in this
process.
"""


class Hold:
    """One count on an id, for as long as this object lives: what an `ObjectRef` is, without being a
    value.
    """

    __slots__ = ("__weakref__", "id")

    def __init__(self, id: int, *, counted: bool = False) -> None:
        """`counted`: the engine counted this reference already, when the id was made."""
        self.id = id
        if not counted:
            journal.append(id)

    def __del__(self, append: Callable[[int], None] = journal.append) -> None:
        append(-self.id)

    def __reduce__(self) -> tuple[Any, ...]:
        serialization.note_ref(self.id)
        return (type(self), (self.id,))


class ObjectRef(Generic[T]):
    """A value that a task, an actor call or `put` makes: pass it to other tasks, `get` it, `await`
    it.
    """

    __slots__ = ("__weakref__", "_call_site", "id")

    def __init__(self, id: int, *, counted: bool = False) -> None:
        self.id = id
        if not counted:
            journal.append(id)

    def __del__(self, append: Callable[[int], None] = journal.append) -> None:
        append(-self.id)

    def __reduce__(self) -> tuple[Any, ...]:
        serialization.note_ref(self.id)
        return (ObjectRef, (self.id,))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectRef) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"ObjectRef({self.hex()})"

    def hex(self) -> str:
        """The id as 32 hexadecimal digits."""
        return f"{self.id:032x}"

    def binary(self) -> bytes:
        """The id as 16 bytes."""
        return self.id.to_bytes(16, "big")

    def future(self) -> concurrent.futures.Future[T]:
        """A future that ends with the value, or with the error that `get` would raise."""
        import concurrent.futures

        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()

        def settle(value: Any, error: BaseException | None) -> None:
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)

        current_engine().on_value(self, settle)
        return future

    def as_future(self, *, loop: asyncio.AbstractEventLoop | None = None) -> asyncio.Future[T]:
        """The same for asyncio; outside a coroutine, `loop` says whose future it is."""
        import asyncio

        loop = loop or asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(value: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)

        def hand_over(value: Any, error: BaseException | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, value, error)

        current_engine().on_value(self, hand_over)
        return future

    def __await__(self) -> Generator[Any, None, T]:
        return self.as_future().__await__()


class ObjectRefGenerator(Generic[T]):
    """References to the values of a generator task or method, each usable as soon as it has been
    yielded.

    Iterate, or iterate asynchronously. A reference to a value is given out once. An error inside
    the generator is the last reference: getting it raises. Dropping the generator before its end
    cancels the task.
    """

    def __init__(self, id: int, *, counted: bool = False) -> None:
        self._hold = Hold(id, counted=counted)
        self._next = 0

    @property
    def id(self) -> int:
        """The id of the stream, which is also what `cancel` ends."""
        return self._hold.id

    def completed(self) -> ObjectRef[Any]:
        """A reference that becomes ready, with value None, when the generator has ended."""
        return ObjectRef(self._hold.id)

    def __iter__(self) -> Iterator[ObjectRef[T]]:
        return self

    def __next__(self) -> ObjectRef[T]:
        ref = current_engine().next_item(self, self._next, None)
        if ref is None:
            raise StopIteration
        self._next += 1
        return ref

    def __aiter__(self) -> AsyncIterator[ObjectRef[T]]:
        return self

    async def __anext__(self) -> ObjectRef[T]:
        import asyncio

        loop = asyncio.get_running_loop()
        future: asyncio.Future[ObjectRef[T] | None] = loop.create_future()

        def settle(ref: ObjectRef[T] | None) -> None:
            if not future.done():
                future.set_result(ref)

        def hand_over(ref: ObjectRef[T] | None) -> None:
            loop.call_soon_threadsafe(settle, ref)

        current_engine().on_item(self, self._next, hand_over)
        ref = await future
        if ref is None:
            raise StopAsyncIteration
        self._next += 1
        return ref

    def __reduce__(self) -> tuple[Any, ...]:
        return (_generator, (self._hold, self._next))

    def __repr__(self) -> str:
        return f"ObjectRefGenerator({self._hold.id:032x}, next={self._next})"


serialization.register_plain(ObjectRef)


class DynamicObjectRefGenerator(Generic[T]):
    """The value of a call with `num_returns="dynamic"`: references to all that the generator
    yielded, in order.
    """

    def __init__(self, made: list[ObjectRef[T]]) -> None:
        self._made = made

    def __iter__(self) -> Iterator[ObjectRef[T]]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


def _generator(hold: Hold, position: int) -> ObjectRefGenerator[Any]:
    generator: ObjectRefGenerator[Any] = ObjectRefGenerator.__new__(ObjectRefGenerator)
    generator._hold = hold
    generator._next = position
    return generator


_engine: Engine | None = None


def current_engine() -> Engine:
    """The engine of this process; RuntimeError where there is none (a reference outlived
    `shutdown`).
    """
    if _engine is None:
        raise RuntimeError(
            "syncline is not running, so this reference leads nowhere: it was made before `shutdown()`, or in another program. "
            "Use references between `init()` and `shutdown()` of the program that made them."
        )
    return _engine


def set_engine(engine: Engine | None) -> None:
    """Say which engine references of this process belong to; None after `shutdown`."""
    global _engine
    _engine = engine
