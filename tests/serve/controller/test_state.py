"""Rollouts, drains, failures and health checks of the controller's state machine."""

from dataclasses import replace

import pytest

from syncline.serve.autoscaling_config import AutoscalingConfig
from syncline.serve.config import HTTPOptions
from syncline.serve.controller import messages as m
from syncline.serve.controller.events import NodesChanged, SubscriberJoined, SubscriberLeft
from syncline.serve.exceptions import RayServeException
from syncline.serve.wire.routes import DeploymentId
from tests.serve.controller.world import NODE, World, application, deployment

D = DeploymentId("app", "D")


def running(replicas=2, **options):
    world = World()
    world.subscribe()
    world.deploy(application(deployment(num_replicas=replicas, **options)))
    world.run(1)
    assert world.status() == "RUNNING"
    assert len(world.serving()) == replicas
    return world


def test_deploy_starts_the_replicas_and_publishes_them():
    world = World()
    proxy = world.subscribe()
    world.deploy(application(deployment(num_replicas=3)))
    assert world.status() == "DEPLOYING"
    assert world.machine.table.deployments[D].replicas == ()  # calls may wait for them
    world.run(0.5)
    assert world.status() == "RUNNING"
    assert set(proxy.routes[D]) == set(world.serving())
    assert len(proxy.routes[D]) == 3
    (route,) = world.machine.table.applications
    assert (route.name, route.route_prefix, route.ingress) == ("app", "/", D)
    assert [r.rank for r in world.deployment().serving()] == [0, 1, 2]


def test_the_same_target_changes_nothing():
    world = running()
    before, version = world.serving(), world.machine.applications["app"].version
    world.deploy(application(deployment(num_replicas=2)))
    world.run(1)
    assert world.serving() == before
    assert len(world.started) == 2
    assert world.machine.applications["app"].version == version


@pytest.mark.parametrize("replicas", [1, 2, 3, 10])
def test_an_update_starts_new_replicas_before_it_drains_old_ones(replicas):
    world = running(replicas)
    world.least_serving[D] = replicas  # after every step
    world.deploy(application(deployment(code="v2", num_replicas=replicas)))
    assert world.status() == "DEPLOYING"
    world.run(5)
    assert world.status() == "RUNNING"
    assert world.codes() == ["v2"] * replicas
    assert len(world.processes) == replicas
    assert world.killed == []


def test_an_update_replaces_a_fifth_at_a_time():
    world = running(10)
    most = 0

    def watch():
        nonlocal most
        most = max(most, len(world.processes))
        world.later(0.002, watch)

    watch()
    world.deploy(application(deployment(code="v2", num_replicas=10)))
    world.run(5)
    assert world.codes() == ["v2"] * 10
    assert most <= 10 + 2 + 2  # two start while two drain


def test_a_replica_drains_after_all_subscribers_acknowledged():
    world = running(2)
    slow = world.subscribe("slow", delay_s=0.5)
    world.run(1)
    world.deploy(application(deployment(num_replicas=1)))
    world.run(0.3)
    assert len(world.serving()) == 1
    assert len(world.processes) == 2
    assert all(each.state == "runs" for each in world.processes.values())
    world.run(0.3)
    assert slow.version == world.machine.table.version
    assert len(world.processes) == 1


def test_a_subscriber_that_leaves_is_not_waited_for():
    world = running(2)
    world.subscribe("silent", delay_s=None)
    world.deploy(application(deployment(num_replicas=1)))
    world.run(0.3)
    assert len(world.processes) == 2
    del world.subscribers["silent"]
    world.handle(SubscriberLeft(subscriber="silent"))
    world.run(0.1)
    assert len(world.processes) == 1


def test_a_subscriber_that_hangs_is_waited_for_two_seconds():
    world = running(2)
    world.subscribe("silent", delay_s=None)
    world.deploy(application(deployment(num_replicas=1)))
    world.run(1.9)
    assert len(world.processes) == 2
    world.run(0.3)
    assert len(world.processes) == 1


def test_a_replica_that_does_not_finish_is_killed_after_the_graceful_timeout():
    world = running(1, graceful_shutdown_timeout_s=3)
    world.drain_s = 1000
    world.deploy(application(deployment(code="v2", graceful_shutdown_timeout_s=3)))
    world.run(3)
    assert len(world.processes) == 2
    assert world.killed == []
    world.run(3)
    assert len(world.processes) == 1
    assert [reason for _, reason in world.killed] == ["it did not exit in time"]


