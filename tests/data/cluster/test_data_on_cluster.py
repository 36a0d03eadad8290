"""Datasets on a Ray cluster: the same rows as on one machine, tasks on all nodes, and nothing left
when it is over.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import syncline
from syncline import data
from syncline.testing.clusters import RayCluster
from syncline.testing.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.processes, pytest.mark.timeout(240)]

# Functions are made in functions, so that they travel by value: the cluster cannot import this
# module.


def _pipelines(folder: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Each kind of stage, by name."""

    class Adds:
        def __init__(self, amount: int) -> None:
            self.amount = amount

        def __call__(self, batch):
            return {"id": batch["id"] + self.amount}

    def keyed(batch):
        return {"key": batch["id"] % 13, "value": batch["id"]}

    def tensors(batch):
        return {"id": batch["id"], "x": batch["id"][:, None, None] * np.ones((1, 2, 2))}

    def written() -> data.Dataset:
        numbers().map_batches(keyed).write_parquet(str(folder / "out"), mode="overwrite")
        return data.read_parquet(str(folder / "out")).sort("value")

    def numbers() -> data.Dataset:
        return data.range(600, override_num_blocks=6)

    yield "read", numbers
    yield (
        "rows",
        lambda: (
            numbers().map(lambda row: {"id": row["id"] * 2}).filter(lambda row: row["id"] % 7 == 0)
        ),
    )
    yield "flat", lambda: numbers().flat_map(lambda row: [row] * (row["id"] % 3))
    yield "tensors", lambda: numbers().map_batches(tensors, batch_size=64)
    yield "actors", lambda: numbers().map_batches(Adds, fn_constructor_args=(5,), concurrency=2)
    yield "limit", lambda: numbers().map(lambda row: row).limit(123)
    yield "shuffle", lambda: numbers().random_shuffle(seed=3)
    yield (
        "sort",
        lambda: numbers().random_shuffle(seed=3).repartition(3).sort("id", descending=True),
    )
    yield "group", lambda: numbers().map_batches(keyed).groupby("key").sum("value")
    yield (
        "map groups",
        lambda: (
            numbers()
            .map_batches(keyed)
            .groupby("key")
            .map_groups(lambda group: {"n": [len(group["value"])]})
        ),
    )
    yield (
        "join",
        lambda: numbers().join(
            data.range(100).map_batches(lambda b: {"id": b["id"] * 3, "w": b["id"]}),
            "inner",
            3,
            on=("id",),
        ),
    )
    yield "partition", lambda: numbers().map_batches(keyed).repartition(4, keys=["key"])
    yield (
        "zip",
        lambda: numbers().zip(
            data.range(600, override_num_blocks=2).rename_columns({"id": "other"})
        ),
    )
    yield "union", lambda: numbers().union(data.range(10))
    yield "sample", lambda: numbers().randomize_block_order(seed=5).random_sample(0.3, seed=4)
    yield (
        "items",
        lambda: data.from_items([{"a": i, "s": str(i)} for i in range(30)]).map(
            lambda row: {**row, "b": row["a"] + 1}
        ),
    )
    yield (
        "materialized",
        lambda: (
            numbers()
            .map(lambda row: {"id": row["id"] + 1})
            .materialize()
            .map(lambda row: {"id": row["id"] + 1})
        ),
    )
    yield "written", written


