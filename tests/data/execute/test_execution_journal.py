"""Where records go: run directories of their own, files in the directory of a training run, and
nowhere.
"""

import copy
import json
import logging
import os
import pickle
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from syncline.core import lifecycle
from syncline.data.context import DataContext
from syncline.data.execute import execution_journal as journal_module
from syncline.data.execute.execution_journal import (
    BackgroundWriter,
    RecordTarget,
    RunDirectoryJournal,
    SharedFileJournal,
    file_name,
)
from syncline.data.execute.execution_recorder import _config, journal_for, recorder_for
from syncline.data.execute.physical_plan import ExecutionLimits
from syncline.runs import LocalFiles
from syncline.testing.waiting import eventually


class AtOnce(BackgroundWriter):
    """Does what it is given in the calling thread."""

    def post(self, job):
        job()

    def drain(self, limit_s):
        return True


class Elsewhere:
    """A filesystem of another machine, which only holds whole files."""

    local_path = None

    def __init__(self):
        self.objects, self.writes = {}, 0

    def read(self, name):
        return self.objects.get(name)

    def write(self, name, data):
        self.objects[name] = data
        self.writes += 1

    def __deepcopy__(self, memo):
        raise TypeError("cannot be copied")


def plan(**changes):
    facts = {
        "name": "train",
        "seed": 7,
        "epoch": 0,
        "describe": lambda: "Read",
        "limits": ExecutionLimits(cpus=2, budget_bytes=10),
        "context": DataContext(),
    }
    return SimpleNamespace(**{**facts, **changes})


def own_journal(plan, storage):
    return RunDirectoryJournal(plan.name, storage, partial(_config, plan), by=AtOnce())


def records(directory: Path) -> list[dict]:
    (file,) = (directory / "data").iterdir()
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_an_execution_has_a_run_directory_from_its_first_line_on(tmp_path):
    journal = own_journal(plan(), str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
    journal.write({"pass": 0})
    journal.write({"pass": 0, "rows": 1})
    (directory,) = (tmp_path / "new").iterdir()
    described = json.loads((directory / "run.json").read_text())
    assert (described["kind"], described["name"]) == ("data", directory.name)
    assert directory.name.startswith("data_train_")
    assert described["config"] == {
        "plan": "Read",
        "seed": 7,
        "epoch": 0,
        "cpus": 2,
        "budget_bytes": 10,
    }
    assert records(directory) == [{"pass": 0}, {"pass": 0, "rows": 1}]
    assert not (directory / "outcome.json").exists()


@pytest.mark.parametrize(
    ("ended", "error", "status", "text"),
    [
        ("finished", None, "finished", None),
        ("stopped", None, "finished", None),
        ("errored", KeyError("x"), "errored", "KeyError: 'x'"),
    ],
)
def test_the_outcome_says_how_it_ended(tmp_path, ended, error, status, text):
    journal = own_journal(plan(), str(tmp_path))
    journal.write({"pass": 0})
    journal.end(ended, error)
    (directory,) = tmp_path.iterdir()
    outcome = json.loads((directory / "outcome.json").read_text())
    assert (outcome["status"], outcome["error"], outcome["ended"]) == (status, text, ended)


def test_a_plan_that_cannot_be_shown_is_recorded_as_that(tmp_path):
    def fails():
        raise RuntimeError("no text")

    journal = own_journal(plan(describe=fails), str(tmp_path))
    journal.write({"pass": 0})
    (directory,) = tmp_path.iterdir()
    assert "no text" in json.loads((directory / "run.json").read_text())["config"]["plan"]


def test_storage_that_cannot_be_written_is_a_line_in_the_debug_log(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    journal = own_journal(plan(), str(tmp_path / "file" / "below"))
    with caplog.at_level(logging.DEBUG, logger="syncline"):
        for number in range(3):
            journal.write({"pass": 0, "rows": number})
        journal.end("finished", None)
    (message,) = caplog.messages
    assert "no longer recorded" in message
    assert {record.levelno for record in caplog.records} == {logging.DEBUG}


def test_passes_of_a_process_over_a_dataset_share_a_file(tmp_path):
    place = RecordTarget(files=LocalFiles(tmp_path), dataset="../train set", key="a")
    first, second = (
        journal_for(plan(context=DataContext(_record_target=each)))
        for each in (place, pickle.loads(pickle.dumps(place)))
    )
    assert first is second
    other = journal_for(
        plan(
            context=DataContext(
                _record_target=RecordTarget(files=LocalFiles(tmp_path), dataset="valid", key="b")
            )
        )
    )
    assert other is not first
    assert [first.next_number(), second.next_number(), other.next_number()] == [0, 1, 0]
    first.write({"pass": 0})
    first.end("finished", None)
    assert [record["pass"] for record in records(tmp_path)] == [0]
    assert [file.name.rpartition("-")[0] for file in (tmp_path / "data").iterdir()] == ["train-set"]
    assert os.listdir(tmp_path) == ["data"]


def test_files_elsewhere_are_written_when_a_pass_ends_and_now_and_then():
    now = [0.0]
    files = Elsewhere()
    journal = SharedFileJournal(
        RecordTarget(files=files, dataset="train", key="c"), by=AtOnce(), clock=lambda: now[0]
    )
    journal.write({"pass": 0})
    assert files.writes == 0
    now[0] = 31.0
    journal.write({"pass": 0, "rows": 1})
    assert files.writes == 1
    journal.write({"pass": 0, "rows": 2, "ended": "finished"})
    journal.end("finished", None)
    (data,) = files.objects.values()
    assert [json.loads(line).get("rows") for line in data.splitlines()] == [None, 1, 2]
    assert files.writes == 2


def test_settings_carry_the_place_everywhere_but_to_tasks():
    place = RecordTarget(files=Elsewhere(), dataset="train", key="d")
    context = DataContext(seed=3, _record_target=place)
    assert context.copy()._record_target is place
    assert copy.deepcopy(context)._record_target is place
    tasks = context.for_tasks()
    assert (tasks._record_target, tasks.seed, context._record_target) == (None, 3, place)
    assert DataContext(seed=3).for_tasks().seed == 3


@pytest.fixture
def as_program(monkeypatch):
    monkeypatch.setattr(lifecycle, "is_program", lambda: True)


def test_a_program_records_below_its_storage_path(as_program, monkeypatch, tmp_path):
    monkeypatch.setenv("SYNCLINE_STORAGE_PATH", str(tmp_path))
    assert isinstance(journal_for(plan()), RunDirectoryJournal)


def test_nothing_is_recorded_where_it_is_switched_off_or_lies_elsewhere(
    as_program, monkeypatch, tmp_path
):
    monkeypatch.setenv("SYNCLINE_STORAGE_PATH", str(tmp_path))
    assert recorder_for(plan()) is not None
    assert recorder_for(plan(context=DataContext(record_executions=False))) is None
    monkeypatch.setenv("SYNCLINE_STORAGE_PATH", "s3://bucket/runs")
    assert recorder_for(plan()) is None


def test_what_tasks_of_a_program_execute_is_not_recorded(monkeypatch):
    monkeypatch.setattr(lifecycle, "is_program", lambda: False)
    assert journal_for(plan()) is None


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("train", "train"),
        ("", "dataset"),
        ("../../etc", "etc"),
        ("a/b c\n", "a-b-c"),
        ("...", "dataset"),
        ("x" * 500, "x" * 60),
        ("é", "dataset"),
    ],
)
def test_any_name_becomes_a_part_of_a_file_name(name, file):
    assert file_name(name) == file


