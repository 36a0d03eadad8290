"""Values, calls and errors as payloads."""

import threading

import numpy as np
import pytest

from syncline.exceptions import RayTaskError
from syncline.serve.wire.values import (
    CallMeta,
    pack_call,
    pack_failure,
    pack_value,
    unpack_call,
    unpack_failure,
    unpack_value,
)

META = CallMeta("predict", "id", 1.5, "m", "s", False, "app", "/route")


def through(value):
    return unpack_value(b"".join(pack_value(value)))


@pytest.mark.parametrize(
    "value",
    [None, 1, "text", {"a": [1, (2, 3)]}, b"x" * 100_000, lambda: 3],
    ids=["none", "number", "text", "nested", "large bytes", "function"],
)
def test_a_value_arrives(value):
    arrived = through(value)
    assert arrived() == value() if callable(value) else arrived == value


def test_arrays_arrive_aligned_and_read_only():
    arrays = {"a": np.arange(5001, dtype=np.float32), "b": np.arange(999, dtype=np.complex128)}
    for name, array in through(arrays).items():
        assert (array == arrays[name]).all()
        assert array.flags.aligned
        assert not array.flags.writeable


def test_a_call_keeps_its_meta_data_and_arguments():
    array = np.arange(5000.0)
    meta, args, kwargs = unpack_call(b"".join(pack_call(META, (1, array), {"k": "v"})))
    assert meta == META
    assert args[0] == 1
    assert (args[1] == array).all()
    assert kwargs == {"k": "v"}


def test_an_argument_that_cannot_be_pickled_is_named():
    with pytest.raises(TypeError, match=r"`lock` of `predict\(\)`"):
        pack_call(META, (), {"lock": threading.Lock()})


def test_an_error_of_user_code_has_its_own_class_and_is_a_task_error():
    error = unpack_failure(pack_failure(KeyError("fox"), "Model.explain"))
    assert isinstance(error, KeyError)
    assert isinstance(error, RayTaskError)
    assert "fox" in str(error)


def test_an_error_of_serve_arrives_as_it_is():
    error = unpack_failure(pack_failure(TypeError("no generator")))
    assert type(error) is TypeError
    assert str(error) == "no generator"
