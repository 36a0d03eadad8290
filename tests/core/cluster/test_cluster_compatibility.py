"""Versions of syncline on both sides, and class tables that both cloudpickles share.

test_cluster_head tests the versions of Ray and Python.
"""

from __future__ import annotations

import pickle
import sys
import types
from typing import Any

import cloudpickle
import pytest

from syncline import __version__

ray_cloudpickle: Any = pytest.importorskip("ray.cloudpickle")
compatibility: Any = pytest.importorskip("syncline.core.cluster.compatibility")


def a_class() -> type:
    class Own:
        pass

    return Own


def test_a_class_sent_by_one_returns_through_the_other_as_itself() -> None:
    before, early = a_class(), a_class()
    sent_before = cloudpickle.dumps(before)
    ray_cloudpickle.dumps(early)
    compatibility.share_class_tables()
    after = a_class()
    assert pickle.loads(sent_before) is before
    for cls in (before, early, after):
        assert (
            pickle.loads(ray_cloudpickle.dumps(cls)) is pickle.loads(cloudpickle.dumps(cls)) is cls
        )


def test_modules_by_value_are_by_value_for_both() -> None:
    module = types.ModuleType("module_of_this_test")
    exec("class Inside: pass", module.__dict__)
    sys.modules[module.__name__] = module
    compatibility.share_class_tables()
    cloudpickle.register_pickle_by_value(module)
    try:
        sent = [one.dumps(module.Inside) for one in (cloudpickle, ray_cloudpickle)]
    finally:
        cloudpickle.unregister_pickle_by_value(module)
        del sys.modules[module.__name__]
    assert [pickle.loads(data) for data in sent] == [module.Inside] * 2


def test_tables_can_be_shared_twice() -> None:
    compatibility.share_class_tables()
    compatibility.share_class_tables()
    cls = a_class()
    assert pickle.loads(ray_cloudpickle.dumps(cls)) is cls


def test_equal_versions_are_accepted():
    compatibility.check_program(compatibility.job_metadata(), "10.0.0.1")


def test_another_version_is_refused_with_both_versions_and_the_node():
    with pytest.raises(
        RuntimeError,
        match=rf"runs syncline 0\.0\.1, but the node 10\.0\.0\.1 has syncline {__version__}",
    ):
        compatibility.check_program({compatibility.SYNCLINE_KEY: "0.0.1"}, "10.0.0.1")


def test_a_program_without_a_version_is_accepted():
    compatibility.check_program({}, "10.0.0.1")
