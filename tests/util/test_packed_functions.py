"""Pickled functions of pools that are used again."""

from __future__ import annotations

import math
import sys
import types

import cloudpickle
import numpy as np
import pytest

from syncline.core import serialization
from syncline.core.serialization import unpack
from syncline.util.multiprocessing import packed_functions


def function(text: str, **variables: object) -> types.FunctionType:
    """Return the function of a program; its name cannot be imported, so it is pickled by value."""
    namespace = {"__name__": "__main__", **variables}
    exec(text, namespace)
    found = namespace["called"]
    assert isinstance(found, types.FunctionType)
    return found


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list of the functions that were pickled."""
    found: list[object] = []
    pack = serialization.pack_callable

    def counted(function, refs):
        found.append(function)
        return pack(function, refs=refs)

    monkeypatch.setattr(packed_functions, "pack_callable", counted)
    return found


def test_function_with_modules_and_constants_is_pickled_once(packed):
    called = function(
        "def called(x): return np.float64(x) + sum(y for y in [offset])", np=np, offset=1
    )
    codes = {packed_functions.code_of(called) for _ in range(3)}
    assert len(codes) == len(packed) == 1
    assert unpack(codes.pop())(2) == 3


def test_changed_constant_is_seen(packed):
    called = function("def called(x): return x + offset", offset=1)
    packed_functions.code_of(called)
    called.__globals__["offset"] = 2
    assert unpack(packed_functions.code_of(called))(1) == 3
    called.__globals__["offset"] = True  # equals 1
    assert unpack(packed_functions.code_of(called))(1) == 2
    assert len(packed) == 3


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("def called(x): return offsets[0] + x", {"offsets": [1]}),
        ("def called(x): return (lambda: offsets[0])() + x", {"offsets": [1]}),
        ("def called(x, offsets=offsets): return offsets[0] + x", {"offsets": [1]}),
        ("def outer(offsets):\n return lambda x: offsets[0] + x\ncalled = outer(offsets)", {}),
        ("def called(x): return called.offsets[0] + x\ncalled.offsets = offsets", {}),
    ],
)
def test_list_that_may_change_is_pickled_with_each_call(packed, text, variables):
    offsets = [1]
    called = function(text, **{"offsets": offsets, **dict.fromkeys(variables, offsets)})
    assert unpack(packed_functions.code_of(called))(1) == 2
    offsets[0] = 2
    assert unpack(packed_functions.code_of(called))(1) == 3


def test_method_of_a_dict_that_may_change_is_pickled_with_each_call(packed):
    offsets = {"x": 1}
    called = function("def called(x): return find('x') + x", find=offsets.get)
    assert unpack(packed_functions.code_of(called))(1) == 2
    offsets["x"] = 2
    assert unpack(packed_functions.code_of(called))(1) == 3


def test_module_that_is_pickled_by_value_is_pickled_with_each_call(packed, monkeypatch):
    helpers = types.ModuleType("pool_helpers")
    helpers.offset = 1
    monkeypatch.setitem(sys.modules, "pool_helpers", helpers)
    called = function("def called(x): return helpers.offset + x", helpers=helpers)
    cloudpickle.register_pickle_by_value(helpers)
    try:
        assert unpack(packed_functions.code_of(called))(1) == 2
        helpers.offset = 2
        assert unpack(packed_functions.code_of(called))(1) == 3
    finally:
        cloudpickle.unregister_pickle_by_value(helpers)


def test_function_of_c_does_not_change(packed):
    called = function("def called(x): return root(x)", root=math.sqrt)
    assert {unpack(packed_functions.code_of(called))(4) for _ in range(3)} == {2}
    assert len(packed) == 1


def test_new_code_of_a_function_is_seen():
    called = function("def called(x): return x")
    packed_functions.code_of(called)
    called.__code__ = function("def called(x): return -x").__code__
    assert unpack(packed_functions.code_of(called))(1) == -1
