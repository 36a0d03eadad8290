"""The inline engine alone: order, this process, and the time when values are freed."""

from __future__ import annotations

import asyncio
import bdb
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import syncline
from syncline.core.engine import Engine, current_engine
from syncline.exceptions import (
    ActorDiedError,
    ObjectLostError,
    RuntimeEnvSetupError,
    WorkerCrashedError,
)
from syncline.util import state
from syncline.util.state.exception import RayStateApiException


@pytest.fixture(autouse=True)
def engine() -> Iterator[Engine]:
    syncline.init(local_mode=True, num_cpus=2)
    yield current_engine()
    syncline.shutdown()


def _objects(engine: Engine) -> int:
    found: Any = engine.statistics()["objects"]
    return int(found.objects)


def test_task_runs_in_this_process_and_thread_when_it_is_submitted() -> None:
    seen: list[Any] = []

    class Log:
        def __reduce__(self) -> Any:
            return (_the_log, ())

    _logs["log"] = seen

    @syncline.remote
    def work(log: Any) -> None:
        log.append((os.getpid(), threading.get_ident()))

    work.remote(Log())
    assert seen == [(os.getpid(), threading.get_ident())]


_logs: dict[str, list[Any]] = {}


def _the_log() -> list[Any]:
    return _logs["log"]


def test_engine_is_local_mode(engine: Engine) -> None:
    assert engine.is_local_mode


def test_quitting_the_debugger_in_a_task_ends_the_program() -> None:
    @syncline.remote
    def debugged() -> None:
        raise bdb.BdbQuit

    with pytest.raises(bdb.BdbQuit):
        debugged.remote()


def test_ctrl_c_in_a_task_reaches_the_program() -> None:
    @syncline.remote
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted.remote()


def test_missing_packages_are_an_error_of_the_task() -> None:
    @syncline.remote(runtime_env={"pip": ["numpy", "no-such-package-anywhere"]})
    def task() -> None: ...

    with pytest.raises(RuntimeEnvSetupError, match="no-such-package-anywhere"):
        syncline.get(task.remote())


def test_sys_exit_in_a_task_ends_the_task_only() -> None:
    @syncline.remote
    def leave() -> None:
        raise SystemExit(4)

    with pytest.raises(WorkerCrashedError, match="4"):
        syncline.get(leave.remote())


def test_sys_exit_in_an_actor_ends_the_actor() -> None:
    @syncline.remote
    class Leaver:
        def leave(self) -> None:
            raise SystemExit(4)

    leaver = Leaver.remote()  # type: ignore[attr-defined]
    with pytest.raises(ActorDiedError, match="4"):
        syncline.get(leaver.leave.remote())


def test_streaming_generator_runs_only_as_far_as_items_are_requested(tmp_path: Path) -> None:
    log = str(tmp_path / "log")

    @syncline.remote(num_returns="streaming")
    def count() -> Iterator[int]:
        try:
            for i in range(10):
                with open(log, "a") as file:
                    file.write(str(i))
                yield i
        finally:
            Path(log + ".closed").touch()

    stream = count.remote()
    assert not Path(log).exists()
    next(stream)
    next(stream)
    assert Path(log).read_text() == "01"
    del stream
    syncline.put(None)
    assert Path(log + ".closed").exists()


def test_value_is_freed_with_its_last_reference(engine: Engine) -> None:
    before = _objects(engine)
    ref = syncline.put(np.zeros(100_000))
    assert _objects(engine) == before + 1
    copy = [ref]
    del ref
    assert _objects(engine) == before + 1
    copy.clear()
    assert _objects(engine) == before


def test_references_inside_a_value_are_freed_with_it(engine: Engine) -> None:
    before = _objects(engine)
    box = syncline.put([syncline.put(1), {"deep": syncline.put([syncline.put(2)])}])
    assert _objects(engine) == before + 4
    del box
    assert _objects(engine) == before


def test_arguments_and_results_are_freed(engine: Engine) -> None:
    @syncline.remote
    def total(array: Any, box: list[Any]) -> Any:
        return array.sum() + syncline.get(box[0])

    @syncline.remote
    class Keeper:
        def keep(self, box: list[Any]) -> None:
            self.box = box

    before = _objects(engine)
    for _ in range(50):
        assert syncline.get(total.remote(syncline.put(np.ones(1000)), [syncline.put(1)])) == 1001
    assert _objects(engine) == before
    keeper = Keeper.remote()  # type: ignore[attr-defined]
    syncline.get(keeper.keep.remote([syncline.put("kept")]))
    assert _objects(engine) == before + 2  # the actor and the value that it keeps
    del keeper
    assert _objects(engine) == before


