"""Gangs in the controller's state machine: replicas that start, serve, fail and stop together.

`World.check` asserts after every step that no part of a gang serves or stops without the others.
"""

from dataclasses import replace

import pytest

from syncline.serve.autoscaling_config import AutoscalingConfig
from syncline.serve.controller import messages as m
from syncline.serve.controller.events import NodesChanged
from syncline.serve.controller.replica_set import HEALTH_FAILURES
from syncline.serve.wire.routes import DeploymentId
from tests.serve.controller.world import NODE, World, application, deployment

D = DeploymentId("app", "D")


def gang_deployment(size=2, **options):
    return deployment(gang_scheduling_config={"gang_size": size}, **options)


def running(size=2, replicas=4, **options):
    world = World()
    world.subscribe()
    world.deploy(application(gang_deployment(size, num_replicas=replicas, **options)))
    world.run(1)
    assert world.status() == "RUNNING"
    return world


def gangs(world):
    """Return the sets of replica ids by gang, of all processes."""
    found = {}
    for id, process in world.processes.items():
        found.setdefault(process.gang, set()).add(id)
    return found


def test_replicas_of_a_gang_know_each_other():
    world = running(size=2, replicas=4)
    contexts = [process.start.gang for process in world.processes.values()]
    assert sorted(each.rank for each in contexts) == [0, 0, 1, 1]
    assert {each.world_size for each in contexts} == {2}
    for id, process in world.processes.items():
        gang = process.start.gang
        assert gang.member_replica_ids[gang.rank] == id
        assert set(gang.member_replica_ids) == gangs(world)[gang.gang_id]
        assert gang.pg_name == f"SERVE_GANG::app#D#{gang.gang_id}"
    assert sorted(each.rank for each in world.deployment().serving()) == [0, 1, 2, 3]


def test_a_gang_serves_when_all_of_its_replicas_are_ready():
    world = World()
    proxy = world.subscribe()
    seconds = iter([0.1, 5])
    world.start_s = lambda code: next(seconds)
    world.deploy(application(gang_deployment(num_replicas=2)))
    world.run(2)
    assert sorted(each.state for each in world.processes.values()) == ["constructs", "runs"]
    assert proxy.routes[D] == ()
    assert world.status() == "DEPLOYING"
    world.run(5)
    assert len(proxy.routes[D]) == 2
    assert world.status() == "RUNNING"


def test_a_gang_waits_for_the_resources_of_all_of_its_replicas():
    world = World(cpus=3)
    world.deploy(application(gang_deployment(num_replicas=4)))
    world.run(60)
    assert sorted(each.state for each in world.processes.values()) == ["runs"] * 2 + ["waits"] * 2
    assert len(world.serving()) == 2
    assert "the gang of 2 replicas of replica" in world.machine.applications["app"].message()
    assert len({each.replica_id for each in world.records if each.kind == "replica_waits"}) == 1
    world.cpus = 4
    world._place()
    world.run(1)
    assert world.status() == "RUNNING"


def test_the_death_of_a_replica_ends_its_gang_and_another_gang_starts():
    world = running(size=2, replicas=4)
    before = gangs(world)
    victim = next(iter(world.processes))
    (sibling,) = before[world.processes[victim].gang] - {victim}
    others = set(world.processes) - {victim, sibling}
    world.end(victim)
    assert set(world.serving()) == others
    world.run(1)
    assert [id for id, _ in world.killed] == [sibling]
    assert victim in world.killed[0][1]  # the reason
    assert others < set(world.serving())
    assert len(world.serving()) == 4
    assert world.status() == "RUNNING"


def test_a_failed_start_ends_its_gang_and_counts_once():
    world = World()
    world.subscribe()
    world.broken["v1"] = "no weights"
    world.deploy(application(gang_deployment(num_replicas=2, max_constructor_retry_count=2)))
    world.run(60)
    assert world.status() == "DEPLOY_FAILED"
    assert world.started.count("v1") == 4  # two tries of two replicas
    assert world.processes == {}