def test_a_version_that_does_not_start_leaves_the_old_one_in_place():
    world = running(2)
    world.least_serving[D] = 2
    world.broken["v2"] = "Traceback ...\nValueError: no weights"
    world.deploy(application(deployment(code="v2", num_replicas=2)))
    world.run(60)
    assert world.status() == "DEPLOY_FAILED"
    assert "ValueError: no weights" in world.machine.applications["app"].message()
    assert world.codes() == ["v1", "v1"]
    assert world.started.count("v2") == 6  # three per replica
    assert world.machine.table.deployments[D].unavailable is None
    world.least_serving[D] = 1
    world.end(world.serving()[0])  # the old version is restarted
    world.run(5)
    assert world.codes() == ["v1", "v1"]


def test_max_constructor_retry_count_limits_the_tries():
    world = World()
    world.broken["v1"] = "RuntimeError: nope"
    world.deploy(application(deployment(num_replicas=4, max_constructor_retry_count=5)))
    world.run(60)
    assert world.status() == "DEPLOY_FAILED"
    assert 5 <= len(world.started) <= 8  # four start at once
    assert "RuntimeError: nope" in world.machine.table.deployments[D].unavailable
    assert world.processes == {}


def test_a_failed_deployment_is_tried_again_by_the_same_target():
    world = World()
    world.broken["v1"] = "RuntimeError: no database"
    world.deploy(application())
    world.run(30)
    assert world.status() == "DEPLOY_FAILED"
    world.broken.clear()
    world.deploy(application())
    assert world.status() == "DEPLOYING"
    world.run(2)
    assert world.status() == "RUNNING"


def test_a_fixed_version_replaces_one_that_failed():
    world = running(2)
    world.broken["v2"] = "error"
    world.deploy(application(deployment(code="v2", num_replicas=2)))
    world.run(30)
    world.least_serving[D] = 2
    world.deploy(application(deployment(code="v3", num_replicas=2)))
    world.run(10)
    assert world.status() == "RUNNING"
    assert world.codes() == ["v3", "v3"]


def test_going_back_to_the_previous_version_keeps_its_replicas():
    world = running(2)
    before = world.serving()
    world.broken["v2"] = "error"
    world.deploy(application(deployment(code="v2", num_replicas=2)))
    world.run(30)
    world.deploy(application(deployment(code="v1", num_replicas=2)))
    world.run(1)
    assert world.status() == "RUNNING"
    assert world.serving() == before


def test_another_deploy_in_the_middle_of_an_update_wins():
    world = running(4)
    world.least_serving[D] = 4
    world.start_s = lambda code: 5.0 if code == "v2" else 0.01
    world.deploy(application(deployment(code="v2", num_replicas=4)))
    world.run(1)
    world.deploy(application(deployment(code="v3", num_replicas=4)))
    world.run(10)
    assert world.codes() == ["v3"] * 4
    assert world.status() == "RUNNING"


def test_infeasible_resources_fail_at_once():
    world = World()
    world.infeasible.add("v1")
    world.deploy(application(deployment(ray_actor_options={"num_cpus": 99})))
    world.run(0.01)
    assert world.status() == "DEPLOY_FAILED"
    assert "asked for 99 CPUs, has 4" in world.machine.applications["app"].message()
    assert len(world.started) == 1


def test_a_process_that_starts_slowly_does_not_wait_for_resources():
    world = World(cpus=2)
    world.process_s = 5.0
    world.deploy(application(deployment(num_replicas=1)))
    world.run(4.9)
    assert world.machine.applications["app"].message() == ""
    world.run(0.2)
    assert world.status() == "RUNNING"
    world.deploy(application(deployment(num_replicas=1, code="v2")))
    world.run(4.0)
    assert not [each for each in world.records if each.kind == "no_room"]
    assert len(world.serving()) == 1
    world.run(2.0)
    assert world.status() == "RUNNING"


def test_a_process_that_does_not_start_is_in_the_status():
    world = World(cpus=2)
    world.process_s = 100.0
    world.deploy(application(deployment(num_replicas=1)))
    world.run(35)
    message = world.machine.applications["app"].message()
    assert "has not started for 30 s: available: CPU 1" in message


