"""Local testing mode: applications in this process, called through handles."""

import asyncio
import os
import threading
import time

import pytest

from syncline import serve
from syncline.core.api import is_initialized
from syncline.exceptions import TaskCancelledError
from syncline.serve import api
from syncline.serve.exceptions import BackPressureError, RayServeException


@pytest.fixture(autouse=True)
def shut_down():
    yield
    serve.shutdown()
    assert not is_initialized()


ended = threading.Event()


def note_end():
    ended.set()


def run(app, **options):
    return serve.run(app, _local_testing_mode=True, **options)


@serve.deployment
class Scale:
    def __init__(self, factor):
        self.factor = factor
        self.bias = 0
        self.name = serve.get_replica_context().deployment

    def reconfigure(self, config):
        self.bias = config["bias"]

    def __call__(self, value):
        return value * self.factor + self.bias

    def pid(self):
        return os.getpid(), threading.current_thread().name

    def fail(self):
        raise KeyError("wrong")

    def context(self):
        context = serve.get_replica_context()
        return context.app_name, context.deployment, context.servable_object is self, self.name


@serve.deployment(max_ongoing_requests=20)
class Sum:
    def __init__(self, handles, options):
        self.handles = handles
        self.options = options

    async def __call__(self, value):
        values = await asyncio.gather(*[handle.remote(value) for handle in self.handles])
        return sum(values) + await self.options["more"].remote(value)

    async def count(self, n):
        for i in range(n):
            await asyncio.sleep(0)
            yield i

    def words(self, n):
        for i in range(n):
            yield f"w{i}"

    async def wait(self, seconds):
        await asyncio.sleep(seconds)
        return "waited"

    def context(self):
        return serve.get_replica_context().deployment

    def change(self, items):
        items.append(1)
        return items


def graph():
    return Sum.bind([Scale.bind(1), Scale.bind(2)], {"more": Scale.bind(3)})


def test_composed_application_runs_in_this_process():
    handle = run(graph(), name="sum")
    assert handle.remote(10).result() == 60
    assert repr(handle) == "DeploymentHandle(deployment='Sum')"
    scale = serve.get_deployment_handle("Scale_1", app_name="sum")
    pid, thread = scale.pid.remote().result()
    assert pid == os.getpid()
    assert thread != threading.current_thread().name
    assert serve.get_app_handle("sum").remote(1).result() == 6


def test_replica_context_is_that_of_the_deployment():
    handle = run(graph(), name="sum")
    scale = serve.get_deployment_handle("Scale_2", app_name="sum")
    assert scale.context.remote().result() == ("sum", "Scale_2", True, "Scale_2")
    assert handle.context.remote().result() == "Sum"
    with pytest.raises(RayServeException, match="outside of a replica"):
        serve.get_replica_context()


def test_streams_of_async_and_sync_generators():
    handle = run(graph(), name="sum").options(stream=True)
    assert list(handle.count.remote(5)) == [0, 1, 2, 3, 4]
    assert list(handle.words.remote(3)) == ["w0", "w1", "w2"]


def test_arguments_and_results_are_copies():
    handle = run(graph(), name="sum")
    items = [0]
    assert handle.change.remote(items).result() == [0, 1]
    assert items == [0]


def test_errors_keep_their_class():
    run(graph(), name="sum")
    scale = serve.get_deployment_handle("Scale", app_name="sum")
    with pytest.raises(KeyError, match="wrong"):
        scale.fail.remote().result()
    with pytest.raises(RayServeException, match=r"no method 'fial'\. Did you mean 'fail'"):
        scale.fial.remote().result()


def test_responses_are_arguments_of_other_calls():
    run(graph(), name="sum")
    scale = serve.get_deployment_handle("Scale_2", app_name="sum")
    assert scale.remote(scale.remote(1)).result() == 9


def test_timeout_and_cancellation():
    handle = run(graph(), name="sum")
    response = handle.wait.remote(60)
    with pytest.raises(TimeoutError):
        response.result(timeout_s=0.05)
    response.cancel()
    with pytest.raises(TaskCancelledError):
        response.result(timeout_s=60)


def test_full_queue_is_refused():
    @serve.deployment(max_ongoing_requests=1, max_queued_requests=1)
    class Narrow:
        async def __call__(self):
            await asyncio.sleep(0.2)
            return "done"

    handle = run(Narrow.bind())
    responses = [handle.remote() for _ in range(5)]
    outcomes = []
    for response in responses:
        try:
            outcomes.append(response.result(timeout_s=60))
        except BackPressureError:
            outcomes.append("refused")
    assert sorted(outcomes) == ["done", "done", "refused", "refused", "refused"]


def test_update_replaces_the_instance():
    handle = run(Scale.bind(2))
    assert handle.remote(2).result() == 4
    handle = run(Scale.options(user_config={"bias": 5}).bind(3))
    assert handle.remote(2).result() == 11


def test_constructor_error_is_raised_with_the_users_frame():
    @serve.deployment
    class Broken:
        def __init__(self):
            raise ValueError("no weights here")

    with pytest.raises(RuntimeError, match="Deploying application 'default' failed") as caught:
        run(Broken.bind())
    assert "no weights here" in str(caught.value)
    assert "test_local.py" in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(RayServeException):
        serve.get_app_handle("default")


def test_deleted_application_takes_no_calls_and_its_destructor_ran():
    ended.clear()

    @serve.deployment
    class Last:
        def __call__(self):
            return 1

        def __del__(self):
            note_end()

    handle = run(Last.bind())
    assert handle.remote().result() == 1
    serve.delete("default")
    assert ended.is_set()


def test_environment_forces_the_mode(monkeypatch):
    monkeypatch.setenv("RAY_SERVE_FORCE_LOCAL_TESTING_MODE", "1")
    assert serve.run(Scale.bind(4)).remote(2).result() == 8
    assert not is_initialized()


def test_unknown_names_are_refused():
    run(graph(), name="sum")
    with pytest.raises(KeyError, match="Did you mean 'Scale'"):
        serve.get_deployment_handle("Scal", app_name="sum")
    with pytest.raises(RayServeException, match="without `app_name`"):
        serve.get_deployment_handle("Scale")


def test_async_constructor_and_handles_on_an_event_loop():
    @serve.deployment
    class Slow:
        async def __init__(self, other):
            self.value = await other.remote(3)

        async def __call__(self):
            return self.value

    handle = run(Slow.bind(Scale.bind(5)))

    async def ask():
        return await handle.remote()

    assert asyncio.run(ask()) == 15
    began = time.monotonic()
    api.shutdown()
    assert time.monotonic() - began < 5
