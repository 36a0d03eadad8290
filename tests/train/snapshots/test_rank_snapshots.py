"""Snapshots of one rank: slots in turn, memory limits, intervals, restarts, registered values."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from syncline.train.snapshots import directory as directories
from syncline.train.snapshots.config import SnapshotConfig, SnapshotSpec
from syncline.train.snapshots.rank_snapshots import RankSnapshots
from syncline.train.snapshots.slot import SnapshotSlot


@pytest.fixture(autouse=True)
def no_processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(directories, "start_reaper", lambda directory, keep_s: None)
    yield
    for path in list(directories._locks):
        os.close(directories._locks.pop(path))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def snapshots(
    folder: Path,
    *,
    config: SnapshotConfig | None = None,
    resume_step: int | None = None,
    rank: int = 0,
    ranks: int = 1,
    agree: Callable[[int], int] = int,
    clock: Callable[[], float] | None = None,
) -> RankSnapshots:
    found = RankSnapshots(
        SnapshotSpec(directory=str(folder / "run"), config=config, resume_step=resume_step),
        rank=rank,
        world_size=ranks,
        local_world_size=ranks,
        agree=agree,
        clock=clock or Clock(),
    )
    found.begin()
    return found


def take(rank: RankSnapshots, state: object, report: int = 0) -> None:
    if rank.advance(0.0):
        rank.take(state, b"{}", report)


def steps(folder: Path) -> list[int]:
    slots = directories.slots_of(folder / "run", 0)
    return sorted(header.step for slot in slots if (header := slot.header()) is not None)


def test_the_last_two_snapshots_are_kept(tmp_path: Path) -> None:
    rank = snapshots(tmp_path)
    for step in range(1, 6):
        take(rank, {"step": step})
        assert steps(tmp_path) == [each for each in (step - 1, step) if each]
    assert rank.statistics().taken == 5


def test_an_attempt_continues_from_its_snapshot_and_forgets_the_others(tmp_path: Path) -> None:
    first = snapshots(tmp_path)
    for step in range(1, 6):
        take(first, {"step": step}, report=step)
    second = snapshots(tmp_path, resume_step=4)
    assert steps(tmp_path) == [4]
    assert second.resumed_readers == b"{}"
    assert second.load() == {"step": 4}
    assert second.load() is None, "later calls return nothing"
    take(second, {"step": "again 5"})
    assert steps(tmp_path) == [4, 5]
    third = snapshots(tmp_path, resume_step=5)
    assert third.load() == {"step": "again 5"}
    fourth = snapshots(tmp_path)
    assert fourth.load() is None
    assert steps(tmp_path) == []


def test_a_snapshot_that_was_not_loaded_is_not_overwritten(tmp_path: Path) -> None:
    take(snapshots(tmp_path), {"step": 1})
    rank = snapshots(tmp_path, resume_step=1)
    with pytest.raises(RuntimeError, match=r"step 1, but the .* call `train.get_snapshot\(\)`"):
        take(rank, {"step": 2})
    assert steps(tmp_path) == [1]


def test_a_state_over_the_limit_is_one_error_with_sizes_and_no_snapshot(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rank = snapshots(tmp_path, config=SnapshotConfig(memory_bytes=4_000_000), ranks=2)
    with caplog.at_level(logging.ERROR, "syncline"):
        for _ in range(3):
            take(rank, b"x" * 3_000_000)
    assert len(caplog.records) == 1
    text = caplog.records[0].message
    assert "The snapshots of rank 0 need 6.0 MB (two of 3.0 MB), but have 2.0 MB" in text
    assert "memory_bytes=4000000" in text
    assert "Training continues without memory snapshots" in text
    assert steps(tmp_path) == []
    assert rank.is_disabled


def test_a_state_that_outgrows_the_limit_leaves_no_old_snapshot(tmp_path: Path) -> None:
    rank = snapshots(tmp_path, config=SnapshotConfig(memory_bytes=1_000_000))
    take(rank, b"x" * 1000)
    assert steps(tmp_path) == [1]
    take(rank, b"x" * 900_000)
    assert steps(tmp_path) == []
    assert not list((tmp_path / "run").glob("rank-00000.[01]"))


def test_a_full_shared_memory_is_an_error_with_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    rank = snapshots(tmp_path)
    monkeypatch.setattr(SnapshotSlot, "write", full)
    take(rank, b"x" * 2_000_000)
    assert "rank 0 (2.0 MB) does not fit into" in caplog.text
    assert "No space left on device" in caplog.text
    assert rank.is_disabled


def test_a_disabled_rank_still_agrees_with_the_others(tmp_path: Path) -> None:
    calls: list[int] = []
    rank = snapshots(
        tmp_path,
        config=SnapshotConfig(memory_bytes=1),
        ranks=2,
        agree=lambda steps: calls.append(steps) or steps,
    )
    for _ in range(3):
        if rank.advance(1e-9):
            rank.take(b"x" * 1000, b"", 0)
    assert rank.is_disabled
    assert len(calls) == 3


def test_snapshots_come_at_intervals_that_rank_0_decides(tmp_path: Path) -> None:
    clock = Clock()
    rank = snapshots(tmp_path, clock=clock)
    taken = []
    for step in range(1, 101):
        if rank.advance(10.0):
            taken.append((step, clock.now))
        clock.now += 0.5
    assert taken[:3] == [(1, 0.0), (2, 0.5), (18, 8.5)], "the interval grows by a factor of 16"
    assert [
        later - sooner for (_, sooner), (_, later) in zip(taken[2:], taken[3:], strict=False)
    ] == [10.0] * (len(taken) - 3)
    other = snapshots(tmp_path, rank=1, ranks=2, agree=lambda steps: 7, clock=clock)
    assert [step for step in range(1, 30) if other.advance(10.0)] == [1, 8, 15, 22, 29]


AUTOMATIC = SnapshotConfig()


def test_a_configuration_without_effect_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    snapshots(tmp_path, config=AUTOMATIC).finish()
    assert "no memory snapshot was taken, because no optimizer made a step" in caplog.text
    caplog.clear()
    rank = snapshots(tmp_path, config=AUTOMATIC)
    rank.advance(0.0)
    rank.finish()
    snapshots(tmp_path).finish()
    assert not caplog.text


class Schedule:
    def __init__(self) -> None:
        self.step = 0

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = state["step"]


def test_registered_values_are_restored_when_they_are_registered(tmp_path: Path) -> None:
    rank = snapshots(tmp_path, config=AUTOMATIC)
    schedule, progress = Schedule(), {"epoch": 0}
    rank.register("schedule", schedule)
    rank.register("progress", progress)
    schedule.step, progress["epoch"] = 5, 2
    assert rank.advance(0.0)
    rank.take_automatic({}, b"", 0)

    rank = snapshots(tmp_path, config=AUTOMATIC, resume_step=1)
    progress = {"epoch": 0, "new": 1}
    rank.register("progress", progress)
    assert progress == {"epoch": 2}
    assert rank.advance(0.0)
    rank.take_automatic({}, b"", 0)

    rank = snapshots(tmp_path, config=AUTOMATIC, resume_step=2)
    rank.register("schedule", schedule := Schedule())
    assert schedule.step == 5, "values that were not registered are carried over"
    with pytest.raises(ValueError, match="schedule=….* called before"):
        rank.register("schedule", schedule)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"every_s": -1}, ValueError, "0 or more seconds"),
        ({"every_s": float("nan")}, ValueError, "0 or more seconds"),
        ({"copy_every_s": -1}, ValueError, "0 or more seconds"),
        ({"copy_every_s": "5"}, TypeError, "not a number of seconds"),
        ({"keep_s": "10"}, TypeError, "not a number of seconds"),
        ({"memory_bytes": 0}, ValueError, "must be positive"),
        ({"memory_bytes": 1.5}, TypeError, "not a number of bytes"),
        ({"automatic": 1}, TypeError, "not a bool"),
    ],
)
def test_wrong_configurations_are_refused(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        SnapshotConfig(**arguments)
