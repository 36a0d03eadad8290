"""References to values, and their reference counting.

Each live `ObjectRef` (and each actor handle, through `Hold`) appends its id to this process's
*journal* once when it is created, and the negative id once when it dies. The engine drains the
journal into its own counts. Nothing here takes a lock, so a reference may die in a garbage
collection at any moment, also inside the engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from syncline.core import serialization
from syncline.core.ids import JobID, TaskID

if TYPE_CHECKING:  # asyncio takes a quarter of the time of `import syncline`: load it on first use
    import asyncio
    import concurrent.futures

T = TypeVar("T")

journal: deque[int] = deque()
"""+id for each new reference and -id for each dead one, in order of occurrence."""

NOT_RUNNING = (
    "syncline is not running, so this reference is not valid: it was made before `shutdown()`, or "
    "in another program. Use references between `init()` and `shutdown()` of the program that "
    "made them."
)


class Id(int):
    """Id of an actor or a placement group with the methods of Ray's ids.

    Inside syncline, ids are plain integers.
    """

    def hex(self) -> str:
        """Return 32 hexadecimal digits."""
        return f"{int(self):032x}"

    def binary(self) -> bytes:
        """Return 16 bytes; more for the longer ids of a cluster."""
        return self.to_bytes(max(16, (self.bit_length() + 7) // 8), "big")

    def is_nil(self) -> bool:
        """Return True for the null id."""
        return self == 0

    def __repr__(self) -> str:
        return f"Id({self.hex()})"


class Hold:
    """One reference count on an id, held for the life of this object."""

    __slots__ = ("__weakref__", "id")

    def __init__(self, id: int, *, counted: bool = False) -> None:
        """`counted`: the engine has already counted this reference."""
        self.id = id
        if not counted:
            journal.append(id)

    def __del__(self, append: Callable[[int], None] = journal.append) -> None:
        append(-self.id)

    def __reduce__(self) -> tuple[object, ...]:
        serialization.note_ref(self.id)
        return (type(self), (self.id,))


class ObjectRef(Hold, Generic[T]):
    """A reference to the value of a task, an actor call or `put`.

    Pass it to other tasks, `get` it, or `await` it.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectRef) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"ObjectRef({self.hex()})"

    def hex(self) -> str:
        """Return the id as 32 hexadecimal digits; more on a cluster."""
        return f"{self.id:032x}"

    def binary(self) -> bytes:
        """Return the id as 16 bytes; more on a cluster."""
        return self.id.to_bytes(16, "big")

    def is_nil(self) -> bool:
        """Return True for the null reference."""
        return self.id == 0

    def task_id(self) -> TaskID:
        """Return the id of the task or call that makes the value, as `get_task_id()` there."""
        return TaskID.from_hex(f"{engine_of_refs().task_of(self.id):032x}")

    def job_id(self) -> JobID:
        """Return the id of the program's run, as `get_job_id()` of the runtime context."""
        return JobID.from_hex(engine_of_refs().runtime_info().job_id)

    def _on_completed(self, callback: Callable[[Any], None]) -> None:
        """Call back once with the value or the error, on a thread that must not be blocked."""

        def report(value: object, error: BaseException | None) -> None:
            callback(value if error is None else error)

        engine_of_refs().on_value(self, report)

    def future(self) -> concurrent.futures.Future[T]:
        """Return a future for the value, or for the error that `get` would raise."""
        import concurrent.futures

        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()
        engine_of_refs().on_value(self, partial(_settle, future))
        return future

    def as_future(self, *, loop: asyncio.AbstractEventLoop | None = None) -> asyncio.Future[T]:
        """Return an asyncio future for the value; outside a coroutine, `loop` is required."""
        import asyncio

        loop = loop or asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def hand_over(value: T, error: BaseException | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, future, value, error)

        engine_of_refs().on_value(self, hand_over)
        return future

    def __await__(self) -> Generator[object, None, T]:
        return self.as_future().__await__()


def _settle(
    future: concurrent.futures.Future[T] | asyncio.Future[T],
    value: T,
    error: BaseException | None = None,
) -> None:
    if future.done():  # cancelled
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)


