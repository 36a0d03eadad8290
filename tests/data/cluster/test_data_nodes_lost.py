"""Nodes that a Ray cluster loses while a dataset is read: what they held is made again, in place,
or told to be gone for good.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import syncline
from syncline import data
from syncline.data.plan.nodes import HeldBlock
from syncline.exceptions import ObjectLostError
from syncline.testing.clusters import RayCluster
from syncline.testing.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.processes, pytest.mark.timeout(240)]

BLOCKS = 30


def _node_with(resource: str) -> str | None:
    nodes = [
        node["NodeID"]
        for node in syncline.nodes()
        if node["Alive"] and resource in node["Resources"]
    ]
    return nodes[0] if nodes else None


@pytest.fixture
def doomed(engine: RayCluster) -> Iterator[Callable[[], None]]:
    """A node with three of the resource "doomed"; the value takes it away."""
    engine.add_node("doomed", num_cpus=2, resources={"doomed": 3})
    eventually(lambda: syncline.cluster_resources().get("doomed"), what="the node has joined")
    killed: list[bool] = []

    def kill() -> None:
        if not killed:
            killed.append(True)
            engine.kill_node("doomed")

    yield kill
    kill()
    eventually(lambda: _node_with("doomed") is None, what="the node is known to be dead")


def _large(doomed: bool) -> data.Dataset:
    """Blocks that are too large for a message, so that they lie where they were made."""

    def large(batch):
        return {"id": batch["id"], "x": batch["id"][:, None] * np.ones((1, 20_000))}

    return data.range(2 * BLOCKS, override_num_blocks=BLOCKS).map_batches(
        large, **({"resources": {"doomed": 1}} if doomed else {})
    )


def _ids_with_a_death(dataset: data.Dataset, kill: Callable[[], None], after: int = 3) -> list[int]:
    ids: list[int] = []
    for number, batch in enumerate(dataset.iter_batches(batch_size=None, prefetch_batches=0)):
        assert np.array_equal(batch["x"][:, 0], batch["id"])
        ids += batch["id"].tolist()
        if number == after:
            kill()
    return ids


def test_blocks_of_a_lost_node_are_made_again_in_order(
    doomed: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    def slow(batch):
        import time

        time.sleep(0.02)
        return batch

    class Same:
        def __call__(self, batch):
            return batch

    dataset = _large(doomed=False).map_batches(slow).map_batches(Same, concurrency=2)
    with caplog.at_level(logging.WARNING, logger="syncline"):
        assert _ids_with_a_death(dataset, doomed) == list(range(2 * BLOCKS))


def test_a_shuffle_that_loses_blocks_goes_on_where_it_was(doomed: Callable[[], None]) -> None:
    shuffled = _large(doomed=False).repartition(6, shuffle=True).random_shuffle(seed=5)
    undisturbed = [row["id"] for row in shuffled.select_columns(["id"]).take_all()]
    assert sorted(undisturbed) == list(range(2 * BLOCKS))
    assert _ids_with_a_death(shuffled, doomed, after=0) == undisturbed


def test_blocks_that_were_held_on_a_lost_node_are_told_to_be_gone(
    doomed: Callable[[], None],
) -> None:
    @syncline.remote(num_cpus=0, resources={"doomed": 1}, max_retries=0)
    def made_there():
        return pa.table({"x": np.ones(500_000)})

    block = made_there.remote()
    syncline.wait([block], fetch_local=False)
    rows = pa.schema([("x", pa.float64())])
    held = data.Dataset._of_blocks(
        (HeldBlock(value=block, num_rows=500_000, size_bytes=4_000_000, schema=rows),),
        data.DataContext(),
    )
    doomed()
    for gone in (held, held.map_batches(lambda batch: batch)):
        with pytest.raises(ObjectLostError, match="held in memory"):
            gone.take(1)


def test_tasks_that_only_a_lost_node_can_run_end_in_an_error(doomed: Callable[[], None]) -> None:
    dataset = _large(doomed=True)

    def read() -> Any:
        return _ids_with_a_death(dataset, doomed)

    with pytest.raises(Exception, match="doomed"):
        read()
