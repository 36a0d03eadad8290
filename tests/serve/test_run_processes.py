"""Applications on this machine: run, change, fail, delete, with real processes."""

import asyncio
import os
import subprocess
import sys

import httpx
import pytest

import syncline
from syncline import serve
from syncline.serve.exceptions import DeploymentUnavailableError, RayServeException
from syncline.serve.schema import ServeStatus
from syncline.testing.programs import free_port

pytestmark = pytest.mark.processes

SMALL = {"num_cpus": 0.1}


@serve.deployment(ray_actor_options=SMALL)
class Echo:
    def __init__(self, greeting="hello"):
        self.greeting = greeting
        self.config = None

    def reconfigure(self, config):
        self.config = config

    def __call__(self, request):
        return {"greeting": self.greeting, "config": self.config, "pid": os.getpid()}

    def state(self):
        return self.greeting, self.config, os.getpid()


@serve.deployment(ray_actor_options=SMALL)
class Broken:
    def __init__(self):
        self.load()

    def load(self):
        raise ValueError("the weights are missing")


@pytest.fixture(scope="module")
def url():
    port = free_port()
    syncline.init(num_cpus=2)
    serve.start(http_options={"port": port})
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()
    assert serve.status() == ServeStatus()
    syncline.shutdown()


@pytest.fixture(autouse=True)
def deleted(url):
    yield
    for name in serve.status().applications:
        serve.delete(name)


def test_application_answers_http_and_handles(url):
    handle = serve.run(Echo.bind("hi"), name="echo", route_prefix="/echo")
    assert httpx.get(f"{url}/echo", timeout=60).json()["greeting"] == "hi"
    assert handle.state.remote().result()[0] == "hi"
    assert serve.get_app_handle("echo").state.remote().result()[0] == "hi"
    application = serve.status().applications["echo"]
    assert application.status == "RUNNING"
    assert application.deployments["Echo"].replica_states == {"RUNNING": 1}
    assert set(serve.status().proxies.values()) == {"HEALTHY"}


def test_running_the_same_again_changes_nothing(url):
    first = serve.run(Echo.bind("hi")).state.remote().result()
    assert serve.run(Echo.bind("hi")).state.remote().result() == first


def test_user_config_and_limits_change_in_place(url):
    before = serve.run(Echo.options(user_config={"a": 1}).bind()).state.remote().result()
    assert before[1] == {"a": 1}
    changed = Echo.options(user_config={"a": 2}, max_ongoing_requests=9, num_replicas=2)
    after = serve.run(changed.bind()).state
    seen = [after.remote().result() for _ in range(20)]
    assert all(state[1] == {"a": 2} for state in seen)
    assert before[2] in {state[2] for state in seen}
    assert serve.status().applications["default"].deployments["Echo"].replica_states == {
        "RUNNING": 2
    }


def test_changed_arguments_replace_the_replicas(url):
    first = serve.run(Echo.bind("a")).state.remote().result()
    second = serve.run(Echo.bind("b")).state.remote().result()
    assert (first[0], second[0]) == ("a", "b")
    assert first[2] != second[2]


def test_failing_constructor_is_raised_with_the_users_frame(url):
    with pytest.raises(RuntimeError, match="Deploying application 'bad' failed") as caught:
        serve.run(Broken.bind(), name="bad")
    text = str(caught.value)
    assert text.rstrip().endswith("ValueError: the weights are missing")
    assert "in load" in text
    assert "test_run_processes.py" in text
    assert serve.status().applications["bad"].status == "DEPLOY_FAILED"
    assert httpx.get(f"{url}/", timeout=30).status_code == 503


def test_failed_update_leaves_the_old_version_running(url):
    serve.run(Echo.options(name="Model").bind("old"))
    with pytest.raises(RuntimeError, match="the weights are missing"):
        serve.run(Broken.options(name="Model").bind())
    assert httpx.get(f"{url}/", timeout=60).json()["greeting"] == "old"


def test_prefix_of_another_application_is_refused(url):
    serve.run(Echo.bind(), name="first", route_prefix="/same")
    with pytest.raises(RayServeException, match=r"(?s)'/same'.*first"):
        serve.run(Echo.bind(), name="second", route_prefix="/same")
    assert list(serve.status().applications) == ["first"]


