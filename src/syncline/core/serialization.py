"""Conversion of Python values to frames: a pickle-5 stream, large buffers, and references inside.

Semantics are cloudpickle's: objects of `__main__`, lambdas and closures are pickled by value,
importable objects by reference. Small plain values use the C pickler directly. Buffers of 4 kB and
more (numpy arrays, Arrow tables, CPU tensors, bytes arguments) stay out of the stream, so they are
copied at most once.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from syncline.core import pickling
from syncline.core.error_frames import RemoteException, pack_error, unpack_error
from syncline.core.pickling import note_ref
from syncline.core.serializability import find_unpicklable, unpicklable_message

__all__ = [
    "Packed",
    "RemoteException",
    "note_ref",
    "pack",
    "pack_call",
    "pack_callable",
    "pack_error",
    "register_plain",
    "unpack",
    "unpack_error",
]

IN_BAND_BYTES = 4096
"""Buffers smaller than this are copied into the stream."""

OUT_OF_BAND_BYTES = 65_536
"""Minimum length at which `bytes` and `bytearray` arguments (not nested ones) become buffers."""

PLAIN_ITEMS = 32
PLAIN_DEPTH = 3

Buffer = bytes | bytearray | memoryview | pickle.PickleBuffer

_SCALARS = frozenset({type(None), bool, int, float, str, bytes})
_plain_types: set[type] = set()
_dumps = pickle.dumps
_loads = pickle.loads


class Packed(NamedTuple):
    """A pickled value. Its buffers alias the value: copy or write them before it changes."""

    data: bytes
    """Pickle-5 stream."""

    buffers: list[memoryview]
    """Contiguous byte views of the out-of-band buffers, in stream order; empty for small values."""

    refs: tuple[int, ...]
    """Unique ids of the object references inside, in order."""

    @property
    def nbytes(self) -> int:
        """Total bytes of the stream and the buffers."""
        return len(self.data) + sum([buffer.nbytes for buffer in self.buffers])


class _Wrapped:
    """Bytes that the pickler must not copy into the stream."""

    __slots__ = ("value",)

    def __init__(self, value: bytes | bytearray) -> None:
        self.value = value

    def __reduce__(self) -> tuple[object, ...]:
        return type(self.value), (pickle.PickleBuffer(self.value),)


def pack(value: object, *, what: str = "value") -> Packed:
    """Pickle one value.

    `what` names the value in errors. Raises TypeError that names the part that cannot be pickled.
    """
    if _is_plain(value, PLAIN_DEPTH):
        return _pack_plain(value)
    buffers: list[memoryview] = []
    try:
        data, refs = pickling.dumps(_wrapped(value), _collect_into(buffers))
    except Exception as error:
        raise _unpicklable(value, what, what, error) from error
    return Packed(data, buffers, refs)


def pack_call(
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    *,
    function_name: str,
    parameter_names: Sequence[str] = (),
) -> Packed:
    """Pickle the arguments of a call as one `(args, kwargs)` stream.

    Errors use `parameter_names`, the names of the positional parameters. Raises TypeError that
    names the argument, and the part of it, that cannot be pickled.
    """
    if _is_plain(args, PLAIN_DEPTH) and (not kwargs or _is_plain(kwargs, PLAIN_DEPTH)):
        return _pack_plain((args, kwargs))
    buffers: list[memoryview] = []
    call = (
        tuple([_wrapped(arg) for arg in args]),
        {name: _wrapped(arg) for name, arg in kwargs.items()},
    )
    try:
        data, refs = pickling.dumps(call, _collect_into(buffers))
    except Exception as error:
        raise _unpicklable_argument(args, kwargs, function_name, parameter_names, error) from error
    return Packed(data, buffers, refs)


def unpack(data: Buffer, buffers: Iterable[Buffer] = ()) -> Any:
    """Unpickle a stream and its buffers; arrays alias the buffers, also their read-only flag."""
    return _loads(data, buffers=buffers)


def pack_callable(fn_or_class: Callable[..., object], *, refs: list[int] | None = None) -> bytes:
    """Pickle a function or class into one stream.

    Ids of captured references are appended to `refs`. Raises TypeError that names the closure
    variable, global or attribute that cannot be pickled.
    """
    try:
        data, found = pickling.dumps(fn_or_class, None)
    except Exception as error:
        kind = "class" if isinstance(fn_or_class, type) else "function"
        name = getattr(fn_or_class, "__qualname__", repr(fn_or_class)).replace("<locals>.", "")
        raise _unpicklable(fn_or_class, name, f"{kind} `{name}`", error) from error
    if refs is not None:
        refs.extend(found)
    return data


def register_plain(cls: type) -> None:
    """Declare that instances of exactly `cls`, an importable class, reduce to plain values.

    They are then pickled with the C pickler.
    """
    _plain_types.add(cls)


def _is_plain(value: Any, depth: int) -> bool:
    """Return True if the C pickler gives cloudpickle's result; cheaper than cloudpickle itself."""
    cls = type(value)
    if cls in _SCALARS:
        return cls is not bytes or len(value) < OUT_OF_BAND_BYTES
    if cls is tuple or cls is list:
        if len(value) > PLAIN_ITEMS or not depth:
            return not value
        for item in value:
            if (type(item) not in _SCALARS or type(item) is bytes) and not _is_plain(
                item, depth - 1
            ):
                return False
        return True
    if cls is dict:
        if len(value) > PLAIN_ITEMS or not depth:
            return not value
        for key, item in value.items():
            if type(key) is not str and type(key) not in _SCALARS:
                return False
            if (type(item) not in _SCALARS or type(item) is bytes) and not _is_plain(
                item, depth - 1
            ):
                return False
        return True
    return cls in _plain_types or (cls.__module__ == "numpy" and _is_plain_numpy(value))


