"""The controller with real replicas and proxies: updates under load, kills, scaling, the end."""

import asyncio
import os
import signal
import threading
import time
from contextlib import contextmanager

import httpx
import psutil
import pytest

import syncline
from syncline import serve
from syncline.core.api import actors, ensure_engine
from syncline.serve.client import running_client
from syncline.testing.programs import free_port, is_alive
from syncline.testing.waiting import eventually

pytestmark = pytest.mark.processes

SMALL = {"num_cpus": 0.1}


@serve.deployment(ray_actor_options=SMALL)
class Versioned:
    def __init__(self, version):
        self.version = version

    async def __call__(self, request):
        await asyncio.sleep(0.005)
        return {"version": self.version, "pid": os.getpid()}


@serve.deployment(ray_actor_options=SMALL)
class Slow:
    async def __call__(self, request):
        await asyncio.sleep(0.2)
        return os.getpid()


@serve.deployment(ray_actor_options=SMALL)
class Broken:
    def __init__(self):
        raise ValueError("the weights are missing")


@pytest.fixture(scope="module")
def url():
    port = free_port()
    syncline.init(num_cpus=2)
    serve.start(http_options={"port": port})
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()
    syncline.shutdown()


@pytest.fixture(autouse=True)
def no_application_left(url):
    yield
    for name in serve.status().applications:
        serve.delete(name)


