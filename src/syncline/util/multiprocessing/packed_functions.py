"""Pickled functions, kept for further calls where nothing that was pickled can have changed.

A function of the program itself is pickled by value, with the global variables that it uses, which
takes longer than a call of a worker. Its code is used again if it has no closure, defaults or
attributes, and all of its global variables are modules, functions of C or constants, the same as
before. Any other function is pickled for each call, because a list or an object may have changed.
"""

from __future__ import annotations

import functools
import sys
import types
import weakref

import cloudpickle

from syncline.core.serialization import pack_callable

_CONSTANTS = (bool, bytes, complex, float, int, str, type(None))
_Facts = tuple[object, ...]
_kept: weakref.WeakKeyDictionary[types.FunctionType, tuple[_Facts, bytes]] = (
    weakref.WeakKeyDictionary()
)


def code_of(function: types.FunctionType) -> bytes | None:
    """Return the pickled function; None if it contains references to objects.

    Raises:
        TypeError: It cannot be pickled.
    """
    facts = _facts(function)
    kept = _kept.get(function)
    if facts is not None and kept is not None and _are_same(facts, kept[0]):
        return kept[1]
    refs: list[int] = []
    code = pack_callable(function, refs=refs)
    if refs:
        return None
    if facts is not None:
        _kept[function] = facts, code
    return code


def _facts(function: types.FunctionType) -> _Facts | None:
    """Return everything that its pickled form depends on; None if that may change unnoticed."""
    if (
        function.__closure__
        or function.__defaults__
        or function.__kwdefaults__
        or function.__dict__
    ):
        return None
    variables = function.__globals__
    values = [variables[name] for name in _names(function.__code__) if name in variables]
    return (function.__code__, *values) if all(map(_is_constant, values)) else None


@functools.lru_cache(maxsize=256)
def _names(code: types.CodeType) -> tuple[str, ...]:
    """Return the names that the code and the functions in it look up, attributes included."""
    found = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found.update(dict.fromkeys(_names(constant)))
    return tuple(found)


def _is_constant(value: object) -> bool:
    if type(value) is types.ModuleType:  # pickled by its name
        is_found = sys.modules.get(value.__name__) is value
        return is_found and not cloudpickle.list_registry_pickle_by_value()
    if type(value) is types.BuiltinFunctionType:  # or a method, such as the `get` of a dict
        return value.__self__ is None or type(value.__self__) is types.ModuleType
    return type(value) in _CONSTANTS


def _are_same(facts: _Facts, others: _Facts) -> bool:
    return len(facts) == len(others) and all(
        fact is other for fact, other in zip(facts, others, strict=True)
    )
