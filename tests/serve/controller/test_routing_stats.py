"""Statistics of replicas on their way to custom request routers."""

from dataclasses import replace

from syncline.serve.controller import messages as m
from tests.serve.controller.test_state import D
from tests.serve.controller.world import World, application, deployment


def published_stats(router):
    world = World()
    world.subscribe()
    target = replace(deployment(num_replicas=2), request_router=router)
    world.deploy(application(target))
    world.run(1)
    version = world.machine.table.version
    first = world.serving()[0]
    world.handle(m.RoutingStats(replica_id=first, stats={"load": 3}))
    routes = world.machine.table.deployments[D].replicas
    return world.machine.table.version - version, {r.replica_id: r.routing_stats for r in routes}


def test_statistics_are_published_to_the_callers_of_a_deployment_with_a_custom_router():
    versions, stats = published_stats(b"pickled")
    assert versions == 1
    assert sorted(stats.values(), key=len) == [{}, {"load": 3}]


def test_statistics_are_not_published_where_no_router_reads_them():
    assert published_stats(None)[0] == 0


def test_statistics_of_a_replica_that_is_gone_are_ignored():
    world = World()
    world.handle(m.RoutingStats(replica_id="app#D#gone", stats={"load": 3}))
    assert not world.machine.table.deployments
