"""Version of a training function: a digest of its compiled code.

Covered is the function itself with the functions inside of it. Functions that it calls are not
covered. The digest differs between versions of Python.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable
from types import CodeType


def code_version(function: Callable[..., object]) -> str:
    """Return a digest of 8 characters; "unknown" for callables without Python code."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    is_object = not inspect.isroutine(function)
    code = getattr(type(function).__call__ if is_object else function, "__code__", None)
    if not isinstance(code, CodeType):
        return "unknown"
    digest = hashlib.sha256()
    _add(digest.update, code)
    return digest.hexdigest()[:8]


def _add(update: Callable[[bytes], object], code: CodeType) -> None:
    update(code.co_code)
    for names in (code.co_names, code.co_varnames, code.co_freevars):
        update(repr(names).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _add(update, constant)
        elif isinstance(constant, frozenset):  # its order differs between processes
            update(repr(sorted(map(repr, constant))).encode())
        else:
            update(repr(constant).encode())
