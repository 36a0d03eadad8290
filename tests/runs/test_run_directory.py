"""Writing and reading of a record: whole files, lines, kills within a line, remote storage."""

import dataclasses
import json
import os
import sys
import threading
from enum import Enum

import pytest

from syncline import runs
from syncline.runs import LocalFiles, RunDirectory, RunRecord, environment
from syncline.runs.environment import git_revision
from syncline.runs.json_values import encode, plain


class RemoteFiles:
    """Storage of whole objects only, like an object store."""

    def __init__(self):
        self.objects = {}
        self.local_path = None

    def read(self, name):
        return self.objects.get(name)

    def write(self, name, data):
        self.objects[name] = data


@pytest.fixture(params=["local", "remote"])
def files(request, tmp_path):
    return LocalFiles(tmp_path) if request.param == "local" else RemoteFiles()


def clock(times=(10.0, 11.0, 12.0, 13.0)):
    remaining = list(times)
    return lambda: remaining.pop(0)


def test_a_run_is_read_as_it_was_written(files):
    with RunDirectory(files, clock=clock()) as run:
        run.write_run("demo", {"scaling": {"num_workers": 2}})
        run.event("started", workers=2)
        run.report(0, 1, {"loss": 2.0}, time_s=5.0)
        run.report(0, 0, {"loss": 1.0})
        run.write_checkpoints({"checkpoints": []})
        run.write_outcome("failed", error="it broke", attempts=1)
    record = RunRecord(files)
    assert record.exists()
    assert {key: record.run()[key] for key in ("name", "started", "config")} == {
        "name": "demo",
        "started": 10.0,
        "config": {"scaling": {"num_workers": 2}},
    }
    assert record.run()["environment"]["pid"] == os.getpid()
    assert record.events() == [{"time": 11.0, "event": "started", "workers": 2}]
    assert record.reports() == [
        {"iteration": 0, "time": 5.0, "rank": 1, "metrics": {"loss": 2.0}},
        {"iteration": 0, "time": 12.0, "rank": 0, "metrics": {"loss": 1.0}},
    ]
    assert [report["rank"] for report in record.reports(rank=0)] == [0]
    assert record.checkpoints() == {"checkpoints": []}
    assert record.outcome() == {
        "status": "failed",
        "error": "it broke",
        "time": 13.0,
        "started": 10.0,
        "attempts": 1,
    }


def test_nothing_written_reads_as_nothing(files):
    record = RunRecord(files)
    assert not record.exists()
    assert (
        record.run(),
        record.events(),
        record.reports(),
        record.checkpoints(),
        record.outcome(),
    ) == ({}, [], [], None, None)


def test_opening_again_adds(files):
    for number in range(2):
        with RunDirectory(files) as run:
            run.event("started", number=number)
    assert [event["number"] for event in RunRecord(files).events()] == [0, 1]


def test_a_run_that_was_started_again_has_no_outcome_yet(files):
    with RunDirectory(files, clock=clock()) as run:
        run.write_run("demo", {})
        run.write_outcome("finished")
        assert RunRecord(files).outcome()["status"] == "finished"
        run.write_run("demo", {})
        assert RunRecord(files).outcome() is None


def test_a_local_line_can_be_read_at_once(tmp_path):
    run = RunDirectory(LocalFiles(tmp_path))
    run.event("started")
    assert len(RunRecord(LocalFiles(tmp_path)).events()) == 1
    run.close()


def test_remote_lines_and_logs_are_uploaded_by_flush():
    files = RemoteFiles()
    run = RunDirectory(files)
    log = run.log_path("rank-0.log")
    run.event("started")
    assert RunRecord(files).events() == []
    with open(log, "w") as file:
        file.write("first")
        file.flush()
        run.flush()
        assert len(RunRecord(files).events()) == 1
        assert files.objects["logs/rank-0.log"] == b"first"
        file.write(" second")
    run.close()
    assert files.objects["logs/rank-0.log"] == b"first second"
    assert not os.path.exists(log)


def test_local_logs_lie_in_the_run_directory(tmp_path):
    assert RunDirectory(LocalFiles(tmp_path)).log_path("attempt-1/rank-0.log") == str(
        tmp_path / "logs" / "attempt-1" / "rank-0.log"
    )
    assert (tmp_path / "logs" / "attempt-1").is_dir()