def test_starts_that_succeed_in_gangs_that_fail_do_not_hide_the_failures():
    world = World()
    world.subscribe()
    number = iter(range(1000))
    world.start_s = lambda code: 0.01 * (1 + next(number) % 2)  # the first is ready earlier
    world.deploy(application(gang_deployment(num_replicas=2)))

    def break_the_second():
        ready = [p for p in world.processes.values() if p.state == "runs"]
        world.broken = {"v1": "no weights"} if ready else {}
        world.later(0.001, break_the_second)

    break_the_second()
    world.run(120)
    assert world.status() == "DEPLOY_FAILED"
    assert world.processes == {}


def test_a_gang_that_can_never_start_fails_at_once():
    world = World()
    world.infeasible.add("v1")
    world.deploy(application(gang_deployment(num_replicas=4)))
    world.run(1)
    assert world.status() == "DEPLOY_FAILED"
    assert world.kinds().count("start_failed") <= 2  # once per gang
    assert world.deployment().replicas == {}


def test_failed_health_checks_drain_the_whole_gang():
    world = running(size=2, replicas=2, health_check_period_s=1)
    before = set(world.serving())
    world.processes[min(before)].healthy = False
    world.run(HEALTH_FAILURES + 1)
    assert before.isdisjoint(world.serving())
    assert world.killed == []
    assert len(world.serving()) == 2


def test_a_replica_that_hangs_ends_its_gang():
    options = {"health_check_period_s": 1, "health_check_timeout_s": 1}
    world = running(size=2, replicas=2, **options)
    before = set(world.serving())
    world.processes[min(before)].answers = False
    world.run(10)
    assert {id for id, _ in world.killed} == before
    assert len(world.serving()) == 2


def test_replicas_of_a_gang_exit_together_after_their_last_call():
    world = running(size=2, replicas=2)
    idle, busy = world.processes
    world.drains_s[busy] = 3
    world.deploy(application(gang_deployment(num_replicas=2, code="v2")))
    world.run(2)
    assert {idle, busy} < set(world.processes)
    world.run(2)
    assert {idle, busy}.isdisjoint(world.processes)
    assert world.killed == []


def test_a_draining_gang_exits_although_one_of_its_replicas_died():
    world = running(size=2, replicas=2)
    idle, busy = world.processes
    world.drains_s[busy] = 3
    world.deploy(application(gang_deployment(num_replicas=2, code="v2")))
    world.run(1)
    world.end(busy)
    world.run(0.1)
    assert {idle, busy}.isdisjoint(world.processes)
    assert world.killed == []


@pytest.mark.parametrize(("size", "replicas"), [(2, 2), (2, 6), (3, 9)])
def test_an_update_replaces_gangs_without_lowering_the_number_of_replicas(size, replicas):
    world = running(size, replicas)
    world.least_serving[D] = replicas
    world.deploy(application(gang_deployment(size, num_replicas=replicas, code="v2")))
    world.run(20)
    assert world.codes() == ["v2"] * replicas
    assert world.killed == []
    assert world.status() == "RUNNING"


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4), (4, 6), (6, 4), (1, 3), (3, 1)])
def test_an_update_may_change_the_size_of_gangs(before, after):
    world = running(before, 12)
    world.least_serving[D] = 12
    world.deploy(application(gang_deployment(after, num_replicas=12)))
    world.run(30)
    assert world.status() == "RUNNING"
    assert {len(each) for each in gangs(world).values()} == {after}
    assert world.killed == []


def test_an_update_without_room_replaces_one_gang_after_the_other():
    world = World(cpus=5)
    world.subscribe()
    world.deploy(application(gang_deployment(num_replicas=4)))
    world.run(1)
    world.least_serving[D] = 2
    world.deploy(application(gang_deployment(num_replicas=4, code="v2")))
    world.run(60)
    assert world.codes() == ["v2"] * 4
    assert world.status() == "RUNNING"
    assert "no_room" in world.kinds()


