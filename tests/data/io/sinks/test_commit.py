"""The commit protocol: results appear as a whole or not at all, and an interrupted job
resumes.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs as pyarrow_fs

from syncline import faults
from syncline.data.io.sinks import commit
from syncline.data.io.sinks.commit import JournalEntry
from syncline.data.io.sinks.datasink import TaskContext, WriteResult
from syncline.data.io.sinks.file_datasink import BlockBasedFileDatasink, FilenameProvider
from syncline.data.io.sources.file_listing import list_files
from syncline.data.plan.signature import digest_of
from syncline.faults import FaultInjected
from syncline.storage.retries import RetryPolicy
from syncline.testing.faults import faults_set

POSITIONS = range(4)


class LinesDatasink(BlockBasedFileDatasink):
    def write_block_to_file(self, block, file):
        file.write("\n".join(row["line"] for row in block.iter_rows()).encode())


def sink_at(place, mode="append", job="job", **arguments) -> LinesDatasink:
    sink = LinesDatasink(
        f"{place.path}/out", filesystem=place.filesystem, file_format="txt", mode=mode, **arguments
    )
    sink.set_job(job)
    return sink


def run_job(
    sink: LinesDatasink, positions: Iterable[int] = POSITIONS, prefix: str = "new"
) -> list[int]:
    """Write as the executor does; return the positions that were written."""
    sink.on_write_start()
    if sink.skips_write:
        return []
    written = [position for position in positions if position not in sink.positions_done()]
    try:
        returns = [
            sink.write(
                [pa.table({"line": [f"{prefix}-{position}"]})], TaskContext(task_idx=position)
            )
            for position in written
        ]
        sink.on_write_complete(
            WriteResult(num_rows=len(returns), size_bytes=0, write_returns=returns)
        )
    except FaultInjected as error:
        sink.on_write_failed(error)
        raise
    return written


def content_of(place) -> list[str] | None:
    """Return the lines that a reader sees in the target, sorted; None if it does not exist."""
    target = f"{place.path}/out"
    if place.arrow.get_file_info(target).type == pyarrow_fs.FileType.NotFound:
        return None
    try:
        files = list_files(place.arrow, [target])
    except ValueError:
        return []
    return sorted(place.arrow.open_input_stream(file.path).read().decode() for file in files)


NEW = [f"new-{position}" for position in POSITIONS]
OLD = [f"old-{position}" for position in POSITIONS]


def leftovers(place) -> list[str]:
    infos = place.arrow.get_file_info(pyarrow_fs.FileSelector(place.path, recursive=True))
    return [info.path for info in infos if ".staging" in info.path or ".committed" in info.path]


@pytest.mark.parametrize("mode", ["append", "create", "overwrite"])
def test_a_new_target_gets_all_files_and_nothing_else(place, mode):
    run_job(sink_at(place, mode))
    assert content_of(place) == NEW
    assert leftovers(place) == []


def test_nothing_is_visible_before_the_commit(place):
    run_job(sink_at(place, job="first"), prefix="old")
    sink = sink_at(place)
    sink.on_write_start()
    sink.write([pa.table({"line": ["x"]})], TaskContext(task_idx=0))
    assert content_of(place) == OLD


def test_append_adds_and_overwrite_replaces(place):
    run_job(sink_at(place, job="first"), prefix="old")
    run_job(sink_at(place, job="second"))
    assert content_of(place) == sorted(OLD + NEW)
    run_job(sink_at(place, "overwrite", job="third"), [7])
    assert content_of(place) == ["new-7"]
    assert leftovers(place) == []


@pytest.mark.parametrize("mode", ["create", "error"])
def test_create_refuses_an_existing_target(place, mode):
    run_job(sink_at(place, job="first"), prefix="old")
    with pytest.raises(ValueError, match="already exists.*overwrite"):
        sink_at(place, mode).on_write_start()
    assert content_of(place) == OLD


def test_ignore_leaves_an_existing_target(place):
    run_job(sink_at(place, job="first"), prefix="old")
    assert run_job(sink_at(place, "ignore")) == []
    assert content_of(place) == OLD


def test_target_with_only_a_staging_directory_does_not_exist(place):
    unfinished = sink_at(place, job="other")
    unfinished.on_write_start()
    unfinished.write([pa.table({"line": ["x"]})], TaskContext(task_idx=0))
    run_job(sink_at(place, "create"))
    assert content_of(place) == NEW


def crash_points(place, mode: str, existing: bool) -> list[tuple[str, int]]:
    """Return all fault points of a write, as (point, index of the occurrence)."""
    passed: list[str] = []
    reach = faults.reach
    faults.reach = passed.append  # type: ignore[assignment]
    try:
        if existing:
            run_job(sink_at(place, job="first"), prefix="old")
            passed.clear()
        run_job(sink_at(place, mode))
    finally:
        faults.reach = reach
    place.arrow.delete_dir(f"{place.path}/out")
    return [(point, passed[: index + 1].count(point)) for index, point in enumerate(passed)]


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_killed_at_any_point_the_target_is_old_or_complete_and_the_job_resumes(
    place, mode, existing
):
    points = crash_points(place, mode, existing)
    assert {point for point, _ in points} >= {
        "data.sink.done",
        "data.commit.decided",
        "data.commit.published",
        "data.commit.cleaned",
    }
    before = OLD if existing else None
    after = sorted(OLD + NEW) if existing and mode == "append" else NEW
    for point, time in points:
        if existing:
            run_job(sink_at(place, job="first"), prefix="old")
        with faults_set({point: f"raise:{time}"}), pytest.raises(FaultInjected):
            run_job(sink_at(place, mode))
        seen = content_of(place)
        assert seen in ((before, []) if before is None else (before,)) or seen == after, (
            point,
            time,
        )

        written = run_job(sink_at(place, mode))
        assert content_of(place) == after, (point, time)
        done_before = (
            time
            if point == "data.sink.done"
            else time - 1
            if point == "data.sink.staged"
            else len(POSITIONS)
        )
        assert len(written) <= len(POSITIONS) - done_before, (point, time)
        assert leftovers(place) == [], (point, time)
        place.arrow.delete_dir(f"{place.path}/out")


def test_overwrite_recovers_without_atomic_swap_of_directories(place, monkeypatch):
    monkeypatch.setattr(commit.storage, "exchange", lambda one, other: False)
    for point in (
        "data.commit.decided",
        "data.commit.moved",
        "data.commit.published",
        "data.commit.cleaned",
    ):
        run_job(sink_at(place, "overwrite", job="first"), prefix="old")
        with faults_set({point: "raise:1"}), pytest.raises(FaultInjected):
            run_job(sink_at(place, "overwrite"))
        run_job(sink_at(place, "overwrite"))
        assert content_of(place) == NEW


def test_a_mount_point_is_overwritten_file_by_file(tmp_path: Path, monkeypatch):
    class Here:
        filesystem, path = pyarrow_fs.LocalFileSystem(), str(tmp_path)
        arrow = filesystem

    run_job(sink_at(Here, job="first"), prefix="old")
    inode = (tmp_path / "out").stat().st_ino
    monkeypatch.setattr(os.path, "ismount", lambda path: True)
    run_job(sink_at(Here, "overwrite"))
    assert content_of(Here) == NEW
    assert (tmp_path / "out").stat().st_ino == inode


def test_two_jobs_that_append_to_one_new_target_keep_each_others_files(place):
    one, other = sink_at(place, job="one"), sink_at(place, job="other")
    for sink in (one, other):
        sink.on_write_start()
    returns = {
        sink: [sink.write([pa.table({"line": [name]})], TaskContext(task_idx=0))]
        for sink, name in ((one, "new-0"), (other, "new-1"))
    }
    for sink in (one, other):
        sink.on_write_complete(WriteResult(num_rows=1, size_bytes=0, write_returns=returns[sink]))
    assert content_of(place) == ["new-0", "new-1"]
    assert leftovers(place) == []


def test_failed_job_without_id_deletes_its_staging_directory(place):
    sink = LinesDatasink(f"{place.path}/out", filesystem=place.filesystem)
    sink.on_write_start()
    sink.write([pa.table({"line": ["x"]})], TaskContext(task_idx=0))
    sink.on_write_failed(RuntimeError("stopped"))
    assert content_of(place) in (None, [])
    assert leftovers(place) == []


def test_files_of_killed_tasks_are_not_published(place):
    sink = sink_at(place)
    sink.on_write_start()
    done = sink.write([pa.table({"line": ["new-0"]})], TaskContext(task_idx=0))
    with faults_set({"data.sink.staged": "raise:1"}), pytest.raises(FaultInjected):
        sink.write([pa.table({"line": ["half"]})], TaskContext(task_idx=1))
    sink.on_write_complete(WriteResult(num_rows=1, size_bytes=0, write_returns=[done]))
    assert content_of(place) == ["new-0"]


def test_duplicate_file_names_fail_and_publish_nothing(place):
    sink = sink_at(place)
    sink.on_write_start()
    same = [
        JournalEntry(position=position, files=("a.txt",), num_rows=1, size_bytes=1)
        for position in (0, 1)
    ]
    with pytest.raises(ValueError, match="tasks 0 and 1 both name their file 'a.txt'"):
        sink.on_write_complete(WriteResult(num_rows=2, size_bytes=2, write_returns=same))
    assert content_of(place) in (None, [])


class NumberedFiles(FilenameProvider):
    def get_filename_for_task(self, write_uuid: str, task_index: int) -> str:
        return f"{task_index}.txt"


def test_rerun_of_a_completed_append_adds_the_rows_again(place):
    for _ in range(2):
        run_job(sink_at(place, job="first"), prefix="old")
    assert content_of(place) == sorted(OLD + OLD)


def test_concurrent_runs_of_one_job_get_different_ids(tmp_path: Path):
    class Here:
        filesystem, path = pyarrow_fs.LocalFileSystem(), str(tmp_path)
        arrow = filesystem

    first = sink_at(Here)
    first.on_write_start()
    run_job(sink_at(Here), prefix="old")
    assert content_of(Here) == OLD
    done = first.write([pa.table({"line": ["new-0"]})], TaskContext(task_idx=0))
    first.on_write_complete(WriteResult(num_rows=1, size_bytes=0, write_returns=[done]))
    assert content_of(Here) == ["new-0", *OLD]
    assert leftovers(Here) == []


def test_resumed_job_loads_its_state(place):
    sink = sink_at(place)
    sink.on_write_start()
    sink.write([pa.table({"line": ["new-0"]})], TaskContext(task_idx=0))
    sink.save_state({"seed": 3})
    sink.on_write_failed(RuntimeError("stopped"))
    again = sink_at(place)
    again.on_write_start()
    assert again.load_state()["seed"] == 3
    assert again.earlier_result().num_rows == 1


def test_identity_covers_values_that_affect_the_files(place):
    used = sink_at(place)
    run_job(used)
    assert digest_of(used.identity()) == digest_of(sink_at(place, job="other").identity())
    assert digest_of(used.identity()) != digest_of(sink_at(place, "overwrite").identity())
    assert digest_of(used.identity()) != digest_of(sink_at(place, min_rows_per_file=7).identity())


def test_append_never_replaces_a_file(place):
    run_job(sink_at(place, job="first", filename_provider=NumberedFiles()), prefix="old")
    again = sink_at(place, job="first", filename_provider=NumberedFiles())
    with pytest.raises(ValueError, match="mode='append' does not replace"):
        run_job(again)
    assert content_of(place) == OLD


def test_write_without_rows_creates_no_target(place):
    sink = sink_at(place)
    sink.on_write_start()
    done = sink.write([pa.table({"line": pa.array([], pa.string())})], TaskContext(task_idx=0))
    sink.on_write_complete(WriteResult(num_rows=0, size_bytes=0, write_returns=[done]))
    assert content_of(place) in (None, [])
    assert leftovers(place) == []


def test_overwrite_without_rows_empties_the_target(place):
    run_job(sink_at(place, job="first"), prefix="old")
    run_job(sink_at(place, "overwrite"), [])
    assert content_of(place) in (None, [])


def test_try_create_dir_false_requires_an_existing_directory(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="try_create_dir=False"):
        LinesDatasink(str(tmp_path / "missing"), try_create_dir=False).on_write_start()


def test_transient_errors_are_retried(place, monkeypatch):
    monkeypatch.setattr(
        "syncline.data.io.filesystem.RETRIES", RetryPolicy(attempts=10, first_pause_s=0.0)
    )
    failures = iter([ConnectionResetError("gone")])

    class Flaky(LinesDatasink):
        def write_block_to_file(self, block, file):
            for error in failures:
                raise error
            super().write_block_to_file(block, file)

    sink = Flaky(f"{place.path}/out", filesystem=place.filesystem)
    run_job(sink)
    assert content_of(place) == NEW
