"""Cancellation of pending, running and finished tasks."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import syncline
from syncline.exceptions import RayError, TaskCancelledError, WorkerCrashedError
from syncline.testing.conformance.suite import Suite
from syncline.testing.waiting import eventually


class CancellingTheEnded(Suite):
    """Cancellation of finished tasks."""

    def test_cancelling_an_ended_task_changes_nothing(self) -> None:
        @syncline.remote
        def one() -> int:
            return 1

        ref = one.remote()
        assert syncline.get(ref) == 1
        syncline.cancel(ref)
        assert syncline.get(ref) == 1

    def test_cancelling_something_that_is_no_reference_is_refused(self) -> None:
        with pytest.raises(TypeError):
            syncline.cancel(1)

    def test_cancelled_generator_ends_with_the_error(self, tmp_path: Path) -> None:
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
            syncline.get(last, timeout=60)


class Cancelling(Suite):
    """Cancellation of pending and running tasks."""

    needs = ("parallel",)
    init_options = {"num_cpus": 1}

    @staticmethod
    def _loop(started: Path, ended: Path) -> object:
        """Return a task that runs until it is cancelled and records its cancellation."""
        marks = str(started), str(ended)

        @syncline.remote(max_retries=0)
        def loop() -> None:
            Path(marks[0]).touch()
            try:
                while True:
                    time.sleep(0.005)
            finally:
                Path(marks[1]).touch()

        return loop

    def test_queued_task_never_runs(self, tmp_path: Path) -> None:
        blocker = self._loop(tmp_path / "started", tmp_path / "ended").remote()
        eventually((tmp_path / "started").exists)
        mark = str(tmp_path / "ran")

        @syncline.remote
        def touch() -> None:
            Path(mark).touch()

        queued = touch.remote()
        syncline.cancel(queued)
        with pytest.raises(TaskCancelledError):
            syncline.get(queued, timeout=60)
        syncline.cancel(blocker)
        with pytest.raises(TaskCancelledError):
            syncline.get(blocker, timeout=60)
        assert not (tmp_path / "ran").exists()

    def test_running_task_is_interrupted(self, tmp_path: Path) -> None:
        ref = self._loop(tmp_path / "started", tmp_path / "ended").remote()
        eventually((tmp_path / "started").exists)
        syncline.cancel(ref)
        with pytest.raises(TaskCancelledError):
            syncline.get(ref, timeout=60)
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
            syncline.get(ref, timeout=60)

    def test_recursive_cancels_child_tasks(self, tmp_path: Path) -> None:
        loop = self._loop(tmp_path / "started", tmp_path / "ended")

        @syncline.remote(max_retries=0)
        def parent() -> object:
            return syncline.get(loop.remote())

        ref = parent.remote()
        eventually((tmp_path / "started").exists)
        syncline.cancel(ref, recursive=True)
        with pytest.raises(RayError):
            syncline.get(ref, timeout=60)
        eventually((tmp_path / "ended").exists)

    def test_worker_continues_after_a_cancelled_task(self, tmp_path: Path) -> None:
        for i in range(3):
            ref = self._loop(tmp_path / f"started{i}", tmp_path / f"ended{i}").remote()
            eventually((tmp_path / f"started{i}").exists)
            syncline.cancel(ref)
            with pytest.raises(TaskCancelledError):
                syncline.get(ref, timeout=60)

        @syncline.remote
        def one() -> int:
            return 1

        assert syncline.get([one.remote() for _ in range(5)], timeout=60) == [1] * 5
