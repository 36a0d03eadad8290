"""User code passes through processes that cannot load it; the one that must load it says what it
lacks.
"""

from __future__ import annotations

import pickle
import sys
import threading
import types

import cloudpickle
import pytest

from syncline.train.workers.spec import deserialized, serialize


def test_a_shipped_value_survives_another_pickling_and_is_itself_again() -> None:
    factor = 3
    shipped = pickle.loads(pickle.dumps(serialize(lambda x: factor * x, "the function")))
    assert deserialized(shipped)(2) == 6
    assert deserialized("as it is") == "as it is"


def test_a_module_that_is_missing_is_named_with_node_and_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = types.ModuleType("only_in_this_test")
    monkeypatch.setitem(sys.modules, "only_in_this_test", module)
    exec("def loop(): pass", module.__dict__)
    shipped = serialize(module.loop, "the training function `loop`")
    monkeypatch.delitem(sys.modules, "only_in_this_test")
    with pytest.raises(
        ModuleNotFoundError,
        match=r"the training function `loop` needs .*'only_in_this_test'.* node .*working_dir.*"
        r"py_modules",
    ):
        shipped.load()


def test_what_cannot_be_pickled_is_told_with_its_part() -> None:
    with pytest.raises(TypeError, match="lock"):
        serialize({"config": threading.Lock()}, "`train_loop_config`")
    assert cloudpickle.loads(serialize({"config": 1}, "`train_loop_config`").data) == {"config": 1}
