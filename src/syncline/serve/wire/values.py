"""Python values, calls and errors as payloads of frames.

A value is a pickle-5 stream with its buffers behind it, so that arrays are copied once on each
side, or the name of a file in shared memory (`shared_values`); received arrays are read-only.
Object references in a value stay valid only while the sender holds them: a caller keeps its
arguments until the call ends.
"""

from __future__ import annotations

import marshal
import pickle
import struct
from typing import Any, NamedTuple

from syncline.core import serialization
from syncline.core.serialization import Packed
from syncline.core.tracebacks import raisable, task_error
from syncline.exceptions import RayTaskError
from syncline.serve.wire import shared_values

_COUNT = struct.Struct("<I")
_ALIGNMENT = 16
"""Buffers begin at multiples of this many bytes after the beginning of the value."""

_NO_BUFFERS = _COUNT.pack(0)
_SIMPLE = frozenset({int, float, bool, str, type(None)})
"""Types of values without references and buffers, which plain pickle encodes."""

Parts = tuple[bytes | memoryview, ...]
"""A payload in pieces."""


class CallMeta(NamedTuple):
    """Facts about a call of a handle besides its arguments; encoded with marshal."""

    method: str
    request_id: str
    timeout_s: float | None
    """Seconds left until the deadline."""
    multiplexed_model_id: str
    session_id: str
    stream: bool
    """True if the caller expects the items of a generator."""
    app: str
    """Application of the handle."""
    route: str
    """Route of the HTTP request that caused the call; empty without one."""
    trace: dict[str, str] | None = None
    """Trace context of the caller, as headers of W3C; None without traces."""


def pack_value(value: object, *, what: str = "value", may_share: bool = False) -> Parts:
    """Return the payload of a value; raise TypeError for one that cannot be pickled.

    With `may_share`, a large value is written to a file, which lives as long as the payload.
    """
    if type(value) in _SIMPLE:
        return _NO_BUFFERS, pickle.dumps(value, 5)
    packed = serialization.pack(value, what=what)
    shared = shared_values.write(packed) if may_share else None
    return _joined(packed) if shared is None else (shared,)


def unpack_value(payload: bytes | memoryview) -> Any:
    """Return the value of a payload."""
    (count,) = _COUNT.unpack_from(payload)
    if count == shared_values.MARK:
        return shared_values.unpack(shared_values.open_payload(payload))
    if not count:
        return pickle.loads(memoryview(payload)[4:])
    view = memoryview(payload).toreadonly()
    position = 4 + 8 * (count + 1)
    sizes = struct.unpack_from(f"<{count + 1}Q", payload, 4)
    stream = view[position : position + sizes[0]]
    position += sizes[0]
    buffers = []
    for size in sizes[1:]:
        position += -position % _ALIGNMENT
        buffers.append(view[position : position + size])
        position += size
    return serialization.unpack(stream, buffers)


def _joined(packed: Packed) -> Parts:
    data, buffers, _ = packed
    if not buffers:
        return _NO_BUFFERS, data
    sizes = (len(data), *(buffer.nbytes for buffer in buffers))
    parts: list[bytes | memoryview] = [
        _COUNT.pack(len(buffers)) + struct.pack(f"<{len(sizes)}Q", *sizes),
        data,
    ]
    position = 4 + 8 * len(sizes) + len(data)
    for buffer in buffers:
        padding = -position % _ALIGNMENT
        parts += (bytes(padding), buffer)
        position += padding + buffer.nbytes
    return tuple(parts)


def pack_call(meta: CallMeta, args: tuple[object, ...], kwargs: dict[str, object]) -> Parts:
    """Return the payload of a CALL frame; raise TypeError that names an unpicklable argument."""
    head = marshal.dumps(tuple(meta))
    head = _COUNT.pack(len(head)) + head
    if not kwargs and _SIMPLE.issuperset(map(type, args)):
        return head, _NO_BUFFERS, pickle.dumps((args, kwargs), 5)
    packed = serialization.pack_call(args, kwargs, function_name=meta.method)
    shared = shared_values.write(packed)
    body = _joined(packed) if shared is None else (shared,)
    return (head, *body)


def read_meta(parts: Parts) -> CallMeta:
    """Return the meta data in the result of `pack_call`."""
    return CallMeta(*marshal.loads(bytes(parts[0])[_COUNT.size :]))


def split_call(payload: bytes) -> tuple[CallMeta, memoryview]:
    """Return the meta data, and the payload of the arguments, of a CALL frame."""
    (length,) = _COUNT.unpack_from(payload)
    end = 4 + length
    return CallMeta(*marshal.loads(payload[4:end])), memoryview(payload)[end:]


def unpack_call(payload: bytes) -> tuple[CallMeta, tuple[Any, ...], dict[str, Any]]:
    """Return the meta data, the positional and the keyword arguments of a CALL frame."""
    meta, arguments = split_call(payload)
    args, kwargs = unpack_value(arguments)
    return meta, args, kwargs


def pack_failure(error: BaseException, function_name: str = "") -> bytes:
    """Return the payload of an ERROR frame.

    With `function_name`, the error is user code's and arrives as an instance of its own class and
    of RayTaskError, with the frames of user code; otherwise it is serve's own and arrives as it is.
    """
    if function_name and not isinstance(error, RayTaskError):
        error = task_error(function_name, error)
    return serialization.pack_error(error)


def unpack_failure(payload: bytes) -> BaseException:
    """Return the exception to raise."""
    return raisable(serialization.unpack_error(payload))
