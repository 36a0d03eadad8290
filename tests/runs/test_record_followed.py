"""Records read while they are written: by another process, in remote pieces, across kills and
restarts, in replaced directories.
"""

import json
import os
import shutil
import subprocess
import sys
import threading

import pytest

from syncline import runs
from syncline.runs import LocalFiles, RunDirectory, RunRecord
from syncline.runs.run_storage import FileInfo, StorageDirectory

PROGRAM = """
import sys, time
from syncline.runs import LocalFiles, RunDirectory

with RunDirectory(LocalFiles(sys.argv[1])) as run:
    run.write_run("written", {}, detailed=False)
    for index in range(2000):
        run.report(index, 0, {"number": index, "text": "x" * (index % 500)})
        if index % 80 == 0:
            run.sample(0, 1, 7, {"rss_bytes": index})
            run.event("checkpoint", report=index)
            run.write_checkpoints({"checkpoints": [{"index": index, "name": "x" * (index % 5000)}]})
            time.sleep(0.001)
    run.write_outcome("finished")
"""


class Objects(StorageDirectory):
    """Storage of whole objects only, like an object store; thread-safe reader and writer."""

    local_path = None
    path = "objects://run"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def subdirectory(self, name):
        raise NotImplementedError

    def directory_names(self):
        return []

    def file_names(self, name):
        start = f"{name}/" if name else ""
        rests = [each.removeprefix(start) for each in list(self.objects) if each.startswith(start)]
        return sorted(rest for rest in rests if "/" not in rest)

    def file_info(self, name):
        data = self.objects.get(name)
        return None if data is None else FileInfo(len(data), 0.0)

    def read_range(self, name, offset, limit_bytes=2**30):
        return self.objects.get(name, b"")[offset : offset + limit_bytes]

    def write(self, name, data):
        self.objects[name] = data

    def remove(self, name):
        del self.objects[name]

    def remove_tree(self):
        self.objects.clear()

    def missing_directories(self):
        return []

    def remove_if_empty(self):
        pass


def tear(path, *, leave: int) -> None:
    """Leave the last line torn, like a kill during a write."""
    data = path.read_bytes()
    start = data.rfind(b"\n", 0, len(data) - 1) + 1
    path.write_bytes(data[: start + leave])


@pytest.mark.processes
def test_whoever_reads_while_another_process_writes_sees_whole_values_in_their_order(
    tmp_path,
) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)]) as writer:
        while not (tmp_path / "run.json").exists():
            assert writer.poll() is None
        run, seen = runs.open(tmp_path), 0
        while run.outcome is None:
            run.refresh()
            assert run.problems == []
            numbers = run.series.curve("number", "0", max_points=10_000)[1]
            assert numbers == list(range(len(numbers)))
            assert len(numbers) >= seen
            assert run.summary.reports in (len(numbers), 0)
            assert [checkpoint["index"] % 80 for checkpoint in run.checkpoints] in ([], [0])
            seen = len(numbers)
    run.refresh()
    assert run.series.last("0")["number"] == 1999
    assert [sample["usage"]["rss_bytes"] for sample in run.samples["0"]] == list(range(0, 2000, 80))
    assert len(run.events) == 25


def test_pieces_are_read_while_they_are_sealed_and_uploaded(monkeypatch) -> None:
    monkeypatch.setattr("syncline.runs.run_directory.SEALED_BYTES", 2_000)
    place, is_done = Objects(), threading.Event()
    record = RunDirectory(place)
    record.write_run("elsewhere", {}, detailed=False)

    def upload() -> None:
        while not is_done.wait(0.0005):
            record.flush()

    uploading = threading.Thread(target=upload)
    uploading.start()
    run = runs.open(place)
    for index in range(1500):
        record.report(index, 0, {"number": index})
        if index % 30 == 0:
            record.flush()  # beside the thread, which may get little time
            run.refresh()
            numbers = run.series.curve("number", "0", max_points=10_000)[1]
            assert numbers == list(range(len(numbers)))
            kept = [report["iteration"] for report in RunRecord(place).reports()]
            assert kept == list(range(len(kept)))
    is_done.set()
    uploading.join()
    record.close()
    run.refresh()
    assert run.series.curve("number", "0", max_points=10_000)[1] == list(range(1500))
    assert run.summary.reports == runs.run_list.summarize_run(place).reports == 1500
    assert len([name for name in place.objects if name.startswith("metrics-")]) > 10
    assert run.problems == []


def test_the_last_report_is_known_when_all_are_in_sealed_pieces(monkeypatch) -> None:
    monkeypatch.setattr("syncline.runs.run_directory.SEALED_BYTES", 50)
    place = Objects()
    with RunDirectory(place) as record:
        record.write_run("elsewhere", {}, detailed=False)
        for index in range(3):
            record.report(index, 0, {"number": index})
            record.flush()
    assert place.objects["metrics.jsonl"] == b""
    assert runs.run_list.summarize_run(place).metrics == {"number": 2}
    assert runs.open(place).summary.metrics == {"number": 2}


