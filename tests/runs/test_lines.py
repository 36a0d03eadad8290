"""Files of lines: whole lines on a full disk, and pieces of bounded size where a file cannot be added to."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from syncline.runs import LocalFiles, RunDirectory, RunRecord, lines
from syncline.runs.lines import LineFile, read_pieces, sealed_name


class Objects:
    """Files that only exist as whole objects, as in an object store; counts what is written."""

    local_path = None

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.written = 0

    def read(self, name: str) -> bytes | None:
        return self.objects.get(name)

    def write(self, name: str, data: bytes) -> None:
        self.objects[name] = data
        self.written += len(data)


def test_a_line_that_does_not_fit_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LineFile(str(tmp_path / "a.jsonl"))
    file.append(b"first\n")
    write, left = os.write, [3]

    def nearly_full(descriptor: int, data: bytes) -> int:
        if left[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = write(descriptor, data[: left[0]])
        left[0] -= count
        return count

    with monkeypatch.context() as patch:
        patch.setattr(lines.os, "write", nearly_full)
        with pytest.raises(OSError, match="No space"):
            file.append(b"second\n")
    assert (tmp_path / "a.jsonl").read_bytes() == b"first\n"
    file.append(b"third\n")
    file.close()
    assert (tmp_path / "a.jsonl").read_bytes() == b"first\nthird\n"


def test_what_a_flush_uploads_does_not_grow_with_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.runs.directory.SEALED_BYTES", 1000)
    files = Objects()
    per_flush = []
    with RunDirectory(files) as run:
        for index in range(500):
            run.report(index, 0, {"loss": 0.5})
            files.written = 0
            run.flush()
            per_flush.append(files.written)
    assert max(per_flush) <= 2 * 1000 + 200
    assert len([name for name in files.objects if name.startswith("metrics-")]) > 10
    assert [report["iteration"] for report in RunRecord(files).reports()] == list(range(500))


def test_a_run_that_is_opened_again_adds_to_the_newest_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.runs.directory.SEALED_BYTES", 200)
    files = Objects()
    for index in range(30):
        with RunDirectory(files) as run:
            run.report(index, 0, {"loss": 0.5})
    assert [report["iteration"] for report in RunRecord(files).reports()] == list(range(30))


@pytest.mark.parametrize("stale", [b'{"number":3}\n', b'{"number":3}\n{"number":4}\n'])
def test_after_a_kill_between_sealing_and_clearing_no_line_counts_twice(stale: bytes) -> None:
    files = Objects()
    files.write(sealed_name("events.jsonl", 1), b'{"number":1}\n{"number":2}\n')
    files.write(sealed_name("events.jsonl", 2), b'{"number":3}\n{"number":4}\n')
    files.write("events.jsonl", stale)
    assert [event["number"] for event in RunRecord(files).events()] == [1, 2, 3, 4]
    with RunDirectory(files) as run:
        run.event("next", number=5)
    assert [event["number"] for event in RunRecord(files).events()] == [1, 2, 3, 4, 5]


def test_local_files_are_never_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.runs.directory.SEALED_BYTES", 10)
    with RunDirectory(LocalFiles(tmp_path)) as run:
        for index in range(10):
            run.report(index, 0, {})
            run.flush()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl"]
    assert len(read_pieces(LocalFiles(tmp_path), "metrics.jsonl")) == 1


def test_a_log_is_uploaded_again_only_when_it_has_grown(tmp_path: Path) -> None:
    files = Objects()
    run = RunDirectory(files)
    log = Path(run.log_path("rank-0.log"))
    log.write_text("x" * 1000)
    run.flush()
    files.written = 0
    run.flush()
    assert files.written == 0
    log.write_text("x" * 1050)
    run.flush()
    assert files.written == 0
    run.close()
    assert len(files.objects["logs/rank-0.log"]) == 1050
