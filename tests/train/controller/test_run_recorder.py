"""Record of a run: its contents, its state after a kill at any step, and the steps of reports."""

from __future__ import annotations

import errno
import json
import shutil
import time
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyarrow.fs import FSSpecHandler, PyFileSystem

from syncline import faults, runs
from syncline.runs import record_files
from syncline.runs.alerts import AlertSender
from syncline.train.backend import BackendConfig, Worker
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import CheckpointConfig, ScalingConfig
from syncline.train.controller.attempt import CompleteReport, WorkerFailure
from syncline.train.controller.fencing import FencingToken
from syncline.train.controller.run_recorder import RunRecorder, StepCount
from syncline.train.errors import ControllerError, WorkerGroupError
from syncline.train.result import Result
from syncline.train.run_config import RunConfig
from syncline.train.snapshots.slot import SnapshotId
from syncline.train.storage.context import ArrowFiles, StorageContext, StorageFullError
from syncline.train.workers.messages import CheckpointPart, Reported, StepTimes, UsageReported
from syncline.train.workers.spec import RunSpec

WORKER = Worker(
    rank=0,
    node_id="n",
    node_ip="127.0.0.1",
    hostname="here",
    pid=7,
    local_rank=0,
    local_world_size=1,
    node_rank=0,
    gpu_ids=[],
)


def spec(storage: Path, *, num_to_keep: int | None = None, **changes: Any) -> RunSpec:
    values: dict[str, Any] = {
        "train_function": print,
        "takes_config": False,
        "train_config": {},
        "backend_config": BackendConfig(),
        "scaling_config": ScalingConfig(),
        "run_config": RunConfig(
            name="run",
            storage_path=str(storage),
            checkpoint_config=CheckpointConfig(num_to_keep=num_to_keep),
        ),
        "resume_from_checkpoint": None,
        "metadata": None,
        "validation_config": None,
    }
    return RunSpec(**{**values, **changes})


def staged(
    recorder: RunRecorder, index: int, tmp_path: Path, ranks: int = 2, name: str | None = None
) -> CompleteReport:
    """A complete report of `ranks` ranks whose files are staged: one file each, and one that all
    have.
    """
    parts = []
    for rank in range(ranks):
        source = tmp_path / f"source-{index}-{rank}"
        source.mkdir()
        (source / f"rank{rank}").write_text(str(index))
        (source / "shared").write_text(f"from rank {rank}")
        dir_name = name or f"checkpoint_{index:06d}"
        place = recorder.storage.stage(
            Checkpoint(str(source)), dir_name, rank=rank, token=f"t-{index}"
        )
        parts.append(CheckpointPart(dir_name=dir_name, staged=place))
    return CompleteReport(
        index=index,
        metrics=tuple({"rank": rank, "index": index} for rank in range(ranks)),
        parts=tuple(parts),
    )


def visible(storage: Path) -> list[str]:
    return sorted(
        p.name for p in (storage / "run").iterdir() if p.is_dir() and not p.name.startswith(".")
    )


def test_files_of_all_ranks_merge_and_rank_zeros_metrics_count(tmp_path: Path) -> None:
    recorder = RunRecorder(spec(tmp_path / "s"))
    checkpoint = recorder.commit(staged(recorder, 0, tmp_path))
    directory = Path(checkpoint.path)
    assert sorted(p.name for p in directory.iterdir()) == ["rank0", "rank1", "shared"]
    assert (directory / "shared").read_text() == "from rank 0"
    assert [entry.metrics for entry in recorder.manager.registered] == [{"rank": 0, "index": 0}]
    assert recorder.latest == checkpoint


def test_metadata_of_the_trainer_is_in_every_checkpoint(tmp_path: Path) -> None:
    recorder = RunRecorder(spec(tmp_path / "s", metadata={"classes": 10}))
    checkpoint = recorder.commit(staged(recorder, 0, tmp_path))
    assert checkpoint.get_metadata() == {"classes": 10}


