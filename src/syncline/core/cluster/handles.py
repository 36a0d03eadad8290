"""References, holds and generators that contain Ray's own, and callbacks for generator items.

Ray counts the references, wherever they are. Our ids are numbers derived from Ray's, equal in every
process, so that references compare equal. Every handle contains Ray's object, so ids are never
converted back. Ray's serializer meets Ray's object inside a handle and sends it as usual.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from syncline.core import refs
from syncline.core.engine import Args, Kwargs
from syncline.core.ids import TaskID
from syncline.core.refs import AnyGenerator, AnyRef, Hold, ObjectRef

RayObject = Any
"""A reference, actor handle or generator of Ray's."""


class ClusterRef(AnyRef):
    """A reference to an object of the cluster."""

    __slots__ = ("ray",)

    def __init__(self, ray_ref: RayObject) -> None:
        self.ray = ray_ref

    def __getattr__(self, name: str) -> int:
        # The id is computed on first use, because Ray Client asks the cluster for it.
        if name != "id":
            raise AttributeError(name)
        self.id = number_of(self.ray.binary())
        return self.id

    def hex(self) -> str:
        return self.ray.hex()  # type: ignore[no-any-return]

    def binary(self) -> bytes:
        return self.ray.binary()  # type: ignore[no-any-return]

    def task_id(self) -> TaskID:
        return TaskID(self.ray.task_id().binary())

    def __del__(self, _: object = None) -> None:
        """Do nothing: Ray counts its own reference, not the journal of this process."""

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.ray,))


class ReadyRef(ClusterRef):
    """A reference that is ready with a placement group; its value is ours, Ray's is Ray's."""

    __slots__ = ()


class ClusterHold(Hold):
    """Keeps an actor or a stream alive."""

    __slots__ = ("ray",)

    def __init__(self, id: int, ray_object: RayObject) -> None:
        self.id = id
        self.ray = ray_object

    def __del__(self, _: object = None) -> None:
        """Do nothing, see `ClusterRef`."""

    def __reduce__(self) -> tuple[object, ...]:
        return (actor_hold, (self.ray,))


class StreamHold(ClusterHold):
    """Keeps a stream alive; its generator belongs to the process that made the call."""

    __slots__ = ()

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError(
            "a generator of references cannot be sent to another process on a cluster, because "
            "the process that made the call receives the items. Send the references that it "
            "yields, or call the generator in the process that needs its items."
        )


_holds: weakref.WeakValueDictionary[int, ClusterHold] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def number_of(binary: bytes) -> int:
    """Hash one of Ray's object ids, which are longer, to 128 bits."""
    return int.from_bytes(hashlib.blake2b(binary, digest_size=16).digest(), "big")


def actor_hold(ray_actor: RayObject) -> ClusterHold:
    """Return this process's only hold on an actor; its id is Ray's id."""
    id = int.from_bytes(ray_actor._actor_id.binary(), "big")
    with _lock:
        hold = _holds.get(id)
        if hold is None:
            hold = _holds[id] = ClusterHold(id, ray_actor)
        return hold


def stream(ray_generator: RayObject, id: int | None = None) -> AnyGenerator:
    """Wrap a generator of Ray's, or a compatible object with a separate id."""
    hold = StreamHold(
        number_of(ray_generator.completed().binary()) if id is None else id, ray_generator
    )
    with _lock:
        _holds[hold.id] = hold
    return refs._generator(hold, 0)


def find(id: int) -> RayObject:
    """Return Ray's actor or stream that this process holds; None if it holds none."""
    hold = _holds.get(int(id))
    return None if hold is None else hold.ray


def ray_ref(ref: AnyRef | AnyGenerator) -> RayObject:
    """Return Ray's reference; for a generator, the reference to its end.

    Raises RuntimeError for a reference of another engine.
    """
    if isinstance(ref, ClusterRef):
        return ref.ray
    generator = find(ref.id)
    if generator is not None:
        return generator.completed()
    raise RuntimeError(
        f"{ref!r} is not valid: it was made by another engine, or before `shutdown()`. Use "
        f"references between `init()` and `shutdown()` of the program that made them."
    )


def with_ray_refs(args: Args, kwargs: Kwargs) -> tuple[list[object], Kwargs]:
    """Replace references that are arguments themselves (not nested ones) by Ray's."""
    plain = [ray_ref(arg) if isinstance(arg, ObjectRef) else arg for arg in args]
    if kwargs:
        kwargs = {
            name: ray_ref(arg) if isinstance(arg, ObjectRef) else arg
            for name, arg in kwargs.items()
        }
    return plain, kwargs


def count() -> int:
    """Return the number of actors and streams that this process holds."""
    return len(_holds)


class ItemWaiter:
    """Calls back with the next items of generators, on one event loop in one thread.

    Thread safe. The thread starts with the first request.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[Future[None]] = set()

    def next_item(self, generator: RayObject, callback: Callable[[RayObject], None]) -> None:
        """Call back in the thread with Ray's reference to the next item, or None at the end."""
        future = asyncio.run_coroutine_threadsafe(_wait(generator, callback), self._running_loop())
        with self._lock:
            self._waiting.add(future)
        future.add_done_callback(self._forget)

    @property
    def waiting(self) -> int:
        """Number of callbacks that wait for an item."""
        return len(self._waiting)

    def close(self) -> None:
        """Stop the thread; pending callbacks are dropped."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)

    def _forget(self, future: Future[None]) -> None:
        with self._lock:
            self._waiting.discard(future)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._loop.run_forever, name="syncline-streams", daemon=True
                ).start()
            return self._loop


async def _wait(generator: RayObject, callback: Callable[[RayObject], None]) -> None:
    try:
        item = await generator.__anext__()
    except StopAsyncIteration:
        item = None
    callback(item)
