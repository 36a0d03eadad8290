"""Frames of user code in tracebacks and stacks."""

from __future__ import annotations

import sysconfig
from types import TracebackType

from syncline.core.tracebacks import is_engine_file, user_traceback

_LIBRARIES = tuple(
    {sysconfig.get_path(name) + "/" for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def is_library(filename: str) -> bool:
    """Return True for a file of syncline, of Python or of an installed library."""
    return (
        is_engine_file(filename)
        or filename.startswith(_LIBRARIES)
        or filename.startswith("<frozen")
        or filename.endswith((".pyx", ".pxi"))
    )


def shortened_traceback(error: BaseException) -> str:
    """Return the traceback from the first frame of user code on, as text.

    The omitted frames belong to web frameworks, dozens per request. An error without
    frames of user code keeps all of them.
    """
    first: TracebackType | None = error.__traceback__
    while first is not None and is_library(first.tb_frame.f_code.co_filename):
        first = first.tb_next
    if first is None:
        return user_traceback(error).rstrip()
    whole = error.__traceback__
    try:
        return user_traceback(error.with_traceback(first)).rstrip()
    finally:
        error.__traceback__ = whole