def test_impossible_resources_are_refused_at_once(url):
    with pytest.raises(RuntimeError, match="asked {'GPU': 1} but this machine has {'GPU': 0}"):
        serve.run(Echo.options(ray_actor_options={"num_gpus": 1}).bind())
    assert serve.status().applications == {}


def test_deleted_application_is_gone(url):
    handle = serve.run(Echo.bind(), name="echo", route_prefix="/echo")
    assert handle.state.remote().result()
    serve.delete("echo")
    assert httpx.get(f"{url}/echo", timeout=60).status_code == 404
    assert serve.status().applications == {}
    serve.delete("echo")
    with pytest.raises(RayServeException, match="does not exist"):
        serve.get_app_handle("echo")


def test_several_applications_run_at_once(url):
    targets = [serve.RunTarget(Echo.bind(n), name=n, route_prefix=f"/{n}") for n in ("a", "b")]
    serve.run_many(targets)
    assert [httpx.get(f"{url}/{n}", timeout=60).json()["greeting"] for n in ("a", "b")] == [
        "a",
        "b",
    ]
    assert httpx.get(f"{url}/-/routes", timeout=60).json() == {"/a": "a", "/b": "b"}


def test_application_without_a_route_answers_handles_only(url):
    handle = serve.run(Echo.bind("x"), route_prefix=None)
    assert handle.state.remote().result()[0] == "x"
    assert httpx.get(f"{url}/", timeout=60).status_code == 404


def test_handles_are_used_in_tasks(url):
    handle = serve.run(Echo.bind("task"))

    @syncline.remote
    def ask(handle):
        return handle.state.remote().result()[0]

    assert syncline.get(ask.remote(handle), timeout=60) == "task"


PROGRAM = """
import socket, sys
import syncline
from syncline import serve

@serve.deployment(ray_actor_options={"num_cpus": 0.1})
def hello(request):
    return "hello"

if __name__ == "__main__":
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        try:
            serve.start(http_options={"port": taken.getsockname()[1]})
        except OSError as error:
            print("refused:", error)
    serve.start(http_options={"port": 0})
    serve.run(hello.bind())
    serve.shutdown()
    serve.shutdown()
    print(serve.status())
    serve.run(hello.bind(), route_prefix=None)
    print("again", hello.name)
"""


def test_program_may_start_again_and_ends_without_a_shutdown(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "refused:" in done.stdout
    assert "in use" in done.stdout
    assert "ServeStatus(proxies={}, applications={}" in done.stdout
    assert "again hello" in done.stdout
    assert "Traceback" not in done.stderr


def test_the_first_broadcast_reaches_every_replica(url):
    handle = serve.run(Echo.options(num_replicas=3).bind(), name="echo", route_prefix=None)
    answers = handle.broadcast("state").results()
    assert len({pid for _, _, pid in answers}) == 3


@pytest.mark.parametrize("where", ["thread", "loop"])
def test_a_replica_is_chosen_for_a_later_call(url, where):
    async def call(handle):
        async with handle.state.choose_replica() as selection:
            answers = [await handle.dispatch(selection) for _ in range(4)]
        return answers, await handle.broadcast("state").results_async()

    @serve.deployment(ray_actor_options=SMALL)
    class Caller:
        def __init__(self, handle):
            self.handle = handle

        async def __call__(self):
            return await call(self.handle)

    echo = Echo.options(num_replicas=2)
    if where == "thread":
        answers, all_answers = asyncio.run(
            call(serve.run(echo.bind(), name="echo", route_prefix=None))
        )
    else:
        caller = serve.run(Caller.bind(echo.bind()), name="echo", route_prefix=None)
        answers, all_answers = caller.remote().result()
    assert len({pid for _, _, pid in answers}) == 1
    assert len({pid for _, _, pid in all_answers}) == 2


def test_a_broadcast_without_replicas_fails(url):
    scaling = {"min_replicas": 0, "max_replicas": 1}
    app = Echo.options(autoscaling_config=scaling).bind()
    handle = serve.run(app, name="echo", route_prefix=None)
    with pytest.raises(DeploymentUnavailableError, match="no running replica"):
        handle.broadcast("state").results()
