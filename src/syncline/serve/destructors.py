"""`__del__` of user code, which may be a coroutine function.

Python calls `__del__` of a garbage-collected object but does not await it. Serve therefore awaits
it, and replaces it with a function that Python may call.
"""

from __future__ import annotations

import inspect
from typing import Any

_DEL = "__del__"
_ORIGINAL = "_syncline_async_del"


async def destroy(instance: object, *, is_final: bool) -> None:
    """Run an async `__del__`; with `is_final`, also a sync one, which Python will not run again.

    Raises the error of `__del__`.
    """
    cls = type(instance)
    _replace_async(cls)
    original = getattr(cls, _ORIGINAL, None)
    if original is not None:
        await original(instance)
    elif is_final and (destructor := getattr(cls, "__del__", None)) is not None:
        destructor(instance)
        _skip(cls, instance, destructor)


def _replace_async(cls: type) -> None:
    for base in cls.__mro__:
        destructor = vars(base).get("__del__")
        if destructor is None:
            continue
        if inspect.iscoroutinefunction(destructor):
            setattr(base, _ORIGINAL, destructor)
            setattr(base, _DEL, _do_nothing)
        return


def _do_nothing(instance: object) -> None:
    """Replace an async `__del__`; do nothing."""


def _skip(cls: type, instance: object, destructor: Any) -> None:
    def delete_others(other: Any) -> None:
        if other is not instance:
            destructor(other)

    try:
        setattr(cls, _DEL, delete_others)
    except TypeError:  # a class of an extension module
        pass
