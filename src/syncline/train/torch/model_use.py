"""Check whether a training function trains a model, by the names in its code.

torch imports `torch._dynamo` for the first `DistributedDataParallel` or optimizer of a process, for
more than a second of CPU time. If the training function will need it, the fork server imports it
once, before it forks the workers. Not covered: code of other modules. A wrong answer only makes the
start of the run slower.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator

COMPILER = "torch._dynamo"
_NAMES = frozenset({"DistributedDataParallel", "backward", "optim", "prepare_model"})
_MOST_FUNCTIONS = 200


def trains_a_model(function: Callable[..., object]) -> bool:
    """Return True if a function, or one of its module that it refers to, has names of training."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    start = getattr(function, "__func__", function)
    if not isinstance(start, types.FunctionType):
        return False
    waiting, found = [start], {start}
    while waiting and len(found) < _MOST_FUNCTIONS:
        current = waiting.pop()
        names = set(_names(current.__code__))
        if not names.isdisjoint(_NAMES):
            return True
        for name in names:
            for value in _functions(current.__globals__.get(name)):
                if value.__module__ == start.__module__ and value not in found:
                    found.add(value)
                    waiting.append(value)
    return False


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _functions(value: object) -> list[types.FunctionType]:
    """Return a function, or those of a class."""
    members = vars(value).values() if isinstance(value, type) else (value,)
    return [each for each in members if isinstance(each, types.FunctionType)]
