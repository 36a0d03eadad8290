"""Actors that replicas of a deployment share, with real processes."""

import os
import signal
import time

import psutil
import pytest

import syncline
from syncline import serve
from syncline.core.api import actors
from syncline.exceptions import RayError
from syncline.serve.config import DeploymentActorConfig
from syncline.serve.wire.deployment_actor_names import PREFIX

pytestmark = pytest.mark.processes

SMALL = {"num_cpus": 0.1}


@syncline.remote
class Counter:
    def __init__(self, start=0):
        self.value = start
        self.context = serve.get_deployment_actor_context()

    def add(self):
        self.value += 1
        return self.value

    def names(self):
        return self.context.app_name, self.context.deployment, self.context.actor_name

    def pid(self):
        return os.getpid()


@syncline.remote
class Broken:
    def __init__(self):
        raise ValueError("the shard is missing")


@serve.deployment(ray_actor_options=SMALL)
class Counted:
    def __init__(self):
        self.first = syncline.get(serve.get_deployment_actor("counter").add.remote())

    def add(self):
        return syncline.get(serve.get_deployment_actor("counter").add.remote())

    def names(self):
        return syncline.get(serve.get_deployment_actor("counter").names.remote())

    def pid(self):
        return syncline.get(serve.get_deployment_actor("counter").pid.remote())

    def unknown(self):
        return serve.get_deployment_actor("other")


def app(start=0, replicas=2, actor_class=Counter, actor_options=SMALL):
    config = DeploymentActorConfig(
        name="counter",
        actor_class=actor_class,
        init_args=(start,) if actor_class is Counter else (),
        actor_options=actor_options,
    )
    return Counted.options(num_replicas=replicas, deployment_actors=[config]).bind()


@pytest.fixture(scope="module", autouse=True)
def session():
    syncline.init(num_cpus=2)
    serve.start(proxy_location="Disabled")
    yield
    serve.shutdown()
    syncline.shutdown()


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    for name in serve.status().applications:
        serve.delete(name)
    assert living() == []


def living():
    """Return the process ids of the deployment actors that live."""
    return [
        actor.pid
        for actor in actors().actors
        if (actor.name or "").startswith(PREFIX) and actor.state != "DEAD"
    ]


def wait_until(condition, limit_s=60.0):
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < limit_s, "the condition did not become true"
        time.sleep(0.02)


def controller_pid():
    (pid,) = [a.pid for a in actors().actors if a.name == "SERVE_CONTROLLER" and a.state != "DEAD"]
    return pid


def answered(call):
    """Call until the call succeeds, and return its result."""
    results = []

    def attempt():
        try:
            results.append(call())
        except (RayError, ValueError):  # it is being restarted
            return False
        return True

    wait_until(attempt)
    return results[0]


def test_replicas_share_an_actor_from_their_constructors_on():
    handle = serve.run(app(10))
    assert handle.add.remote().result() == 13  # two constructors added before
    assert handle.names.remote().result() == ("default", "Counted", "counter")
    assert len(living()) == 1
    with pytest.raises(ValueError, match="no running actor 'other'"):
        handle.unknown.remote().result()


def test_an_actor_ends_with_its_application():
    handle = serve.run(app())
    process = psutil.Process(handle.pid.remote().result())
    serve.delete("default")
    assert living() == []
    wait_until(lambda: not process.is_running())


def test_a_killed_actor_is_restarted():
    handle = serve.run(app(10))
    pid = handle.pid.remote().result()
    os.kill(pid, signal.SIGKILL)
    assert answered(lambda: handle.pid.remote().result()) != pid
    assert handle.add.remote().result() == 11  # a new one, and the same replicas
    wait_until(lambda: serve.status().applications["default"].status == "RUNNING")


def test_other_arguments_replace_the_actor_and_its_replicas():
    handle = serve.run(app(10, replicas=1))
    pid = handle.pid.remote().result()
    assert serve.run(app(20, replicas=1)).add.remote().result() == 22
    wait_until(lambda: pid not in living())
    assert len(living()) == 1
    serve.run(app(20, replicas=1))  # the same: nothing changes
    assert handle.add.remote().result() == 23


def test_an_actor_that_finds_no_room_beside_the_old_one_takes_its_place():
    large = {"num_cpus": 1.5}
    serve.run(app(10, replicas=1, actor_options=large))
    handle = serve.run(app(20, replicas=1, actor_options=large))
    assert handle.add.remote().result() == 22
    assert len(living()) == 1


def test_a_constructor_that_fails_is_shown_with_its_traceback():
    with pytest.raises(RuntimeError, match="the shard is missing") as raised:
        serve.run(app(actor_class=Broken))
    assert "deployment actor 'counter' did not start" in str(raised.value)
    assert "raise ValueError" in str(raised.value)
    deployment = serve.status().applications["default"].deployments["Counted"]
    assert deployment.status == "DEPLOY_FAILED"
    assert deployment.status_trigger == "DEPLOYMENT_ACTOR_FAILED"
    assert living() == []


def test_a_restarted_controller_keeps_watching_the_actor():
    handle = serve.run(app(10))
    pid = handle.pid.remote().result()
    before = controller_pid()
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: controller_pid() not in (None, before))
    assert answered(lambda: serve.status().applications["default"].status) == "RUNNING"
    assert handle.pid.remote().result() == pid
    os.kill(pid, signal.SIGKILL)
    assert answered(lambda: handle.pid.remote().result()) != pid


def test_local_testing_mode_starts_actors_too():
    handle = serve.run(app(10, replicas=1), name="local", _local_testing_mode=True)
    assert handle.add.remote().result() == 12
    assert handle.names.remote().result() == ("local", "Counted", "counter")
    serve.delete("local")
    wait_until(lambda: living() == [])
    with pytest.raises(RuntimeError, match="the shard is missing"):
        serve.run(app(actor_class=Broken), name="local", _local_testing_mode=True)


def test_shutdown_ends_the_actors():
    serve.run(app())
    assert len(living()) == 1
    serve.shutdown()
    assert living() == []
