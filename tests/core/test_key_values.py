"""`FileKeyValues`: values, namespaces, and concurrent writers."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from syncline.core.key_values import FileKeyValues


@pytest.fixture
def values(tmp_path: Path) -> FileKeyValues:
    return FileKeyValues(tmp_path / "values")


def test_values_are_found_by_namespace_and_key(values: FileKeyValues) -> None:
    assert values.get(b"k") is None
    assert not values.put(b"k", b"one")
    assert not values.put(b"k", b"two", b"space")
    assert values.put(b"k", b"three")
    assert (values.get(b"k"), values.get(b"k", b"space")) == (b"three", b"two")


def test_existing_value_stays_without_overwrite(values: FileKeyValues) -> None:
    assert not values.put(b"k", b"first", overwrite=False)
    assert values.put(b"k", b"second", overwrite=False)
    assert values.get(b"k") == b"first"


def test_directory_of_a_session_that_ended_does_not_come_back(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileKeyValues(tmp_path / "gone" / "values").put(b"k", b"v")
    assert list(tmp_path.iterdir()) == []


def test_deleted_value_is_gone(values: FileKeyValues) -> None:
    values.put(b"k", b"v")
    assert values.delete(b"k")
    assert not values.delete(b"k")
    assert values.get(b"k") is None


def test_keys_are_listed_by_prefix(values: FileKeyValues) -> None:
    assert values.keys() == []
    for key in (b"b/\x00/\xff", b"a/2", b"a/1", b"a" * 500):
        values.put(key, b"")
    assert values.keys(b"a/") == [b"a/1", b"a/2"]
    assert len(values.keys()) == 4


def test_one_of_concurrent_writers_wins(values: FileKeyValues) -> None:
    barrier, existed = threading.Barrier(8), []

    def write(number: int) -> None:
        barrier.wait()
        existed.append(values.put(b"k", b"%d" % number, overwrite=False))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(existed) == [False] + [True] * 7
