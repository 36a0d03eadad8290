"""References and holds that carry Ray's own: Ray counts who has them, wherever they travel.

Our ids are numbers made from Ray's: the same in every process, so that references compare. The way
back is never needed, since each handle has Ray's object with it. What Ray's serialiser meets inside
a reference is Ray's object, which it sends on as it always does.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from dataclasses import dataclass
from typing import Any

from syncline.core import refs
from syncline.core.refs import Hold, ObjectRef, ObjectRefGenerator


class ClusterRef(ObjectRef[Any]):
    """A reference to an object of the cluster."""

    __slots__ = ("ray",)

    def __init__(self, ray_ref: Any) -> None:
        self.ray = ray_ref

    def __getattr__(self, name: str) -> int:
        # The id, when it is asked for the first time: Ray Client has to ask the cluster for it.
        if name != "id":
            raise AttributeError(name)
        self.id = number_of(self.ray.binary())
        return self.id

    def __del__(self, _: object = None) -> None:
        """Ray's reference counts; the journal of this process has nothing of it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.ray,))


class ReadyRef(ClusterRef):
    """What becomes ready with a placement group; its value is True, Ray's is the group."""

    __slots__ = ()


class ClusterHold(Hold):
    """Keeps an actor, or a stream, alive."""

    __slots__ = ("ray",)

    def __init__(self, id: int, ray_thing: Any) -> None:
        self.id = id
        self.ray = ray_thing

    def __del__(self, _: object = None) -> None:
        """As with `ClusterRef`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (actor_hold, (self.ray,))


class StreamHold(ClusterHold):
    """Keeps a stream alive: its generator belongs to the process that made the call."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a generator of references cannot be sent to another process on a cluster: the process that made the call receives the items. "
            "Send the references that it gives, or call the generator where its items are needed."
        )


_holds: weakref.WeakValueDictionary[int, ClusterHold] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def number_of(binary: bytes) -> int:
    """The 128-bit number of one of Ray's object ids, which are longer."""
    return int.from_bytes(hashlib.blake2b(binary, digest_size=16).digest(), "big")


def actor_number(ray_actor: Any) -> int:
    """The number of an actor: Ray's id itself."""
    return int.from_bytes(ray_actor._actor_id.binary(), "big")


def actor_hold(ray_actor: Any) -> ClusterHold:
    """The one hold of this process on an actor."""
    id = actor_number(ray_actor)
    with _lock:
        hold = _holds.get(id)
        if hold is None:
            hold = _holds[id] = ClusterHold(id, ray_actor)
        return hold


def stream(ray_generator: Any, id: int | None = None) -> ObjectRefGenerator[Any]:
    """Our generator for one of Ray's, or for one that does what Ray's do and has an id of its
    own.
    """
    hold = StreamHold(
        number_of(ray_generator.completed().binary()) if id is None else id, ray_generator
    )
    with _lock:
        _holds[hold.id] = hold
    return refs._generator(hold, 0)


def find(id: int) -> Any:
    """What Ray calls the actor or stream that something in this process holds; None where nothing
    does.
    """
    hold = _holds.get(int(id))
    return None if hold is None else hold.ray


def ray_ref(ref: ObjectRef[Any] | ObjectRefGenerator[Any]) -> Any:
    """Ray's reference behind one of ours; of a generator that to its end. RuntimeError for one of
    another engine.
    """
    if isinstance(ref, ClusterRef):
        return ref.ray
    generator = find(ref.id)
    if generator is not None:
        return generator.completed()
    raise RuntimeError(
        f"{ref!r} leads nowhere: it was made by another engine, or before `shutdown()`. Use references between `init()` and `shutdown()` "
        f"of the program that made them."
    )


def with_ray_refs(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of a call, with Ray's references in the place of ours where an argument is a
    reference itself.
    """
    plain = [ray_ref(arg) if isinstance(arg, ObjectRef) else arg for arg in args]
    if kwargs:
        kwargs = {
            name: ray_ref(arg) if isinstance(arg, ObjectRef) else arg
            for name, arg in kwargs.items()
        }
    return plain, kwargs


@dataclass(frozen=True, kw_only=True)
class HandleStatistics:
    """What this process holds."""

    actors_and_streams: int
    """Actors and streams with a handle here."""


def statistics() -> HandleStatistics:
    """What there is now."""
    return HandleStatistics(actors_and_streams=len(_holds))
