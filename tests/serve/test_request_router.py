"""Request routers and the helpers of their mixins."""

import asyncio
from collections import Counter

import pytest

from syncline.serve import request_router
from syncline.serve.context import ReplicaID
from syncline.serve.experimental.consistent_hash_router import ConsistentHashRouter
from syncline.serve.experimental.round_robin_router import RoundRobinRouter
from syncline.serve.request_router import (
    FIFOMixin,
    LocalityMixin,
    MultiplexMixin,
    PendingRequest,
    PowerOfTwoChoicesRequestRouter,
    RequestMetadata,
    RequestRouter,
    RunningReplica,
)
from syncline.serve.wire.routes import DeploymentId

DEPLOYMENT = DeploymentId("app", "Model")


class Everything(FIFOMixin, LocalityMixin, MultiplexMixin, RequestRouter):
    async def choose_replicas(self, candidate_replicas, pending_request=None):
        return [candidate_replicas]


def replica(name, *, node="n", count=0, models=(), zone=None):
    return RunningReplica(
        replica_id=ReplicaID(unique_id=name, deployment_id=DEPLOYMENT),
        node_id=node,
        availability_zone=zone,
        max_ongoing_requests=2,
        count=lambda: count,
        models=lambda: set(models),
    )


def made(cls, *replicas, options=None, **kwargs):
    router = cls(deployment_id=DEPLOYMENT, **kwargs)
    router.initialize_state(**(options or {}))
    router.update_replicas(list(replicas))
    return router


def request(session="", model="", number=0):
    return PendingRequest(
        metadata=RequestMetadata(
            request_id="r",
            internal_request_id=str(number),
            session_id=session,
            multiplexed_model_id=model,
        )
    )


def choose(router, pending=None):
    groups = asyncio.run(router.choose_replicas([*router.curr_replicas.values()], pending))
    return names(groups)


def names(groups):
    return [[str(each.replica_id) for each in group] for group in groups]


def test_public_names_are_those_of_ray():
    assert set(request_router.__all__) == {
        "FIFOMixin",
        "LocalityMixin",
        "MultiplexMixin",
        "PendingRequest",
        "PowerOfTwoChoicesRequestRouter",
        "ReplicaID",
        "RequestRouter",
        "RunningReplica",
    }


def test_replicas_are_ranked_by_node_and_zone():
    replicas = [replica("a"), replica("b", node="m"), replica("c", node="m", zone="z")]
    router = made(Everything, *replicas, self_node_id="n", self_availability_zone="z")
    assert names(router.rank_replicas_via_locality(replicas)) == [["a"], ["c"], ["b"]]


def test_a_request_tries_its_node_once_and_then_all_replicas():
    replicas = [replica("a"), replica("b", node="m")]
    router = made(Everything, *replicas, self_node_id="n", prefer_local_node_routing=True)
    pending = request()
    assert {str(id) for id in router.apply_locality_routing(pending)} == {"a"}
    assert {str(id) for id in router.apply_locality_routing(pending)} == {"a", "b"}


def test_a_request_tries_the_replicas_with_its_model_then_those_with_the_fewest_then_all():
    now = [0.0]
    replicas = [replica("a", models=["m"]), replica("b"), replica("c", models=["x", "y"])]
    router = made(Everything, *replicas, get_curr_time_s=lambda: now[0])

    def candidates(pending):
        return sorted(str(id) for id in router.apply_multiplex_routing(pending))

    pending = request(model="m")
    assert candidates(pending) == ["a"]
    assert candidates(pending) == ["b"]
    now[0] = 2.0
    assert candidates(pending) == ["b"]
    assert candidates(pending) == ["a", "b", "c"]
    assert candidates(request(model="other")) == ["b"]
    assert names(router.rank_replicas_via_multiplex(replicas, "m")) == [["a"], ["b"], ["c"]]


def test_available_replicas_have_a_free_slot():
    router = made(Everything, replica("a", count=2), replica("b", count=1))
    assert names([router.select_available_replicas()]) == [["b"]]
    ids = [each.replica_id for each in router.curr_replicas.values()]
    assert [router.replica_queue_len_cache.get(id) for id in ids] == [2, 1]


def test_power_of_two_choices_takes_two_replicas_that_are_not_full():
    router = made(PowerOfTwoChoicesRequestRouter, *[replica(f"r{i}") for i in range(5)])
    seen = {name for _ in range(100) for name in choose(router, request())[0]}
    assert seen == {f"r{i}" for i in range(5)}
    assert len(choose(router, request())[0]) == 2
    assert choose(made(PowerOfTwoChoicesRequestRouter, replica("a", count=2)), request()) == []


def test_round_robin_takes_replicas_in_turn():
    router = made(RoundRobinRouter, *[replica(name) for name in "abc"])
    firsts = "".join(choose(router, request())[0][0] for _ in range(6))
    assert firsts in ("abcabc", "bcabca", "cabcab")
    assert len(choose(router, request())) == 3


def test_round_robin_takes_turns_among_the_replicas_with_a_model():
    replicas = [replica("a", models=["m"]), replica("b"), replica("c", models=["m"])]
    router = made(RoundRobinRouter, *replicas)
    firsts = [choose(router, request(model="m"))[0][0] for _ in range(4)]
    assert Counter(firsts) == {"a": 2, "c": 2}


def test_a_session_stays_at_its_replica_and_few_move_when_one_comes():
    sessions = [f"s{i}" for i in range(300)]
    router = made(ConsistentHashRouter, *[replica(name) for name in "abcd"])
    before = {each: choose(router, request(each))[0][0] for each in sessions}
    assert before == {each: choose(router, request(each))[0][0] for each in sessions}
    assert min(Counter(before.values()).values()) > 30
    router.update_replicas([replica(name) for name in "abcde"])
    after = {each: choose(router, request(each))[0][0] for each in sessions}
    moved = {each for each in sessions if before[each] != after[each]}
    assert 20 < len(moved) < 120
    assert {after[each] for each in moved} == {"e"}


def test_requests_without_a_session_are_spread_and_have_fallbacks():
    router = made(
        ConsistentHashRouter,
        *[replica(name) for name in "abc"],
        options={"num_fallback_replicas": 1},
    )
    chosen = [choose(router, request(number=i)) for i in range(100)]
    assert {groups[0][0] for groups in chosen} == {"a", "b", "c"}
    assert all(len(groups) == 2 and groups[0] != groups[1] for groups in chosen)


def test_wrong_options_of_the_consistent_hash_router_are_refused():
    with pytest.raises(ValueError, match="num_virtual_nodes"):
        made(ConsistentHashRouter, options={"num_virtual_nodes": 0})
    with pytest.raises(ValueError, match="num_fallback_replicas"):
        made(ConsistentHashRouter, options={"num_fallback_replicas": -1})


def test_arguments_are_unpickled_when_they_are_needed():
    loads = []
    pending = PendingRequest(load=lambda: loads.append(1) or ((1, 2), {"a": 3}))
    assert not loads
    assert (pending.args, pending.kwargs, pending.args) == ([1, 2], {"a": 3}, [1, 2])
    assert loads == [1]