def test_surplus_checkpoints_are_deleted_after_the_list_says_so(tmp_path: Path) -> None:
    recorder = RunRecorder(spec(tmp_path / "s", num_to_keep=1))
    for index in range(3):
        recorder.commit(staged(recorder, index, tmp_path))
    assert visible(tmp_path / "s") == ["checkpoint_000002"]
    listed = json.loads((tmp_path / "s" / "run" / "checkpoints.json").read_text())
    assert [entry["name"] for entry in listed["checkpoints"]] == ["checkpoint_000002"]


@pytest.mark.parametrize(
    ("point", "left"), [("train.before_commit", []), ("train.after_commit", ["checkpoint_000000"])]
)
def test_a_kill_in_the_middle_of_a_commit_leaves_a_whole_checkpoint_or_none(
    tmp_path: Path, point: str, left: list[str]
) -> None:
    recorder = RunRecorder(spec(tmp_path / "s"))
    complete = staged(recorder, 0, tmp_path)
    faults.configure(f"{point}=raise:1")
    try:
        with pytest.raises(faults.FaultInjected):
            recorder.commit(complete)
    finally:
        faults.configure("")
    assert visible(tmp_path / "s") == left
    for name in left:
        assert len(list((tmp_path / "s" / "run" / name).iterdir())) == 3
    again = RunRecorder(spec(tmp_path / "s"))
    assert again.latest is None
    left_behind = [
        p
        for p in (tmp_path / "s" / "run").glob(".tmp-*")
        if p.is_dir() or p.name.startswith(".tmp-commit-")
    ]
    assert not left_behind  # a file of the record may be being written beside this
    again.commit(staged(again, 1, tmp_path))
    assert again.latest is not None


def test_a_run_of_the_same_name_goes_on_where_the_record_ends(tmp_path: Path) -> None:
    first = RunRecorder(spec(tmp_path / "s"))
    assert first.next_index == 0
    for index in range(4):
        first.record(0, Reported(index=index, metrics={"loss": index}, time=1.0))
    first.commit(staged(first, 3, tmp_path))
    first.close("finished")
    second = RunRecorder(spec(tmp_path / "s"))
    assert second.next_index == 4
    assert second.latest == first.latest


def test_a_controller_writes_no_more_when_another_has_taken_over(tmp_path: Path) -> None:
    former = RunRecorder(spec(tmp_path / "s"))
    former.commit(staged(former, 0, tmp_path))
    late = staged(former, 1, tmp_path)
    heir = RunRecorder(spec(tmp_path / "s"))
    assert heir.next_index == 1
    place = heir.storage.stage(
        Checkpoint(str(tmp_path / "source-1-0")), "checkpoint_000001", rank=0, token="heirs"
    )
    for write in (lambda: former.commit(late), former.check_token, lambda: former.validated(0, {})):
        with pytest.raises(RuntimeError, match="Another controller has taken over"):
            write()
    former.discard_unfinished()
    former.close("errored")
    assert visible(tmp_path / "s") == ["checkpoint_000000"]
    assert not (tmp_path / "s" / "run" / "outcome.json").exists()
    part = CheckpointPart(dir_name="checkpoint_000001", staged=place)
    heir.commit(CompleteReport(index=1, metrics=({},), parts=(part,)))
    heir.close("finished")
    assert visible(tmp_path / "s") == ["checkpoint_000000", "checkpoint_000001"]


def test_a_fencing_token_is_superseded_on_remote_filesystems_too() -> None:
    memory = PyFileSystem(FSSpecHandler(fsspec.filesystem("memory")))
    first = FencingToken(ArrowFiles(memory, "tenure"))
    assert not first.is_superseded
    assert not FencingToken(ArrowFiles(memory, "tenure")).is_superseded
    assert first.is_superseded


