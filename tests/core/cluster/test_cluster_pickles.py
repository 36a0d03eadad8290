"""Classes that travel by value come back as themselves, whichever cloudpickle they went through."""

from __future__ import annotations

import pickle
import sys
import types
from typing import Any

import cloudpickle
import pytest

rays: Any = pytest.importorskip("ray.cloudpickle")
pickles: Any = pytest.importorskip("syncline.core.cluster.pickles")


def a_class() -> type:
    class Own:
        pass

    return Own


def test_a_class_sent_by_one_comes_back_through_the_other_as_itself() -> None:
    before, early = a_class(), a_class()
    sent_before = cloudpickle.dumps(before)
    rays.dumps(early)
    pickles.join()
    after = a_class()
    assert pickle.loads(sent_before) is before
    for cls in (before, early, after):
        assert pickle.loads(rays.dumps(cls)) is pickle.loads(cloudpickle.dumps(cls)) is cls


def test_modules_by_value_are_by_value_for_both() -> None:
    module = types.ModuleType("module_of_this_test")
    exec("class Inside: pass", module.__dict__)
    sys.modules[module.__name__] = module
    pickles.join()
    cloudpickle.register_pickle_by_value(module)
    try:
        sent = [one.dumps(module.Inside) for one in (cloudpickle, rays)]
    finally:
        cloudpickle.unregister_pickle_by_value(module)
        del sys.modules[module.__name__]
    assert [pickle.loads(data) for data in sent] == [module.Inside] * 2


def test_joining_twice_changes_nothing() -> None:
    pickles.join()
    pickles.join()
    cls = a_class()
    assert pickle.loads(rays.dumps(cls)) is cls
