"""Several nodes and programs: placement, loss of a node, and detached actors.

The head has no resources, so everything runs on the nodes "a" and "b" until a test kills one.
"""

from __future__ import annotations

import importlib.util
import os
import re
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import syncline
from syncline.exceptions import RayActorError
from syncline.testing.clusters import RayCluster
from syncline.testing.programs import run_program
from syncline.testing.waiting import eventually
from syncline.util import placement_group, remove_placement_group
from syncline.util.scheduling_strategies import (
    DoesNotExist,
    Exists,
    In,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    NotIn,
    PlacementGroupSchedulingStrategy,
)

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.processes,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]

NODES = {"a": {"zone": "north", "disk": "fast"}, "b": {"zone": "south"}}
"""Labels by node."""
WAIT_S = 100


@syncline.remote(num_cpus=1)
def where() -> str:
    return str(syncline.get_runtime_context().get_node_id())


@syncline.remote
class Counter:
    def __init__(self) -> None:
        self.value = 0

    def add(self) -> int:
        self.value += 1
        return self.value

    def place(self) -> Any:
        context = syncline.get_runtime_context()
        return context.get_node_id(), context.was_current_actor_reconstructed


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with RayCluster(num_cpus=0) as cluster:
        for name, labels in NODES.items():
            cluster.add_node(name, num_cpus=2, resources={name: 1}, labels=labels)
        yield cluster


@pytest.fixture
def nodes(cluster: RayCluster) -> Iterator[dict[str, str]]:
    """Connect and return the node ids by name."""
    with syncline.init(address=cluster.address, namespace="nodes"):
        yield eventually(_nodes_by_name, what="both nodes are there")


def _nodes_by_name() -> dict[str, str] | None:
    found = {
        name: node["NodeID"]
        for node in syncline.nodes()
        if node["Alive"]
        for name in NODES
        if name in node["Resources"]
    }
    return found if len(found) == len(NODES) else None


def _run_where(**options: Any) -> str:
    return syncline.get(where.options(**options).remote(), timeout=WAIT_S)


def test_the_init_context_has_the_clusters_address(cluster: RayCluster) -> None:
    with syncline.init(address=cluster.address) as context:
        assert context["address"] == context["gcs_address"] == cluster.address
        assert context["node_ip_address"] in {
            node["NodeManagerAddress"] for node in syncline.nodes()
        }
        assert context["node_id"] in {node["NodeID"] for node in syncline.nodes()}
        assert context.dashboard_url is None
        assert os.path.isdir(context["session_dir"])


def test_affinity_puts_a_task_on_its_node(nodes: dict[str, str]) -> None:
    for node in nodes.values():
        assert (
            _run_where(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)) == node
        )
    nowhere = "ab" * 28
    assert (
        _run_where(scheduling_strategy=NodeAffinitySchedulingStrategy(nowhere, soft=True))
        in nodes.values()
    )
    with pytest.raises(syncline.exceptions.TaskUnschedulableError):
        _run_where(scheduling_strategy=NodeAffinitySchedulingStrategy(nowhere, soft=False))


def test_custom_resources_put_a_task_on_the_node_that_has_them(nodes: dict[str, str]) -> None:
    for name, node in nodes.items():
        assert _run_where(resources={name: 0.5}) == node
        actor = Counter.options(resources={name: 0.5}).remote()  # type: ignore[attr-defined]
        assert syncline.get(actor.place.remote(), timeout=WAIT_S) == (node, False)


def test_labels_put_a_task_on_a_node_that_has_them(nodes: dict[str, str]) -> None:
    a, b = nodes["a"], nodes["b"]
    assert _run_where(label_selector={"zone": "south"}) == b
    assert _run_where(label_selector={"zone": "!south", "ray.io/node-id": f"in({a},{b})"}) == a
    for node, hard in (
        (a, {"zone": In("north", "west")}),
        (b, {"zone": NotIn("north"), "disk": DoesNotExist()}),
        (a, {"disk": Exists()}),
    ):
        hard = {**hard, "ray.io/node-id": In(a, b)}
        assert _run_where(scheduling_strategy=NodeLabelSchedulingStrategy(hard)) == node
    preferred = NodeLabelSchedulingStrategy({"zone": Exists()}, soft={"zone": In("south")})
    assert _run_where(scheduling_strategy=preferred) == b


