"""`cluster_utils.Cluster`: nodes on this machine, as tests of programs use them."""

from __future__ import annotations

import importlib.util
import sys

import pytest

import syncline
from syncline.testing.tasks import get, one
from syncline.testing.waiting import eventually
from syncline.util.state import list_nodes

HAS_RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed")


@pytest.mark.cluster
@pytest.mark.processes
@needs_ray
def test_program_connects_to_a_cluster_whose_nodes_come_and_go() -> None:
    from syncline.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    try:
        second = cluster.add_node(num_cpus=1, resources={"second": 1})
        syncline.init(address=cluster.address)
        assert syncline.cluster_resources()["CPU"] == 2
        assert get(one.options(resources={"second": 1}).remote()) == get(one.remote())
        assert len(list_nodes(filters=[("state", "=", "ALIVE")])) == 2
        cluster.remove_node(second)
        eventually(lambda: syncline.cluster_resources()["CPU"] == 1)
        syncline.shutdown()
        cluster.connect(namespace="again")
        assert syncline.get_runtime_context().namespace == "again"
    finally:
        cluster.shutdown()
    assert not syncline.is_initialized()


@needs_ray
def test_simulated_clouds_are_refused() -> None:
    from syncline.cluster_utils import AutoscalingCluster

    with pytest.raises(NotImplementedError, match="syncline up"):
        AutoscalingCluster(head_resources={"CPU": 1}, worker_node_types={})


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("syncline.core.cluster.cluster_utils", "syncline.cluster_utils"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    from syncline import cluster_utils

    with pytest.raises(ModuleNotFoundError, match=r"syncline\[cluster\]"):
        _ = cluster_utils.Cluster
