"""From the question to the file: one at a time, on any storage, with errors that say what to do.
The tools are played by the test.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyarrow.fs import FSSpecHandler, PyFileSystem

import syncline
from syncline.testing.waiting import eventually
from syncline.train import session as sessions
from syncline.train.storage.context import StorageContext
from syncline.train.workers.profiling import cpu_profile as cpu
from syncline.train.workers.profiling import memory_profile as memory
from syncline.train.workers.profiling import torch_trace
from syncline.train.workers.profiling.profile_request import ProfileError, ProfileRequest
from syncline.train.workers.profiling.profiler import take_profile


class FakeSession:
    """As much of a worker's session as a profile needs."""

    world_rank = 3

    def __init__(self, storage: StorageContext) -> None:
        self.storage = storage


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    syncline.init(local_mode=True, ignore_reinit_error=True)
    yield
    syncline.shutdown()


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StorageContext:
    made = StorageContext(tmp_path, "run")
    monkeypatch.setattr(sessions, "_session", FakeSession(made))
    return made


def drawn(seconds: float, afterwards_s: float, target: Path) -> None:
    target.write_bytes(b"<svg/>")


CPU = ProfileRequest.of({"kind": "cpu", "seconds": 1})


def test_the_file_lies_in_the_run_directory_under_time_rank_and_kind(
    storage: StorageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "record", drawn)
    name = take_profile(CPU)
    assert name.startswith("profiles/20")
    assert name.endswith("-rank-3-cpu.svg")
    assert (Path(storage.experiment_fs_path) / name).read_bytes() == b"<svg/>"


def test_two_within_a_second_have_different_names(
    storage: StorageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "record", drawn)
    assert len({take_profile(CPU) for _ in range(3)}) == 3


def test_the_file_reaches_storage_that_is_no_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem = PyFileSystem(FSSpecHandler(fsspec.filesystem("memory")))
    monkeypatch.setattr(
        sessions, "_session", FakeSession(StorageContext("profiled", "run", filesystem))
    )
    monkeypatch.setattr(cpu, "record", drawn)
    name = take_profile(CPU)
    with filesystem.open_input_stream(f"profiled/run/{name}") as stream:
        assert stream.read() == b"<svg/>"


def test_only_one_profile_is_taken_at_a_time(
    storage: StorageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slow(seconds: float, afterwards_s: float, target: Path) -> None:
        begun.set()
        may_end.wait(60)
        drawn(seconds, afterwards_s, target)

    monkeypatch.setattr(cpu, "record", slow)
    first = threading.Thread(target=take_profile, args=(CPU,))
    first.start()
    eventually(begun.is_set)
    with pytest.raises(ProfileError, match="Rank 3 is being profiled"):
        take_profile(CPU)
    may_end.set()
    first.join()
    assert take_profile(CPU)


def test_a_profile_that_failed_leaves_room_for_the_next_and_no_file(
    storage: StorageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(seconds: float, afterwards_s: float, target: Path) -> None:
        raise ProfileError("py-spy is broken")

    monkeypatch.setattr(cpu, "record", fail)
    for _ in range(2):
        with pytest.raises(ProfileError, match="py-spy is broken"):
            take_profile(CPU)
    assert not (Path(storage.experiment_fs_path) / "profiles").exists()


def test_a_trace_of_a_program_without_torch_is_refused_at_once(
    storage: StorageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(ProfileError, match="has not imported torch"):
        take_profile(ProfileRequest.of({"kind": "torch"}))


def test_a_trace_that_is_too_short_is_kept_and_said_to_be(
    storage: StorageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record(steps: int, seconds: float, target: Path) -> str:
        target.write_bytes(b"{}")
        return "only 2 of 10 steps were made"

    monkeypatch.setattr(torch_trace, "record", record)
    with pytest.raises(
        ProfileError, match=r"only 2 of 10 steps were made. The recorded part is in profiles/.*gz"
    ):
        take_profile(ProfileRequest.of({"kind": "torch"}))
    (kept,) = (Path(storage.experiment_fs_path) / "profiles").iterdir()
    assert kept.read_bytes() == b"{}"


def test_a_missing_tool_is_named_with_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProfileError, match=r"need py-spy.*pip install \"syncline\[dashboard\]\""):
        cpu.record(1, 1, tmp_path / "x.svg")
    monkeypatch.setitem(sys.modules, "memray", None)
    with pytest.raises(ProfileError, match=r"need memray.*pip install \"syncline\[dashboard\]\""):
        memory.record(1, 1, tmp_path / "x.html")


@pytest.mark.parametrize(
    ("said", "explanation"),
    [
        (
            "Error: Permission denied (os error 13)\nReason: Permission denied",
            "--cap-add=SYS_PTRACE",
        ),
        ("Error: Operation not permitted (os error 1)", "ptrace_scope=1"),
        ("Error: No stack counts found", "`syncline stack` shows where"),
        (
            "Error: Failed to find python version\n",
            "py-spy failed: Error: Failed to find python version",
        ),
    ],
)
def test_what_py_spy_says_becomes_cause_and_remedy(said: str, explanation: str) -> None:
    assert explanation in cpu.explained(said, 10.0)


def test_a_tool_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_slow(command: list[str], **options: Any) -> None:
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(subprocess, "run", too_slow)
    with pytest.raises(ProfileError, match="py-spy did not exit within 5 s after"):
        cpu.record(1, 5, tmp_path / "x.svg")


def test_the_heading_of_a_flame_graph_is_no_command_line() -> None:
    svg = '<svg><text id="title" x="1">/usr/bin/py-spy record --pid 1</text><text>b</text></svg>'
    assert cpu.titled(svg, "CPU") == '<svg><text id="title" x="1">CPU</text><text>b</text></svg>'


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        (("RankWatch._look (syncline/launcher/rank_watch.py:69) (2 samples, 66.67%)",), False),
        (
            (
                "RankWatch._look (syncline/launcher/rank_watch.py:69) (2 samples, 66.67%)",
                "recent_calls (syncline/diagnosis/torch_flight_recorder.py:60) (2 samples, 66.67%)",
                "_look (syncline/launcher/rank_watch.py:71) (1 samples, 33.33%)",
            ),
            True,
        ),
        (("_sample (syncline/train/workers/hang_watch.py:140) (3 samples, 100.00%)",), True),
        (("step (train.py:9) (3 samples, 100.00%)",), False),
    ],
)
def test_samples_of_the_watch_alone_are_no_profile(frames: tuple[str, ...], expected: bool) -> None:
    titles = ["all (3 samples, 100%)", "thread (17) (3 samples, 100.00%)", *frames]
    svg = "".join(f"<g><title>{title}</title></g>" for title in titles)
    assert cpu.shows_watch_only(svg) is expected