def _is_plain_numpy(value: object) -> bool:
    """Return True for arrays and scalars of numpy's own classes without Python objects."""
    dtype = getattr(value, "dtype", None)
    return (
        dtype is not None
        and type(value) not in pickling.serializers
        and not dtype.hasobject
        and dtype.type.__module__ == "numpy"
        and dtype.metadata is None
    )


def _pack_plain(value: object) -> Packed:
    buffers: list[memoryview] = []
    refs: dict[int, None] = {}
    collectors = pickling.collectors.stack
    collectors.append(refs)
    try:
        return Packed(
            _dumps(value, 5, buffer_callback=_collect_into(buffers)), buffers, tuple(refs)
        )
    finally:
        collectors.pop()


def _collect_into(buffers: list[memoryview]) -> pickling.BufferCallback:
    def collect(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < IN_BAND_BYTES:
            return True
        buffers.append(raw)
        return False

    return collect


def _wrapped(value: Any) -> object:
    cls = type(value)
    if (cls is bytes or cls is bytearray) and len(value) >= OUT_OF_BAND_BYTES:
        return _Wrapped(value)
    return value


def _unpicklable(value: object, path: str, subject: str, error: Exception) -> TypeError:
    part = find_unpicklable(value, path, error, pickling.can_pickle)
    return TypeError(unpicklable_message(subject, path, part, "where it is used"))


def _unpicklable_argument(
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    function_name: str,
    parameter_names: Sequence[str],
    error: Exception,
) -> TypeError:
    named = [
        (parameter_names[i] if i < len(parameter_names) else f"args[{i}]", arg)
        for i, arg in enumerate(args)
    ]
    for name, arg in [*named, *kwargs.items()]:
        reason = pickling.can_pickle(arg)
        if reason is not None:
            part = find_unpicklable(arg, name, reason, pickling.can_pickle)
            subject = f"argument `{name}` of `{function_name}()`"
            return TypeError(
                unpicklable_message(subject, name, part, f"inside `{function_name}()`")
            )
    return TypeError(
        f"the arguments of `{function_name}()` cannot be sent to another process: {error}"
    )
