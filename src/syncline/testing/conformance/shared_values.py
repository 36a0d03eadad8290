"""`experimental.internal_kv`, and `util.register_serializer`."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import syncline
from syncline import util
from syncline.experimental import internal_kv as kv
from syncline.testing.conformance.suite import Suite
from syncline.testing.tasks import get


class SharedKeyValues(Suite):
    """Small values that processes share."""

    def test_value_of_a_task_is_found_in_the_program_and_back(self) -> None:
        @syncline.remote
        def exchange() -> bytes | None:
            assert not kv._internal_kv_put("from-task", b"\x00\xff", namespace="suite")
            return kv._internal_kv_get(b"from-program")

        assert kv._internal_kv_initialized()
        assert not kv._internal_kv_put("from-program", "text")
        assert get(exchange.remote()) == b"text"
        assert kv._internal_kv_get("from-task", namespace=b"suite") == b"\x00\xff"
        assert kv._internal_kv_get("from-task") is None

    def test_overwriting_listing_and_deleting(self) -> None:
        for key in ("a/1", "a/2", "b/1"):
            assert not kv._internal_kv_put(key, key, namespace="own")
        assert kv._internal_kv_put("a/1", "new", overwrite=False, namespace="own")
        assert kv._internal_kv_get("a/1", namespace="own") == b"a/1"
        assert kv._internal_kv_put("a/1", "new", namespace="own")
        assert kv._internal_kv_get("a/1", namespace="own") == b"new"
        assert sorted(kv._internal_kv_list("a/", namespace="own")) == [b"a/1", b"a/2"]
        assert kv._internal_kv_del("b/1", namespace="own") == 1
        assert not kv._internal_kv_exists("b/1", namespace="own")
        assert kv._internal_kv_del("a/", del_by_prefix=True, namespace="own") == 2
        assert kv._internal_kv_list("", namespace="own") == []


class _Locked:
    """A class that cannot be pickled."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.lock = threading.Lock()


class Serializers(Suite):
    """Serializers of users."""

    def test_instances_travel_as_their_serializer_says(self) -> None:
        @syncline.remote
        def add(one: _Locked, others: list[_Locked]) -> int:
            return one.value + sum(other.value for other in others)

        util.register_serializer(_Locked, serializer=lambda x: x.value, deserializer=_Locked)
        try:
            assert get(add.remote(_Locked(1), [_Locked(2), _Locked(3)])) == 6
            copy: Any = get(syncline.put(_Locked(4)))
            assert copy.value == 4
        finally:
            util.deregister_serializer(_Locked)
        with pytest.raises(TypeError):
            get(syncline.put(_Locked(5)))
        util.deregister_serializer(_Locked)
