"""Placement of replicas and gangs, with real processes: groups, which end with them; labels."""

import os
import signal
import time

import pytest

import syncline
from syncline import serve
from syncline.core.api import ensure_engine
from syncline.serve.client import running_client
from syncline.util import get_current_placement_group

pytestmark = pytest.mark.processes

SMALL = {"num_cpus": 0.1}
LABELS = {"zone": "a", "disk": "fast"}


@serve.deployment(ray_actor_options=SMALL)
class Shard:
    def __call__(self):
        context = serve.get_replica_context()
        group = get_current_placement_group()
        return {
            "pid": os.getpid(),
            "id": context.replica_tag,
            "gang": context.gang_context,
            "bundles": None if group is None else group.bundle_specs,
        }


@pytest.fixture(scope="module")
def engine():
    syncline.init(num_cpus=2, labels=LABELS)
    yield ensure_engine()
    serve.shutdown()
    syncline.shutdown()


@pytest.fixture(autouse=True)
def no_application_left(engine):
    yield
    for name in serve.status().applications:
        serve.delete(name)
    wait_until(lambda: groups(engine) == set())


def wait_until(condition, limit_s=30.0):
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.01)


def facts(handle):
    """Return the facts of each replica by its id."""
    return {each["id"]: each for each in handle.broadcast("__call__").results()}


def groups(engine):
    """Return the names of the placement groups that hold resources."""
    return {row["name"] for row in engine.placement_groups() if row["state"] != "REMOVED"}


def is_running():
    return serve.status().applications["default"].status == "RUNNING"


def test_a_gang_shares_a_placement_group_and_dies_together(engine):
    app = Shard.options(num_replicas=2, gang_scheduling_config={"gang_size": 2}).bind()
    handle = serve.run(app, route_prefix=None)
    before = facts(handle)
    (gang,) = {each["gang"].gang_id for each in before.values()}
    assert groups(engine) == {f"SERVE_GANG::default#Shard#{gang}"}
    for id, each in before.items():
        context = each["gang"]
        assert context.world_size == 2
        assert context.member_replica_ids[context.rank] == id
        assert set(context.member_replica_ids) == set(before)
        assert each["bundles"] == [{"CPU": 0.1}, {"CPU": 0.1}]

    os.kill(next(iter(before.values()))["pid"], signal.SIGKILL)
    wait_until(lambda: is_running() and len(running_ids() - set(before)) == 2)
    after = facts(handle)
    assert len(after) == 2
    assert {each["pid"] for each in before.values()}.isdisjoint(
        each["pid"] for each in after.values()
    )
    (gang,) = {each["gang"].gang_id for each in after.values()}
    wait_until(lambda: groups(engine) == {f"SERVE_GANG::default#Shard#{gang}"})


def running_ids():
    (deployment,) = running_client().details().deployments
    return {each.replica_id for each in deployment.replicas if each.state == "RUNNING"}


def test_replicas_of_a_gang_run_in_their_own_bundles(engine):
    app = Shard.options(
        num_replicas=2,
        gang_scheduling_config={"gang_size": 2},
        placement_group_bundles=[{"CPU": 0.2}, {"CPU": 0.3}],
    ).bind()
    handle = serve.run(app, route_prefix=None)
    for each in facts(handle).values():
        assert each["bundles"] == [{"CPU": 0.2}, {"CPU": 0.3}] * 2


def test_a_gang_that_is_too_large_for_the_machine_is_refused(engine):
    app = Shard.options(
        num_replicas=4, gang_scheduling_config={"gang_size": 4}, ray_actor_options={"num_cpus": 1}
    ).bind()
    with pytest.raises(RuntimeError, match=r"'CPU': 4.* this machine has .*'CPU': 2"):
        serve.run(app, route_prefix=None)


def test_a_replica_runs_in_the_first_of_its_bundles(engine):
    bundles = [{"CPU": 0.2}, {"CPU": 0.3}]
    app = Shard.options(placement_group_bundles=bundles).bind()
    handle = serve.run(app, route_prefix=None)
    (each,) = facts(handle).values()
    assert each["bundles"] == bundles
    assert each["gang"] is None


@pytest.mark.parametrize(
    "options",
    [
        {"ray_actor_options": {**SMALL, "label_selector": {"zone": "a"}}},
        {
            "ray_actor_options": {
                **SMALL,
                "label_selector": {"zone": "b"},
                "fallback_strategy": [{"label_selector": {"zone": "!b", "disk": "fast"}}],
            }
        },
        {
            "placement_group_bundles": [{"CPU": 0.2}, {"CPU": 0.3}],
            "placement_group_bundle_label_selector": [{"zone": "in(a, b)"}],
        },
    ],
    ids=["actor", "fallback", "bundles"],
)
def test_labels_that_the_machine_has_are_accepted(engine, options):
    handle = serve.run(Shard.options(**options).bind(), route_prefix=None)
    assert len(facts(handle)) == 1


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"ray_actor_options": {**SMALL, "label_selector": {"zone": "b"}}}, "a replica.*'zone'"),
        (
            {
                "ray_actor_options": {
                    **SMALL,
                    "label_selector": {"zone": "b"},
                    "fallback_strategy": [{"label_selector": {"disk": "slow"}}],
                }
            },
            "{'zone': 'b'} or {'disk': 'slow'}",
        ),
        (
            {
                "placement_group_bundles": [{"CPU": 0.2}, {"CPU": 0.3}],
                "placement_group_bundle_label_selector": [{}, {"zone": "b"}],
            },
            "bundle 1 .*'zone'",
        ),
        (
            {
                "placement_group_bundles": [{"CPU": 0.2}],
                "placement_group_bundle_label_selector": [{"zone": "b"}],
                "gang_scheduling_config": {"gang_size": 2},
                "num_replicas": 2,
            },
            "bundle 0 .*'zone'",
        ),
    ],
    ids=["actor", "fallback", "bundles", "gang"],
)
def test_labels_that_the_machine_does_not_have_are_refused_at_once(engine, options, wanted):
    with pytest.raises(RuntimeError, match=f"{wanted}.*this machine has {LABELS}"):
        serve.run(Shard.options(**options).bind(), route_prefix=None)
