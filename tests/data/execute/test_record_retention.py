"""Which old records of executions go, and that nothing else does."""

import json
import os
from pathlib import Path

import pytest

from syncline.data.execute import execution_journal as old_runs
from syncline.data.execute.execution_journal import remove_old_records, surplus


def record(
    storage: Path,
    number: int,
    *,
    name: str = "train",
    kind: str = "data",
    status: str | None = "finished",
) -> Path:
    directory = (
        storage / f"data_{name}_2026-01-01_00-{number // 60:02d}-{number % 60:02d}_{number:08x}"
    )
    (directory / "data").mkdir(parents=True)
    (directory / "run.json").write_text(json.dumps({"format": 1, "kind": kind}))
    (directory / "events.jsonl").write_text("")
    (directory / "data" / f"{name}-{number:08x}.jsonl").write_text("{}\n")
    if status is not None:
        (directory / "outcome.json").write_text(json.dumps({"status": status, "time": 1.0}))
    return directory


def left(storage: Path) -> list[str]:
    return sorted(os.listdir(storage))


def test_the_newest_stay(tmp_path):
    made = [record(tmp_path, number, name="z" if number % 2 else "a") for number in range(6)]
    assert remove_old_records(tmp_path, kept=2) == 4
    assert left(tmp_path) == sorted(each.name for each in made[4:])


def test_nothing_goes_while_there_are_few(tmp_path):
    record(tmp_path, 1)
    assert remove_old_records(tmp_path) == 0
    assert len(left(tmp_path)) == 1


@pytest.mark.parametrize("kind", ["train", "tune", None])
def test_other_runs_stay_whatever_they_are_called(tmp_path, kind):
    record(tmp_path, 0, kind=kind)
    assert remove_old_records(tmp_path, kept=0) == 0


def test_what_has_not_ended_stays(tmp_path):
    record(tmp_path, 0, status=None)
    assert remove_old_records(tmp_path, kept=0) == 0


def add_file(run: Path, outside: Path) -> None:
    (run / "notes.txt").write_text("mine")


def add_directory(run: Path, outside: Path) -> None:
    (run / "profiles").mkdir()


def add_file_below(run: Path, outside: Path) -> None:
    (run / "data" / "notes.txt").write_text("mine")


def link_a_file(run: Path, outside: Path) -> None:
    (run / "environment.json").symlink_to(outside / "keep.json")


def link_a_directory(run: Path, outside: Path) -> None:
    for file in (run / "data").iterdir():
        file.unlink()
    (run / "data").rmdir()
    (run / "data").symlink_to(outside)


def link_the_description(run: Path, outside: Path) -> None:
    (run / "run.json").rename(outside / "run.json")
    (run / "run.json").symlink_to(outside / "run.json")


def damage(run: Path, outside: Path) -> None:
    (run / "run.json").write_text("{" * 100_000)


def put_a_pipe(run: Path, outside: Path) -> None:
    (run / "outcome.json").unlink()
    os.mkfifo(run / "outcome.json")


@pytest.mark.parametrize(
    "change",
    [
        add_file,
        add_directory,
        add_file_below,
        link_a_file,
        link_a_directory,
        link_the_description,
        damage,
        put_a_pipe,
    ],
)
def test_a_record_that_somebody_added_to_or_changed_stays(tmp_path, change):
    storage, outside = tmp_path / "storage", tmp_path / "outside"
    outside.mkdir()
    (outside / "keep.json").write_text("keep")
    (outside / "a.jsonl").write_text("keep")
    run = record(storage, 0)
    change(run, outside)
    before = {str(path) for path in tmp_path.rglob("*")}
    assert remove_old_records(storage, kept=0) == 0
    assert {str(path) for path in tmp_path.rglob("*")} == before


def test_links_to_records_elsewhere_are_no_records(tmp_path):
    storage, elsewhere = tmp_path / "storage", tmp_path / "elsewhere"
    run = record(elsewhere, 0)
    storage.mkdir()
    (storage / run.name).symlink_to(run)
    assert remove_old_records(storage, kept=0) == 0
    assert (run / "run.json").exists()


def test_what_another_program_removes_at_the_same_time_is_no_error(tmp_path, monkeypatch):
    runs = [record(tmp_path, number) for number in range(3)]
    check = old_runs._is_removable

    def check_and_lose(run):
        answer = check(run)
        (runs[0] / "run.json").unlink(missing_ok=True)
        return answer

    monkeypatch.setattr(old_runs, "_is_removable", check_and_lose)
    assert remove_old_records(tmp_path, kept=0) == 2


def test_a_removal_that_was_cut_short_is_completed(tmp_path):
    run = record(tmp_path, 0)
    (run / "events.jsonl").unlink()
    for file in (run / "data").iterdir():
        file.unlink()
    (run / "data").rmdir()
    assert remove_old_records(tmp_path, kept=0) == 1
    assert left(tmp_path) == []


def test_names_of_another_form_are_nobodys_business():
    names = [
        "data_x",
        "data_a_2026-01-01_00-00-00_zz",
        "my_data_a_2026-01-01_00-00-00_abcd",
        "data_a_2026-01-01_00-00-00_abcd",
    ]
    assert surplus(names, kept=0) == names[-1:]
