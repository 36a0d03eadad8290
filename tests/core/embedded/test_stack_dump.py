"""Stack dumps of workers that do not respond, taken from another process."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import syncline
from syncline.core.embedded import stack_dump
from syncline.core.lifecycle import ensure_engine
from syncline.testing import eventually

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def engine() -> Iterator[None]:
    syncline.init(num_cpus=2)
    yield
    syncline.shutdown()


@syncline.remote
class Stuck:
    def pid(self) -> int:
        return os.getpid()

    def hold_the_lock(self, begun: str) -> None:
        """Wait in C code that keeps the interpreter's lock, as some extensions do."""
        Path(begun).touch()
        ctypes.PyDLL(None).sleep(1000)

    def run_threads(self, count: int) -> int:
        """Call functions on other threads from now on; return the process id."""
        for _ in range(count):
            threading.Thread(target=_call_without_end, daemon=True).start()
        return os.getpid()

    def release_the_lock(self, begun: str) -> None:
        Path(begun).touch()
        time.sleep(1000)


def _call_without_end() -> None:
    while True:
        json.dumps([list(range(n)) for n in range(9)], default=str, indent=1)


@pytest.mark.parametrize("method", ["hold_the_lock", "release_the_lock"])
def test_worker_in_c_code_shows_where_it_is(method: str, tmp_path: Path) -> None:
    actor = Stuck.remote()  # type: ignore[attr-defined]
    begun = tmp_path / "begun"
    getattr(actor, method).remote(str(begun))
    eventually(begun.exists)
    found = eventually(
        lambda: _with(method, ensure_engine().stack_of(actor._actor_id)),
        what="the stack has the method",
    )
    assert "most recent call first" in found
    syncline.kill(actor)
    eventually(
        lambda: ensure_engine().stack_of(actor._actor_id) is None,
        what="without a process there is no stack",
    )


def test_second_dump_is_new(tmp_path: Path) -> None:
    actor = Stuck.remote()  # type: ignore[attr-defined]
    pid = syncline.get(actor.pid.remote(), timeout=60)
    first = eventually(lambda: ensure_engine().stack_of(actor._actor_id))
    assert "release_the_lock" not in first
    actor.release_the_lock.remote(str(tmp_path / "begun"))
    eventually((tmp_path / "begun").exists)
    second = eventually(
        lambda: _with("release_the_lock", ensure_engine().stack_of(actor._actor_id))
    )
    assert second.count("release_the_lock") == 1
    assert os.getpgid(pid) == pid


def test_threads_that_run_are_not_disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_dump, "ANSWER_S", 60.0)  # never the second signal
    actor = Stuck.remote()  # type: ignore[attr-defined]
    pid = syncline.get(actor.run_threads.remote(2), timeout=60)
    for _ in range(2000):  # read by a signal handler, the stacks ended some processes
        os.kill(pid, stack_dump.SIGNAL)
        time.sleep(0.0005)
    assert "_call_without_end" in (stack_dump.take(pid) or "")
    assert stack_dump.__file__ not in (stack_dump.take(pid) or "")
    assert syncline.get(actor.pid.remote(), timeout=60) == pid


def test_stopped_process_has_no_dump(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_dump, "ANSWER_S", 0.1)
    monkeypatch.setattr(stack_dump, "URGENT_ANSWER_S", 0.1)
    actor = Stuck.remote()  # type: ignore[attr-defined]
    pid = syncline.get(actor.pid.remote(), timeout=60)
    os.kill(pid, signal.SIGSTOP)
    try:
        assert ensure_engine().stack_of(actor._actor_id) is None
    finally:
        os.kill(pid, signal.SIGCONT)
    assert syncline.get(actor.pid.remote(), timeout=60) == pid


def test_other_processes_are_left_alone() -> None:
    assert stack_dump.take(os.getpid()) is None


def _with(word: str, text: str | None) -> str | None:
    return text if text and word in text else None
