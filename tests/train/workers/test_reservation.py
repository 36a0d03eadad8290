"""What can never be placed is refused with the figures and a remedy."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from syncline.core import api
from syncline.core.placement import PlacementGroup
from syncline.exceptions import NodeDiedError
from syncline.train.config import ScalingConfig
from syncline.train.errors import TrainingFailedError
from syncline.train.workers import group
from syncline.train.workers import reservation as reservations
from syncline.train.workers.group import ActorWorkerGroup, WorkerStartError, actor_options
from syncline.train.workers.reservation import (
    Reservation,
    ReservationInterrupted,
    check_feasible,
    group_size,
)


def test_too_many_workers_are_told_how_many_fit() -> None:
    with pytest.raises(
        ValueError,
        match=r"needs 8 CPUs \(1 per worker\) but there are 2.*lower `num_workers` to 2.*"
        r"'CPU': 0\.25",
    ):
        check_feasible(ScalingConfig(num_workers=8), {"CPU": 2.0})


def test_gpus_that_are_not_there_are_named() -> None:
    with pytest.raises(
        ValueError, match=r"needs 1 GPU \(1 per worker\) but there are 0.*use_gpu=False"
    ):
        check_feasible(ScalingConfig(use_gpu=True), {"CPU": 2.0})


def test_an_elastic_group_needs_its_minimum_only() -> None:
    check_feasible(ScalingConfig(num_workers=(2, 100)), {"CPU": 2.0})


def test_an_actor_holds_the_whole_of_its_bundle() -> None:
    scaling = ScalingConfig(
        use_gpu=True,
        resources_per_worker={"CPU": 2, "GPU": 0.5, "memory": 100, "special": 1},
        accelerator_type="H100",
    )
    options = actor_options(scaling, {"env_vars": {"A": "1"}})
    assert {
        name: options[name]
        for name in (
            "num_cpus",
            "num_gpus",
            "memory",
            "accelerator_type",
            "resources",
            "runtime_env",
        )
    } == {
        "num_cpus": 2,
        "num_gpus": 0.5,
        "memory": 100,
        "accelerator_type": "H100",
        "resources": {"special": 1},
        "runtime_env": {"env_vars": {"A": "1"}},
    }


class Cluster:
    """Nodes that come and go, as `placement` sees them; groups that fit are whole at once."""

    may_grow = False

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **nodes: float) -> None:
        self.living: dict[str, float] = dict(nodes)
        self.known = set(nodes)
        self.wedged: set[str] = set()  # dead, which nobody knows yet
        self.draining: set[str] = set()
        self.groups: dict[int, Any] = {}
        self.made = 0
        monkeypatch.setattr(reservations, "api", self)
        monkeypatch.setattr(reservations, "ensure_engine", lambda: self)
        monkeypatch.setattr(PlacementGroup, "ready", lambda group: group)
        monkeypatch.setattr(reservations, "POLL_S", 0.001)

    def nodes(self) -> list[dict[str, Any]]:
        self.known |= set(self.living)
        return [
            {
                "NodeID": node,
                "Alive": node in self.living,
                "Resources": {"CPU": self.living.get(node, 0)},
            }
            for node in self.known
        ]

    def draining_nodes(self) -> dict[str, None]:
        return dict.fromkeys(self.draining)

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": sum(self.living.values())}

    available_resources = cluster_resources

    def create_placement_group(self, bundles: Any, **_options: Any) -> int:
        self.made += 1
        self.groups[self.made] = bundles
        return self.made

    def remove_placement_group(self, group_id: int) -> None:
        self.groups.pop(group_id, None)

    def wait(self, refs: Any, timeout: float) -> tuple[Any, Any]:
        there = sum(amount for node, amount in self.living.items() if node not in self.wedged)
        ready = self.may_grow or sum(bundle["CPU"] for bundle in refs[0].bundle_specs) <= there
        self.living = {
            node: amount for node, amount in self.living.items() if node not in self.wedged
        }  # by now, everybody knows
        return (refs, []) if ready else ([], refs)


def test_a_group_is_kept_over_restarts_and_made_anew_when_a_node_has_died(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, a=2, b=2)
    reservation = Reservation(ScalingConfig(num_workers=2))
    assert reservation.reserve() == reservation.reserve() == 2
    assert cluster.made == 1
    del cluster.living["b"]
    assert reservation.has_lost_a_node()
    assert reservation.reserve() == 2
    assert list(cluster.groups) == [2]
    assert not reservation.has_lost_a_node()


def test_what_dead_nodes_took_with_them_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, a=1, b=1)
    reservation = Reservation(ScalingConfig(num_workers=2))
    reservation.reserve()
    del cluster.living["b"]
    threading.Timer(0.05, lambda: cluster.living.update(c=1)).start()
    assert reservation.reserve() == 2


def test_a_group_that_waits_for_a_node_that_has_died_is_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, a=1, b=1)
    cluster.wedged = {"b"}
    assert Reservation(ScalingConfig(num_workers=(1, 2))).reserve() == 1
    assert list(cluster.groups) == [2]


def test_a_start_is_given_up_when_a_node_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    actor = SimpleNamespace(info=SimpleNamespace(remote=object))
    monkeypatch.setattr(
        group,
        "remote",
        lambda cls: SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda *_: actor)),
    )
    monkeypatch.setattr(api, "wait", lambda refs, **_: ([], refs))
    starting = ActorWorkerGroup(
        placement=PlacementGroup(1, [{"CPU": 1.0}]),
        scaling=ScalingConfig(),
        runtime_env=None,
        has_lost_a_node=lambda: True,
    )
    with pytest.raises(WorkerStartError) as raised:
        starting.start()
    assert isinstance(raised.value.cause, NodeDiedError)


def test_the_wait_has_a_limit_and_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNCLINE_TRAIN_RESOURCE_TIMEOUT_S", "0.01")
    cluster = Cluster(monkeypatch, a=1, b=1)
    reservation = Reservation(ScalingConfig(num_workers=2))
    reservation.reserve()
    del cluster.living["b"]
    with pytest.raises(
        TrainingFailedError,
        match=r"2 workers need 2 CPU, but 1 CPU is free: the cluster has lost nodes",
    ):
        reservation.reserve()


def test_a_cluster_that_can_grow_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, a=1)
    cluster.may_grow = True
    assert Reservation(ScalingConfig(num_workers=8)).reserve() == 8


def test_an_interrupt_ends_the_wait_and_gives_the_group_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, a=1, b=1)
    reservation = Reservation(ScalingConfig(num_workers=2))
    reservation.reserve()
    reservation.interrupt()
    assert not cluster.groups
    del cluster.living["b"]
    with pytest.raises(ReservationInterrupted):
        reservation.reserve()


def test_the_possible_size_counts_what_the_group_holds_as_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, a=2)
    reservation = Reservation(ScalingConfig(num_workers=(1, 8)))
    assert reservation.reserve() == 2
    monkeypatch.setattr(cluster, "available_resources", lambda: {"CPU": 0.0})
    assert reservation.possible_size() == 2
    monkeypatch.setattr(cluster, "available_resources", lambda: {"CPU": 3.0})
    cluster.living["b"] = 3
    assert reservation.possible_size() == 5
    del cluster.living["a"]
    assert reservation.possible_size() == 3


def test_a_group_does_not_let_go_of_what_it_holds_for_less_than_the_smallest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, a=4)
    reservation = Reservation(ScalingConfig(num_workers=(2, 4)))
    assert reservation.reserve() == 4
    monkeypatch.setattr(cluster, "available_resources", lambda: {"CPU": 0.0})
    cluster.living["a"] = 1
    assert reservation.possible_size() == 4
    cluster.living["a"] = 3
    assert reservation.possible_size() == 3


def test_resources_that_have_gone_without_their_node_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, a=2)
    reservation = Reservation(ScalingConfig(num_workers=(2, 3)))
    reservation.reserve()
    cluster.living["a"] = 1
    threading.Timer(0.05, lambda: cluster.living.update(a=2)).start()
    assert reservation.reserve() == 2


def test_an_elastic_group_has_no_more_workers_than_fit_on_whole_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Cluster(monkeypatch, a=3, b=3)
    assert (
        Reservation(ScalingConfig(num_workers=(1, 8), resources_per_worker={"CPU": 2})).reserve()
        == 2
    )


def test_a_group_on_a_node_that_is_drained_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, a=1, b=1)
    reservation = Reservation(ScalingConfig(num_workers=1))
    reservation.reserve()
    assert reservation.reserve() == 1
    assert cluster.made == 1
    cluster.draining = {"a"}
    assert reservation.reserve() == 1
    assert cluster.made == 2


@pytest.mark.parametrize(
    ("available", "size"),
    [
        ({"CPU": 1.0}, 2),
        ({"CPU": 3.0}, 3),
        ({"CPU": 100.0}, 4),
        ({}, 2),
        ({"CPU": 3.9999999999}, 4),
    ],
)
def test_a_group_uses_free_resources_between_its_bounds(
    available: dict[str, float], size: int
) -> None:
    assert group_size(minimum=2, maximum=4, bundle={"CPU": 1}, available=available) == size


def test_the_scarcest_resource_limits_the_group() -> None:
    bundle, available = {"CPU": 1, "GPU": 0.5}, {"CPU": 8, "GPU": 1}
    assert group_size(minimum=1, maximum=8, bundle=bundle, available=available) == 2


def test_a_resource_that_is_not_there_is_answered_with_the_nearest() -> None:
    scaling = ScalingConfig(resources_per_worker={"fast-disk": 1})
    with pytest.raises(ValueError, match="Did you mean 'fast_disk'"):
        check_feasible(scaling, {"CPU": 2.0, "fast_disk": 1.0})