def test_a_run_without_checkpoints_of_its_own_begins_where_it_was_told_to(tmp_path: Path) -> None:
    start = Checkpoint("/elsewhere")
    recorder = RunRecorder(spec(tmp_path / "s", resume_from_checkpoint=start))
    assert recorder.latest == start
    recorder.commit(staged(recorder, 0, tmp_path))
    assert recorder.latest != start


def test_parts_that_lie_under_other_names_come_to_rank_zeros(tmp_path: Path) -> None:
    recorder = RunRecorder(spec(tmp_path / "s"))
    for name in ("mine", "theirs"):
        (tmp_path / "s" / "run" / name).mkdir()
        (tmp_path / "s" / "run" / name / name).touch()
    parts = (
        CheckpointPart(dir_name="mine", staged=None),
        CheckpointPart(dir_name="theirs", staged=None),
    )
    checkpoint = recorder.commit(CompleteReport(index=0, metrics=({}, {}), parts=parts))
    assert Path(checkpoint.path).name == "mine"
    assert sorted(p.name for p in Path(checkpoint.path).iterdir()) == ["mine", "theirs"]


def commit(recorder: RunRecorder, index: int, tmp_path: Path, **options: Any) -> Checkpoint:
    validation = options.pop("validation", None)
    return recorder.commit(staged(recorder, index, tmp_path, **options), validation)


def test_a_name_that_is_reported_again_replaces_the_former_one(tmp_path: Path) -> None:
    recorder = RunRecorder(spec(tmp_path / "s"))
    for index in range(3):
        checkpoint = commit(recorder, index, tmp_path, name="last")
        assert (Path(checkpoint.path) / "rank0").read_text() == str(index)
    assert visible(tmp_path / "s") == ["last"]
    assert [entry.index for entry in recorder.manager.registered] == [2]


def test_a_checkpoint_that_is_being_validated_is_not_replaced(tmp_path: Path) -> None:
    recorder = RunRecorder(spec(tmp_path / "s"))
    first = commit(recorder, 0, tmp_path, name="last", validation={})
    second = commit(recorder, 1, tmp_path, name="last")
    assert (Path(first.path) / "rank0").read_text() == "0"
    assert (Path(second.path) / "rank0").read_text() == "1"
    recorder.validated(0, {"accuracy": 0.5})
    assert [entry.metrics.get("accuracy") for entry in recorder.manager.registered] == [0.5, None]
    commit(recorder, 2, tmp_path, name="last")
    assert [entry.index for entry in recorder.manager.registered] == [2]
    assert len(visible(tmp_path / "s")) == 1


def test_the_validation_of_a_checkpoint_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    recorder = RunRecorder(spec(tmp_path / "s"))
    commit(recorder, 0, tmp_path)
    recorder.validated(7, {"accuracy": 0.5})
    recorder.validated(7, None, timed_out=True)
    assert [entry.metrics for entry in recorder.manager.registered] == [{"rank": 0, "index": 0}]


def test_one_checkpoint_cannot_lie_in_another(tmp_path: Path) -> None:
    recorder = RunRecorder(spec(tmp_path / "s"))
    commit(recorder, 0, tmp_path, name="epoch/1")
    with pytest.raises(ValueError, match="one cannot be inside another"):
        commit(recorder, 1, tmp_path, name="epoch")
    assert (tmp_path / "s" / "run" / "epoch" / "1" / "rank0").exists()


def test_a_checkpoint_that_somebody_has_deleted_is_forgotten_at_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = RunRecorder(spec(tmp_path / "s"))
    first, second = commit(recorder, 0, tmp_path), commit(recorder, 1, tmp_path)
    shutil.rmtree(first.path)
    again = RunRecorder(spec(tmp_path / "s"))
    assert again.latest == second
    assert "does not exist any more" in caplog.text
    assert [c.path for c, _ in Result.from_path(tmp_path / "s" / "run").best_checkpoints] == [
        second.path
    ]