def test_a_start_that_waits_for_resources_is_in_the_status():
    world = World(cpus=1)
    world.deploy(application(deployment(num_replicas=2)))
    world.run(0.9)
    assert world.machine.applications["app"].message() == ""
    world.run(0.2)
    message = world.machine.applications["app"].message()
    assert "has waited for resources for 1 s: available: CPU 0" in message
    assert world.status() == "DEPLOYING"
    world.cpus = 2
    world._place()
    world.run(1)
    assert world.status() == "RUNNING"
    assert world.machine.applications["app"].message() == ""


def test_without_room_for_both_versions_old_replicas_go_first_one_at_a_time():
    world = World(cpus=3)
    world.subscribe()
    world.deploy(application(deployment(num_replicas=3)))
    world.run(1)
    world.least_serving[D] = 2
    world.deploy(application(deployment(code="v2", num_replicas=3)))
    world.run(10)
    assert world.codes() == ["v2"] * 3
    assert world.status() == "RUNNING"
    assert world.kinds().count("no_room") == 1


def test_without_room_two_small_replicas_make_room_for_a_large_one():
    world = World(cpus=4)
    world.deploy(application(deployment(num_replicas=4)))
    world.run(1)
    large = deployment(code="v2", num_replicas=2, ray_actor_options={"num_cpus": 2})
    world.deploy(application(large))
    world.run(20)
    assert world.codes() == ["v2"] * 2
    assert world.status() == "RUNNING"


def test_without_room_a_broken_version_gives_the_place_back():
    world = World(cpus=2)
    world.broken["v2"] = "error"
    world.deploy(application(deployment(num_replicas=2)))
    world.run(1)
    world.least_serving[D] = 1
    world.deploy(application(deployment(code="v2", num_replicas=2)))
    world.run(60)
    assert world.codes() == ["v1", "v1"]
    assert world.status() == "DEPLOY_FAILED"


def test_a_dead_replica_is_replaced_at_once():
    world = running(2)
    world.run(60)
    world.end(world.serving()[0])
    assert world.status() == "UNHEALTHY"
    world.run(0.1)
    assert len(world.serving()) == 2
    assert world.status() == "RUNNING"


def test_replicas_that_crash_again_and_again_are_started_less_often():
    world = running(1)

    def crash():
        for id in world.serving():
            world.end(id)
        world.later(0.1, crash)

    crash()
    world.run(60)
    assert 5 < len(world.started) < 15


def test_three_failed_health_checks_replace_a_replica():
    world = running(2, health_check_period_s=1)
    ill = world.serving()[0]
    world.processes[ill].healthy = False
    world.run(1.5)
    assert ill in world.serving()
    world.run(2)
    assert ill not in world.serving()
    assert len(world.serving()) == 2
    assert "check_health raised" in next(r.message for r in world.records if r.kind == "unhealthy")
    assert world.killed == []  # its calls could finish


def test_a_replica_that_does_not_answer_health_checks_is_killed():
    world = running(2, health_check_period_s=1, health_check_timeout_s=2)
    hung = world.serving()[0]
    world.processes[hung].answers = False
    world.run(9)
    assert hung not in world.serving()
    assert len(world.serving()) == 2
    assert world.killed[0][0] == hung


def test_failed_checks_that_are_not_in_a_row_do_no_harm():
    world = running(1, health_check_period_s=1)
    (only,) = world.serving()

    def flip():
        world.processes[only].healthy = not world.processes[only].healthy
        world.later(1.5, flip)

    flip()
    world.run(30)
    assert world.serving() == [only]


def test_a_constructor_that_never_returns_is_named_with_its_stack():
    world = World()
    world.start_s = lambda code: 1e9
    world.deploy(application())
    world.run(31)
    message = world.machine.applications["app"].message()
    assert "constructor of app#D#" in message
    assert "in load_model" in message
    assert world.status() == "DEPLOYING"


