"""Large values on a cluster: all readers on a machine map the same read-only memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import syncline
from syncline.testing.clusters import RayCluster

pytest.importorskip("ray")
pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("cluster")]

LARGE_BYTES = 100_000_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    own_tasks = {"PYTHONPATH": str(Path(__file__).parent)}
    with RayCluster(num_cpus=2, variables=own_tasks) as cluster:
        syncline.init(address=cluster.address)
        yield
        syncline.shutdown()


@pytest.fixture(scope="module")
def array_ref(cluster: None) -> Any:
    return syncline.put(np.arange(LARGE_BYTES // 8))


@pytest.fixture(scope="module")
def table_ref(cluster: None) -> Any:
    return syncline.put(
        pa.table({"number": np.arange(1_000_000), "text": ["a text that is not short"] * 1_000_000})
    )


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def is_shared(at: int) -> bool:
    """Return True if the address is in a shared mapping."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, permissions, *_ = line.split()
        low, high = (int(end, 16) for end in span.split("-"))
        if low <= at < high:
            return permissions.endswith("s")
    return False


def seen_array(array: Any) -> dict[str, bool]:
    return {
        "owns": bool(array.flags.owndata),
        "writeable": bool(array.flags.writeable),
        "shared": is_shared(address(array)),
    }


def seen_table(table: Any) -> list[bool]:
    buffers = [
        buffer
        for column in table.columns
        for chunk in column.chunks
        for buffer in chunk.buffers()
        if buffer is not None
    ]
    return [is_shared(buffer.address) for buffer in buffers]


AS_SHARED = {"owns": False, "writeable": False, "shared": True}


def test_array_is_read_without_a_copy(array_ref: Any) -> None:
    first, second = syncline.get(array_ref), syncline.get(array_ref)
    assert seen_array(first) == AS_SHARED
    assert address(first) == address(second)
    assert int(first[-1]) == LARGE_BYTES // 8 - 1


def test_tasks_and_actors_read_an_array_without_a_copy(array_ref: Any) -> None:
    @syncline.remote
    class Reader:
        def read(self, array: Any) -> Any:
            return seen_array(array)

    @syncline.remote
    def inside(box: list[Any]) -> Any:
        return seen_array(syncline.get(box[0]))

    refs = [
        syncline.remote(seen_array).remote(array_ref),
        inside.remote([array_ref]),
        Reader.remote().read.remote(array_ref),  # type: ignore[attr-defined]
    ]
    assert syncline.get(refs, timeout=60) == [AS_SHARED] * 3


def test_array_of_a_task_is_read_without_a_copy(cluster: None) -> None:
    @syncline.remote
    def make() -> Any:
        return np.ones(1_000_000)

    @syncline.remote(num_returns="streaming")
    def make_several() -> Any:
        for i in range(2):
            yield np.full(1_000_000, i)

    for ref in (make.remote(), *make_several.remote()):
        assert seen_array(syncline.get(ref, timeout=60)) == AS_SHARED


def test_nested_arrays_are_read_without_a_copy(cluster: None) -> None:
    ref = syncline.put(
        {"rows": [np.zeros((1000, 100)), np.ones(100_000, dtype=np.int8)], "name": "batch"}
    )
    rows: Any = syncline.get(ref)["rows"]
    for array in rows:
        assert is_shared(address(array))
        assert not array.flags.writeable


def test_table_is_read_without_a_copy(table_ref: Any) -> None:
    first, second = syncline.get(table_ref), syncline.get(table_ref)
    assert all(seen_table(first))
    assert (
        first["number"].chunk(0).buffers()[1].address
        == second["number"].chunk(0).buffers()[1].address
    )
    assert first.num_rows == 1_000_000


def test_tasks_read_a_table_without_a_copy_and_return_columns(table_ref: Any) -> None:
    @syncline.remote
    def column(table: Any) -> Any:
        return seen_table(table), table.select(["number"])

    seen, chosen = syncline.get(column.remote(table_ref), timeout=60)
    assert seen
    assert all(seen)
    assert all(seen_table(chosen))
    assert chosen["number"][999_999].as_py() == 999_999
