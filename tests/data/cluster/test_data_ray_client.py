"""Datasets of a program that reaches the cluster through Ray Client, from a machine that is no node
of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import syncline
from syncline import data
from syncline.data.context import DataContext
from syncline.testing.clusters import HAS_CLIENT, RayCluster
from syncline.testing.waiting import GENEROUS_S

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.processes,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not HAS_CLIENT, reason="gRPC for Python is not installed"),
]


@pytest.fixture(autouse=True, scope="module")
def client(cluster: RayCluster) -> Iterator[None]:
    cluster.wait_for_client()
    syncline.init(cluster.client_address)
    with DataContext.current(DataContext(enable_progress_bars=False)):
        yield
    syncline.shutdown()


def test_functions_pools_and_shuffles_work() -> None:
    class Adds:
        def __init__(self, amount):
            self.amount = amount

        def __call__(self, batch):
            return {"id": batch["id"] + self.amount}

    numbers = data.range(100, override_num_blocks=4).map(lambda row: {"id": row["id"] * 2})
    assert [
        row["id"]
        for row in numbers.map_batches(Adds, fn_constructor_args=(1,), concurrency=1).take_all()
    ] == list(range(1, 200, 2))
    shuffled = [
        row["id"]
        for row in numbers.repartition(3, shuffle=True)
        .random_shuffle(seed=1)
        .sort("id", descending=True)
        .take_all()
    ]
    assert shuffled == list(range(198, -2, -2))
    with pytest.raises(LookupError, match="nothing there"):
        numbers.map(_failing()).take_all()


def test_consumers_of_a_split_read_on_the_cluster() -> None:
    class Consumer:
        def read(self, iterator):
            return [
                int(row) for batch in iterator.iter_batches(batch_size=8) for row in batch["id"]
            ]

    consumers = [syncline.remote(Consumer).options(num_cpus=0).remote() for _ in range(2)]
    shares = data.range(64, override_num_blocks=4).streaming_split(2)
    parts = syncline.get(
        [each.read.remote(share) for each, share in zip(consumers, shares, strict=True)],
        timeout=GENEROUS_S,
    )
    assert sorted(row for part in parts for row in part) == list(range(64))


def _failing():
    def fails(row):
        raise LookupError("nothing there")

    return fails