@contextmanager
def load(url, clients=4):
    """Send requests all the time; yield the answers and the failures."""
    answers, failures, stop = [], [], threading.Event()

    def ask():
        with httpx.Client(timeout=30) as client:
            while not stop.is_set():
                try:
                    response = client.get(url)
                except httpx.HTTPError as error:
                    failures.append(repr(error))
                    continue
                if response.status_code == 200:
                    answers.append(response.json())
                else:
                    failures.append(response.text)

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(answers) > 20)
        yield answers, failures
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def wait_until(condition, limit_s=30.0):
    """Wait for a condition; return the seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < limit_s, "the condition did not become true"
        time.sleep(0.005)
    return time.monotonic() - began


def replicas(app="default"):
    """Return the running replicas of an application."""
    return [
        replica
        for deployment in running_client().details().deployments
        if deployment.id.app == app
        for replica in deployment.replicas
        if replica.state == "RUNNING"
    ]


def pids(app="default"):
    return {replica.pid for replica in replicas(app)}


def controller_pid():
    (pid,) = [actor.pid for actor in actors().actors if actor.name == "SERVE_CONTROLLER"]
    return pid


def proxy_pid():
    (pid,) = [actor.pid for actor in actors().actors if actor.class_name == "ServeProxy"]
    return pid


@pytest.mark.promise
def test_updates_and_scaling_under_load_lose_no_request(url):
    app = Versioned.options(num_replicas=2)
    serve.run(app.bind(1))
    with load(url) as (answers, failures):
        for version in range(2, 6):
            serve.run(app.bind(version))
            done = len(answers)
            wait_until(lambda done=done: len(answers) > done + 20)
        serve.run(app.options(num_replicas=4).bind(5))
        serve.run(app.options(num_replicas=1).bind(5))
        wait_until(lambda: len(pids()) == 1)
        time.sleep(0.2)
    assert failures == []
    assert answers[-1]["version"] == 5
    assert {answer["version"] for answer in answers} == {1, 2, 3, 4, 5}


def test_the_same_application_keeps_its_processes(url):
    serve.run(Versioned.options(num_replicas=2).bind(1))
    before = pids()
    serve.run(Versioned.options(num_replicas=2).bind(1))
    assert pids() == before


@pytest.mark.promise
def test_a_killed_controller_comes_back_and_keeps_the_replicas(url):
    serve.run(Versioned.options(num_replicas=2).bind(1))
    before, controller = pids(), controller_pid()
    with load(url) as (answers, failures):
        for _ in range(2):
            os.kill(controller_pid(), signal.SIGKILL)
            wait_until(lambda killed=controller: controller_pid() not in (None, killed))
            controller = controller_pid()
            wait_until(lambda: serve.status().applications["default"].status == "RUNNING")
            wait_until(lambda: len(replicas()) == 2)
            done = len(answers)
            wait_until(lambda done=done: len(answers) > done + 20)
        assert pids() == before
        serve.run(Versioned.options(num_replicas=2).bind(2))  # it still decides
        wait_until(lambda: answers[-1]["version"] == 2)
        assert not pids() & before
    assert failures == []


def test_replicas_that_die_with_the_controller_are_replaced(url):
    serve.run(Versioned.options(num_replicas=2).bind(1))
    before = pids()
    os.kill(controller_pid(), signal.SIGKILL)
    os.kill(min(before), signal.SIGKILL)
    wait_until(lambda: len(pids()) == 2 and min(before) not in pids())
    assert max(before) in pids()


@pytest.mark.promise
def test_a_killed_proxy_is_replaced_and_new_connections_wait_for_it(url):
    serve.run(Versioned.bind(1))
    for _ in range(3):
        pid = proxy_pid()
        process = psutil.Process(pid)
        process.kill()
        # A process that is being killed may still finish a system call that accepts a connection.
        eventually(lambda process=process: not is_alive(process), what="the proxy has ended")
        assert httpx.get(url, timeout=30).status_code == 200  # no connection is refused
        assert proxy_pid() != pid


def test_a_killed_replica_is_replaced(url):
    serve.run(Versioned.options(num_replicas=2).bind(1))
    before = pids()
    victim = min(before)
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: len(pids()) == 2 and victim not in pids())
    events = running_client().details().events
    assert any("SIGKILL" in event for event in events), events


def test_a_version_that_does_not_start_leaves_the_old_one_serving(url):
    serve.run(Versioned.options(name="D").bind(1))
    with load(url) as (_, failures):
        with pytest.raises(RuntimeError, match="the weights are missing") as caught:
            serve.run(Broken.options(name="D").bind())
        assert "__init__" in str(caught.value)
        overview = serve.status().applications["default"]
        assert overview.status == "DEPLOY_FAILED"
        assert "the weights are missing" in overview.message
        serve.run(Versioned.options(name="D").bind(1))
        assert serve.status().applications["default"].status == "RUNNING"
    assert failures == []


def test_a_start_that_waits_for_resources_says_so(url):
    serve.run(Versioned.options(ray_actor_options={"num_cpus": 1.5}).bind(1), name="large")
    waiting = Versioned.options(ray_actor_options={"num_cpus": 1}).bind(1)
    thread = threading.Thread(
        target=lambda: serve.run(waiting, name="waiting", route_prefix="/waiting")
    )
    thread.start()
    wait_until(lambda: "waiting" in serve.status().applications)
    wait_until(lambda: "it needs CPU 1" in serve.status().applications["waiting"].message)
    serve.delete("large")
    thread.join(30)
    assert serve.status().applications["waiting"].status == "RUNNING"


def test_without_room_for_two_replicas_the_old_one_goes_first(url):
    one = Versioned.options(ray_actor_options={"num_cpus": 1.2})
    serve.run(one.bind(1))
    serve.run(one.bind(2))
    assert httpx.get(url, timeout=60).json()["version"] == 2
    assert any("do not suffice" in event for event in running_client().details().events)


def test_a_burst_starts_replicas_at_once(url):
    scaling = {"min_replicas": 1, "max_replicas": 4, "upscale_delay_s": 0}
    serve.run(Slow.options(autoscaling_config=scaling).bind())
    answered = set()
    stop = threading.Event()

    def ask():
        with httpx.Client(timeout=30) as client:
            while not stop.is_set():
                answered.add(client.get(url).json())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(answered) == 4)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_from_zero_replicas_and_back(url):
    scaling = {
        "min_replicas": 0,
        "max_replicas": 2,
        "look_back_period_s": 0.5,
        "downscale_delay_s": 0.5,
    }
    serve.run(Slow.options(autoscaling_config=scaling).bind())
    assert pids() == set()
    began = time.monotonic()
    assert httpx.get(url, timeout=30).status_code == 200
    print("from zero to the first answer:", time.monotonic() - began - 0.2)
    wait_until(lambda: pids() == set())


def test_shutdown_ends_all_processes(url):
    serve.run(Versioned.options(num_replicas=2).bind(1))
    known = {controller_pid(), proxy_pid(), *pids()}
    directory = ensure_engine().session_directory / "serve"
    assert directory.stat().st_mode & 0o777 == 0o700
    serve.shutdown()
    wait_until(lambda: not any(map(is_alive, known)))
    assert not directory.exists()
    port = int(url.rpartition(":")[2])
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, timeout=60)
    serve.start(http_options={"port": port})  # and it can start again
