"""User code that fails, blocks, hangs or is stopped, in each place where serve calls it."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from syncline import serve
from syncline.testing.programs import free_port, is_alive
from tests.serve.faults.harness import (
    ANSWERED,
    SMALL,
    Load,
    Worker,
    check_all_slots_are_free,
    check_effects,
    events,
    pids,
    post,
    replicas,
    wait_until,
)

pytestmark = pytest.mark.processes


@serve.deployment(ray_actor_options=SMALL)
class Startable:
    """Its constructor raises, hangs or kills its process until it was tried often enough."""

    def __init__(self, effects, good_try=1, how="raise_"):
        effects.note("try", "x")
        if len(effects.ids("try")) < good_try:
            getattr(self, how)()

    def raise_(self):
        raise ValueError("the weights are missing")

    def hang(self):
        time.sleep(1000)

    def kill(self):
        os.kill(os.getpid(), 9)

    def __call__(self, request):
        return "ready"


def test_constructor_that_fails_is_tried_again(port, effects):
    serve.run(Startable.bind(effects, 3, "raise_"))
    assert len(effects.ids("try")) == 3
    assert post(port, "a").text == "ready"


def test_constructor_that_always_fails_is_raised_with_its_traceback(port, effects):
    with pytest.raises(RuntimeError, match=r"(?s)ValueError: the weights are missing") as caught:
        serve.run(Startable.bind(effects, 100, "raise_"))
    assert "in raise_" in str(caught.value)
    assert len(effects.ids("try")) == 3
    assert serve.status().applications["default"].status == "DEPLOY_FAILED"
    answer = post(port, "a")
    assert answer.outcome == "503"
    assert pids() == set()


def test_constructor_that_kills_its_process_is_raised_with_the_cause(port, effects):
    with pytest.raises(RuntimeError, match="SIGKILL"):
        serve.run(Startable.bind(effects, 100, "kill"))
    assert len(effects.ids("try")) == 3


def test_application_whose_constructor_hangs_is_deleted(port, effects):
    failed = []

    def run():
        try:
            serve.run(Startable.bind(effects, 100, "hang"))
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: effects.read())
    pid = effects.read()[0].pid
    serve.delete("default")
    thread.join(30)
    assert len(failed) == 1
    wait_until(lambda: not is_alive(pid))


@pytest.mark.long
@pytest.mark.timeout(120)
def test_constructor_that_hangs_is_named_with_its_stack(port, effects):
    thread = threading.Thread(
        target=lambda: pytest.raises(
            (RuntimeError, serve.exceptions.RayServeException),
            serve.run,
            Startable.bind(effects, 100, "hang"),
        )
    )
    thread.start()
    wait_until(
        lambda: any("constructor" in event and "has not returned" in event for event in events()),
        90,
    )
    (event,) = [each for each in events() if "has not returned" in each]
    assert "test_failing_code.py" in event
    assert "in hang" in event
    assert "has not returned" in serve.status().applications["default"].message
    serve.delete("default")
    thread.join(30)


@serve.deployment(ray_actor_options=SMALL)
class Hooks:
    """Each hook raises if the user configuration names it."""

    def __init__(self):
        self.bad = ()

    def reconfigure(self, config):
        self.bad = config
        self.fail("reconfigure")

    def check_health(self):
        self.fail("check_health")

    def __del__(self):
        self.fail("__del__")

    def fail(self, hook):
        if hook in self.bad:
            raise ValueError(f"{hook} is broken")

    def __call__(self, request):
        return "ready"


def test_reconfigure_that_fails_at_first_fails_the_deployment(port, effects):
    with pytest.raises(RuntimeError, match="reconfigure is broken"):
        serve.run(Hooks.options(user_config=["reconfigure"]).bind())


def test_reconfigure_that_fails_later_leaves_replicas_serving(port, effects):
    serve.run(Hooks.options(user_config=[], num_replicas=2).bind())
    with Load(port) as load:
        load.wait_for(20)
        with pytest.raises(RuntimeError, match="reconfigure is broken"):
            serve.run(Hooks.options(user_config=["reconfigure"], num_replicas=2).bind())
        load.wait_for(20)
    assert load.outcomes().keys() == {ANSWERED}
    assert serve.status().applications["default"].status == "DEPLOY_FAILED"
    serve.run(Hooks.options(user_config=[], num_replicas=2).bind())
    assert serve.status().applications["default"].status == "RUNNING"


def test_replicas_whose_health_check_fails_are_replaced(port, effects):
    period = {"health_check_period_s": 0.2, "health_check_timeout_s": 5}
    app = Hooks.options(num_replicas=1, **period)
    with pytest.raises(RuntimeError, match="check_health is broken"):
        serve.run(app.options(user_config=["check_health"]).bind())
    serve.delete("default")
    serve.run(app.options(user_config=[]).bind())
    before = pids()
    serve.run(app.options(user_config=["check_health"]).bind())
    wait_until(lambda: any("health checks" in each and "is broken" in each for each in events()))
    wait_until(lambda: not pids() & before)


@serve.deployment(max_ongoing_requests=8, ray_actor_options=SMALL)
class Batches:
    def __init__(self, effects):
        self.effects = effects

    @serve.batch(max_batch_size=4, batch_wait_timeout_s=0.05)
    async def batch(self, items):
        if "bad" in items:
            raise ValueError("the batch is broken")
        if "short" in items:
            return items[:-1]
        return items

    @serve.multiplexed(max_num_models_per_replica=2)
    async def load(self, model_id):
        if model_id == "bad":
            raise ValueError("the model is broken")
        return model_id

    async def run(self, item):
        return await self.batch(item)

    async def use(self):
        return await self.load(serve.get_multiplexed_model_id())

    async def hold(self, id, gate):
        self.effects.note("hold", id)
        while not os.path.exists(gate):
            await asyncio.sleep(0.01)
        return id


def test_batch_function_that_fails_answers_all_of_its_callers(port, effects):
    handle = serve.run(Batches.bind(effects))
    for bad, error in (("bad", ValueError), ("short", serve.exceptions.RayServeException)):
        responses = [handle.run.remote(item) for item in (bad, 1, 2, 3)]
        failures = []
        for response in responses:
            try:
                response.result(timeout_s=30)
            except error as failure:
                failures.append(failure)
        assert failures
        assert handle.run.remote("good").result(timeout_s=30) == "good"
    check_all_slots_are_free(handle, effects, 8)


def test_model_loader_that_fails_fails_only_its_requests(port, effects):
    handle = serve.run(Batches.bind(effects))
    for _ in range(5):
        with pytest.raises(ValueError, match="the model is broken"):
            handle.options(multiplexed_model_id="bad").use.remote().result(timeout_s=30)
    good = handle.options(multiplexed_model_id="good").use.remote()
    assert good.result(timeout_s=30) == "good"
    check_all_slots_are_free(handle, effects, 8)


PROGRAM = """
import sys, threading, time
from syncline import serve
from tests.serve.faults.harness import pids, post

