"""Actors that replicas share, in the state machine: start, restart, replacement, end."""

import pytest

from syncline.serve.controller import messages as m
from syncline.serve.controller.deployment_actor_state import SLOW_START_S
from syncline.serve.controller.step import BACKOFF_S
from syncline.serve.wire.deployment_actor_names import deployment_actor_name, parse_actor_name
from syncline.serve.wire.routes import DeploymentId
from tests.serve.controller.world import World, application, deployment

D = DeploymentId("app", "D")


def actors(*names, **options):
    return [{"name": name, "actor_class": b"", "actor_options": options} for name in names]


def name_of(actor="cache", code="v1"):
    return deployment_actor_name(D, code, actor)


def running(replicas=2, *, code="v1", names=("cache",), **options):
    world = World()
    world.subscribe()
    world.deploy(target(replicas, code=code, names=names, **options))
    world.run(1)
    assert world.status() == "RUNNING"
    assert world.actors == {name_of(name, code): "runs" for name in names}
    return world


def target(replicas=2, *, code="v1", names=("cache",), **options):
    wanted = deployment(
        code=code, num_replicas=replicas, deployment_actors=actors(*names), **options
    )
    return application(wanted)


def test_names_have_parts():
    name = deployment_actor_name(D, "v1", "a#b")
    assert parse_actor_name(name) == (D, "v1", "a#b")
    assert parse_actor_name("SERVE_REPLICA::app#D#1") is None
    assert parse_actor_name("SERVE_DEPLOYMENT_ACTOR#app#D") is None


def test_replicas_start_after_all_actors():
    world = running(names=("cache", "index"))  # the world checks the order
    assert world.actor_starts == ["cache", "index"]
    assert len(world.serving()) == 2


def test_the_end_of_a_deployment_is_the_end_of_its_actors():
    world = running()
    world.drain_s = 0.5
    world.handle(m.DeleteApplications(names=("app",)))
    world.run(0.3)
    assert world.actors  # replicas that drain use them
    assert world.status() == "DELETING"
    world.run(1)
    assert (world.actors, world.processes, world.status()) == ({}, {}, None)


def test_shutdown_waits_for_the_actors():
    world = running()
    world.handle(m.Shutdown())
    while not world.machine.is_empty:
        world.run(0.001)
    assert world.actors == {}


def test_delete_while_an_actor_starts_leaves_nothing():
    world = World()
    world.deploy(target())
    world.run(0.005)
    assert world.actors == {name_of(): "starts"}
    world.handle(m.DeleteApplications(names=("app",)))
    world.run(1)
    assert (world.actors, world.processes, world.status()) == ({}, {}, None)


def test_the_same_name_deployed_at_once_after_a_delete_gets_new_actors():
    world = running()
    world.handle(m.DeleteApplications(names=("app",)))
    world.deploy(target())
    world.run(2)
    assert world.status() == "RUNNING"
    assert world.actors == {name_of(): "runs"}


def test_an_actor_that_dies_is_restarted_and_replicas_stay():
    world = running()
    world.run(60)
    before = world.serving()
    world.end_actor(name_of(), "signal 9")
    assert world.status() == "UNHEALTHY"
    assert "deployment actor 'cache' does not run: signal 9" in (
        world.machine.applications["app"].message()
    )
    world.run(0.1)  # at once, as it lived for long
    assert world.actors == {name_of(): "runs"}
    assert world.status() == "RUNNING"
    assert world.machine.applications["app"].message() == ""
    assert world.serving() == before


def test_an_actor_that_dies_often_is_restarted_after_growing_pauses():
    world = running()
    for attempt in range(4):
        world.end_actor(name_of())
        world.run(BACKOFF_S * 2**attempt - 0.01)
        assert world.actors == {}
        world.run(0.1)
        assert world.actors == {name_of(): "runs"}


def test_no_replica_starts_while_an_actor_is_gone():
    world = running(1)
    world.broken_actors["cache"] = "no memory"
    world.end_actor(name_of())
    world.end(world.serving()[0])
    world.run(20)
    assert world.processes == {}
    assert world.status() == "UNHEALTHY"
    del world.broken_actors["cache"]
    world.run(40)
    assert world.status() == "RUNNING"
    assert len(world.serving()) == 1


def test_a_constructor_that_fails_fails_the_deployment():
    world = World()
    world.broken_actors["cache"] = "Traceback ...\nValueError: no shard"
    world.deploy(target(4))
    world.run(60)
    assert world.status() == "DEPLOY_FAILED"
    assert "ValueError: no shard" in world.machine.applications["app"].message()
    assert world.actor_starts == ["cache"] * 3
    assert (world.started, world.actors, world.deployment().actors.by_id) == ([], {}, {})


