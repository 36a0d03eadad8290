"""`register_serializer`: how this process sends instances of a class to others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syncline.core import pickling
from syncline.core.lifecycle import ensure_engine


def register_serializer(
    cls: type, *, serializer: Callable[[Any], object], deserializer: Callable[[Any], object]
) -> None:
    """Send instances of `cls` as `serializer(instance)`; receive them with `deserializer`.

    Applies to instances of exactly `cls` that this process sends; a worker that returns instances
    registers the class as well. `deserializer` travels with the instance.
    """
    if not isinstance(cls, type):
        raise TypeError(f"`cls` is {cls!r}: pass a class.")
    if not callable(serializer) or not callable(deserializer):
        raise TypeError("`serializer` and `deserializer` must be functions of one argument.")
    pickling.serializers[cls] = (serializer, deserializer)
    ensure_engine().register_serializer(cls, serializer, deserializer)


def deregister_serializer(cls: type) -> None:
    """Send instances of `cls` as before `register_serializer`. Does nothing for other classes."""
    if pickling.serializers.pop(cls, None) is not None:
        ensure_engine().deregister_serializer(cls)
