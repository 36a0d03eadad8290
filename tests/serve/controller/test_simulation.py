"""Autoscaling at scale: 1 000 replicas and bursty arrivals, simulated."""

import math
import random
import sys

from syncline.serve.controller import events as e
from syncline.serve.controller import messages as m
from syncline.serve.wire.routes import DeploymentId
from tests.serve.controller.world import World, application, deployment

D = DeploymentId("app", "D")


def world_with(**autoscaling):
    world = World(cpus=10_000, together=True)
    world.check = lambda: None  # quadratic; other tests check
    world.subscribe()
    options = {"max_replicas": 1000, "target_ongoing_requests": 2, **autoscaling}
    world.deploy(
        application(
            deployment(
                autoscaling_config=options,
                ray_actor_options={"num_cpus": 1},
                health_check_period_s=1e6,
            )
        )
    )
    world.run(5)
    return world


def report(world, total):
    serving = world.serving()
    share = total // max(1, len(serving))
    ongoing = dict.fromkeys(serving, share) if share else dict.fromkeys(serving[:total], 1)
    queued = total - sum(ongoing.values())
    load = m.DeploymentLoad(queued, ongoing)
    world.handle(e.Load(subscriber="proxy", loads={D: load}))


def counts(world):
    return [r.data["after"] for r in world.records if r.kind == "scaled"]


def test_a_burst_reaches_a_thousand_replicas_within_an_interval_and_the_start():
    world = world_with(upscale_delay_s=0)
    report(world, 2000)
    world.run(0.2)
    assert world.deployment().wanted == 1000
    world.run(1)
    assert len(world.serving()) == 1000


def test_bursty_arrivals_do_not_make_the_number_of_replicas_flap():
    world = world_with(upscale_delay_s=1, downscale_delay_s=30, look_back_period_s=5)
    arrivals = random.Random(1)
    for second in range(300):
        base = 160 + 120 * math.sin(second / 50)  # a slow wave with bursts and gaps
        burst = arrivals.choice([0, 0.5, 1, 1, 1, 2])
        for _ in range(4):
            report(world, int(base * burst * arrivals.uniform(0.8, 1.2)))
            world.run(0.25)
    changes = [
        (record.data["after"] > record.data["before"], at)
        for at, record in zip(world.record_times, world.records, strict=True)
        if record.kind == "scaled"
    ]
    turns = [
        (after[1] - before[1], after[0])
        for before, after in zip(changes, changes[1:], strict=False)
        if before[0] != after[0]
    ]
    assert all(seconds >= 30 for seconds, is_up in turns if not is_up)
    assert len(turns) <= 10  # in five minutes; a flapping one turns every second
    assert 60 < max(counts(world)) <= 400


def test_the_cost_of_a_load_report_does_not_depend_on_the_time_that_has_passed():
    world = world_with(min_replicas=100, max_replicas=100)
    assert len(world.serving()) == 100
    loads = [random.Random(n).randrange(100, 300) for n in range(20)]

    def cost():
        """Return the calls of Python functions, which are the same on every machine."""
        calls = 0

        def count(frame, event, argument):
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count)
        try:
            for load in loads:
                report(world, load)
                world.run(0.05)
        finally:
            sys.setprofile(None)
        return calls

    first = cost()
    for _ in range(200):
        report(world, loads[0])
        world.run(3)
    assert cost() < 1.2 * first


def test_a_failed_rollout_of_hundreds_of_replicas_stops_after_few_tries():
    world = World(cpus=10_000, together=True)
    world.check = lambda: None
    world.deploy(application(deployment(num_replicas=300)))
    world.run(2)
    world.broken["v2"] = "broken"
    world.deploy(application(deployment(code="v2", num_replicas=300)))
    world.run(30)
    assert world.status() == "DEPLOY_FAILED"
    assert len(world.serving()) == 300
    assert world.started.count("v2") <= 20 + 60
