"""Errors of environments, and the location in user code that raised them."""

from __future__ import annotations

import traceback
from pathlib import PurePath

_LIBRARY_PARTS = frozenset({"gymnasium", "numpy", "pettingzoo", "syncline"})


class EnvError(RuntimeError):
    """Raised if an environment raises an exception or returns a value outside its spaces."""


class StepFailedRecreateEnvError(Exception):
    """Raise it in `step` or `reset` to request a new environment without an error.

    For simulators that are known to crash. After several consecutive attempts the environment
    fails.
    """


def user_frame(error: BaseException) -> str:
    """Return the last frame of a traceback outside of libraries, as one line."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    own = [frame for frame in frames if not _is_library(frame.filename)]
    frame = (own or frames)[-1]
    line = f": {frame.line}" if frame.line else ""
    return f"{frame.filename}:{frame.lineno} in {frame.name}{line}"


def _is_library(filename: str) -> bool:
    parts = PurePath(filename).parts
    if "examples" in parts or "tests" in parts:
        return False
    return not _LIBRARY_PARTS.isdisjoint(parts)
