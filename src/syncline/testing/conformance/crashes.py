"""Crashes: tasks are retried, actors restart, errors name the process and its exit cause."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline.testing.conformance.suite import Suite
from syncline.testing.programs import is_alive
from syncline.testing.tasks import count_attempt, crash, get, pid, same, wait_for
from syncline.testing.waiting import eventually


class TaskCrashes(Suite):
    """Crashes of workers that run tasks."""

    needs = ("processes",)

    def test_crash_error_has_the_exit_code(self) -> None:
        with pytest.raises(syncline.exceptions.WorkerCrashedError, match="3"):
            get(crash.remote(3))

    def test_crash_error_has_signal_and_log_tail(self) -> None:
        @syncline.remote(max_retries=0)
        def crash() -> None:
            print("last words", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

        with pytest.raises(syncline.exceptions.WorkerCrashedError, match="SIGKILL") as caught:
            get(crash.remote())
        assert "last words" in str(caught.value)

    def test_crashed_task_is_tried_again(self, tmp_path: Path) -> None:
        log = str(tmp_path / "attempts")

        @syncline.remote(max_retries=2)
        def crash_twice() -> int:
            attempts = count_attempt(log)
            if attempts < 3:
                os._exit(1)
            return attempts

        assert get(crash_twice.remote()) == 3

    def test_retries_are_used_up(self, tmp_path: Path) -> None:
        log = str(tmp_path / "attempts")

        @syncline.remote(max_retries=1)
        def always() -> None:
            count_attempt(log)
            os._exit(1)

        with pytest.raises(syncline.exceptions.WorkerCrashedError):
            get(always.remote())
        assert len(Path(log).read_text()) == 2

    def test_other_tasks_survive_a_crash(self) -> None:
        refs = [same.remote(i) for i in range(20)]
        crashed = crash.remote()
        more = [same.remote(i) for i in range(20)]
        assert get(refs + more) == [*range(20), *range(20)]
        with pytest.raises(syncline.exceptions.WorkerCrashedError):
            get(crashed)

    def test_idle_worker_that_is_killed_is_replaced(self) -> None:
        for _ in range(3):
            os.kill(get(pid.remote()), signal.SIGKILL)
        assert get([pid.remote() for _ in range(4)])

    def test_task_that_waits_in_get_is_tried_again(self, tmp_path: Path) -> None:
        marks = str(tmp_path / "pid"), str(tmp_path / "go")

        @syncline.remote(max_retries=1)
        def waiter(box: list[Any]) -> object:
            Path(marks[0]).write_text(str(os.getpid()))
            return syncline.get(box[0])

        ref = waiter.remote([wait_for.remote(marks[1])])
        first = eventually(lambda: Path(marks[0]).exists() and Path(marks[0]).read_text())
        os.kill(int(first), signal.SIGKILL)
        Path(marks[1]).touch()
        assert get(ref) == marks[1]

    def test_max_calls_replaces_the_process(self) -> None:
        pids = [get(pid.options(max_calls=1).remote()) for _ in range(3)]
        assert len(set(pids)) == 3
        eventually(lambda: not is_alive(pids[0]))

    def test_object_put_by_a_process_that_died_stays(self) -> None:
        @syncline.remote
        def make() -> object:
            return [syncline.put(b"x" * 200_000)], os.getpid()

        box, maker = get(make.remote())
        os.kill(maker, signal.SIGKILL)
        assert get(box[0]) == b"x" * 200_000


@syncline.remote
class Mortal:
    """A counter that dies on demand."""

    def __init__(self) -> None:
        self.value = 0

    def add(self) -> int:
        self.value += 1
        return self.value

    def die(self) -> None:
        os._exit(1)

    def pid(self) -> int:
        return os.getpid()


class ActorCrashes(Suite):
    """Crashes of actors."""

    needs = ("processes",)

    def test_actor_that_dies_is_dead(self) -> None:
        mortal = Mortal.remote()
        with pytest.raises(syncline.exceptions.ActorDiedError, match="1"):
            get(mortal.die.remote())
        with pytest.raises(syncline.exceptions.ActorDiedError):
            get(mortal.add.remote())

    def test_actor_restarts_as_often_as_allowed(self) -> None:
        mortal = Mortal.options(max_restarts=1).remote()
        assert get([mortal.add.remote(), mortal.add.remote()]) == [1, 2]
        with pytest.raises(syncline.exceptions.RayActorError):
            get(mortal.die.remote())

        def again() -> object:
            try:
                return get(mortal.add.remote())
            except syncline.exceptions.ActorUnavailableError:
                return None

        assert eventually(again) == 1
        with pytest.raises(syncline.exceptions.RayActorError):
            get(mortal.die.remote())
        with pytest.raises(syncline.exceptions.ActorDiedError):
            get(mortal.add.remote())

    def test_process_that_ends_in_the_constructor_is_restarted_if_allowed(
        self, tmp_path: Path
    ) -> None:
        @syncline.remote(max_restarts=2)
        class Late:
            def __init__(self, log: str, leave: Any) -> None:
                self.attempt = count_attempt(log)
                if self.attempt < 3:
                    leave(1)

            def which(self) -> int:
                return self.attempt

        for leave in (os._exit, sys.exit):
            late = Late.remote(str(tmp_path / leave.__name__), leave)
            assert get(late.which.remote()) == 3

    def test_calls_are_retried_on_request(self, tmp_path: Path) -> None:
        mark = str(tmp_path / "crashed")

        @syncline.remote(max_restarts=1, max_task_retries=1)
        class Once:
            def work(self) -> str:
                if not Path(mark).exists():
                    Path(mark).touch()
                    os._exit(1)
                return "done"

        assert get(Once.remote().work.remote()) == "done"

    def test_killed_actors_process_ends(self) -> None:
        mortal = Mortal.remote()
        pid = get(mortal.pid.remote())
        assert pid != os.getpid()
        syncline.kill(mortal)
        eventually(lambda: not is_alive(pid))

    def test_error_names_class_and_pid(self) -> None:
        mortal = Mortal.remote()
        pid = get(mortal.pid.remote())
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(syncline.exceptions.ActorDiedError, match="Mortal") as caught:
            get(mortal.add.remote())
        assert str(pid) in str(caught.value)

    def test_killed_actor_ends_while_methods_of_both_kinds_run(self) -> None:
        @syncline.remote(concurrency_groups={"io": 1})
        class Both:
            async def wait(self) -> None:
                await asyncio.sleep(600)

            def block(self) -> None:
                time.sleep(600)

            @syncline.method(concurrency_group="io")
            def block_group(self) -> None:
                time.sleep(600)

            async def pid(self) -> int:
                return os.getpid()

        both = Both.remote()
        pid = get(both.pid.remote())
        refs = [both.wait.remote(), both.block_group.remote(), both.block.remote()]
        syncline.kill(both)
        for ref in refs:
            with pytest.raises(syncline.exceptions.RayActorError):
                get(ref)
        eventually(lambda: not is_alive(pid))

    def test_instance_cleans_up_when_the_actor_ends_in_an_orderly_way(self, tmp_path: Path) -> None:
        @syncline.remote
        class Owner:
            def __init__(self, mark: str) -> None:
                self.mark = mark

            def get(self) -> str:
                return self.mark

            def __del__(self) -> None:
                Path(self.mark).touch()

        owner, other = Owner.remote(str(tmp_path / "a")), Owner.remote(str(tmp_path / "b"))
        get([owner.get.remote(), other.get.remote()])
        owner.__ray_terminate__.remote()
        eventually((tmp_path / "a").exists)
        del other
        eventually((tmp_path / "b").exists)

    def test_each_actor_has_its_own_process(self) -> None:
        actors = [Mortal.remote() for _ in range(3)]
        assert len(set(get([actor.pid.remote() for actor in actors]))) == 3
