"""The life of a replica: construction, reconfiguration, health, draining, a new controller."""

import asyncio
import gc
import logging
import os
import threading
from dataclasses import replace
from typing import Any

import pytest
from starlette.requests import Request

from syncline.core import serialization
from syncline.serve.batching import batch
from syncline.serve.context import get_replica_context
from syncline.serve.controller.messages import (
    CheckHealth,
    Drain,
    Drained,
    HealthReport,
    Reconfigure,
    Reconfigured,
    ReplicaFailed,
    ReplicaReady,
)
from syncline.serve.exceptions import RayServeException
from syncline.serve.ingress import ingress
from syncline.serve.logging_config import LoggingConfig
from syncline.serve.wire.connection import Hello, Listener
from syncline.serve.wire.frames import Kind
from tests.serve.replica.harness import KEY, WAIT_S, FakeController, Stage, run, staged

events: list[Any] = []


@pytest.fixture(autouse=True)
def no_events() -> None:
    gc.collect()  # instances of the tests before
    events.clear()


async def message_of(stage: Stage, kind: type) -> Any:
    while True:
        message = await stage.controller.next()
        if isinstance(message, kind):
            return message


def reconfigure(**fields: Any) -> Reconfigure:
    values: dict[str, Any] = {
        "version": 2,
        "user_config": None,
        "user_config_changed": False,
        "max_ongoing_requests": 5,
        "graceful_shutdown_timeout_s": 20.0,
        "health_check_timeout_s": 30.0,
        "rank": 0,
        "world_size": 1,
        **fields,
    }
    return Reconfigure(**values)


class Logging:
    def __init__(self) -> None:
        logging.getLogger("ray.serve").info("constructed")

    def reconfigure(self, config: Any) -> None:
        logging.getLogger("ray.serve").info("reconfigured")


def test_logging_config_applies_from_the_constructor_on_and_changes_in_place(tmp_path):
    logs = tmp_path / "logs"
    first = LoggingConfig(logs_dir=str(logs))

    async def scenario():
        options = {"logging_config": first, "user_config": 1}
        async with staged(tmp_path, Logging, options=options) as stage:
            assert isinstance(stage.ready, ReplicaReady)
            quiet = replace(first, log_level="ERROR")
            change = {"user_config": 2, "user_config_changed": True, "logging_config": quiet}
            stage.controller.notify(reconfigure(**change))
            await message_of(stage, Reconfigured)

    run(scenario)
    (path,) = logs.iterdir()
    messages = [line.rpartition(" -- ")[2] for line in path.read_text().splitlines()]
    assert messages == ["constructed", "reconfigured"]


class Configured:
    """Notes its hooks."""

    def __init__(self, name: str, *, fails: str = "") -> None:
        self.name = name
        self.fails = fails
        context = get_replica_context()
        events.append(("init", name, context.deployment, context.servable_object))
        if fails == "init":
            raise ValueError("no weights")

    def reconfigure(self, config: Any) -> None:
        events.append(("reconfigure", config))
        if self.fails == "reconfigure" or config == "bad":
            raise ValueError("bad config")

    def check_health(self) -> None:
        events.append(("health", threading.current_thread() is threading.main_thread()))
        if self.fails == "health":
            raise RuntimeError("too hot")

    async def __call__(self, request: Request) -> str:
        return self.name

    def __del__(self) -> None:
        events.append("del")


def test_hooks_run_in_order_and_the_replica_reports_itself(tmp_path):
    async def scenario() -> None:
        options = {"user_config": {"a": 1}, "rank": 3, "world_size": 4}
        async with staged(tmp_path, Configured, "x", options=options) as stage:
            ready = stage.ready
            assert isinstance(ready, ReplicaReady)
            assert (ready.replica_id, ready.pid, ready.is_asgi) == ("app#D#x1", os.getpid(), False)
            assert ready.address.unix_path == stage.config.socket_path
            context = get_replica_context()
            assert (context.app_name, context.replica_tag) == ("app", "app#D#x1")
            assert (context.rank, context.rank.rank, context.world_size) == (3, 3, 4)
            assert isinstance(context.servable_object, Configured)
        assert events == [
            ("init", "x", "D", None),
            ("reconfigure", {"a": 1}),
            ("health", False),
            "del",
        ]

    run(scenario)


@pytest.mark.parametrize("fails", ["init", "reconfigure", "health"])
def test_failure_of_a_hook_is_reported_with_its_traceback(tmp_path, fails):
    async def scenario() -> None:
        options = {"user_config": {"a": 1}}
        async with staged(tmp_path, Configured, "x", fails=fails, options=options) as stage:
            failed = stage.ready
            assert isinstance(failed, ReplicaFailed)
            error = serialization.unpack_error(failed.error)
            assert isinstance(error, (ValueError, RuntimeError))
            assert f"{type(error).__name__}: {error}" in failed.traceback
            assert "test_process.py" in failed.traceback
            assert "/replica/process.py" not in failed.traceback
            await asyncio.wait_for(stage.task, WAIT_S)

    run(scenario)


def test_code_that_cannot_be_unpickled_is_reported(tmp_path):
    async def scenario() -> None:
        options = {"func_or_class": b"nonsense"}
        async with staged(tmp_path, Configured, "x", options=options) as stage:
            assert isinstance(stage.ready, ReplicaFailed)

    run(scenario)


def test_async_constructor_and_destructor(tmp_path):
    class Async:
        async def __init__(self, value: int) -> None:  # type: ignore[misc]
            await asyncio.sleep(0.001)
            self.value = value

        async def __call__(self) -> int:
            return self.value

        async def __del__(self) -> None:
            await asyncio.sleep(0.001)
            events.append("del")

    async def scenario() -> None:
        async with staged(tmp_path, Async, 7) as stage:
            assert await (await stage.connect()).call().value() == 7
        assert events == ["del"]

    run(scenario)


