"""Calls of handles, as a caller sees the answers."""

import asyncio
import contextvars
import threading
import time
from typing import Any

import numpy as np
import pytest

from syncline.exceptions import RayTaskError, TaskCancelledError
from syncline.serve.context import RequestContext, get_replica_context, request_context
from syncline.serve.exceptions import RayServeException, RequestCancelledError
from syncline.serve.multiplex import get_multiplexed_model_id
from syncline.serve.wire.frames import WINDOW_BYTES, Kind, encode_window
from tests.serve.replica.harness import run, staged


class Model:
    """A deployment with methods of all kinds."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def __call__(self, value: Any) -> Any:
        return value

    async def add(self, left: int, *, right: int = 1) -> int:
        await asyncio.sleep(0)
        return left + right

    def thread(self) -> str:
        return threading.current_thread().name

    def explain(self, word: str) -> None:
        raise KeyError(word)

    def count(self, limit: int):
        for i in range(limit):
            self.events.append(i)
            yield i

    async def acount(self, limit: int):
        try:
            for i in range(limit):
                self.events.append(i)
                yield i
        finally:
            self.events.append("closed")

    def failing(self):
        yield 1
        raise KeyError("later")

    async def afailing(self):
        yield 1
        raise KeyError("later")

    def blocks(self, limit: int, size: int):
        for i in range(limit):
            self.events.append(i)
            yield bytes(size)

    async def ablocks(self, limit: int, size: int):
        for i in range(limit):
            self.events.append(i)
            yield bytes(size)

    async def wait(self) -> str:
        self.events.append("waiting")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.events.append("cancelled")
            raise
        return "waited"

    def seen(self) -> list[Any]:
        return self.events

    async def context(self) -> dict[str, Any]:
        context = request_context.get()
        assert context is not None
        names = ("request_id", "route", "app_name", "session_id")
        return {name: getattr(context, name) for name in names} | {
            "model": get_multiplexed_model_id(),
            "replica": get_replica_context().replica_tag,
            "has_deadline": context.deadline is not None,
        }

    async def child(self, child: Any) -> None:
        context = request_context.get()
        assert context is not None
        context.add_child(child)
        await asyncio.sleep(60)

    async def unpicklable(self) -> Any:
        return threading.Lock()

    _private = 3


def test_results_and_keyword_arguments(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, Model) as stage:
            caller = await stage.connect()
            assert await caller.call("add", 1, right=5).value() == 6
            assert await caller.call("thread").value() == "handler-1"
            array = np.arange(100_000)
            assert (await caller.call("__call__", array).value() == array).all()

    run(scenario)


def test_function_is_called_by_the_name_call(tmp_path):
    async def double(value: int) -> int:
        return 2 * value

    async def scenario() -> None:
        async with staged(tmp_path, double) as stage:
            caller = await stage.connect()
            assert await caller.call("__call__", 4).value() == 8
            with pytest.raises(RayServeException, match="Its methods are: __call__"):
                await caller.call("other", 4).value()

    run(scenario)


def test_error_of_user_code_is_its_own_class_and_a_task_error(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, Model) as stage:
            with pytest.raises(KeyError) as caught:
                await (await stage.connect()).call("explain", "fox").value()
            assert isinstance(caught.value, RayTaskError)
            assert "fox" in str(caught.value)
            assert caught.value.function_name == "D.explain"

    run(scenario)


def test_unknown_method_names_those_that_exist(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, Model) as stage:
            caller = await stage.connect()
            for name in ("explian", "_private"):
                with pytest.raises(RayServeException) as caught:
                    await caller.call(name).value()
                assert not isinstance(caught.value, RayTaskError)
                assert "__call__, ablocks" in str(caught.value)
            with pytest.raises(RayServeException, match="Did you mean 'explain'"):
                await caller.call("explian").value()

    run(scenario)


def test_result_that_cannot_be_sent_is_named(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, Model) as stage:
            with pytest.raises(TypeError, match="lock"):
                await (await stage.connect()).call("unpicklable").value()

    run(scenario)


def test_wrong_arguments_are_a_type_error(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, Model) as stage:
            with pytest.raises(TypeError, match="rihgt"):
                await (await stage.connect()).call("add", 1, rihgt=2).value()

    run(scenario)


@pytest.mark.parametrize("method", ["count", "acount"])
def test_generators_stream_their_items(tmp_path, method):
    async def scenario() -> None:
        async with staged(tmp_path, Model) as stage:
            caller = await stage.connect()
            assert await caller.stream(method, 1_000).items() == list(range(1_000))
            assert await caller.stream(method, 0).items() == []

    run(scenario)


@pytest.mark.parametrize("method", ["failing", "afailing"])
def test_error_of_a_generator_comes_after_its_items(tmp_path, method):
    async def scenario() -> None:
        async with staged(tmp_path, Model) as stage:
            call = (await stage.connect()).stream(method)
            with pytest.raises(KeyError, match="later"):
                await call.items()
            assert [kind for kind, _ in call.seen] == [Kind.CHUNK, Kind.ERROR]

    run(scenario)


@pytest.mark.parametrize("method", ["count", "acount"])
def test_generator_without_stream_is_a_type_error_and_does_not_run(tmp_path, method):
    async def scenario() -> None:
        async with staged(tmp_path, Model) as stage:
            caller = await stage.connect()
            with pytest.raises(TypeError, match="stream=True"):
                await caller.call(method, 3).value()
            assert await caller.call("seen").value() == []

    run(scenario)


@pytest.mark.parametrize(("method", "args"), [("add", (1,)), ("thread", ()), ("__call__", (1,))])
def test_stream_of_something_else_is_a_type_error(tmp_path, method, args):
    async def scenario() -> None:
        async with staged(tmp_path, Model) as stage:
            with pytest.raises(TypeError, match="without `stream=True`"):
                await (await stage.connect()).stream(method, *args).items()

    run(scenario)


@pytest.mark.parametrize("method", ["blocks", "ablocks"])
def test_generator_stops_at_the_window(tmp_path, method):
    async def scenario() -> None:
        async with staged(tmp_path, Model) as stage:
            caller = await stage.connect()
            call = caller.stream(method, 200, 10_000)
            received = 0
            while received < WINDOW_BYTES:
                received += len((await call.next())[1])
            await asyncio.sleep(0.05)
            assert call.frames.empty()
            assert len(await caller.call("seen").value()) < 60
            call.send(Kind.WINDOW, encode_window(3_000_000))
            assert len(await call.items()) == 200

    run(scenario)


@pytest.mark.parametrize("method", ["blocks", "ablocks"])
def test_cancelled_stream_ends_its_generator(tmp_path, method):
    async def scenario() -> None:
        async with staged(tmp_path, Model) as stage:
            caller = await stage.connect()
            call = caller.stream(method, 1_000_000, 10_000)
            await call.next()
            call.send(Kind.CANCEL)
            with pytest.raises(RequestCancelledError):
                await call.items()
            while stage.replica.dispatcher.statistics().admission.ongoing:
                await asyncio.sleep(0.001)  # its thread has ended

    run(scenario)


def test_cancelled_async_generator_is_closed(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, Model) as stage:
            caller = await stage.connect()
            call = caller.stream("acount", 10_000_000)
            await call.next()
            call.send(Kind.CANCEL)
            await call.end(grant=False)
            assert (await caller.call("seen").value())[-1] == "closed"

    run(scenario)


def test_cancellation_reaches_an_async_method(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, Model) as stage:
            caller = await stage.connect()
            call = caller.call("wait")
            while await caller.call("seen").value() != ["waiting"]:
                await asyncio.sleep(0.001)
            call.send(Kind.CANCEL)
            with pytest.raises(TaskCancelledError, match="id-1"):
                await call.value()
            assert await caller.call("seen").value() == ["waiting", "cancelled"]

    run(scenario)


def test_cancelled_sync_method_is_answered_at_once_and_keeps_its_slot(tmp_path):
    began, may_end = threading.Event(), threading.Event()

    class Busy(Model):
        def work(self) -> None:
            began.set()
            may_end.wait(60)
            self.events.append("worked")

    async def scenario() -> None:
        async with staged(tmp_path, Busy, options={"max_ongoing_requests": 1}) as stage:
            caller = await stage.connect()
            call = caller.call("work")
            await asyncio.to_thread(began.wait, 60)
            call.send(Kind.CANCEL)
            with pytest.raises(RequestCancelledError):
                await call.value()
            assert (await caller.call("seen").end())[-1][0] == Kind.BUSY
            may_end.set()
            await asyncio.wait_for(caller.freed.wait(), 60)
            assert await caller.call("seen").value() == ["worked"]

    run(scenario)


def test_deadline_cancels_and_is_a_timeout(tmp_path):
    async def scenario() -> None:
        async with staged(tmp_path, Model) as stage:
            caller = await stage.connect()
            with pytest.raises(TimeoutError, match="id-1"):
                await caller.call_with({"timeout_s": 0.02}, "wait").value()
            assert await caller.call("seen").value() == ["waiting", "cancelled"]

    run(scenario)


def test_cancellation_reaches_the_calls_that_a_method_made(tmp_path):
    class Child:
        cancelled = 0

        def cancel(self) -> None:
            Child.cancelled += 1

    children: list[Child] = [Child(), Child()]

    class Parent:
        async def __call__(self) -> None:
            context = request_context.get()
            assert context is not None
            for child in children:
                context.add_child(child)
            context.remove_child(children[0])
            began.set()
            await asyncio.sleep(60)

    began = asyncio.Event()

    async def scenario() -> None:
        async with staged(tmp_path, Parent) as stage:
            call = (await stage.connect()).call("__call__")
            await began.wait()
            call.send(Kind.CANCEL)
            with pytest.raises(RequestCancelledError):
                await call.value()

    run(scenario)
    assert Child.cancelled == 1


def test_context_has_the_facts_of_the_call(tmp_path):
    meta = {
        "request_id": "r",
        "route": "/x",
        "app": "a",
        "session_id": "s",
        "multiplexed_model_id": "m",
        "timeout_s": 50.0,
    }

    async def scenario() -> None:
        async with staged(tmp_path, Model) as stage:
            caller = await stage.connect()
            assert await caller.call_with(meta, "context").value() == {
                "request_id": "r",
                "route": "/x",
                "app_name": "a",
                "session_id": "s",
                "model": "m",
                "replica": "app#D#x1",
                "has_deadline": True,
            }

    run(scenario)


def test_concurrent_calls_have_their_own_context(tmp_path):
    class Contexts:
        async def __call__(self) -> str:
            await asyncio.sleep(0.001)
            context = contextvars.copy_context()[request_context]
            assert isinstance(context, RequestContext)
            return context.request_id

        def sync(self) -> str:
            time.sleep(0.001)
            context = request_context.get()
            assert context is not None
            return context.request_id

    async def scenario() -> None:
        async with staged(tmp_path, Contexts, options={"max_ongoing_requests": 50}) as stage:
            caller = await stage.connect()
            for method in ("__call__", "sync"):
                calls = [caller.call_with({"request_id": str(i)}, method) for i in range(50)]
                assert [await call.value() for call in calls] == [str(i) for i in range(50)]
        assert request_context.get() is None

    run(scenario)


def test_sync_methods_run_at_the_same_time_up_to_the_limit(tmp_path):
    barrier = threading.Barrier(3)

    def together() -> int:
        return barrier.wait(timeout=60)

    async def scenario() -> None:
        async with staged(tmp_path, together, options={"max_ongoing_requests": 3}) as stage:
            caller = await stage.connect()
            calls = [caller.call() for _ in range(3)]
            assert sorted([await call.value() for call in calls]) == [0, 1, 2]

    run(scenario)
