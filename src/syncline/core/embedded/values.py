"""From a packed value to what travels in a message, and back: small ones inside the message, large
ones through shared memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from syncline.core import serialization
from syncline.core.embedded import store
from syncline.core.embedded.messages import SHARED, Value, failure, inline, shared
from syncline.core.refs import journal
from syncline.core.serialization import Packed

Allocate = Callable[[int], store.Segment]
"""Bytes -> a segment of at least that size, for this process to write."""


def make_value(packed: Packed, owner_id: int, allocate: Allocate) -> Value:
    """What travels; a large value is written to shared memory, where it belongs to the object
    `owner_id`.
    """
    if packed.buffers or len(packed.data) >= store.INLINE_LIMIT_BYTES:
        nbytes = packed.nbytes
        if nbytes >= store.INLINE_LIMIT_BYTES:
            segment = allocate(store.layout_nbytes(packed))
            return shared(store.write(segment, packed), owner_id, packed.refs)
    return inline(packed.data, packed.buffers, packed.refs)


def open_value(value: Value) -> Any:
    """The Python value, for one that is no error. Arrays in it may lie in shared memory, read-only;
    they hold their object.
    """
    form, data, buffers, _ = value
    if form == SHARED:
        journal.append(buffers)
        mapped = store.read(data, partial(journal.append, -buffers))
        return serialization.unpack(mapped.data, mapped.buffers)
    return serialization.unpack(data, buffers)


def error_value(error: BaseException) -> Value:
    """An error in place of a value."""
    return failure(serialization.pack_error(error))
