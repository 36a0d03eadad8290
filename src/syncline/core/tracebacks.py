"""Tracebacks without syncline's own frames, in workers and in the process that calls `get`.

A worker's traceback keeps the frames of user code and of other libraries. In the driver it becomes
the `__cause__` of the error that `get` raises, so Python prints the worker's frames first and then
the driver's. `SYNCLINE_FULL_TRACEBACK=1` keeps all frames.
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
    """Return True if the file is part of syncline."""
    return filename.startswith(_PACKAGE)


def user_traceback(error: BaseException) -> str:
    """Format the traceback of `error` and its causes as Python does, without syncline's frames."""
    summary = traceback.TracebackException.from_exception(error)
    if not settings.full_traceback():
        _drop_engine_frames(summary, set())
    return "".join(summary.format())


def is_self_explanatory(error: BaseException) -> bool:
    """Return True if syncline raised `error` on purpose and no user code was involved.

    Its text is then all that a user needs. False for syncline's own bugs, which are not raised by a
    `raise` statement, and with `SYNCLINE_FULL_TRACEBACK=1`.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if settings.full_traceback() or not frames or not (frames[-1].line or "").startswith("raise "):
        return False
    if not is_engine_file(frames[-1].filename) or not all(
        _is_library_file(frame.filename) for frame in frames
    ):
        return False
    cause = error.__cause__
    return cause is None or all(_is_library_file(each.filename) for each in _all_frames(cause))


def _is_interrupted_wait(error: BaseException) -> bool:
    frames = (
        traceback.extract_tb(error.__traceback__) if isinstance(error, KeyboardInterrupt) else ()
    )
    return bool(frames) and all(_is_library_file(frame.filename) for frame in frames)


def _is_library_file(filename: str) -> bool:
    """Return True if the file is part of syncline, Python or an installed library."""
    return (
        is_engine_file(filename)
        or filename.startswith(_LIBRARIES)
        or filename.endswith((".pyx", ".pxi"))
    )


def _all_frames(error: BaseException) -> Iterator[traceback.FrameSummary]:
    """Yield the frames of `error` and of its causes."""
    current: BaseException | None = error
    while current is not None:
        yield from traceback.extract_tb(current.__traceback__)
        current = current.__cause__ or current.__context__


def _drop_engine_frames(summary: traceback.TracebackException, seen: set[int]) -> None:
    if id(summary) in seen:
        return
    seen.add(id(summary))
    users = [frame for frame in summary.stack if not is_engine_file(frame.filename)]
    if users:  # otherwise syncline's own code failed: keep its frames
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
    """In a worker: wrap the error of the task `function_name` for pickling."""
    return RayTaskError(function_name, user_traceback(error), error, pid=os.getpid(), ip=ip)


def raisable(error: BaseException) -> BaseException:
    """In the process that called `get`: return the exception to raise; raise it only once."""
    if isinstance(error, RayTaskError):
        raised = error.as_instanceof_cause()
        raised.__cause__ = WorkerTraceback(f"{error._where}\n{error.traceback_str.rstrip()}")
        return raised.with_traceback(None)
    if isinstance(error, RayError):
        error.__suppress_context__ = True
    return error.with_traceback(None)


def forget_engine(error: BaseException) -> None:
    """Drop the frames below the caller; the caller then re-raises with a bare `raise`.

    A bare `raise` keeps the exception's own traceback, so the first visible frame is that of the
    caller's caller. (Python 3.10 also shows the caller.)
    """
    if settings.full_traceback():
        return
    # For nested calls within syncline: `shorten` then also drops the frames of the outer call.
    vars(error)["_frames_dropped"] = True
    frames: TracebackType | None = error.__traceback__
    if frames is not None:
        frames.tb_next = None
    error.__traceback__ = None


def shorten(error: BaseException) -> None:
    """Apply `forget_engine` to an error whose text explains it without syncline's frames.

    Such errors are those of tasks and of invalid requests, and a Ctrl-C while syncline waits, for
    which only the program's own line matters.
    """
    if (
        isinstance(error, RayError)
        or vars(error).get("_frames_dropped")
        or _is_interrupted_wait(error)
    ):
        forget_engine(error)
    elif is_self_explanatory(error):
        forget_engine(error)
        error.__cause__ = None  # its text is part of the error's