@pytest.mark.parametrize("leave", [1, 20])
@pytest.mark.parametrize("name", ["metrics.jsonl", "workers.jsonl", "events.jsonl"])
def test_a_reader_goes_on_where_a_kill_has_torn_a_line_and_the_next_start_cut_it_off(
    tmp_path, name: str, leave: int
) -> None:
    run = None
    for start in range(4):
        with RunDirectory(LocalFiles(tmp_path)) as record:
            record.write_run("killed", {}, detailed=False)
            run = run or runs.open(tmp_path)
            run.refresh()
            record.event("attempt", number=start, workers=[])
            for index in range(3):
                record.report(10 * start + index, 0, {"number": index})
                record.sample(0, start, 7, {"rss_bytes": index})
            record.event("step_times")
        tear(tmp_path / name, leave=leave)
        run.refresh()
    fresh = runs.open(tmp_path)
    for reader in (run, fresh):
        assert reader.problems == []
        assert len(reader.events) == (8 if name != "events.jsonl" else 4)
        assert len(reader.samples["0"]) == (12 if name != "workers.jsonl" else 8)
        expected = [
            10 * start + index
            for start in range(4)
            for index in range(3 if name != "metrics.jsonl" else 2)
        ]
        assert reader.series.curve("number", "0")[0] == expected


def test_a_directory_that_was_deleted_and_made_anew_is_read_from_its_beginning(tmp_path) -> None:
    for numbers in ([5.0, 6.0, 7.0], [1.0, 2.0]):
        with RunDirectory(LocalFiles(tmp_path / "run")) as record:
            record.write_run("again", {}, detailed=False)
            for index, number in enumerate(numbers):
                record.report(index, 0, {"number": number})
                record.line("trials.jsonl", {"number": number})
        if numbers[0] == 5.0:
            run = runs.open(tmp_path / "run")
            lines = run.lines("trials.jsonl")
            shutil.rmtree(tmp_path / "run")
    run.refresh()
    assert run.series.curve("number", "0")[1] == [1.0, 2.0]
    assert lines == [{"number": 1.0}, {"number": 2.0}]


def test_a_latest_report_that_is_older_than_those_that_are_kept_changes_nothing(tmp_path) -> None:
    with RunDirectory(LocalFiles(tmp_path)) as record:
        record.write_run("thinned", {}, detailed=False)
        for index in range(5):
            record.report(index, 0, {"number": index})
    latest = {"iteration": 2, "time": 1.0, "rank": 0, "metrics": {"number": 2}}
    (tmp_path / "latest.json").write_text(json.dumps(latest))
    run = runs.open(tmp_path)
    run.refresh()
    assert run.series.curve("number", "0")[0] == [0, 1, 2, 3, 4]
    assert run.summary.metrics == {"number": 4}
    (tmp_path / "latest.json").write_text(json.dumps({**latest, "iteration": 9}))
    run.refresh()
    assert run.series.curve("number", "0")[0] == [0, 1, 2, 3, 4, 9]
    assert run.summary.reports == 10


def test_clocks_that_are_set_back_do_not_hide_how_a_run_has_ended(tmp_path) -> None:
    times = iter([1000.0, 400.0, 300.0])
    with RunDirectory(LocalFiles(tmp_path), clock=lambda: next(times)) as record:
        record.write_run("back", {}, detailed=False)
        record.write_outcome("finished")
        assert RunRecord(LocalFiles(tmp_path)).outcome()["status"] == "finished"
        assert runs.open(tmp_path).state == "finished"
        record.write_run("back", {}, detailed=False)
    assert RunRecord(LocalFiles(tmp_path)).outcome() is None
    assert runs.open(tmp_path).state == "running"


def test_a_record_that_may_only_be_read_is_read(tmp_path) -> None:
    with RunDirectory(LocalFiles(tmp_path)) as record:
        record.write_run("read only", {}, detailed=False)
        record.report(0, 0, {"number": 1})
    for path in [*tmp_path.iterdir(), tmp_path]:
        os.chmod(path, 0o555 if path.is_dir() else 0o444)
    try:
        before = sorted((path.name, path.stat().st_mtime_ns) for path in tmp_path.iterdir())
        run = runs.open(tmp_path)
        run.refresh()
        assert run.summary.reports == 1
        assert sorted((path.name, path.stat().st_mtime_ns) for path in tmp_path.iterdir()) == before
    finally:
        os.chmod(tmp_path, 0o755)


def test_a_storage_path_may_be_a_link(tmp_path) -> None:
    (tmp_path / "disk").mkdir()
    os.symlink(tmp_path / "disk", tmp_path / "link")
    with RunDirectory(LocalFiles(tmp_path / "link" / "run")) as record:
        record.write_run("linked", {}, detailed=False)
        record.report(0, 0, {"number": 1})
    assert runs.open(tmp_path / "link" / "run").summary.reports == 1
    assert [
        run.name
        for run in runs.run_list.list_runs(runs.run_storage.open_directory(tmp_path / "link"))
    ] == ["linked"]
