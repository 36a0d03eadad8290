"""Python values as frames and back: a pickle-5 stream, large buffers beside it, and the references
inside.

Semantics are cloudpickle's: what belongs to `__main__`, lambdas and closures travel by value,
importable things by reference. Small plain values take a short way through the C pickler. Buffers
of 4 kB and more (numpy arrays, Arrow tables, CPU tensors, bytes arguments) stay out of the stream,
so that they are copied once or not at all. `pickling` holds the pickler, `culprits` the search
behind the error messages, `error_frames` the exceptions.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from syncline.core import culprits, pickling
from syncline.core.error_frames import RemoteException, pack_error, unpack_error
from syncline.core.pickling import note_ref, register_reducer

__all__ = [
    "Packed",
    "RemoteException",
    "note_ref",
    "pack",
    "pack_call",
    "pack_callable",
    "pack_error",
    "register_plain",
    "register_reducer",
    "unpack",
    "unpack_error",
]

IN_BAND_BYTES = 4096
"""Buffers smaller than this are copied into the stream."""

OUT_OF_BAND_BYTES = 65_536
"""`bytes` and `bytearray` passed directly (not nested) and at least this long are sent as
buffers.
"""

PLAIN_ITEMS = 32
PLAIN_DEPTH = 3

Buffer = bytes | bytearray | memoryview | pickle.PickleBuffer

_SCALARS = frozenset({type(None), bool, int, float, str, bytes})
_plain_types: set[type] = set()
_dumps = pickle.dumps
_loads = pickle.loads


class Packed(NamedTuple):
    """A pickled value. The buffers alias the memory of the value: write or copy them before it can
    change.
    """

    data: bytes
    """The pickle-5 stream."""

    buffers: list[memoryview]
    """Contiguous byte views of the out-of-band buffers, in the order of the stream. Empty for small
    values.
    """

    refs: tuple[int, ...]
    """Ids of the object references inside, in order, without repeats."""

    @property
    def nbytes(self) -> int:
        """Bytes of the stream and of all buffers."""
        return len(self.data) + sum([buffer.nbytes for buffer in self.buffers])

    def detached(self) -> Packed:
        """The same with copies of the buffers, for when sending happens after the caller has gone
        on.
        """
        return self._replace(buffers=[memoryview(bytes(buffer)) for buffer in self.buffers])


class _Wrapped:
    """Bytes on their way through the pickler, which by itself would copy them into the stream."""

    __slots__ = ("value",)

    def __init__(self, value: bytes | bytearray) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self.value), (pickle.PickleBuffer(self.value),)


def pack(value: object, *, what: str = "value") -> Packed:
    """Pickle one value.

    `what` names the value in errors. Raises `TypeError` naming the part that cannot be pickled.
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
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    function_name: str,
    parameter_names: Sequence[str] = (),
) -> Packed:
    """Pickle the arguments of a call as one `(args, kwargs)` stream.

    `parameter_names` are the names of the positional parameters, used in errors only.
    Raises `TypeError` naming the argument, and the part of it, that cannot be pickled.
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
    """The value of a stream and its buffers. Arrays alias the buffers and are read-only where those
    are.
    """
    return _loads(data, buffers=buffers)


def pack_callable(fn_or_class: Callable[..., Any], *, refs: list[int] | None = None) -> bytes:
    """Pickle a function or class into one stream; ids of references that it captured are appended
    to `refs`.

    Raises `TypeError` naming the closure variable, global or attribute that cannot be pickled.
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
    """Instances of exactly `cls`, an importable class, reduce to plain values: the short way
    through the C pickler may take them.
    """
    _plain_types.add(cls)


def _is_plain(value: Any, depth: int) -> bool:
    """Whether the C pickler alone does what cloudpickle would, found out faster than cloudpickle
    starts.
    """
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


def _is_plain_numpy(value: Any) -> bool:
    """Arrays and scalars of numpy's own classes that hold no Python objects."""
    dtype = getattr(value, "dtype", None)
    return (
        dtype is not None
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


def _wrapped(value: Any) -> Any:
    cls = type(value)
    if (cls is bytes or cls is bytearray) and len(value) >= OUT_OF_BAND_BYTES:
        return _Wrapped(value)
    return value


def _unpicklable(value: object, path: str, subject: str, error: Exception) -> TypeError:
    culprit = culprits.find(value, path, error, pickling.can_pickle)
    return TypeError(_explanation(subject, path, culprit, "where it is used"))


def _unpicklable_argument(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
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
            culprit = culprits.find(arg, name, reason, pickling.can_pickle)
            return TypeError(
                _explanation(
                    f"argument `{name}` of `{function_name}()`",
                    name,
                    culprit,
                    f"inside `{function_name}()`",
                )
            )
    return TypeError(
        f"the arguments of `{function_name}()` cannot be sent to another process: {error}"
    )


def _explanation(subject: str, path: str, culprit: culprits.Culprit, where: str) -> str:
    place = (
        "it"
        if culprit.path == path
        else culprit.path
        if "`" in culprit.path
        else f"`{culprit.path}`"
    )
    return (
        f"{subject} cannot be sent to another process: {place} is a {culprit.type_name} ({culprit.reason}). "
        f"Create it {where} instead of sending it, or give its class a `__reduce__` that says how to rebuild it."
    )
