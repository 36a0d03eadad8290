import asyncio
import logging
import threading
import time

import pytest
from starlette.requests import Request

from syncline.serve.replica import health, process
from syncline.serve.replica.health import LoopWatchdog, blockage_of
from syncline.serve.replica.user_frames import shortened_traceback
from tests.serve.replica.harness import run, staged


@pytest.fixture(autouse=True)
def quick_watchdog(monkeypatch):
    monkeypatch.setattr(
        process, "LoopWatchdog", lambda loop, name: LoopWatchdog(loop, name, limit_s=0.1)
    )


def test_blocked_loop_is_reported_with_request_and_line(tmp_path, caplog):
    caplog.set_level(logging.WARNING, "syncline.serve")

    def compute() -> None:
        time.sleep(0.4)  # the blocking line

    async def handler(request: Request):
        compute()
        return "done"

    async def scenario() -> None:
        async with staged(tmp_path, handler) as stage:
            call = (await stage.connect()).http(request_id="blocks", route="/slow")
            assert (await call.response()).body == b"done"
            while "was blocked for" not in caplog.text:
                await asyncio.sleep(0.01)

    run(scenario)
    line = compute.__code__.co_firstlineno + 1
    assert "Request blocks" in caplog.text
    assert "/slow" in caplog.text
    assert f"test_health.py:{line} in compute" in caplog.text


def test_handlers_that_await_or_run_in_threads_block_nothing(tmp_path, caplog):
    caplog.set_level(logging.WARNING, "syncline.serve")

    class Quiet:
        async def __call__(self):
            await asyncio.sleep(0.3)

        def sync(self):
            time.sleep(0.3)

    async def scenario() -> None:
        async with staged(tmp_path, Quiet) as stage:
            caller = await stage.connect()
            calls = [caller.call("__call__"), caller.call("sync")]
            for call in calls:
                await call.value()

    run(scenario)
    assert "blocks" not in caplog.text


def test_constructor_that_takes_long_is_reported_with_its_line(tmp_path, caplog, monkeypatch):
    caplog.set_level(logging.WARNING, "syncline.serve")
    monkeypatch.setattr(health, "CONSTRUCTOR_S", 0.1)

    class Slow:
        def __init__(self) -> None:
            time.sleep(0.4)

    async def scenario() -> None:
        async with staged(tmp_path, Slow):
            pass

    run(scenario)
    assert "The constructor of replica app#D#x1 has taken 0 s" in caplog.text
    assert "in __init__" in caplog.text


def test_blockage_outside_of_requests_has_no_call():
    go = threading.Event()
    thread = threading.Thread(target=go.wait)
    thread.start()
    assert thread.ident is not None
    blockage = blockage_of(thread.ident)
    go.set()
    thread.join()
    assert blockage.call is None
    assert "threading.py" in blockage.line
    assert blockage_of(-1).line == "an unknown line"


def test_frames_below_the_one_that_runs_the_loop_are_not_user_code():
    begun, go = threading.Event(), threading.Event()
    loop = {"begun": begun, "go": go}
    exec(
        compile(
            "def run(): begun.set(), go.wait()", "/x/syncline/serve/replica/process.py", "exec"
        ),
        loop,
    )
    user = {"run": loop["run"]}
    exec(compile("def below(): run()", "program.py", "exec"), user)
    thread = threading.Thread(target=user["below"])
    thread.start()
    assert begun.wait(30)
    blockage = blockage_of(thread.ident)
    go.set()
    thread.join()
    assert not blockage.is_user_code


def test_traceback_begins_with_user_code():
    async def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        asyncio.run(fail())
    error = caught.value
    assert error.__traceback__ is not None
    whole = error.__traceback__ = error.__traceback__.tb_next  # begins in asyncio
    text = shortened_traceback(error)
    assert "asyncio" not in text
    assert "in fail" in text
    assert text.endswith("KeyError: 'mine'")
    assert error.__traceback__ is whole


def test_traceback_without_user_code_is_whole():
    with pytest.raises(ValueError) as caught:
        asyncio.run(None)
    error = caught.value
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next
    assert "runners.py" in shortened_traceback(error)
