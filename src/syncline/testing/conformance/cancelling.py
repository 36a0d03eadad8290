"""Cancellation of pending, running and finished tasks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline.exceptions import RayError, TaskCancelledError, WorkerCrashedError
from syncline.testing.conformance.suite import Suite
from syncline.testing.tasks import get, one, same
from syncline.testing.waiting import eventually


@syncline.remote(max_retries=0)
def loop(directory: str) -> None:
    """Run until the task is cancelled; create `started` and `ended`."""
    Path(directory, "started").touch()
    try:
        while True:
            time.sleep(0.005)
    finally:
        Path(directory, "ended").touch()


def _started_loop(directory: Path) -> Any:
    ref = loop.remote(str(directory))
    eventually((directory / "started").exists)
    return ref


class CancellingTheEnded(Suite):
    """Cancellation of finished tasks."""

    def test_cancelling_an_ended_task_changes_nothing(self) -> None:
        ref = one.remote()
        assert get(ref) == 1
        syncline.cancel(ref)
        assert get(ref) == 1

    def test_cancelling_something_that_is_no_reference_is_refused(self) -> None:
        with pytest.raises(TypeError):
            syncline.cancel(1)

    def test_cancelled_generator_ends_with_the_error(self) -> None:
        @syncline.remote(num_returns="streaming")
        def endless() -> object:
            i = 0
            while True:
                yield i
                i += 1
                time.sleep(0.001)

        stream = endless.remote()
        assert syncline.get(next(stream)) == 0
        syncline.cancel(stream)
        last = list(stream)[-1]
        with pytest.raises(TaskCancelledError):
            get(last)


class Cancelling(Suite):
    """Cancellation of pending and running tasks."""

    needs = ("parallel",)
    init_options = {"num_cpus": 1}

    def test_queued_task_never_runs(self, tmp_path: Path) -> None:
        blocker = _started_loop(tmp_path)
        mark = str(tmp_path / "ran")

        @syncline.remote
        def touch() -> None:
            Path(mark).touch()

        queued = touch.remote()
        syncline.cancel(queued)
        with pytest.raises(TaskCancelledError):
            get(queued)
        syncline.cancel(blocker)
        with pytest.raises(TaskCancelledError):
            get(blocker)
        assert not (tmp_path / "ran").exists()

    def test_running_task_is_interrupted(self, tmp_path: Path) -> None:
        ref = _started_loop(tmp_path)
        syncline.cancel(ref)
        with pytest.raises(TaskCancelledError):
            get(ref)
        eventually((tmp_path / "ended").exists)

    def test_force_ends_a_task_that_does_not_listen(self, tmp_path: Path) -> None:
        mark = str(tmp_path / "started")

        @syncline.remote(max_retries=0)
        def stubborn() -> None:
            Path(mark).touch()
            while True:
                try:
                    time.sleep(0.005)
                except KeyboardInterrupt:
                    continue

        ref = stubborn.remote()
        eventually((tmp_path / "started").exists)
        syncline.cancel(ref, force=True)
        with pytest.raises((TaskCancelledError, WorkerCrashedError)):
            get(ref)

    def test_all_dependents_of_a_cancelled_task_end(self, tmp_path: Path) -> None:
        refs = [_started_loop(tmp_path)]
        for _ in range(500):
            refs.append(same.remote(refs[-1]))
        syncline.cancel(refs[0])
        for ref in (refs[0], refs[250], refs[-1]):
            with pytest.raises(TaskCancelledError):
                get(ref)

    def test_force_takes_no_other_task_with_it(self, tmp_path: Path) -> None:
        value = syncline.put(1)

        @syncline.remote(max_retries=0)
        def inner(refs: list[Any]) -> object:
            return syncline.get(refs[0])

        for _ in range(20):
            refs = [inner.remote([value]) for _ in range(6)]
            syncline.cancel(refs[0], force=True)
            assert get(refs[1:]) == [1] * 5
        blocked = _started_loop(tmp_path)
        others = [inner.remote([value]) for _ in range(3)]
        syncline.cancel(blocked, force=True)
        assert get(others) == [1] * 3

    def test_recursive_cancels_child_tasks(self, tmp_path: Path) -> None:
        directory = str(tmp_path)

        @syncline.remote(max_retries=0)
        def parent() -> object:
            return syncline.get(loop.remote(directory))

        ref = parent.remote()
        eventually((tmp_path / "started").exists)
        syncline.cancel(ref, recursive=True)
        with pytest.raises(RayError):
            get(ref)
        eventually((tmp_path / "ended").exists)

    def test_worker_continues_after_a_cancelled_task(self, tmp_path: Path) -> None:
        for i in range(3):
            (tmp_path / str(i)).mkdir()
            ref = _started_loop(tmp_path / str(i))
            syncline.cancel(ref)
            with pytest.raises(TaskCancelledError):
                get(ref)
        assert get([one.remote() for _ in range(5)]) == [1] * 5

    def test_method_in_a_thread_can_ask_whether_it_is_cancelled(self, tmp_path: Path) -> None:
        @syncline.remote(max_concurrency=2)
        class Asking:
            def ask(self, started: str, ended: str) -> None:
                context = syncline.get_runtime_context()
                Path(started).touch()
                while not context.is_canceled():
                    time.sleep(0.005)
                Path(ended).touch()

            def is_cancelled(self) -> bool:
                return bool(syncline.get_runtime_context().is_canceled())

        actor = Asking.remote()
        started, ended = tmp_path / "asks", tmp_path / "was-told"
        ref = actor.ask.remote(str(started), str(ended))
        eventually(started.exists)
        assert get(actor.is_cancelled.remote()) is False
        syncline.cancel(ref)
        eventually(ended.exists)
        syncline.kill(actor)
        with pytest.raises(RuntimeError):
            syncline.get_runtime_context().is_canceled()
