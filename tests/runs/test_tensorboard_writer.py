"""TensorBoard files of reported numbers: content, kills, restarts, full disks, size."""

from __future__ import annotations

import errno
import math
import os
from pathlib import Path

import pytest

from syncline.runs import LocalFiles
from syncline.runs.metric_series import numbers
from syncline.runs.tensorboard_writer import ScalarWriter
from tests.event_files import curves, event_files, events


class Objects:
    """Storage of whole objects only, like an object store; records each upload."""

    local_path = None

    def __init__(self) -> None:
        self.uploads: list[tuple[str, bytes]] = []

    def read(self, name: str) -> bytes | None:
        return dict(self.uploads).get(name)

    def write(self, name: str, data: bytes) -> None:
        self.uploads.append((name, data))


def writer(
    directory: Path, now: float = 1700000000.5, first_bytes: int = 5_000_000
) -> ScalarWriter:
    return ScalarWriter(LocalFiles(directory), lambda: now, first_bytes)


def test_numbers_are_scalars_with_their_step_and_time(tmp_path: Path) -> None:
    board = writer(tmp_path)
    board.add(
        0,
        {
            "loss": 0.5,
            "eval": {"top1": 1, "by": {"cat": 0.25}},
            "ok": True,
            "note": "x",
            "list": [1.0],
            "none": None,
        },
    )
    board.add(1, {"loss": 0.25}, time_s=1700000100.0)
    board.close()
    assert curves(tmp_path) == {
        "loss": [(0, 0.5), (1, 0.25)],
        "eval/top1": [(0, 1.0)],
        "eval/by/cat": [(0, 0.25)],
    }
    (path,) = event_files(tmp_path)
    first, second, third = events(path.read_bytes())
    assert first.file_version == "brain.Event:2"
    assert (second.wall_time, third.wall_time) == (1700000000.5, 1700000100.0)


def test_every_step_is_in_the_file_when_the_call_returns(tmp_path: Path) -> None:
    board = writer(tmp_path)
    for step in range(3):
        board.add(step, {"loss": 1.0})
        assert len(curves(tmp_path)["loss"]) == step + 1


def test_not_a_number_and_infinity_are_shown(tmp_path: Path) -> None:
    board = writer(tmp_path)
    board.add(0, {"a": math.nan, "b": math.inf, "c": 10**400})
    shown = curves(tmp_path)
    assert math.isnan(shown["a"][0][1])
    assert (shown["b"], shown["c"]) == ([(0, math.inf)], [(0, math.inf)])


def test_names_have_no_characters_that_tensorboard_refuses(tmp_path: Path) -> None:
    board = writer(tmp_path)
    board.add(0, {"top 1 (%)": 1.0, "bad \udc80": 2.0})
    assert set(curves(tmp_path)) == {"top 1 ___", "bad _"}


def test_reports_without_numbers_make_no_file(tmp_path: Path) -> None:
    board = writer(tmp_path)
    board.add(0, {"note": "x"})
    board.close()
    assert event_files(tmp_path) == []


def test_a_record_that_a_kill_has_torn_takes_nothing_else_with_it(tmp_path: Path) -> None:
    board = writer(tmp_path)
    for step in range(3):
        board.add(step, {"loss": float(step)})
    (path,) = event_files(tmp_path)
    os.truncate(path, path.stat().st_size - 3)
    again = writer(tmp_path)
    again.restart(2)
    again.add(2, {"loss": 2.5})
    assert curves(tmp_path) == {"loss": [(0, 0.0), (1, 1.0), (2, 2.5)]}


@pytest.mark.parametrize(
    "later",
    [1700000001.0, 1700000000.5, 1600000000.0],
    ids=["later", "at once", "with a clock set back"],
)
def test_a_restart_begins_a_file_that_is_read_after_the_others_and_voids_what_is_done_again(
    tmp_path: Path, later: float
) -> None:
    first = writer(tmp_path)
    for step in range(5):
        first.add(step, {"loss": float(step), "rare": 1.0})
    second = writer(tmp_path, later)
    second.restart(3)
    for step in (3, 4, 5):
        second.add(step, {"loss": step + 0.5})
    assert len(event_files(tmp_path)) == 2
    assert curves(tmp_path)["loss"] == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 3.5), (4, 4.5), (5, 5.5)]
    assert [step for step, _ in curves(tmp_path)["rare"]] == [0, 1, 2]


def test_another_attempt_of_one_program_stays_in_its_file(tmp_path: Path) -> None:
    board = writer(tmp_path)
    for step in range(3):
        board.add(step, {"loss": float(step)})
    board.restart(1)
    board.add(1, {"loss": 1.5})
    assert curves(tmp_path) == {"loss": [(0, 0.0), (1, 1.5)]}
    assert len(event_files(tmp_path)) == 1


def test_all_files_together_stay_below_the_limit_and_later_steps_are_still_shown(
    tmp_path: Path,
) -> None:
    for start in range(0, 40_000, 10_000):
        board = writer(tmp_path, 1700000000.0 + start, first_bytes=20_000)
        board.restart(start)
        for step in range(start, start + 10_000):
            board.add(step, {"loss": 1.0, "accuracy": 0.5})
        board.close()
    sizes = [path.stat().st_size for path in event_files(tmp_path)]
    assert len(sizes) == 4
    assert 20_000 < sum(sizes) < 40_000
    steps = [step for step, _ in curves(tmp_path)["loss"]]
    assert steps[:100] == list(range(100))
    assert steps[-1] > 30_000


def test_a_full_disk_leaves_whole_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = writer(tmp_path)
    board.add(0, {"loss": 0.0})
    write, left = os.write, [3]

    def nearly_full(descriptor: int, data: bytes) -> int:
        if left[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = write(descriptor, data[: left[0]])
        left[0] -= count
        return count

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", nearly_full)
        with pytest.raises(OSError, match="No space"):
            board.add(1, {"loss": 1.0})
    board.add(2, {"loss": 2.0})
    assert curves(tmp_path) == {"loss": [(0, 0.0), (2, 2.0)]}


def test_elsewhere_the_file_is_uploaded_when_it_has_grown_and_at_the_end(tmp_path: Path) -> None:
    files = Objects()
    board = ScalarWriter(files, lambda: 1700000000.5)
    board.flush()
    for step in range(100):
        board.add(step, {"loss": float(step)})
        board.flush()
    assert 5 < len(files.uploads) < 60
    board.close()
    assert len({name for name, _ in files.uploads}) == 1
    (tmp_path / "events.out.tfevents.1").write_bytes(files.uploads[-1][1])
    assert [step for step, _ in curves(tmp_path)["loss"]] == list(range(100))


def test_elsewhere_what_is_not_to_be_kept_is_not_uploaded() -> None:
    files = Objects()
    board = ScalarWriter(files)
    board.add(0, {"loss": 1.0})
    board.close(keep=False)
    board.close()
    assert files.uploads == []


def test_a_writer_that_was_closed_goes_on_in_another_file(tmp_path: Path) -> None:
    board = writer(tmp_path)
    for step in range(2):
        board.add(step, {"loss": float(step)})
        board.close()
    assert curves(tmp_path) == {"loss": [(0, 0.0), (1, 1.0)]}
    assert len(event_files(tmp_path)) == 2


def test_nested_numbers_get_paths() -> None:
    assert dict(numbers({"a": 1, "b": {"c": 2.5, "d": {"e": 3}}, "f": False})) == {
        "a": 1,
        "b/c": 2.5,
        "b/d/e": 3,
    }