def _rows(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return {
        name: [
            {key: np.asarray(value).tolist() for key, value in row.items()}
            for row in make().take_all()
        ]
        for name, make in _pipelines(folder)
    }


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What the embedded engine makes of the pipelines, on a machine with as many CPUs."""
    syncline.init(num_cpus=3)
    try:
        return _rows(tmp_path_factory.mktemp("embedded"))
    finally:
        syncline.shutdown()


def test_every_kind_of_stage_makes_the_rows_of_the_embedded_engine(
    expected: dict[str, list[dict[str, Any]]], engine: RayCluster, tmp_path: Path
) -> None:
    found = _rows(tmp_path)
    assert [name for name in expected if found[name] != expected[name]] == []
    assert all(expected.values())


def _nodes_of(dataset: data.Dataset, **options: Any) -> dict[str, int]:
    """How many rows each node, by its NodeID, has worked on."""

    def where(batch):
        import time

        time.sleep(0.02)
        return {"node": [syncline.get_runtime_context().get_node_id()] * len(batch["id"])}

    counts: dict[str, int] = {}
    for row in dataset.map_batches(where, **options).take_all():
        counts[row["node"]] = counts.get(row["node"], 0) + 1
    return counts


def _node_with(resource: str) -> str:
    (found,) = [
        node["NodeID"]
        for node in syncline.nodes()
        if node["Alive"] and resource in node["Resources"]
    ]
    return str(found)


def test_tasks_run_on_all_nodes_also_on_those_that_join_later(engine: RayCluster) -> None:
    numbers = data.range(60, override_num_blocks=30)
    alive = {node["NodeID"] for node in syncline.nodes() if node["Alive"]}
    eventually(lambda: set(_nodes_of(numbers)) == alive, what="both nodes work")
    engine.add_node("later", num_cpus=1, resources={"late": 1})
    try:
        late = eventually(
            lambda: _node_with("late") if syncline.cluster_resources().get("late") else None
        )
        eventually(lambda: late in _nodes_of(numbers), what="the new node works, too")
    finally:
        engine.kill_node("later")


def test_custom_resources_decide_where_tasks_and_actors_run(engine: RayCluster) -> None:
    special = _node_with("special")
    numbers = data.range(8, override_num_blocks=4)
    assert _nodes_of(numbers, resources={"special": 1}) == {special: 8}

    class Where:
        def __call__(self, batch):
            return {"node": [syncline.get_runtime_context().get_node_id()] * len(batch["id"])}

    rows = numbers.map_batches(Where, resources={"special": 1}, concurrency=2).take_all()
    assert {row["node"] for row in rows} == {special}
    with pytest.raises(ValueError, match="nowhere"):
        _nodes_of(numbers, resources={"nowhere": 1})


def test_input_flows_although_others_hold_every_cpu(engine: RayCluster) -> None:
    @syncline.remote
    class Holds:
        def ready(self) -> bool:
            return True

    holders = [Holds.options(num_cpus=1).remote() for _ in range(3)]  # type: ignore[attr-defined]
    syncline.get([holder.ready.remote() for holder in holders])
    eventually(lambda: syncline.available_resources().get("CPU", 0) == 0, what="no CPU is free")
    assert (
        data.range(20, override_num_blocks=4).map(lambda row: {"id": row["id"] + 1}).sum("id")
        == 210
    )
    for holder in holders:
        syncline.kill(holder)


def test_a_killed_worker_is_replaced_and_its_task_runs_again(
    engine: RayCluster, tmp_path: Path
) -> None:
    mark = tmp_path / "killed"

    def dies_once(batch):
        if batch["id"][0] == 5 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    assert [
        row["id"] for row in data.range(10, override_num_blocks=2).map_batches(dies_once).take_all()
    ] == list(range(10))
    assert mark.exists()


def _workers() -> set[int]:
    """Processes of the cluster that run tasks of datasets."""
    found = set()
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or [""]
        if line[0].startswith("ray::DataWorker"):
            found.add(process.pid)
    return found


def test_no_actor_is_left_when_a_pool_is_done_or_a_program_is_killed(
    engine: RayCluster, program: Any, tmp_path: Path
) -> None:
    class Tells:
        def __call__(self, batch):
            return {"pid": [os.getpid()] * len(batch["id"])}

    pids = {
        row["pid"]
        for row in data.range(8, override_num_blocks=4).map_batches(Tells, concurrency=2).take_all()
    }
    eventually(lambda: not pids & _workers(), what="the actors of the pool have ended")

    process = program(
        """
import time
from syncline import data

def slow(batch):
    (shared / f"pid-{os.getpid()}").touch()
    time.sleep(600)

data.range(8, override_num_blocks=4).map_batches(slow).take_all()
"""
    )
    eventually(lambda: list(tmp_path.glob("pid-*")), what="the program's tasks run")
    pids = {int(path.name.removeprefix("pid-")) for path in tmp_path.glob("pid-*")}
    process.kill()
    eventually(
        lambda: not any(psutil.pid_exists(pid) for pid in pids),
        what="the killed program's workers have ended",
    )