def test_user_config_changes_in_place_and_in_batches():
    world = running(10, user_config="a")
    before = world.serving()
    world.sent.clear()
    world.deploy(application(deployment(num_replicas=10, user_config="b")))
    states = [each.state.value for each in world.deployment().serving()]
    assert states.count("UPDATING") == 2
    world.run(2)
    assert world.serving() == before
    assert world.status() == "RUNNING"
    changed = [id for id, message in world.sent if getattr(message, "user_config_changed", False)]
    assert sorted(changed) == sorted(before)
    assert {each.config_number for each in world.processes.values()} == {2}


def test_a_user_config_that_is_refused_stops_the_rollout():
    world = running(5, user_config="good")
    world.rejected_configs.add("bad")
    world.deploy(application(deployment(num_replicas=5, user_config="bad")))
    world.run(20)
    assert world.status() == "DEPLOY_FAILED"
    assert "reconfigure raised" in world.machine.applications["app"].message()
    assert len(world.serving()) == 5
    configs = {each.version.target.config.user_config for each in world.deployment().serving()}
    assert configs == {"good"}


def test_limits_change_without_user_code():
    world = running(2, max_ongoing_requests=5)
    before = world.serving()
    world.sent.clear()
    world.deploy(application(deployment(num_replicas=2, max_ongoing_requests=7)))
    world.run(1)
    assert world.serving() == before
    assert [message.user_config_changed for _, message in world.sent] == [False, False]
    assert [message.max_ongoing_requests for _, message in world.sent] == [7, 7]
    assert world.machine.table.deployments[D].max_ongoing_requests == 7


def test_the_number_of_replicas_changes_without_restarts():
    world = running(2)
    before = set(world.serving())
    world.deploy(application(deployment(num_replicas=4)))
    assert world.status() == "DEPLOYING"
    world.run(1)
    assert before < set(world.serving())
    assert len(world.serving()) == 4
    world.deploy(application(deployment(num_replicas=1)))
    world.run(1)
    assert len(world.serving()) == 1
    assert world.status() == "RUNNING"


def test_ranks_are_contiguous_after_scaling_down():
    world = running(4)
    world.end(world.serving()[0])
    world.run(1)
    world.deploy(application(deployment(num_replicas=2)))
    world.run(1)
    assert sorted(each.rank for each in world.deployment().serving()) == [0, 1]
    assert {each.world_size for each in world.deployment().serving()} == {2}


def test_resources_change_with_new_processes():
    world = running(1)
    (before,) = world.serving()
    world.deploy(application(deployment(ray_actor_options={"num_cpus": 0.5})))
    world.run(1)
    assert world.serving() != [before]
    assert world.status() == "RUNNING"


def test_a_deployment_that_left_the_application_goes_after_the_update():
    world = World()
    world.subscribe()
    world.deploy(application(deployment(), deployment("Old", ingress=False)))
    world.run(1)
    world.start_s = lambda code: 1.0
    world.deploy(application(deployment(code="v2"), deployment("New", ingress=False)))
    world.run(0.5)
    assert len(world.serving("Old")) == 1
    world.run(2)
    assert set(world.machine.applications["app"].deployments) == {"D", "New"}
    assert len(world.processes) == 2


def test_the_route_moves_to_another_ingress_once_it_serves():
    world = World()
    world.subscribe()
    world.deploy(application())
    world.run(1)
    world.start_s = lambda code: 1.0
    world.deploy(application(deployment("E"), prefix="/e"))
    world.run(0.5)
    assert world.machine.table.applications[0].ingress == D
    world.run(1)
    (route,) = world.machine.table.applications
    assert (route.ingress, route.route_prefix) == (DeploymentId("app", "E"), "/e")


def test_delete_drains_everything():
    world = running(3)
    world.handle(m.DeleteApplications(names=("app", "unknown")))
    assert world.status() == "DELETING"
    assert world.machine.table.deployments == {}
    world.run(1)
    assert world.machine.applications == {}
    assert world.processes == {}
    assert world.killed == []


def test_delete_while_replicas_start_kills_them():
    world = World(cpus=1)
    world.start_s = lambda code: 100.0
    world.deploy(application(deployment(num_replicas=2)))
    world.run(1)
    world.handle(m.DeleteApplications(names=("app",)))
    world.run(1)
    assert world.processes == {}
    assert world.machine.applications == {}


