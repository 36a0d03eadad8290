"""Files of lines: complete lines on a full disk, sealed pieces of bounded size without append."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from syncline.runs import LocalFiles, RunDirectory, RunRecord, run_directory
from syncline.runs.record_files import LineFile, RegularUploads, Thinning, read_pieces, sealed_name


class Objects:
    """Storage of whole objects only, like an object store; counts the bytes written."""

    local_path = None

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.written = 0

    def read(self, name: str) -> bytes | None:
        return self.objects.get(name)

    def write(self, name: str, data: bytes) -> None:
        self.objects[name] = data
        self.written += len(data)


def test_a_line_that_does_not_fit_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        patch.setattr(os, "write", nearly_full)
        with pytest.raises(OSError, match="No space"):
            file.append(b"second\n")
    assert (tmp_path / "a.jsonl").read_bytes() == b"first\n"
    file.append(b"third\n")
    file.close()
    assert (tmp_path / "a.jsonl").read_bytes() == b"first\nthird\n"


def test_what_a_flush_uploads_does_not_grow_with_the_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("syncline.runs.run_directory.SEALED_BYTES", 1000)
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


def test_a_run_that_is_opened_again_adds_to_the_newest_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("syncline.runs.run_directory.SEALED_BYTES", 200)
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
    monkeypatch.setattr("syncline.runs.run_directory.SEALED_BYTES", 10)
    with RunDirectory(LocalFiles(tmp_path)) as run:
        for index in range(10):
            run.report(index, 0, {})
            run.flush()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl"]
    assert len(read_pieces(LocalFiles(tmp_path), "metrics.jsonl")) == 1


def test_both_parts_of_a_log_are_uploaded(tmp_path: Path) -> None:
    files = Objects()
    run = RunDirectory(files)
    log = Path(run.log_path("rank-0.log"))
    for text in ("first", "second", "third"):
        if log.exists():
            log.rename(log.with_name("rank-0.1.log"))
        log.write_text(text)
        run.flush()
    files.written = 0
    run.flush()
    assert files.written == 0
    run.close()
    assert {name: data for name, data in files.objects.items() if "rank" in name} == {
        "logs/rank-0.1.log": b"second",
        "logs/rank-0.log": b"third",
    }


def test_the_log_of_an_earlier_start_becomes_the_earlier_part() -> None:
    files = Objects()
    for text in ("of the first start", "of the second start"):
        run = RunDirectory(files)
        Path(run.log_path("rank-0.log")).write_text(text)
        run.log_path("rank-1.log")  # prints nothing
        run.close()
    assert files.objects == {
        "logs/rank-0.1.log": b"of the first start",
        "logs/rank-0.log": b"of the second start",
    }


def test_a_record_elsewhere_is_thinned_over_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncline.runs.run_directory.SEALED_BYTES", 1_500)
    monkeypatch.setitem(
        run_directory._THINNED, run_directory.METRICS_FILE, Thinning(first_bytes=5_000)
    )
    files = Objects()
    for start in range(6):
        with RunDirectory(files) as run:
            for index in range(start * 200, start * 200 + 200):
                run.report(index, 0, {"loss": 0.5}, time_s=1.0)
                if index % 20 == 0:
                    run.flush()
        assert RunRecord(files).reports()[-1]["iteration"] == start * 200 + 199
    assert (
        sum(len(data) for name, data in files.objects.items() if name.startswith("metrics"))
        <= 10_000
    )
    kept = [report["iteration"] for report in RunRecord(files).reports()]
    assert kept == sorted(set(kept))
    assert len([number for number in kept if number > 600]) >= 3


def test_others_write_while_an_upload_takes_long() -> None:
    class Slow(Objects):
        def write(self, name: str, data: bytes) -> None:
            under_way.set()
            assert may_go_on.wait(60)
            super().write(name, data)

    under_way, may_go_on = threading.Event(), threading.Event()
    files = Slow()
    run = RunDirectory(files)
    run.event("first")
    uploading = threading.Thread(target=run.flush)
    uploading.start()
    assert under_way.wait(60)
    run.event("second")  # would hang if it waited for the upload
    run.report(0, 0, {"loss": 1.0})
    may_go_on.set()
    uploading.join()
    run.close()
    assert [event["event"] for event in RunRecord(files).events()] == ["first", "second"]


def test_a_piece_that_could_not_be_uploaded_comes_before_what_follows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Unsteady(Objects):
        fails = False

        def write(self, name: str, data: bytes) -> None:
            if self.fails:
                raise OSError("not now")
            super().write(name, data)

    monkeypatch.setattr("syncline.runs.run_directory.SEALED_BYTES", 200)
    files = Unsteady()
    run = RunDirectory(files)
    for index in range(60):
        run.report(index, 0, {"loss": 0.5})
        files.fails = index % 7 != 0
        if files.fails:
            with pytest.raises(OSError, match="not now"):
                run.flush()
        else:
            run.flush()
            assert [report["iteration"] for report in RunRecord(files).reports()] == list(
                range(index + 1)
            )
    files.fails = False
    run.close()
    assert [report["iteration"] for report in RunRecord(files).reports()] == list(range(60))


def test_events_are_short_where_there_are_very_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncline.runs.run_directory._EVENTS_BYTES", 10_000)
    with RunDirectory(LocalFiles(tmp_path)) as run:
        for number in range(100):
            run.event("failure", attempt=number, ranks={"0": "x" * 3_000})
    events = RunRecord(LocalFiles(tmp_path)).events()
    assert [event["attempt"] for event in events] == list(range(100))
    assert [number for number, event in enumerate(events) if "ranks" in event] == [0, 1, 2]
    assert (tmp_path / "events.jsonl").stat().st_size < 20_000


def test_a_line_that_does_not_fit_leaves_what_another_program_has_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, other = LineFile(str(tmp_path / "a.jsonl")), LineFile(str(tmp_path / "a.jsonl"))
    other.append(b"of another\n")
    write, calls = os.write, []

    def nearly_full(descriptor: int, data: bytes) -> int:
        calls.append(data)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:3])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", nearly_full)
        with pytest.raises(OSError, match="No space"):
            file.append(b"second\n")
    assert (tmp_path / "a.jsonl").read_bytes() == b"of another\n"


def test_a_whole_file_that_does_not_fit_leaves_the_old_one_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = LocalFiles(tmp_path)
    files.write("a.json", b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("syncline.runs.record_files.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write("a.json", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert files.read("a.json") == b"old"


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


def test_an_upload_that_fails_is_followed_by_others() -> None:
    calls, enough = [], threading.Event()

    def upload() -> None:
        calls.append(None)
        if len(calls) == 3:
            enough.set()
        raise RuntimeError("a filesystem's own error")

    uploads = RegularUploads(upload, every_s=0.001)
    uploads.start()
    uploads.start()
    assert enough.wait(60)
    uploads.close()
    count = len(calls)
    assert not [thread for thread in threading.enumerate() if thread.name == "syncline-record"]
    assert len(calls) == count


def test_the_end_waits_for_what_is_under_way() -> None:
    begun, may_end, done = threading.Event(), threading.Event(), []

    def upload() -> None:
        begun.set()
        may_end.wait(60)
        done.append(None)

    uploads = RegularUploads(upload, every_s=0.001)
    uploads.start()
    begun.wait(60)
    threading.Timer(0.05, may_end.set).start()
    uploads.close()
    assert done


def test_what_was_never_started_ends() -> None:
    RegularUploads(lambda: None).close()


RULE = Thinning(first_bytes=1000)


def written(
    reports: int, *, ranks: int = 1, line_bytes: int = 10
) -> tuple[dict[int, list[int]], int]:
    kept: dict[int, list[int]] = {rank: [] for rank in range(ranks)}
    size = 0
    for iteration in range(reports):
        for rank in range(ranks):
            if RULE.keeps(rank, iteration, line_bytes=line_bytes, size_bytes=size):
                kept[rank].append(iteration)
                size += line_bytes
    return kept, size


def test_everything_is_kept_until_the_first_limit() -> None:
    kept, size = written(100)
    assert kept[0] == list(range(100))
    assert size == 1000


def test_after_that_every_fourth_then_every_sixteenth() -> None:
    kept, _ = written(1000)
    assert kept[0][100:110] == list(range(100, 140, 4))
    gaps = {later - earlier for earlier, later in zip(kept[0], kept[0][1:], strict=False)}
    assert gaps <= {1, 4, 8, 12, 16, 32, 48, 64}
    assert max(gaps) > 4


@pytest.mark.parametrize("reports", [10_000, 100_000])
@pytest.mark.parametrize("line_bytes", [7, 10, 333])
def test_the_file_ends_below_twice_the_first_limit(reports: int, line_bytes: int) -> None:
    assert written(reports, line_bytes=line_bytes)[1] <= 2000


def test_the_end_of_a_long_run_is_there_too() -> None:
    assert written(10_000)[0][0][-1] > 8_000


def test_ranks_keep_the_same_iterations() -> None:
    kept, _ = written(5000, ranks=3)
    assert (
        len(set(kept[0]) & set(kept[1]) & set(kept[2])) >= len(kept[0]) - 10
    )  # except where the stride changes


def test_one_line_larger_than_all_room_is_left_out() -> None:
    assert not RULE.keeps(0, 0, line_bytes=2001, size_bytes=0)


def test_a_wanted_report_is_kept_while_there_is_room() -> None:
    assert not RULE.keeps(0, 1, line_bytes=10, size_bytes=1400)
    assert RULE.keeps(0, 1, line_bytes=10, size_bytes=1400, wanted=True)
    assert not RULE.keeps(0, 1, line_bytes=10, size_bytes=1500, wanted=True)


def test_wanted_reports_do_not_take_the_room_of_the_later_ones() -> None:
    size, kept = 0, []
    for iteration in range(10_000):
        if RULE.keeps(0, iteration, line_bytes=10, size_bytes=size, wanted=True):
            size += 10
            kept.append(iteration)
    assert kept[-1] > 8_000


def test_trials_keep_some_reports_each_though_all_count_from_one() -> None:
    kept = {
        name for name in map(str, range(200)) if RULE.keeps(name, 1, line_bytes=10, size_bytes=1400)
    }
    assert 20 < len(kept) < 90


def test_the_latest_report_is_known_though_it_is_not_among_those_that_are_kept(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setitem(
        run_directory._THINNED, run_directory.METRICS_FILE, Thinning(first_bytes=2000)
    )
    for reopened in range(2):
        with RunDirectory(LocalFiles(tmp_path)) as run:
            for index in range(reopened * 500, reopened * 500 + 499):
                run.report(index, 0, {"loss": float(index)}, time_s=1.0)
    reports = RunRecord(LocalFiles(tmp_path)).reports(rank=0)
    assert reports[-1] == {"iteration": 998, "time": 1.0, "rank": 0, "metrics": {"loss": 998.0}}
    assert len(reports) < 200
    assert (tmp_path / run_directory.METRICS_FILE).stat().st_size <= 4000


@pytest.mark.parametrize("values", [5, 60])
def test_ten_thousand_reports_stay_below_twenty_megabytes(tmp_path, values: int) -> None:
    metrics = {f"metric_{number}": number / 7 for number in range(values)}
    with RunDirectory(LocalFiles(tmp_path)) as run:
        for index in range(10_000):
            run.report(index, 0, metrics, time_s=1.0)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 20_000_000
