"""Nodes that are about to leave the cluster."""

from __future__ import annotations

import importlib.util
import time

import pytest

import syncline
from syncline.core.lifecycle import ensure_engine
from syncline.testing.clusters import RayCluster
from syncline.testing.waiting import eventually

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.processes,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]

SECONDS_LEFT = 600


@syncline.remote(num_cpus=1)
class Resident:
    """Keeps its node alive after the drain request."""

    def node(self) -> str:
        return syncline.get_runtime_context().get_node_id()


def test_draining_node_is_listed_with_its_deadline() -> None:
    with RayCluster(num_cpus=0) as cluster:
        cluster.add_node("a", num_cpus=1)
        cluster.add_node("b", num_cpus=1)
        with syncline.init(address=cluster.address):
            engine = ensure_engine()
            residents = [Resident.remote(), Resident.remote()]  # type: ignore[attr-defined]
            first, second = syncline.get(
                [resident.node.remote() for resident in residents], timeout=100
            )
            assert first != second
            assert engine.draining_nodes() == {}
            cluster.drain_node(first, seconds_left=SECONDS_LEFT)
            deadline = eventually(
                lambda: engine.draining_nodes().get(first), what="the node is known to be drained"
            )
            assert time.time() < deadline <= time.time() + SECONDS_LEFT
            cluster.drain_node(second)
            eventually(
                lambda: second in engine.draining_nodes(),
                what="the other node is known to be drained",
            )
            assert engine.draining_nodes() == {first: deadline, second: None}