def test_a_torn_last_line_is_not_read_and_is_cut_before_the_next(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(encode({"event": "a"}) + b'{"event": "b", "te')
    record = RunRecord(LocalFiles(tmp_path))
    assert record.events() == [{"event": "a"}]
    with RunDirectory(LocalFiles(tmp_path)) as run:
        run.event("c")
    assert [event["event"] for event in record.events()] == ["a", "c"]


@pytest.mark.parametrize("torn", [b"x" * 10, b"x" * 200_000])
def test_a_file_that_is_one_torn_line_is_emptied(tmp_path, torn):
    (tmp_path / "events.jsonl").write_bytes(torn)
    with RunDirectory(LocalFiles(tmp_path)) as run:
        run.event("a")
    assert len(RunRecord(LocalFiles(tmp_path)).events()) == 1


def test_a_torn_line_longer_than_a_chunk_leaves_the_lines_before_it(tmp_path):
    (tmp_path / "events.jsonl").write_bytes(encode({"event": "a"}) + b"x" * 200_000)
    with RunDirectory(LocalFiles(tmp_path)) as run:
        run.event("b")
    assert [event["event"] for event in RunRecord(LocalFiles(tmp_path)).events()] == ["a", "b"]


def test_a_broken_line_in_the_middle_is_an_error_that_says_where(tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"rank":0}\nbroken\n{"rank":0}\n')
    with pytest.raises(ValueError, match="metrics.jsonl, line 2.*damaged"):
        RunRecord(LocalFiles(tmp_path)).reports()


def test_whole_files_are_replaced_and_leave_nothing_beside_them(tmp_path):
    with RunDirectory(LocalFiles(tmp_path)) as run:
        for number in range(3):
            run.write_checkpoints({"number": number})
    assert os.listdir(tmp_path) == ["checkpoints.json"]
    assert RunRecord(LocalFiles(tmp_path)).checkpoints() == {"number": 2}


def test_lines_of_several_threads_do_not_mix(tmp_path):
    run = RunDirectory(LocalFiles(tmp_path))

    def write(rank):
        for iteration in range(200):
            run.report(iteration, rank, {"text": "x" * 500})

    threads = [threading.Thread(target=write, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    run.close()
    assert [
        report["iteration"] for report in RunRecord(LocalFiles(tmp_path)).reports(rank=3)
    ] == list(range(200))


def test_not_a_number_and_infinities_survive(tmp_path):
    with RunDirectory(LocalFiles(tmp_path)) as run:
        run.report(0, 0, {"a": float("nan"), "b": float("inf")})
    metrics = RunRecord(LocalFiles(tmp_path)).reports()[0]["metrics"]
    assert metrics["a"] != metrics["a"]
    assert metrics["b"] == float("inf")


class Color(Enum):
    RED = "red"


@dataclasses.dataclass
class Settings:
    color: Color
    numbers: tuple[int, ...]


class Unprintable:
    def __repr__(self):
        raise RuntimeError("no")


def test_any_value_becomes_plain():
    value = plain(
        {
            "settings": Settings(Color.RED, (1, 2)),
            "fn": git_revision,
            "set": {1},
            "none": None,
            3: Unprintable(),
        }
    )
    assert value["settings"] == {"color": "red", "numbers": [1, 2]}
    assert value["fn"] == "syncline.runs.environment.git_revision"
    assert (value["set"], value["none"]) == ([1], None)
    assert "Unprintable" in value["3"]
    json.dumps(value)


def test_long_descriptions_are_cut():
    assert len(plain(bytes(10_000))) < 1000


def test_values_of_environment_variables_are_left_out():
    written = json.dumps(
        plain({"worker_runtime_env": {"env_vars": {"TOKEN": "secret"}, "working_dir": "/code"}})
    )
    assert "secret" not in written
    assert "TOKEN" in written
    assert "/code" in written


def test_arrays_in_reports_are_written_as_lists():
    numpy = pytest.importorskip("numpy")
    assert json.loads(encode({"a": numpy.arange(3)})) == {"a": [0, 1, 2]}


def test_the_environment_names_python_and_only_libraries_that_are_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    facts = environment()
    assert facts["python"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}")
    assert "torch" not in facts["libraries"]
    json.dumps(facts)


def test_the_git_revision_is_read_from_the_repository_around_a_directory(tmp_path):
    git = tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (tmp_path / "deep").mkdir()
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    assert git_revision(tmp_path / "deep") is None
    (git / "packed-refs").write_text("# pack-refs\nabc123 refs/heads/main\n")
    assert git_revision(tmp_path / "deep") == "abc123"
    (git / "refs" / "heads" / "main").write_text("def456\n")
    assert git_revision(tmp_path / "deep") == "def456"
    (git / "HEAD").write_text("0123abcd\n")
    assert git_revision(tmp_path) == "0123abcd"


def test_the_package_names_what_it_exports():
    assert set(runs.__all__) == {
        "Attempt",
        "Files",
        "LocalFiles",
        "Run",
        "RunDirectory",
        "RunRecord",
        "RunSummary",
        "environment",
        "open",
    }