def test_fewer_replicas_end_whole_gangs():
    world = running(size=3, replicas=9)
    before = set(map(frozenset, gangs(world).values()))
    world.deploy(application(gang_deployment(3, num_replicas=3)))
    world.run(2)
    assert frozenset(world.serving()) in before
    assert len(world.processes) == 3
    assert world.killed == []


def test_a_drained_node_replaces_the_gangs_that_are_partly_on_it():
    world = running(size=2, replicas=2)
    before = set(world.serving())
    world.deployment().replicas[min(before)].node_id = "node-2"
    world.least_serving[D] = 2
    world.handle(NodesChanged(nodes=(NODE, "node-2"), draining={"node-2": None}))
    world.run(2)
    assert before.isdisjoint(world.serving())
    assert len(world.serving()) == 2


def test_a_user_configuration_that_a_replica_rejects_replaces_its_gang():
    world = running(size=2, replicas=2, user_config="a")
    world.rejected_configs.add("b")
    world.deploy(application(gang_deployment(num_replicas=2, user_config="b")))
    world.run(60)
    assert world.status() == "DEPLOY_FAILED"
    assert len(world.serving()) == 2


def test_gangs_survive_a_restart_of_the_controller():
    world = running(size=2, replicas=4)
    before = set(world.serving())
    world.restart_controller()
    world.run(1)
    assert set(world.serving()) == before
    world.end(min(before))
    world.run(1)
    assert len(world.killed) == 1
    assert len(world.serving()) == 4


def test_a_gang_that_lost_a_replica_while_the_controller_was_down_is_replaced():
    world = running(size=2, replicas=2)
    victim, sibling = world.processes
    del world.processes[victim]  # without an event
    world.restart_controller()
    world.run(1)
    assert sibling in [id for id, _ in world.killed]
    assert len(world.serving()) == 2


def scaled(**options):
    world = World()
    world.subscribe()
    config = {"upscale_delay_s": 0, "downscale_delay_s": 1, "look_back_period_s": 1, **options}
    world.deploy(application(gang_deployment(4, autoscaling_config=config)))
    world.run(2)
    return world


def test_autoscaling_rounds_up_to_whole_gangs():
    world = scaled(max_replicas=16, target_ongoing_requests=1)
    assert len(world.serving()) == 4
    world.load(ongoing=5)
    world.run(1)
    assert len(world.serving()) == 8
    world.load(ongoing=1)
    world.run(5)
    assert len(world.serving()) == 4


def test_autoscaling_with_gangs_goes_to_zero_and_back():
    world = scaled(min_replicas=0, max_replicas=8)
    assert len(world.serving()) == 0
    world.load(queued=1)
    world.run(1)
    assert len(world.serving()) == 4
    world.load()
    world.run(5)
    assert world.processes == {}


@pytest.mark.parametrize("factor", [0.1, 0.3, 1.0])
def test_a_downscaling_factor_does_not_keep_a_gang_for_ever(factor):
    world = scaled(max_replicas=16, target_ongoing_requests=1, downscaling_factor=factor)
    world.load(ongoing=16)
    world.run(2)
    assert len(world.serving()) == 16
    world.load(ongoing=1)
    world.run(60)
    assert len(world.serving()) == 4


def test_other_bounds_apply_in_whole_gangs():
    world = scaled(max_replicas=8)
    (target,) = world.machine.applications["app"].target.deployments
    bounds = AutoscalingConfig(min_replicas=8, max_replicas=16)
    config = replace(target.config, autoscaling_config=bounds)
    world.deploy(application(replace(target, config=config)))
    world.run(2)
    assert len(world.serving()) == 8


def test_the_external_scaler_is_told_about_incomplete_gangs():
    world = World()
    world.deploy(application(gang_deployment(num_replicas=2), external_scaler_enabled=True))
    with pytest.raises(ValueError, match="3 replicas of deployment app#D .* `gang_size=2`"):
        world.handle(m.SetReplicas(deployment=D, count=3))
    world.handle(m.SetReplicas(deployment=D, count=4))
    world.run(1)
    assert len(world.serving()) == 4
