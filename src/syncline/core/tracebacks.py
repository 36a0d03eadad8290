"""Tracebacks without the engine: what a worker writes down of an exception, and what a program sees
when `get` raises it.

A worker-side traceback keeps the frames of user code and of other libraries and drops syncline's
own. On the driver's side the worker's part is the `__cause__` of the error that `get` raises, so
Python prints first the worker's frames and then the driver's. `SYNCLINE_FULL_TRACEBACK=1` keeps
everything.
"""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from syncline import settings
from syncline.exceptions import RayError, RayTaskError, WorkerTraceback

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_LIBRARIES = tuple(
    {sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def is_engine_file(filename: str) -> bool:
    """Whether code of this file is syncline's own."""
    return filename.startswith(_PACKAGE)


def user_traceback(error: BaseException) -> str:
    """The traceback of `error` and of what led to it, as Python prints it, without the engine's
    frames.
    """
    summary = traceback.TracebackException.from_exception(error)
    if not settings.full_traceback():
        _drop_engine_frames(summary, set())
    return "".join(summary.format())


def says_all(error: BaseException) -> bool:
    """Whether the text of `error` is all that a program needs: syncline raised it on purpose, and
    no code of the program's took part.

    False for errors of syncline's own bugs, which come from elsewhere than a `raise`, and with
    `SYNCLINE_FULL_TRACEBACK=1`.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if settings.full_traceback() or not frames or not (frames[-1].line or "").startswith("raise "):
        return False
    if not is_engine_file(frames[-1].filename) or not all(
        _is_no_program_file(frame.filename) for frame in frames
    ):
        return False
    cause = error.__cause__
    return cause is None or all(_is_no_program_file(each.filename) for each in _all_frames(cause))


def _is_interrupted_wait(error: BaseException) -> bool:
    frames = (
        traceback.extract_tb(error.__traceback__) if isinstance(error, KeyboardInterrupt) else ()
    )
    return bool(frames) and all(_is_no_program_file(frame.filename) for frame in frames)


def _is_no_program_file(filename: str) -> bool:
    """Whether code of this file is syncline's, Python's or an installed library's."""
    return (
        is_engine_file(filename)
        or filename.startswith(_LIBRARIES)
        or filename.endswith((".pyx", ".pxi"))
    )


def _all_frames(error: BaseException) -> Iterator[traceback.FrameSummary]:
    """The frames of `error` and of what led to it."""
    current: BaseException | None = error
    while current is not None:
        yield from traceback.extract_tb(current.__traceback__)
        current = current.__cause__ or current.__context__


def _drop_engine_frames(summary: traceback.TracebackException, seen: set[int]) -> None:
    if id(summary) in seen:
        return
    seen.add(id(summary))
    users = [frame for frame in summary.stack if not is_engine_file(frame.filename)]
    if users:  # otherwise syncline's own code is what failed, and its frames are all there is
        summary.stack = traceback.StackSummary.from_list(users)
    related = [
        summary.__cause__,
        summary.__context__,
        *(getattr(summary, "exceptions", None) or ()),
    ]
    for other in related:
        if other is not None:
            _drop_engine_frames(other, seen)


def task_error(function_name: str, error: BaseException, *, ip: str | None = None) -> RayTaskError:
    """In a worker: what the task `function_name` failed with, ready to be pickled."""
    return RayTaskError(function_name, user_traceback(error), error, pid=os.getpid(), ip=ip)


def raisable(error: BaseException) -> BaseException:
    """In the process that called `get`: the exception to raise for a stored error. Raise each
    result once only.
    """
    if isinstance(error, RayTaskError):
        raised = error.as_instanceof_cause()
        raised.__cause__ = WorkerTraceback(f"{_title(error)}\n{error.traceback_str.rstrip()}")
        return raised.with_traceback(None)
    if isinstance(error, RayError):
        error.__suppress_context__ = True
    return error.with_traceback(None)


def _title(error: RayTaskError) -> str:
    return f"in {error.function_name}()" + ("" if error.pid is None else f", pid={error.pid}")


def forget_engine(error: BaseException) -> None:
    """Take the frames below the caller off `error`, which the caller then raises again with a bare
    `raise`.

    A bare `raise` goes on with the exception's own traceback, so the first frame that it shows is
    that of the caller's caller. (Python
    3.10 shows the caller too.)
    """
    if settings.full_traceback():
        return
    vars(error)["_says_all"] = (
        True  # where one of syncline's functions calls another, the frames of the first are left to drop
    )
    frames: TracebackType | None = error.__traceback__
    if frames is not None:
        frames.tb_next = None
    error.__traceback__ = None


def shorten(error: BaseException) -> None:
    """`forget_engine`, for an error whose text says all without the engine's frames: one of a task,
    or of what the program asked for.

    An interrupt (Ctrl-C) is one, too, where it met syncline in the middle of waiting: the program's
    own line is what counts.
    """
    if isinstance(error, RayError) or vars(error).get("_says_all") or _is_interrupted_wait(error):
        forget_engine(error)
    elif says_all(error):
        forget_engine(error)
        error.__cause__ = None  # its text is part of the error's