# -- the writer


def test_the_writer_does_jobs_in_order_and_outlives_those_that_fail():
    background_writer, done = BackgroundWriter(), []
    background_writer.post(lambda: done.append(1))
    background_writer.post(lambda: 1 / 0)
    background_writer.post(lambda: done.append(2))
    assert background_writer.drain(60.0)
    assert done == [1, 2]


def test_a_disk_that_does_not_answer_holds_up_nobody():
    background_writer, answers = BackgroundWriter(), threading.Event()
    background_writer.post(answers.wait)
    for _ in range(5000):
        background_writer.post(lambda: None)
    assert not background_writer.drain(0.01)
    assert background_writer._jobs.qsize() < 3000
    answers.set()
    assert background_writer.drain(60.0)


def test_a_writer_without_work_has_no_thread(monkeypatch):
    monkeypatch.setattr(journal_module, "_IDLE_S", 0.01)
    before, background_writer, done = threading.active_count(), BackgroundWriter(), []
    assert background_writer.drain(0.0)
    for number in range(3):
        background_writer.post(partial(done.append, number))
        eventually(lambda: threading.active_count() == before)
    assert done == [0, 1, 2]
    assert background_writer.drain(0.0)


def test_no_job_is_lost_where_threads_end_as_jobs_come(monkeypatch):
    monkeypatch.setattr(journal_module, "_IDLE_S", 0.0)
    background_writer, done = BackgroundWriter(), []
    for number in range(2000):
        background_writer.post(partial(done.append, number))
    assert background_writer.drain(60.0)
    assert done == list(range(2000))


def test_a_forked_child_has_a_writer_and_files_of_its_own(tmp_path):
    place = RecordTarget(files=LocalFiles(tmp_path), dataset="train", key="forked")
    mine = SharedFileJournal.shared(place)
    pid = os.fork()
    if pid == 0:
        os._exit(
            0
            if SharedFileJournal.shared(place) is not mine
            and SharedFileJournal.shared(place)._writer is not mine._writer
            else 1
        )
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