def test_items_of_a_generator_are_freed(engine: Engine) -> None:
    @syncline.remote(num_returns="streaming")
    def count() -> Iterator[int]:
        yield from range(20)

    before = _objects(engine)
    stream = count.remote()
    for ref in stream:
        syncline.get(ref)
    del ref
    assert _objects(engine) == before + 1
    del stream
    assert _objects(engine) == before


def test_many_actors_leave_no_threads() -> None:
    @syncline.remote
    class Async:
        async def one(self) -> int:
            await asyncio.sleep(0)
            return 1

    before = threading.active_count()
    for _ in range(20):
        actor = Async.remote()  # type: ignore[attr-defined]
        assert syncline.get(actor.one.remote()) == 1
        del actor
        syncline.put(None)
    assert threading.active_count() <= before + 1


def test_getting_a_freed_object_raises(engine: Engine) -> None:
    ref = syncline.put(1)
    stale = object.__new__(syncline.ObjectRef)
    stale.id = ref.id + 10_000
    with pytest.raises(ObjectLostError, match="does not exist"):
        syncline.get(stale)


def test_session_directory_lives_as_long_as_the_engine(engine: Engine) -> None:
    directory = engine.session_directory
    assert directory.is_dir()
    syncline.shutdown()
    assert not directory.exists()


def test_references_of_an_earlier_session_are_invalid() -> None:
    ref = syncline.put(1)
    syncline.shutdown()
    syncline.init(local_mode=True)
    with pytest.raises(ObjectLostError):
        syncline.get(ref)


def test_shutdown_with_calls_in_progress() -> None:
    @syncline.remote
    class Waiter:
        async def wait(self) -> None:
            await asyncio.Event().wait()

    waiter = Waiter.remote()  # type: ignore[attr-defined]
    ref = waiter.wait.remote()
    assert syncline.wait([ref], timeout=0)[0] == []
    syncline.shutdown()
    assert not syncline.is_initialized()


def test_actor_may_call_itself() -> None:
    @syncline.remote
    class Recursive:
        def factorial(self, n: int) -> int:
            me = syncline.get_runtime_context().current_actor
            return 1 if n == 0 else n * int(syncline.get(me.factorial.remote(n - 1)))

    assert syncline.get(Recursive.remote().factorial.remote(5)) == 120  # type: ignore[attr-defined]


def test_calls_after_a_waiting_one_keep_their_order() -> None:
    @syncline.remote
    class Gate:
        def __init__(self) -> None:
            self.event = asyncio.Event()

        async def wait(self) -> int:
            await self.event.wait()
            return 1

        async def open(self) -> None:
            self.event.set()

    @syncline.remote
    class Recorder:
        def __init__(self) -> None:
            self.seen: list[int] = []

        def note(self, x: int) -> list[int]:
            self.seen.append(x)
            return self.seen

    gate, recorder = Gate.remote(), Recorder.remote()  # type: ignore[attr-defined]
    recorder.note.remote(gate.wait.remote())
    last = recorder.note.remote(2)
    gate.open.remote()
    assert syncline.get(last, timeout=60) == [1, 2]


def test_state_api_lists_actors_and_ended_tasks() -> None:
    @syncline.remote
    class Listed:
        def work(self) -> int:
            return 1

    @syncline.remote
    def fail() -> None:
        raise ValueError("as planned")

    living = Listed.options(name="living").remote()  # type: ignore[attr-defined]
    killed = Listed.remote()  # type: ignore[attr-defined]
    syncline.get(living.work.remote())
    syncline.kill(killed)
    failed = fail.remote()
    states = {row.name: row.state for row in state.list_actors()}
    assert states == {"living": "ALIVE", "": "DEAD"}
    tasks = {row.name: (row.state, row.type) for row in state.list_tasks()}
    assert tasks["fail"] == ("FAILED", "NORMAL_TASK")
    assert tasks["Listed.work"] == ("FINISHED", "ACTOR_TASK")
    assert "as planned" in state.get_task(failed).error_message  # type: ignore[operator]
    assert [row.pid for row in state.list_workers()] == [os.getpid()]
    assert [row.state for row in state.list_nodes()] == ["ALIVE"]
    assert [row.status for row in state.list_jobs()] == ["RUNNING"]
    with pytest.raises(RayStateApiException, match="objects"):
        state.list_objects()