def test_a_failed_deployment_is_tried_again_when_deployed_again():
    world = World()
    world.broken_actors["cache"] = "no shard"
    world.deploy(target())
    world.run(60)
    world.broken_actors.clear()
    world.deploy(target())
    world.run(2)
    assert world.status() == "RUNNING"


def test_an_update_starts_new_actors_beside_the_old_ones():
    world = running(2)
    world.least_serving[D] = 2
    world.drain_s = 0.5
    world.deploy(target(2, code="v2"))
    world.run(0.3)
    assert set(world.actors) == {name_of(), name_of(code="v2")}
    world.run(5)
    assert world.codes() == ["v2", "v2"]
    assert world.actors == {name_of(code="v2"): "runs"}


def test_an_update_without_actors_ends_them():
    world = running()
    world.deploy(application(deployment(code="v2", num_replicas=2)))
    world.run(5)
    assert world.codes() == ["v2", "v2"]
    assert world.actors == {}


def test_an_update_whose_actor_fails_leaves_the_old_version_in_place():
    world = running(2)
    world.least_serving[D] = 2
    world.broken_actors["new"] = "no shard"
    world.deploy(target(2, code="v2", names=("new",)))
    world.run(60)
    assert world.status() == "DEPLOY_FAILED"
    assert world.codes() == ["v1", "v1"]
    assert world.actors == {name_of(): "runs"}


def test_actors_stay_while_there_are_no_replicas():
    world = running(1, names=())
    scaling = {"min_replicas": 0, "initial_replicas": 0, "max_replicas": 2}
    wanted = deployment(code="v2", deployment_actors=actors("cache"), autoscaling_config=scaling)
    world.deploy(application(wanted))
    world.run(60)
    assert world.serving() == []
    assert world.actors == {name_of(code="v2"): "runs"}
    assert world.status() == "RUNNING"


def test_other_options_keep_the_actors():
    world = running()
    world.deploy(target(3, user_config="a", max_ongoing_requests=9))
    world.run(2)
    assert len(world.serving()) == 3
    assert world.actor_starts == ["cache"]


def test_a_restarted_controller_keeps_the_actors():
    world = running()
    before = world.serving()
    world.restart_controller()
    world.run(60)
    assert world.actor_starts == ["cache"]
    assert world.serving() == before
    world.end_actor(name_of())
    world.run(1)
    assert world.actor_starts == ["cache", "cache"]


@pytest.mark.parametrize("seconds", [0.0, 0.005, 0.021, 0.05])
def test_a_controller_that_restarts_during_the_start_or_the_end(seconds):
    world = World()
    world.subscribe()
    world.deploy(target())
    world.run(seconds)
    world.restart_controller()
    world.run(5)
    assert world.status() == "RUNNING"
    world.handle(m.DeleteApplications(names=("app",)))
    world.run(seconds)
    world.restart_controller()
    world.run(60)
    assert (world.actors, world.processes, world.status()) == ({}, {}, None)


def test_a_slow_start_is_shown():
    world = World()
    world.most_actors = 0
    world.deploy(application(deployment(deployment_actors=actors("cache", num_cpus=4))))
    world.run(SLOW_START_S + 1)
    assert world.status() == "DEPLOYING"
    message = world.machine.applications["app"].message()
    assert "waits for resources: it needs {'CPU': 4}" in message
    world.most_actors = 1
    world.run(1)
    assert world.status() == "RUNNING"


def test_old_replicas_and_actors_end_first_if_the_resources_do_not_suffice_for_both():
    world = running(2)
    world.most_actors = 1
    world.deploy(target(2, code="v2"))
    world.run(SLOW_START_S - 1)
    assert world.codes() == ["v1", "v1"]
    world.run(5)
    assert world.codes() == ["v2", "v2"]
    assert world.actors == {name_of(code="v2"): "runs"}
    assert world.kinds().count("no_room") == 1
    assert world.status() == "RUNNING"


def test_a_slow_constructor_costs_no_replica():
    world = running(2)
    world.least_serving[D] = 2
    later = world.later
    world.later = lambda s, action: later(60 if s == 0.02 else s, action)  # constructors of actors
    world.deploy(target(2, code="v2"))
    world.run(SLOW_START_S * 2)
    assert "its constructor has not returned" in world.machine.applications["app"].message()
    world.run(60)
    assert world.codes() == ["v2", "v2"]
