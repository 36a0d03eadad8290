"""Crashes: tasks are retried, actors restart, errors name the process and its exit cause."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import syncline
from syncline.testing.conformance.suite import Suite
from syncline.testing.waiting import eventually


class TaskCrashes(Suite):
    """Crashes of workers that run tasks."""

    needs = ("processes",)

    def test_crash_error_has_the_exit_code(self) -> None:
        @syncline.remote(max_retries=0)
        def crash() -> None:
            os._exit(3)

        with pytest.raises(syncline.exceptions.WorkerCrashedError, match="3"):
            syncline.get(crash.remote(), timeout=60)

    def test_crash_error_has_signal_and_log_tail(self) -> None:
        @syncline.remote(max_retries=0)
        def crash() -> None:
            print("last words", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

        with pytest.raises(syncline.exceptions.WorkerCrashedError, match="SIGKILL") as caught:
            syncline.get(crash.remote(), timeout=60)
        assert "last words" in str(caught.value)

    def test_crashed_task_is_tried_again(self, tmp_path: Path) -> None:
        log = str(tmp_path / "attempts")

        @syncline.remote(max_retries=2)
        def crash_twice() -> int:
            with open(log, "a") as file:
                file.write("x")
            attempts = len(Path(log).read_text())
            if attempts < 3:
                os._exit(1)
            return attempts

        assert syncline.get(crash_twice.remote(), timeout=60) == 3

    def test_retries_are_used_up(self, tmp_path: Path) -> None:
        log = str(tmp_path / "attempts")

        @syncline.remote(max_retries=1)
        def crash() -> None:
            with open(log, "a") as file:
                file.write("x")
            os._exit(1)

        with pytest.raises(syncline.exceptions.WorkerCrashedError):
            syncline.get(crash.remote(), timeout=60)
        assert len(Path(log).read_text()) == 2

    def test_other_tasks_survive_a_crash(self) -> None:
        @syncline.remote(max_retries=0)
        def crash() -> None:
            os._exit(1)

        @syncline.remote
        def work(x: int) -> int:
            return x

        refs = [work.remote(i) for i in range(20)]
        crashed = crash.remote()
        more = [work.remote(i) for i in range(20)]
        assert syncline.get(refs + more, timeout=60) == [*range(20), *range(20)]
        with pytest.raises(syncline.exceptions.WorkerCrashedError):
            syncline.get(crashed, timeout=60)

    def test_idle_worker_that_is_killed_is_replaced(self) -> None:
        @syncline.remote
        def pid() -> int:
            return os.getpid()

        for _ in range(3):
            os.kill(syncline.get(pid.remote(), timeout=60), signal.SIGKILL)
        assert syncline.get([pid.remote() for _ in range(4)], timeout=60)

    def test_task_that_waits_in_get_is_tried_again(self, tmp_path: Path) -> None:
        marks = str(tmp_path / "pid"), str(tmp_path / "go")

        @syncline.remote
        def held() -> int:
            while not Path(marks[1]).exists():
                time.sleep(0.005)
            return 5

        @syncline.remote(max_retries=1)
        def waiter(box: list[Any]) -> object:
            Path(marks[0]).write_text(str(os.getpid()))
            return syncline.get(box[0])

        inner = held.remote()
        ref = waiter.remote([inner])
        first = eventually(lambda: Path(marks[0]).exists() and Path(marks[0]).read_text())
        os.kill(int(first), signal.SIGKILL)
        Path(marks[1]).touch()
        assert syncline.get(ref, timeout=60) == 5

    def test_max_calls_replaces_the_process(self) -> None:
        @syncline.remote(max_calls=1)
        def pid() -> int:
            return os.getpid()

        pids = [syncline.get(pid.remote(), timeout=60) for _ in range(3)]
        assert len(set(pids)) == 3
        eventually(lambda: not psutil.pid_exists(pids[0]))

    def test_object_put_by_a_process_that_died_stays(self) -> None:
        @syncline.remote
        def make() -> object:
            return [syncline.put(b"x" * 200_000)], os.getpid()

        box, pid = syncline.get(make.remote(), timeout=60)
        os.kill(pid, signal.SIGKILL)
        assert syncline.get(box[0], timeout=60) == b"x" * 200_000


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
            syncline.get(mortal.die.remote(), timeout=60)
        with pytest.raises(syncline.exceptions.ActorDiedError):
            syncline.get(mortal.add.remote(), timeout=60)

    def test_actor_restarts_as_often_as_allowed(self) -> None:
        mortal = Mortal.options(max_restarts=1).remote()
        assert syncline.get([mortal.add.remote(), mortal.add.remote()], timeout=60) == [1, 2]
        with pytest.raises(syncline.exceptions.RayActorError):
            syncline.get(mortal.die.remote(), timeout=60)

        def again() -> object:
            try:
                return syncline.get(mortal.add.remote(), timeout=60)
            except syncline.exceptions.ActorUnavailableError:
                return None

        assert eventually(again) == 1
        with pytest.raises(syncline.exceptions.RayActorError):
            syncline.get(mortal.die.remote(), timeout=60)
        with pytest.raises(syncline.exceptions.ActorDiedError):
            syncline.get(mortal.add.remote(), timeout=60)

    def test_calls_are_retried_on_request(self, tmp_path: Path) -> None:
        mark = str(tmp_path / "crashed")

        @syncline.remote(max_restarts=1, max_task_retries=1)
        class Once:
            def work(self) -> str:
                if not Path(mark).exists():
                    Path(mark).touch()
                    os._exit(1)
                return "done"

        assert syncline.get(Once.remote().work.remote(), timeout=60) == "done"

    def test_killed_actors_process_ends(self) -> None:
        mortal = Mortal.remote()
        pid = syncline.get(mortal.pid.remote(), timeout=60)
        assert pid != os.getpid()
        syncline.kill(mortal)
        eventually(
            lambda: (
                not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
            )
        )

    def test_error_names_class_and_pid(self) -> None:
        mortal = Mortal.remote()
        pid = syncline.get(mortal.pid.remote(), timeout=60)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(syncline.exceptions.ActorDiedError, match="Mortal") as caught:
            syncline.get(mortal.add.remote(), timeout=60)
        assert str(pid) in str(caught.value)

    def test_each_actor_has_its_own_process(self) -> None:
        actors = [Mortal.remote() for _ in range(3)]
        assert len(set(syncline.get([actor.pid.remote() for actor in actors], timeout=60))) == 3