def test_groups_spread_over_nodes_or_stay_on_one(nodes: dict[str, str]) -> None:
    for strategy, places in (("STRICT_SPREAD", 2), ("STRICT_PACK", 1)):
        group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy=strategy)
        assert group.wait(WAIT_S)
        found = {
            _run_where(scheduling_strategy=PlacementGroupSchedulingStrategy(group, bundle))
            for bundle in (0, 1)
        }
        assert len(found) == places
        assert found <= set(nodes.values())
        remove_placement_group(group)


def test_infeasible_groups_wait_with_a_warning(
    nodes: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    for bundles, strategy in (
        ([{"CPU": 1}] * 4, "STRICT_SPREAD"),
        ([{"CPU": 2}] * 2, "STRICT_PACK"),
        ([{"CPU": 2}] * 3, "SPREAD"),
    ):
        caplog.clear()
        group = placement_group(bundles, strategy=strategy)
        assert re.search("STRICT|6 CPU", caplog.text)
        assert not group.wait(0.1)
        remove_placement_group(group)


NAMED_ACTORS = """
import syncline
syncline.init(namespace="shared")

@syncline.remote
class Counter:
    def __init__(self):
        self.value = 0
    def add(self):
        self.value += 1
        return self.value

kept = Counter.options(name="kept", lifetime="detached", get_if_exists=True).remote()
passing = Counter.options(name="passing").remote()
print("KEPT", syncline.get([kept.add.remote(), passing.add.remote()]), flush=True)
"""


def test_detached_actors_outlive_their_program_and_others_do_not(cluster: RayCluster) -> None:
    for value in (1, 2):
        with run_program(
            NAMED_ACTORS, environment={**cluster.variables, "SYNCLINE_ADDRESS": cluster.address}
        ) as program:
            assert f"KEPT [{value}, 1]" in program.wait().check().stdout
    with syncline.init(address=cluster.address, namespace="other"):
        with pytest.raises(ValueError, match="'kept' in 'shared'"):
            syncline.get_actor("kept")
        kept = syncline.get_actor("kept", namespace="shared")
        assert syncline.get(kept.add.remote(), timeout=WAIT_S) == 3
        same = Counter.options(name="kept", namespace="shared", get_if_exists=True).remote()  # type: ignore[attr-defined]
        assert same == kept
        assert syncline.get(same.add.remote(), timeout=WAIT_S) == 4
        eventually(
            lambda: (
                syncline.util.list_named_actors(all_namespaces=True)
                == [{"namespace": "shared", "name": "kept"}]
            )
        )
        with pytest.raises(ValueError, match="passing"):
            syncline.get_actor("passing", namespace="shared")
        syncline.kill(kept)


def test_actor_of_a_killed_node_restarts_on_a_new_node(
    cluster: RayCluster, nodes: dict[str, str]
) -> None:
    spare = f"spare-{uuid.uuid4().hex}"
    first, second = f"{spare}-1", f"{spare}-2"
    cluster.add_node(first, num_cpus=0, resources={spare: 2})
    eventually(lambda: syncline.cluster_resources().get(spare) == 2)
    there = {"num_cpus": 0, "resources": {spare: 1}}
    lasting = Counter.options(**there, max_restarts=1, max_task_retries=-1).remote()  # type: ignore[attr-defined]
    mortal = Counter.options(**there).remote()  # type: ignore[attr-defined]
    (before, _), (neighbour, _) = syncline.get(
        [lasting.place.remote(), mortal.place.remote()], timeout=WAIT_S
    )
    assert before == neighbour
    assert before not in nodes.values()
    assert syncline.get([lasting.add.remote(), mortal.add.remote()], timeout=WAIT_S) == [1, 1]

    cluster.kill_node(first)
    with pytest.raises(RayActorError):
        syncline.get(mortal.add.remote(), timeout=WAIT_S)
    eventually(
        lambda: not any(node["Alive"] for node in syncline.nodes() if node["NodeID"] == before)
    )
    waiting = lasting.place.remote()
    cluster.add_node(second, num_cpus=0, resources={spare: 2})

    after, restarted = syncline.get(waiting, timeout=WAIT_S)
    assert after not in (before, *nodes.values())
    assert restarted
    assert syncline.get(lasting.add.remote(), timeout=WAIT_S) == 1