@pytest.mark.parametrize("kind", ["class", "function"])
def test_user_config_without_reconfigure_fails(tmp_path, kind):
    async def function() -> None: ...

    class Plain: ...

    async def scenario() -> None:
        definition = Plain if kind == "class" else function
        async with staged(tmp_path, definition, options={"user_config": 1}) as stage:
            assert isinstance(stage.ready, ReplicaFailed)
            error = serialization.unpack_error(stage.ready.error)
            assert isinstance(error, RayServeException)
            assert "reconfigure" in str(error)

    run(scenario)


def test_reconfigure_applies_the_changes(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, Configured, "x") as stage:
            events.clear()
            message = reconfigure(
                user_config="new", user_config_changed=True, max_ongoing_requests=9, world_size=2
            )
            stage.controller.notify(message)
            done = await message_of(stage, Reconfigured)
            assert (done.version, done.traceback) == (2, None)
            assert events == [("reconfigure", "new")]
            assert stage.replica.dispatcher.statistics().admission.limit == 9
            assert get_replica_context().world_size == 2
            stage.controller.notify(reconfigure(version=3))
            await message_of(stage, Reconfigured)
            assert len(events) == 1  # the same user_config is not passed again

    run(scenario)


def test_failed_reconfigure_is_reported_and_the_replica_goes_on(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, Configured, "x") as stage:
            message = reconfigure(user_config="bad", user_config_changed=True)
            stage.controller.notify(message)
            done = await message_of(stage, Reconfigured)
            assert "ValueError: bad config" in done.traceback
            assert (await (await stage.connect()).http().response()).body == b"x"

    run(scenario)


def test_rank_is_passed_to_a_reconfigure_that_takes_it(tmp_path):
    class Ranked:
        async def reconfigure(self, config: Any, rank: int) -> None:
            events.append((config, rank))

    async def scenario() -> None:
        async with staged(tmp_path, Ranked, options={"rank": 1}) as stage:
            stage.controller.notify(reconfigure(rank=2))
            await message_of(stage, Reconfigured)
        assert events == [(None, 1), (None, 2)]

    run(scenario)


def test_health_check_answers_with_the_error(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, Configured, "x") as stage:
            stage.controller.notify(CheckHealth())
            assert (await message_of(stage, HealthReport)).healthy
            get_replica_context().servable_object.fails = "health"
            stage.controller.notify(CheckHealth())
            report = await message_of(stage, HealthReport)
            assert not report.healthy
            assert "RuntimeError: too hot" in report.message

    run(scenario)


class Slow:
    """Answers when the test lets it."""

    go: asyncio.Event

    def __init__(self) -> None:
        Slow.go = asyncio.Event()

    async def __call__(self, request: Request) -> str:
        try:
            await Slow.go.wait()
        except asyncio.CancelledError:
            events.append("cancelled")
            raise
        return "done"


def test_draining_finishes_calls_and_refuses_new_ones(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, Slow) as stage:
            caller = await stage.connect()
            call = caller.http()
            await asyncio.sleep(0.01)
            stage.controller.notify(Drain(timeout_s=10))
            await asyncio.sleep(0.01)
            assert (await caller.http().end())[-1][0] == Kind.BUSY
            assert not stage.task.done()
            Slow.go.set()
            assert (await call.response()).body == b"done"
            await message_of(stage, Drained)
            await asyncio.wait_for(stage.task, WAIT_S)
            assert not caller.freed.is_set()
            await asyncio.wait_for(caller.is_closed.wait(), WAIT_S)

    run(scenario)


def test_calls_that_outlast_the_drain_are_cancelled(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, Slow) as stage:
            call = (await stage.connect()).http()
            await asyncio.sleep(0.01)
            await stage.drain(0.02)
            assert (await call.response()).status >= 400
            assert events == ["cancelled"]

    run(scenario)


def test_idle_replica_drains_at_once(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, Slow) as stage:
            await stage.connect()
            loop = asyncio.get_running_loop()
            began = loop.time()
            await stage.drain(10)
            assert loop.time() - began < 1.0

    run(scenario)


def test_replica_reports_itself_to_a_new_controller(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, Slow) as stage:
            stage.controller.connections[-1].close()
            successor = FakeController()
            hello = Hello(role="controller", id="d", pid=1)
            listener = Listener(hello, KEY, successor.on_ready)
            path = str(tmp_path / "controller.sock")
            await listener.start(path, node_id="node", host=None)
            assert await successor.next() == stage.ready
            stage.controller = successor
            await stage.drain()
            listener.close()

    run(scenario)


def test_failed_startup_of_the_application_is_reported(tmp_path):
    async def app(scope, receive, send) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    async def scenario() -> None:
        async with staged(tmp_path, ingress(app)(type("App", (), {}))) as stage:
            assert isinstance(stage.ready, ReplicaFailed)
            assert "no database" in stage.ready.traceback

    run(scenario)


def test_batches_that_can_never_be_full_are_warned_of(tmp_path, caplog):
    class Batched:
        @batch(max_batch_size=4, max_concurrent_batches=2)
        async def large(self, items: list[int]) -> list[int]:
            return items

        @batch(max_batch_size=5)
        async def fits(self, items: list[int]) -> list[int]:
            return items

    async def scenario() -> None:
        async with staged(tmp_path, Batched):
            assert "`large` will not be full: they take 8 requests" in caplog.text
            assert "`fits`" not in caplog.text

    run(scenario)