@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0.1})
class Blocking:
    async def __call__(self, request):
        if request.url.path == "/block":
            self.block()
        return "done"

    def block(self):
        time.sleep(2.5)

    def __del__(self):
        raise ValueError("__del__ is broken")

if __name__ == "__main__":
    port = int(sys.argv[1])
    serve.start(http_options={"port": port})
    serve.run(Blocking.bind())
    before = pids()
    thread = threading.Thread(target=post, args=(port, "blocker", "/block"))
    thread.start()
    thread.join()
    print([post(port, f"after{n}").text for n in range(8)], pids() == before)
    serve.delete("default")
    print(serve.status().applications)
"""


def test_blocked_loops_and_failing_destructors_are_logged_and_stop_nothing(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(script), str(free_port())],
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines() == [f"{['done'] * 8} True", "{}"]
    (line,) = [each for each in done.stderr.splitlines() if "blocks the event loop" in each]
    assert "Request blocker (POST /)" in line
    assert f"{script}:14 in block" in line
    assert done.stderr.count("ValueError: __del__ is broken") == 2


def test_stopped_replica_is_replaced_and_its_requests_are_answered(port, effects):
    checks = {"health_check_period_s": 0.3, "health_check_timeout_s": 0.7}
    handle = serve.run(Worker.options(num_replicas=2, **checks).bind(effects))
    victim = min(pids())
    with Load(port, handle=handle) as load:
        load.wait_for(20)
        os.kill(victim, signal.SIGSTOP)
        wait_until(lambda: len(replicas()) == 2 and victim not in pids())
        wait_until(lambda: not is_alive(victim))
        load.wait_for(20)
    died = load.having("502", "ReplicaUnavailableError")
    assert load.outcomes().keys() <= {ANSWERED, "502", "ReplicaUnavailableError"}
    assert all("did not answer health checks" in each.text for each in died.values()), died
    check_effects(effects, load.answers)
