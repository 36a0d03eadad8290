"""Placement by labels, accelerators and memory; infeasible demands are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline.testing import eventually
from syncline.testing.clusters import RayCluster
from syncline.util.placement_group import placement_group, remove_placement_group
from syncline.util.scheduling_strategies import (
    In,
    NodeLabelSchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

pytest.importorskip("ray")
pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("cluster")]

MEMORY_BYTES = 500_000_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    own_tasks = {"PYTHONPATH": str(Path(__file__).parent)}
    with RayCluster(num_cpus=2, labels={"zone": "a"}, variables=own_tasks) as cluster:
        cluster.add_node(
            "other",
            num_cpus=2,
            num_gpus=1,
            resources={"accelerator_type:L4": 1},
            labels={"zone": "b", "disk": "fast"},
        )
        syncline.init(address=cluster.address)
        eventually(lambda: syncline.cluster_resources().get("CPU") == 4)
        yield
        syncline.shutdown()


def nodes_by_zone() -> dict[str, str]:
    return {node["Labels"]["zone"]: node["NodeID"] for node in syncline.nodes()}


@syncline.remote
def node() -> str:
    return syncline.get_runtime_context().get_node_id()


@syncline.remote
class Placed:
    def node(self) -> str:
        return syncline.get_runtime_context().get_node_id()

    def resources(self) -> Any:
        return syncline.get_runtime_context().get_assigned_resources()


@pytest.mark.parametrize(
    ("selector", "zone"),
    [
        ({"zone": "a"}, "a"),
        ({"zone": "!a"}, "b"),
        ({"zone": "in(b, c)"}, "b"),
        ({"disk": "fast"}, "b"),
    ],
    ids=str,
)
def test_labels_choose_the_node(selector: dict[str, str], zone: str) -> None:
    chosen = nodes_by_zone()[zone]
    tasks = [node.options(label_selector=selector).remote() for _ in range(4)]
    actor = Placed.options(label_selector=selector).remote()  # type: ignore[attr-defined]
    assert set(syncline.get([*tasks, actor.node.remote()], timeout=60)) == {chosen}


def test_labels_by_a_strategy_choose_the_node() -> None:
    strategy = NodeLabelSchedulingStrategy(hard={"zone": In("b")})
    assert (
        syncline.get(
            Placed.options(scheduling_strategy=strategy).remote().node.remote(),  # type: ignore[attr-defined]
            timeout=60,
        )
        == nodes_by_zone()["b"]
    )


def test_a_fallback_chooses_the_node_where_no_node_has_the_labels() -> None:
    fallback = [{"label_selector": {"zone": "d"}}, {"label_selector": {"zone": "b"}}]
    options: dict[str, Any] = {"label_selector": {"zone": "c"}, "fallback_strategy": fallback}
    found = [node.options(**options).remote()]
    found.append(Placed.options(**options).remote().node.remote())  # type: ignore[attr-defined]
    assert set(syncline.get(found, timeout=60)) == {nodes_by_zone()["b"]}
    with pytest.raises(ValueError, match="'zone': 'c'} or {'zone': 'd'}"):
        node.options(**(options | {"fallback_strategy": fallback[:1]})).remote()


def test_labels_choose_the_nodes_of_bundles() -> None:
    zones = nodes_by_zone()
    selectors = [{"zone": "b"}, {"zone": "a"}]
    group = placement_group([{"CPU": 0.5}] * 2, bundle_label_selector=selectors)
    found = [
        node.options(
            num_cpus=0.5, scheduling_strategy=PlacementGroupSchedulingStrategy(group, bundle)
        ).remote()
        for bundle in range(2)
    ]
    assert syncline.get(found, timeout=60) == [zones["b"], zones["a"]]
    remove_placement_group(group)
    with pytest.raises(ValueError, match="bundle 1 .*'zone': 'c'"):
        placement_group([{"CPU": 1}] * 2, bundle_label_selector=[{}, {"zone": "c"}])


def test_infeasible_labels_are_refused() -> None:
    for make in (node, Placed):
        with pytest.raises(ValueError, match=r"labels .*'zone': 'c'.*its 2 nodes"):
            make.options(label_selector={"zone": "c"}).remote()
    with pytest.raises(
        ValueError, match=r"1 GPU.* 1 nodes of the cluster with the labels .*'zone': 'a'"
    ):
        node.options(num_gpus=1, label_selector={"zone": "a"}).remote()


def test_kind_of_accelerator_chooses_the_node() -> None:
    there = nodes_by_zone()["b"]
    assert (
        syncline.get(node.options(num_gpus=1, accelerator_type="L4").remote(), timeout=60) == there
    )
    assert (
        syncline.get(Placed.options(accelerator_type="L4").remote().node.remote(), timeout=60)  # type: ignore[attr-defined]
        == there
    )
    with pytest.raises(ValueError, match="accelerator_type:H100"):
        node.options(num_gpus=1, accelerator_type="H100").remote()


def test_memory_is_reserved_while_the_task_runs() -> None:
    whole = syncline.cluster_resources()["memory"]
    actor = Placed.options(memory=MEMORY_BYTES).remote()  # type: ignore[attr-defined]
    assert syncline.get(actor.resources.remote(), timeout=60)["memory"] == MEMORY_BYTES
    eventually(lambda: syncline.available_resources()["memory"] == whole - MEMORY_BYTES)
    syncline.kill(actor)
    eventually(lambda: syncline.available_resources()["memory"] == whole)


def test_infeasible_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="memory"):
        node.options(memory=10**18).remote()