def test_a_run_does_not_continue_without_its_latest_checkpoint(tmp_path: Path) -> None:
    recorder = RunRecorder(spec(tmp_path / "s"))
    first, second = commit(recorder, 0, tmp_path), commit(recorder, 1, tmp_path)
    shutil.rmtree(second.path)
    with pytest.raises(ControllerError, match="checkpoint_000001, does not exist") as caught:
        RunRecorder(spec(tmp_path / "s"))
    assert isinstance(caught.value.controller_failure, FileNotFoundError)
    assert f"resume_from_checkpoint=Checkpoint({first.path!r})" in str(caught.value)


def test_what_cannot_be_deleted_is_deleted_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def busy(storage: StorageContext, checkpoint: Checkpoint) -> None:
        raise OSError("busy")

    recorder = RunRecorder(spec(tmp_path / "s", num_to_keep=1))
    commit(recorder, 0, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(StorageContext, "delete", busy)
        commit(recorder, 1, tmp_path)
    assert "could not be deleted yet" in caplog.text
    assert visible(tmp_path / "s") == ["checkpoint_000000", "checkpoint_000001"]
    RunRecorder(spec(tmp_path / "s", num_to_keep=1))
    assert visible(tmp_path / "s") == ["checkpoint_000001"]


def test_a_list_that_could_not_be_written_is_written_before_anything_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(files: ArrowFiles, name: str, data: bytes) -> None:
        raise OSError("no room")

    recorder = RunRecorder(spec(tmp_path / "s"))
    with monkeypatch.context() as patch:
        patch.setattr(ArrowFiles, "write", refused)
        with pytest.raises(OSError, match="no room"):
            commit(recorder, 0, tmp_path)
        recorder.discard_unfinished()
        assert visible(tmp_path / "s") == ["checkpoint_000000"]
    recorder.discard_unfinished()
    assert visible(tmp_path / "s") == ["checkpoint_000000"]
    assert Result.from_path(tmp_path / "s" / "run").checkpoint == recorder.latest


def test_after_a_full_disk_there_is_another_attempt_only_with_enough_room(tmp_path: Path) -> None:
    recorder = RunRecorder(spec(tmp_path / "s"))
    recorder.check_free_space()
    recorder.failed(1, {0: WorkerFailure(exception=ValueError("of the program"))})
    recorder.check_free_space()
    recorder.failed(
        2, {1: WorkerFailure(exception=StorageFullError(errno.ENOSPC, "it does not fit", 1 << 20))}
    )
    recorder.check_free_space()
    recorder.failed(
        3, {1: WorkerFailure(exception=StorageFullError(errno.ENOSPC, "it does not fit", 1 << 60))}
    )
    with pytest.raises(WorkerGroupError, match="it does not fit(.|\n)*not started again") as raised:
        recorder.check_free_space()
    assert list(raised.value.worker_failures) == [1]


def test_a_run_that_ends_with_an_error_tells_it_even_if_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(files: ArrowFiles, name: str, data: bytes) -> None:
        raise OSError("no room")

    recorder = RunRecorder(spec(tmp_path / "s"))
    monkeypatch.setattr(ArrowFiles, "write", refused)
    recorder.close("errored", "the program's error")
    with pytest.raises(OSError, match="no room"):
        recorder.close("finished")


def test_with_a_limit_the_run_directory_stays_as_small_as_it_is(tmp_path: Path) -> None:
    recorder = RunRecorder(spec(tmp_path / "s", num_to_keep=2))
    run = tmp_path / "s" / "run"
    sizes = []
    for index in range(100, 300):
        recorder.record(0, Reported(index=index, metrics={"index": index}, time=1.5))
        commit(recorder, index, tmp_path, ranks=1)
        names = {path.name for path in run.iterdir()} - {"events.jsonl", "metrics.jsonl"}
        sizes.append((len(names), (run / "checkpoints.json").stat().st_size))
    assert len(set(sizes[2:])) == 1
    assert len({len(line) for line in (run / "metrics.jsonl").read_text().splitlines()}) == 1


def test_a_storage_path_that_cannot_be_written_is_refused_before_anything_starts(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="cannot be written"):
        RunRecorder(spec(tmp_path / "file"))


def test_lines_of_two_controllers_do_not_mix(tmp_path: Path) -> None:
    former = RunRecorder(spec(tmp_path / "s"))
    former.begin_attempt(1, 0, workers=[])
    heir = RunRecorder(spec(tmp_path / "s"))
    heir.begin_attempt(1, 0, workers=[])
    run = tmp_path / "s" / "run"
    before = (run / "events.jsonl").read_bytes()
    former.failed(1, {0: WorkerFailure(exception=ValueError("of the former"))})
    former.event("resize", world_size=3)
    former.sample(WORKER, 1, UsageReported(times=StepTimes(), usage={"rss_bytes": 1}))
    former.close("errored", "of the former")
    assert (run / "events.jsonl").read_bytes() == before
    assert not (run / "workers.jsonl").exists()
    heir.sample(WORKER, 1, UsageReported(times=StepTimes(), usage={"rss_bytes": 2}))
    heir.close("finished")
    assert [event["event"] for event in runs.open(run).events] == [
        "started",
        "attempt",
        "started",
        "attempt",
        "finished",
    ]
    assert [sample["usage"] for sample in runs.open(run).samples["0"]] == [{"rss_bytes": 2}]


def no_room(*arguments: Any) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_ends_a_run_for_its_metrics_and_not_for_what_is_only_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = RunRecorder(spec(tmp_path / "s"))
    with monkeypatch.context() as patch:
        patch.setattr("syncline.runs.record_files.os.write", no_room)
        recorder.begin_attempt(1, 0, workers=[])
        recorder.event("resize", world_size=3)
        recorder.failed(1, {0: WorkerFailure(exception=ValueError("of the program"))})
        recorder.sample(WORKER, 1, UsageReported(times=StepTimes(), usage={}))
        with pytest.raises(
            StorageFullError,
            match=r"s/run' \(No space left on device\).*Free some space.*under the same name",
        ):
            recorder.record(0, Reported(index=0, metrics={"loss": 1.0}, time=1.0))
        patch.setattr("syncline.train.storage.context.ArrowFiles.write", no_room)
        with pytest.raises(StorageFullError, match="list of checkpoints"):
            commit(recorder, 0, tmp_path)
    assert caplog.text.count("will be incomplete") == 1
    recorder.record(0, Reported(index=1, metrics={"loss": 1.0}, time=1.0))
    recorder.close("finished")
    assert [report["iteration"] for report in Result.from_path(tmp_path / "s" / "run").reports] == [
        1
    ]


def test_a_metric_whose_name_no_board_can_hold_ends_no_run(tmp_path: Path) -> None:
    recorder = RunRecorder(spec(tmp_path / "s"))
    recorder.begin_attempt(1, 0, workers=[])
    recorder.record(0, Reported(index=0, metrics={"half a character \ud800": 1.0}, time=1.0))
    recorder.close("finished")
    assert Result.from_path(tmp_path / "s" / "run").metrics == {"half a character \ud800": 1.0}


def test_a_record_elsewhere_grows_while_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_files, "UPLOAD_EVERY_S", 0.001)
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    remote = PyFileSystem(FSSpecHandler(memory))
    run_config = RunConfig(
        name="run",
        storage_path="bucket",
        storage_filesystem=remote,
        checkpoint_config=CheckpointConfig(),
    )
    recorder = RunRecorder(spec(Path("unused"), run_config=run_config))
    recorder.begin_attempt(1, 0, workers=[{"rank": 0}])
    recorder.record(0, Reported(index=0, metrics={"loss": 1.0}, time=1.0))
    deadline = time.monotonic() + 60
    while not memory.exists("/bucket/run/metrics.jsonl"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    heir = RunRecorder(spec(Path("unused"), run_config=run_config))
    recorder.record(0, Reported(index=1, metrics={"loss": 2.0}, time=1.0))
    recorder.close("errored", "of the former")
    assert heir.next_index == 1
    heir.record(0, Reported(index=1, metrics={"loss": 3.0}, time=1.0))
    heir.close("finished")
    result = Result.from_path("bucket/run", remote)
    assert [report["metrics"] for report in result.reports] == [{"loss": 1.0}, {"loss": 3.0}]
    assert result.error is None


# -- steps of reports


def test_the_first_attempt_starts_at_step_0() -> None:
    steps = StepCount([], 0)
    assert steps.next_step == 0
    assert steps.begin(0, None) == 0
    assert [steps.of(report) for report in range(3)] == [0, 1, 2]


def test_an_attempt_continues_the_steps_after_the_report_of_its_checkpoint() -> None:
    steps = StepCount([], 0)
    steps.begin(0, None)
    assert steps.begin(7, 4) == 5
    assert [steps.of(report) for report in (3, 4, 6, 7, 8)] == [3, 4, 6, 5, 6]
    assert steps.begin(12, 8) == 7  # report 8 is step 6


def test_without_a_checkpoint_an_attempt_starts_at_step_0() -> None:
    steps = StepCount([], 0)
    steps.begin(0, None)
    assert steps.begin(5, None) == 0
    assert steps.of(6) == 1


def test_another_program_continues_the_steps_of_the_earlier_ones() -> None:
    written = [{"first_report": 0, "first_step": 0}, {"first_report": 7, "first_step": 5}]
    steps = StepCount(written, 9)
    assert steps.next_step == 7
    assert steps.begin(9, 8) == 7


def test_the_next_step_is_beyond_the_highest_step_of_all_attempts() -> None:
    assert (
        StepCount(
            [{"first_report": 0, "first_step": 0}, {"first_report": 7, "first_step": 5}], 8
        ).next_step
        == 7
    )
    assert (
        StepCount(
            [{"first_report": 0, "first_step": 0}, {"first_report": 7, "first_step": 0}], 9
        ).next_step
        == 7
    )


def test_attempts_without_reports_change_nothing() -> None:
    written = [
        {"first_report": 0, "first_step": 0},
        {"first_report": 0, "first_step": 0},
        {"first_report": 4, "first_step": 2},
    ]
    assert StepCount(written, 4).next_step == 4
    assert StepCount(written[:2], 0).next_step == 0


def test_a_record_without_steps_counts_reports() -> None:
    steps = StepCount([{"number": 1}], 6)
    assert (steps.next_step, steps.of(5)) == (6, 5)
    assert steps.begin(6, 5) == 6


def test_stalls_and_ends_are_alerts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, object]] = []

    def send(self: AlertSender, event: str, **facts: object) -> None:
        sent.append((event, facts["error"]))

    monkeypatch.setattr(AlertSender, "send", send)
    monkeypatch.setenv("SYNCLINE_ALERT_COMMAND", "true")
    recorder = RunRecorder(spec(tmp_path / "s"))
    for event in ("stalled", "resumed"):
        recorder.event(event)
    recorder.close("errored", "KeyError: 'label'")
    assert sent == [("stalled", None), ("errored", "KeyError: 'label'")]


def test_the_nodes_and_the_refused_snapshots_of_an_earlier_program_are_known(
    tmp_path: Path,
) -> None:
    first = RunRecorder(spec(tmp_path))
    assert (first.earlier_nodes, first.refused_snapshot) == (frozenset(), None)
    for number, node in enumerate(("m", "n"), start=1):
        workers = [{**vars(WORKER), "node_id": node}]
        first.begin_attempt(number, 0, workers=workers, snapshot=None)
    for last in (SnapshotId(attempt=8, step=1), SnapshotId(attempt=7, step=9)):
        first.refuse_snapshots(last)
    second = RunRecorder(spec(tmp_path))
    assert second.earlier_nodes == {"m", "n"}
    assert second.refused_snapshot == SnapshotId(attempt=8, step=1)
