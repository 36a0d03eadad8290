"""Random walks of the controller's state machine: whatever happens, it comes to rest."""

import random

import pytest

from syncline.serve.controller import messages as m
from syncline.serve.wire.routes import DeploymentId
from tests.serve.controller.world import World, application, deployment

D = DeploymentId("app", "D")


def walk(seed, steps=40):
    """Deploy, kill, fail, restart and load at random; return the world after a quiet time."""
    choose = random.Random(seed)
    world = World(cpus=choose.choice([2, 4, 8, 1000]), seed=seed)
    world.start_s = lambda code: choose.choice([0.0, 0.01, 0.3])
    for index in range(choose.randint(0, 3)):
        world.subscribe(f"caller-{index}", delay_s=choose.choice([0.0, 0.001, 0.4, None]))
    world.subscribe()
    wanted = None
    for _ in range(steps):
        world.run(choose.choice([0, 0.005, 0.05, 0.5, 3]))
        match choose.randrange(12):
            case 0 | 1 | 2:
                wanted = random_target(choose)
                world.deploy(application(wanted))
            case 3 | 4:
                if world.processes:
                    world.end(choose.choice(sorted(world.processes)))
            case 5:
                world.broken = choose.choice([{}, {"v1": "broken"}, {"v2": "broken"}])
            case 6:
                world.restart_controller()
            case 7:
                world.load(queued=choose.randrange(5), ongoing=choose.randrange(20))
            case 8:
                world.rejected_configs = choose.choice([set(), {"b"}])
            case 9:
                if world.serving():
                    world.handle(m.RestartReplica(replica_id=choose.choice(world.serving())))
            case 10:
                for process in world.processes.values():
                    process.healthy = choose.random() < 0.9
                    process.answers = choose.random() < 0.95
            case 11:
                if choose.random() < 0.2:
                    world.handle(m.DeleteApplications(names=("app",)))
                    wanted = None
    return world, wanted


def random_target(choose):
    more = {}
    size = 1
    if choose.random() < 0.4:
        size = choose.choice([1, 2, 3])
        more["gang_scheduling_config"] = {"gang_size": size}
    if choose.random() < 0.3:
        more["autoscaling_config"] = {
            "min_replicas": choose.choice([0, 1, 2 * size]),
            "max_replicas": choose.choice([2, 5]) * size,
            "upscale_delay_s": choose.choice([0, 1]),
            "downscale_delay_s": choose.choice([0.5, 2]),
            "look_back_period_s": 1,
        }
    else:
        more["num_replicas"] = size * choose.randint(1, 6 // size)
    return deployment(
        code=choose.choice(["v1", "v2", "v3"]),
        user_config=choose.choice(["a", "b"]),
        health_check_period_s=1,
        health_check_timeout_s=2,
        graceful_shutdown_timeout_s=choose.choice([0, 2]),
        ray_actor_options={"num_cpus": choose.choice([0, 0.5, 1])},
        **more,
    )


@pytest.mark.parametrize("seed", range(90))
def test_the_controller_comes_to_rest(seed):
    world, wanted = walk(seed)
    world.broken, world.rejected_configs, world.cpus = {}, set(), 1000
    for process in world.processes.values():
        process.healthy = process.answers = True
    world._place()
    world.load()
    if wanted is not None:
        world.deploy(application(wanted))
    world.run(300)
    if wanted is None:
        assert world.machine.applications == {}
        assert world.processes == {}
        return
    assert world.status() == "RUNNING"
    state = world.deployment()
    assert len(world.processes) == len(state.replicas) == len(state.serving()) == state.wanted
    assert set(world.codes()) <= {wanted.code_version}
    configs = {each.version.target.config.user_config for each in state.serving()}
    assert configs <= {wanted.config.user_config}
    assert sorted(each.rank for each in state.serving()) == list(range(state.wanted))
    for subscriber in world.subscribers.values():
        if subscriber.delay_s is not None:
            assert set(subscriber.routes[D]) == set(world.serving())


@pytest.mark.parametrize("seed", range(20))
def test_an_update_never_lowers_the_number_of_replicas_where_there_is_room(seed):
    choose = random.Random(seed)
    world = World(seed=seed)
    world.subscribe(delay_s=choose.choice([0, 0.2]))
    count = choose.randint(1, 9)
    world.start_s = lambda code: choose.choice([0.0, 0.05, 0.5])
    world.deploy(application(deployment(num_replicas=count)))
    world.run(5)
    world.least_serving[D] = count
    for number in range(2, 6):
        if choose.random() < 0.3:
            world.broken[f"v{number}"] = "broken"
        world.deploy(application(deployment(code=f"v{number}", num_replicas=count)))
        world.run(choose.choice([0.1, 0.6, 10]))
        if choose.random() < 0.3:
            world.restart_controller()
    world.run(120)
    assert len(world.serving()) == count
