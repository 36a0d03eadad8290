"""Checks of demands against nodes: which are refused, and with which amounts."""

from __future__ import annotations

from typing import Any

import pytest

from syncline.core.cluster.feasibility import check_bundles, check_demand


def node(alive: bool = True, **resources: float) -> dict[str, Any]:
    return {"Alive": alive, "Resources": resources}


def test_a_demand_must_fit_on_one_living_node() -> None:
    nodes = [node(CPU=4), node(CPU=2, GPU=1), node(alive=False, CPU=64)]
    check_demand({"CPU": 2, "GPU": 1}, nodes, "f")
    for demand, number in (
        ({"CPU": 5}, "5 CPU"),
        ({"CPU": 4, "GPU": 1}, "4 CPU"),
        ({"slot": 1}, "1 slot"),
    ):
        with pytest.raises(ValueError, match=number):
            check_demand(demand, nodes, "f")


def test_bundles_are_checked_together_and_by_strategy() -> None:
    nodes = [node(CPU=4), node(CPU=4)]
    check_bundles([{"CPU": 4}, {"CPU": 4}], "STRICT_SPREAD", nodes)
    with pytest.raises(ValueError, match="9 CPU"):
        check_bundles([{"CPU": 3}] * 3, "PACK", nodes)
    with pytest.raises(ValueError, match="STRICT_PACK"):
        check_bundles([{"CPU": 3}] * 2, "STRICT_PACK", nodes)
    with pytest.raises(ValueError, match="STRICT_SPREAD"):
        check_bundles([{"CPU": 1}] * 3, "STRICT_SPREAD", nodes)


@pytest.mark.parametrize("condition", ["h100", "!a100", "in(h100, l4)", "!in(a100)"])
def test_a_demand_needs_a_node_with_its_labels(condition: str) -> None:
    nodes = [node(CPU=8) | {"Labels": {"gpu": "a100"}}, node(CPU=2) | {"Labels": {"gpu": "h100"}}]
    check_demand({"CPU": 2}, nodes, "f", {"gpu": condition})
    with pytest.raises(ValueError, match=r"3 CPU.* 1 nodes of the cluster with .*gpu.* 2 CPU"):
        check_demand({"CPU": 3}, nodes, "f", {"gpu": condition})


def test_labels_that_no_node_has_are_refused() -> None:
    nodes = [node(CPU=8) | {"Labels": {"gpu": "a100"}}, node(CPU=2) | {"Labels": {}}]
    check_demand({"CPU": 2}, nodes, "f", {"zone": "!in(a, b)"})
    for selector in ({"gpu": "h100"}, {"gpu": "!a100", "zone": "a"}, {"zone": "a"}):
        with pytest.raises(ValueError, match="the cluster has none, .* of its 2 nodes"):
            check_demand({"CPU": 1}, nodes, "f", selector)


def test_a_resource_that_no_node_has_is_answered_with_the_nearest() -> None:
    nodes = [node(CPU=4, fast_disk=1)]
    with pytest.raises(ValueError, match="Did you mean 'fast_disk'"):
        check_demand({"fast-disk": 1}, nodes, "f")
    with pytest.raises(ValueError, match="Did you mean 'fast_disk'"):
        check_bundles([{"CPU": 1}, {"fast-disk": 1}], "PACK", nodes)


def test_a_fallback_may_have_the_node() -> None:
    nodes = [node(CPU=8) | {"Labels": {"gpu": "a100"}}, node(CPU=2) | {"Labels": {"gpu": "l4"}}]
    check_demand({"CPU": 2}, nodes, "f", {"gpu": "h100"}, {"gpu": "l4"})
    check_demand({"CPU": 8}, nodes, "f", {"gpu": "h100"}, {})  # any node
    with pytest.raises(ValueError, match="labels {'gpu': 'h100'} or {'gpu': 'l4'} none has more"):
        check_demand({"CPU": 3}, nodes, "f", {"gpu": "h100"}, {"gpu": "l4"})


def test_bundles_need_nodes_with_their_labels() -> None:
    nodes = [node(CPU=8) | {"Labels": {"zone": "a"}}, node(CPU=2) | {"Labels": {"zone": "b"}}]
    bundles = [{"CPU": 8}, {"CPU": 2}]
    check_bundles(bundles, "PACK", nodes, [{"zone": "a"}, {"zone": "b"}])
    with pytest.raises(ValueError, match="bundle 0 .* needs 8 CPU.*labels {'zone': 'b'}"):
        check_bundles(bundles, "PACK", nodes, [{"zone": "b"}, {"zone": "a"}])
    with pytest.raises(ValueError, match="bundle 1 .* labels {'zone': 'c'}, but the cluster has"):
        check_bundles(bundles, "PACK", nodes, [{}, {"zone": "c"}])