class ObjectRefGenerator(Generic[T]):
    """References to the values of a generator task or method, each ready once it is yielded.

    Supports `for` and `async for`, and returns each reference once. An error inside the generator
    becomes the last reference: getting it raises. Dropping the generator before its end cancels the
    task.
    """

    def __init__(self, id: int, *, counted: bool = False) -> None:
        self._begin(Hold(id, counted=counted), 0)

    def _begin(self, hold: Hold, position: int) -> None:
        self._hold = hold
        self._next = position
        self._ended = False
        self._fetched: tuple[ObjectRef[T] | None] | None = None  # the next item, or the end
        self._awaited = -1  # index of the item that `when_next` has requested
        self._waiting: list[Callable[[], None]] = []

    @property
    def id(self) -> int:
        """The id of the stream, also for `cancel`."""
        return self._hold.id

    def task_id(self) -> TaskID:
        """Return the id of the task or call, as `get_task_id()` there."""
        return self.completed().task_id()

    def is_finished(self) -> bool:
        """Return True if all references have been returned and the generator has ended."""
        return self._ended

    def next_ready(self) -> bool:
        """Return True if `next` would return or end without waiting."""
        ready, _ = engine_of_refs().wait([self], num_returns=1, timeout_s=0, fetch_local=False)
        return bool(ready)

    @property
    def position(self) -> int:
        """Index of the next item."""
        return self._next

    def when_next(self, notify: Callable[[], None]) -> None:
        """Call `notify` once when the next item exists or the generator has ended."""
        if self._fetched is not None:
            notify()
            return
        self._waiting.append(notify)
        if self._awaited != self._next:
            self._awaited = self._next
            engine_of_refs().on_item(self, self._next, partial(self._arrive, self._next))

    def _arrive(self, index: int, ref: ObjectRef[T] | None) -> None:
        if index == self._next:
            self._fetched = (ref,)
            waiting, self._waiting = self._waiting, []
            for notify in waiting:
                notify()

    def completed(self) -> ObjectRef[None]:
        """Return a reference that becomes None once the generator has ended."""
        return ObjectRef(self._hold.id)

    def __iter__(self) -> Iterator[ObjectRef[T]]:
        return self

    def __next__(self) -> ObjectRef[T]:
        if self._fetched is not None:
            (ref,), self._fetched = self._fetched, None
        else:
            ref = engine_of_refs().next_item(self, self._next, None)
        if ref is None:
            self._ended = True
            raise StopIteration
        self._next += 1
        return ref

    def __aiter__(self) -> AsyncIterator[ObjectRef[T]]:
        return self

    async def __anext__(self) -> ObjectRef[T]:
        import asyncio

        loop = asyncio.get_running_loop()
        future: asyncio.Future[ObjectRef[T] | None] = loop.create_future()

        def hand_over(ref: ObjectRef[T] | None) -> None:
            loop.call_soon_threadsafe(_settle, future, ref)

        if self._fetched is not None:
            (ref,), self._fetched = self._fetched, None
        else:
            engine_of_refs().on_item(self, self._next, hand_over)
            ref = await future
        if ref is None:
            self._ended = True
            raise StopAsyncIteration
        self._next += 1
        return ref

    def __reduce__(self) -> tuple[object, ...]:
        return (_generator, (self._hold, self._next))

    def __repr__(self) -> str:
        return f"ObjectRefGenerator({self._hold.id:032x}, next={self._next})"


serialization.register_plain(ObjectRef)


class DynamicObjectRefGenerator(Generic[T]):
    """Value of a call with `num_returns="dynamic"`: references to all yielded values, in order."""

    def __init__(self, made: list[ObjectRef[T]]) -> None:
        self._made = made

    def __iter__(self) -> Iterator[ObjectRef[T]]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


AnyRef = ObjectRef[Any]
"""A reference to a value of any type."""
AnyGenerator = ObjectRefGenerator[Any]
Waitable = AnyRef | AnyGenerator
"""An argument of `wait`; a generator is ready when it has a next item or has ended."""


def _generator(hold: Hold, position: int) -> AnyGenerator:
    generator: AnyGenerator = ObjectRefGenerator.__new__(ObjectRefGenerator)
    generator._begin(hold, position)
    return generator


class _Run(Protocol):
    @property
    def job_id(self) -> str: ...


class EngineOfRefs(Protocol):
    """The methods of `Engine` that references, placement groups and options call."""

    @property
    def installs_packages(self) -> bool: ...

    def on_value(
        self, ref: AnyRef, callback: Callable[[Any, BaseException | None], None]
    ) -> None: ...

    def next_item(
        self, generator: AnyGenerator, index: int, timeout_s: float | None
    ) -> AnyRef | None: ...

    def on_item(
        self, generator: AnyGenerator, index: int, callback: Callable[[AnyRef | None], None]
    ) -> None: ...

    def wait(
        self,
        refs: Sequence[Waitable],
        *,
        num_returns: int,
        timeout_s: float | None,
        fetch_local: bool,
    ) -> tuple[list[Waitable], list[Waitable]]: ...

    def placement_group_ready(self, group_id: int) -> AnyRef: ...

    def exit_actor(self) -> None: ...

    def task_of(self, id: int) -> int: ...

    def runtime_info(self) -> _Run: ...


_engine: EngineOfRefs | None = None


def engine_of_refs() -> EngineOfRefs:
    """Return the engine of this process; RuntimeError if syncline is not running."""
    if _engine is None:
        raise RuntimeError(NOT_RUNNING)
    return _engine


def bind_engine(engine: EngineOfRefs | None) -> None:
    """Set the engine of this process's references. Called by `engine.set_engine` only."""
    global _engine
    _engine = engine


def may_install_packages() -> bool:
    """Return False if this process's engine is known not to install packages in workers.

    Before `init` the engine is unknown; it then checks the environment on submission.
    """
    return _engine is None or _engine.installs_packages