def test_deploy_after_delete_starts_anew():
    world = running(2)
    world.drain_s = 5
    world.handle(m.DeleteApplications(names=("app",)))
    world.run(1)
    world.deploy(application(deployment(num_replicas=2)))
    world.run(10)
    assert world.status() == "RUNNING"
    assert len(world.processes) == 2


def test_a_route_prefix_of_another_application_is_refused():
    world = running(1)
    with pytest.raises(RayServeException, match="'app'"):
        world.deploy(application(name="other"))
    assert "other" not in world.machine.applications
    world.deploy(application(name="other", prefix=None))


def test_two_applications_may_swap_their_prefixes():
    world = World()
    world.deploy(application(name="a", prefix="/a"), application(name="b", prefix="/b"))
    world.run(1)
    world.deploy(application(name="a", prefix="/b"), application(name="b", prefix="/a"))
    world.run(1)
    prefixes = {each.name: each.route_prefix for each in world.machine.table.applications}
    assert prefixes == {"a": "/b", "b": "/a"}


def test_deploy_after_delete_scales_from_zero_though_old_loads_were_reported():
    world = running(2)
    world.load(ongoing=3)
    world.handle(m.DeleteApplications(names=("app",)))
    world.run(5)
    assert world.machine.applications == {}
    config = AutoscalingConfig(min_replicas=0, max_replicas=2)
    world.deploy(application(deployment(autoscaling_config=config)))
    world.run(1)
    assert world.serving() == []  # the old load started nothing
    world.load(queued=1)
    world.run(1)
    assert len(world.serving()) == 1
    assert world.deployment().scaling.ongoing == 0


def test_replace_all_deletes_the_other_applications():
    world = running(1)
    world.deploy(application(name="other"), replace_all=True)
    world.run(1)
    assert set(world.machine.applications) == {"other"}


def test_an_external_scaler_sets_the_number_of_replicas():
    world = World()
    world.deploy(application(external_scaler_enabled=True))
    world.run(1)
    world.handle(m.SetReplicas(deployment=D, count=3))
    world.run(1)
    assert len(world.serving()) == 3
    assert world.status() == "RUNNING"


def test_an_external_scaler_must_be_enabled():
    world = running(1)
    with pytest.raises(RayServeException, match="external_scaler_enabled"):
        world.handle(m.SetReplicas(deployment=D, count=3))


def test_a_restart_of_a_replica_starts_the_new_one_first():
    world = running(2)
    world.least_serving[D] = 2
    first = world.serving()[0]
    world.handle(m.RestartReplica(replica_id=first))
    world.run(1)
    assert first not in world.serving()
    assert len(world.serving()) == 2
    with pytest.raises(KeyError):
        world.handle(m.RestartReplica(replica_id=first))


def test_replicas_of_a_draining_node_are_replaced_first():
    world = running(2)
    world.least_serving[D] = 2
    before = set(world.serving())
    world.handle(NodesChanged(nodes=(NODE, "node-2"), draining={NODE: 30.0}))
    world.run(1)
    assert not before & set(world.serving())


def test_a_restarted_controller_keeps_the_replicas():
    world = running(3)
    before = world.serving()
    version = world.machine.table.version
    world.restart_controller(connect=False)
    assert world.serving() == before  # they are published before they connect
    assert world.machine.table.version > version
    assert {each.state.value for each in world.deployment().serving()} == {"RECOVERING"}
    world.restart_controller()
    world.run(60)
    assert world.serving() == before
    assert len(world.started) == 3
    assert world.status() == "RUNNING"
    world.deploy(application(deployment(num_replicas=3)))
    assert len(world.started) == 3


def test_a_replica_that_died_with_the_controller_is_replaced():
    world = running(3)
    gone = world.serving()[0]
    del world.processes[gone]
    world.restart_controller()
    world.run(1)
    assert gone not in world.serving()
    assert len(world.serving()) == 3


def test_a_replica_that_ran_although_its_snapshot_is_older_drains():
    world = running(2)
    world.start_s = lambda code: 0.5
    before = set(world.serving())
    world.deploy(application(deployment(num_replicas=3)))
    world.run(0.1)
    saved = world.machine.save()
    world.run(1)
    (third,) = set(world.serving()) - before
    assert third in world.subscribers["proxy"].routes[D]
    world.restart_controller(connect=False, saved=saved)
    assert world.deployment().replicas[third].state.value == "STARTING"
    world.deploy(application(deployment(code="v2", num_replicas=2)))
    world.run(0.1)
    assert third not in world.processes
    assert world.killed == []
    world.run(5)
    assert world.codes() == ["v2", "v2"]


