"""Exceptions as bytes: rebuilt as themselves if possible, else as a stand-in.

An exception may fail to pickle (a lock in its attributes), fail to unpickle (an `__init__` with
parameters other than `args`), unpickle wrongly (an `__init__` that formats its message again), or
have a class that the receiver cannot import. So the frame has several forms, and the receiver uses
the first that gives the same type and message. Causes, contexts and notes are included. Traceback
objects are not; their text is.
"""

from __future__ import annotations

import builtins
import pickle
from typing import Any, NamedTuple

from syncline.core import pickling
from syncline.core.pickling import can_pickle

MAX_CHAIN = 8


class RemoteException(Exception):
    """Stand-in for an exception that could not be rebuilt in this process.

    The concrete class has the original's name and also derives from its nearest built-in base, so
    that `except ValueError` still catches it. `str()` returns the original message.
    """

    type_name: str = ""
    """Name of the original class with its module."""

    traceback_text: str = ""
    """Traceback of the original, formatted at its origin; empty if unknown."""


_Fields = tuple[Any, ...]
"""A `_Frame` as a plain tuple."""


class _Frame(NamedTuple):
    """The transmitted form; only plain types, so that unpickling it cannot fail."""

    module: str
    name: str
    message: str
    builtin_base: str
    whole: bytes | None
    """The exception, pickled by its own `__reduce__`."""
    parts: bytes | None
    """(class, args, attributes), to rebuild it without calling `__init__`."""
    notes: tuple[str, ...]
    traceback_text: str
    cause: _Fields | None
    context: _Fields | None
    suppress_context: bool


def pack_error(error: BaseException, *, traceback_text: str = "") -> bytes:
    """Encode an exception for `unpack_error`; never raises because of the exception's contents."""
    return pickle.dumps(tuple(_frame(error, traceback_text, MAX_CHAIN)), pickling.PROTOCOL)


def unpack_error(data: bytes | bytearray | memoryview) -> BaseException:
    """Rebuild the exception, or a `RemoteException` with its name, message and traceback text."""
    return _rebuild(_Frame(*pickle.loads(data)))


def _frame(error: BaseException, traceback_text: str, depth: int) -> _Frame:
    cls = type(error)
    base = next(c for c in cls.__mro__ if c.__module__ == "builtins")
    attributes = {name: value for name, value in vars(error).items() if name != "__notes__"}
    parts = _dumps_or_none((cls, error.args, attributes))
    if parts is None:
        args = tuple(arg if can_pickle(arg) is None else repr(arg) for arg in error.args)
        kept = {name: value for name, value in attributes.items() if can_pickle(value) is None}
        parts = _dumps_or_none((cls, args, kept))

    def chained(other: BaseException | None) -> _Fields | None:
        return None if other is None or depth == 0 else tuple(_frame(other, "", depth - 1))

    return _Frame(
        module=cls.__module__,
        name=cls.__qualname__,
        message=_message(error),
        builtin_base=base.__name__,
        whole=_dumps_or_none(error),
        parts=parts,
        notes=tuple(str(note) for note in getattr(error, "__notes__", ())),
        traceback_text=traceback_text,
        cause=chained(error.__cause__),
        context=chained(None if error.__suppress_context__ else error.__context__),
        suppress_context=error.__suppress_context__,
    )


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as failure:
        return f"<str() of this exception failed: {type(failure).__name__}>"


def _dumps_or_none(value: object) -> bytes | None:
    try:
        return pickling.dumps(value, None)[0]
    except Exception:
        return None


def _rebuild(frame: _Frame) -> BaseException:
    error = _from_whole(frame) or _from_parts(frame) or _stand_in(frame)
    if frame.notes:
        vars(error)["__notes__"] = list(frame.notes)  # a plain attribute, also before Python 3.11
    if frame.cause is not None:
        error.__cause__ = _rebuild(_Frame(*frame.cause))
    if frame.context is not None:
        error.__context__ = _rebuild(_Frame(*frame.context))
    error.__suppress_context__ = frame.suppress_context
    return error


def _from_whole(frame: _Frame) -> BaseException | None:
    if frame.whole is None:
        return None
    try:
        error = pickle.loads(frame.whole)
    except Exception:
        return None
    return _checked(error, frame)


def _from_parts(frame: _Frame) -> BaseException | None:
    if frame.parts is None:
        return None
    try:
        cls, args, attributes = pickle.loads(frame.parts)
        error = cls.__new__(cls, *args)
        error.args = args
        vars(error).update(attributes)
    except Exception:
        return None
    return _checked(error, frame)


def _checked(error: object, frame: _Frame) -> BaseException | None:
    if not isinstance(error, BaseException) or _message(error) != frame.message:
        return None
    # Compare the last part of the name only: by-value pickling drops the enclosing function.
    return error if type(error).__name__ == frame.name.rpartition(".")[2] else None


def _stand_in(frame: _Frame) -> RemoteException:
    base = getattr(builtins, frame.builtin_base, Exception)
    bases = (RemoteException,) if issubclass(RemoteException, base) else (RemoteException, base)
    namespace = {
        "__module__": frame.module,
        "__doc__": RemoteException.__doc__,
        "__str__": lambda self: self.args[0],
        "__init__": lambda self, *args: None,
    }
    name = frame.name.rpartition(".")[2]
    try:
        cls: Any = type(name, bases, namespace)
        error: RemoteException = cls.__new__(cls, frame.message)
    except TypeError:  # the built-in base has its own layout or constructor
        cls = type(name, (RemoteException,), namespace)
        error = cls.__new__(cls, frame.message)
    error.args = (frame.message,)
    error.type_name = f"{frame.module}.{frame.name}"
    error.traceback_text = frame.traceback_text
    return error