def test_a_starting_replica_that_a_restarted_controller_ends_is_killed_in_the_end():
    world = running(2, graceful_shutdown_timeout_s=2)
    world.start_s = lambda code: 100
    world.deploy(application(deployment(num_replicas=3, graceful_shutdown_timeout_s=2)))
    world.run(0.1)
    world.restart_controller()
    world.deploy(application(deployment(num_replicas=2, graceful_shutdown_timeout_s=2)))
    world.run(1)
    assert len(world.processes) == 3
    world.run(3)
    assert len(world.processes) == 2


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_drain_waits_for_the_subscribers_of_the_earlier_controller(comes_back):
    world = running(2)
    world.restart_controller(subscribe=False)
    before = set(world.serving())
    world.deploy(application(deployment(num_replicas=1)))
    world.run(1.0)
    (left,) = before - set(world.serving())
    assert world.processes[left].state == "runs"  # the proxy may still send calls to it
    if comes_back:
        world.handle(SubscriberJoined(subscriber="proxy", process="proxy"))
        world.run(0.1)
    else:
        world.run(1.1)
    assert left not in world.processes


def test_a_drain_does_not_wait_for_a_subscriber_whose_process_ended():
    world = running(3)
    ended = world.serving()[0]
    world.subscribe(ended)  # it calls other deployments
    world.restart_controller(subscribe=False)
    world.handle(SubscriberJoined(subscriber="proxy", process="proxy"))
    del world.subscribers[ended]
    world.end(ended)
    before = set(world.serving())
    world.deploy(application(deployment(num_replicas=1)))
    world.run(0.2)
    assert len(before & set(world.processes)) == 1


def test_an_update_goes_on_after_a_restart_of_the_controller():
    world = running(6)
    world.start_s = lambda code: 0.5
    world.deploy(application(deployment(code="v2", num_replicas=6)))
    world.run(1.2)
    assert set(world.codes()) == {"v1", "v2"}
    world.restart_controller()
    world.run(20)
    assert world.codes() == ["v2"] * 6
    assert world.status() == "RUNNING"


def test_proxies_start_and_are_replaced():
    world = World()
    options = m.StartProxies(location="HeadOnly", http=_http())
    world.handle(options)
    world.run(0.1)
    (first,) = world.proxies
    assert world.machine.proxies.is_listening()
    world.end_proxy(first)
    world.run(0.1)
    assert list(world.proxies) != [first]
    assert len(world.proxies) == 1
    world.handle(m.Shutdown())
    world.run(1)
    assert world.machine.is_empty
    assert world.proxies == {}


def test_other_proxy_options_are_ignored_with_a_warning():
    world = World()
    world.handle(m.StartProxies(location="HeadOnly", http=_http()))
    world.run(0.1)
    before = list(world.proxies)
    other = m.StartProxies(location="HeadOnly", http=_http(port=1234))
    assert "different HTTP options" in world.machine.proxies.conflict(other)
    world.handle(other)
    assert list(world.proxies) == before
    world.handle(replace(other, replace=True))
    world.run(1)
    (proxy,) = world.proxies.values()
    assert proxy.options.http.port == 1234
    assert [proxy.proxy_id] != before


def test_a_proxy_that_cannot_start_leaves_the_way_free_for_other_options():
    world = World()
    world.proxy_error = b"packed"
    world.handle(m.StartProxies(location="HeadOnly", http=_http()))
    world.run(1)
    assert world.machine.proxies.error == b"packed"
    assert world.proxies == {}
    world.proxy_error = None
    world.handle(m.StartProxies(location="HeadOnly", http=_http(port=9)))
    world.run(1)
    assert world.machine.proxies.is_listening()
    assert world.machine.proxies.error is None


def test_shutdown_ends_everything_and_refuses_to_deploy():
    world = running(2)
    world.handle(m.Shutdown())
    with pytest.raises(RayServeException):
        world.deploy(application(name="late"))
    world.run(1)
    assert world.machine.is_empty
    assert world.processes == {}


def _http(**options):
    return replace(HTTPOptions(), **options)
