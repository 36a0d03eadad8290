"""A worker's session against a controller that the test plays."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import fsspec
import pytest
from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

from syncline.train import Checkpoint, CheckpointConsistencyMode, CheckpointUploadMode
from syncline.train.backend import Worker
from syncline.train.checkpoint import ReportedCheckpoint
from syncline.train.session import ReportCall
from syncline.train.storage.context import StorageContext
from syncline.train.workers.messages import (
    BadInputs,
    BarrierReached,
    BarrierReleased,
    CheckpointPart,
    Checkpoints,
    CheckpointsRequested,
    Committed,
    Reported,
    Uploaded,
    WorkerMessage,
    as_message,
)
from syncline.train.workers.send_buffer import SendBuffer
from syncline.train.workers.spec import WorkerSpec
from syncline.train.workers.worker_session import WorkerSession


class Bench:
    """One session of rank `rank`, with its send_buffer and what it failed with."""

    def __init__(
        self,
        directory: Path,
        *,
        rank: int = 0,
        first_index: int = 0,
        latest: Checkpoint | None = None,
        storage_filesystem: FileSystem | None = None,
        gap_s: float = 0.05,
    ) -> None:
        self.storage = StorageContext(directory / "storage", "run", storage_filesystem)
        self.storage.prepare()
        worker = Worker(
            rank=rank,
            node_id="n",
            node_ip="127.0.0.1",
            hostname="h",
            pid=os.getpid(),
            local_rank=rank,
            local_world_size=2,
            node_rank=0,
            gpu_ids=[],
        )
        spec = WorkerSpec(
            worker=worker,
            world_size=2,
            run_name="run",
            attempt=1,
            token="token-1",
            storage=self.storage,
            use_gpu=False,
            first_index=first_index,
            latest_checkpoint=latest,
            has_validation=False,
            visible_gpus=None,
            log_path=None,
        )
        self.send_buffer = SendBuffer(gap_s=gap_s)
        self.failures: list[BaseException] = []
        self.failed = threading.Event()
        self.session = WorkerSession(spec, self.send_buffer, self._fail)
        self._batches = self.send_buffer.batches()

    def _fail(self, error: BaseException) -> None:
        self.failures.append(error)
        self.failed.set()

    def report(
        self, metrics: dict[str, Any] | None = None, checkpoint: Any = None, **options: Any
    ) -> None:
        self.session.report(ReportCall(metrics or {}, checkpoint, **options))

    def heard(self) -> list[WorkerMessage]:
        """The next batch."""
        return list(map(as_message, next(self._batches)))

    def part(self) -> CheckpointPart:
        """Of the next report, when it is in place."""
        messages = self.heard()
        (reported,) = [message for message in messages if isinstance(message, Reported)]
        if reported.part is not None:
            return reported.part
        (uploaded,) = messages[1:] or self.heard()
        assert isinstance(uploaded, Uploaded)
        return uploaded.part

    def run_path(self) -> Path:
        return Path(self.storage.experiment_fs_path)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, first_index=4)


@pytest.fixture
def source(tmp_path: Path) -> Checkpoint:
    directory = tmp_path / "source"
    directory.mkdir()
    (directory / "weights").write_bytes(b"w" * 10_000)
    return Checkpoint.from_directory(directory)


@pytest.mark.parametrize("with_files", [False, True])
def test_inputs_are_looked_at_once_if_metrics_are_not_finite(
    bench: Bench, source: Checkpoint, with_files: bool
) -> None:
    looks: list[None] = []

    def has_bad_inputs() -> bool:
        looks.append(None)
        return True

    bench.session.follow_inputs(has_bad_inputs)
    bench.report({"loss": 1.0})
    bench.report({"loss": math.nan, "norm": math.inf}, source if with_files else None)
    bench.report({"loss": math.nan})
    bench.session.finish_uploads()
    bench.send_buffer.close()
    messages = [as_message(message) for batch in bench.send_buffer.batches() for message in batch]
    assert looks == [None]
    assert [each for each in messages if isinstance(each, BadInputs)] == [BadInputs(report=5)]


def in_thread(function: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    thread.start()
    return thread, results


def test_metrics_are_numbered_on_from_where_the_run_is(bench: Bench) -> None:
    bench.report({"loss": 1.0})
    bench.report({"loss": 0.5})
    assert [(m.index, m.metrics) for m in bench.heard() if isinstance(m, Reported)] == [
        (4, {"loss": 1.0}),
        (5, {"loss": 0.5}),
    ]


def test_a_report_with_a_checkpoint_leaves_at_once_with_those_that_gathered(
    tmp_path: Path, source: Checkpoint
) -> None:
    bench = Bench(tmp_path, gap_s=3600.0)
    bench.report()
    assert [message.index for message in bench.heard() if isinstance(message, Reported)] == [0]
    bench.report()
    bench.report(checkpoint=source)
    assert [message.index for message in bench.heard() if isinstance(message, Reported)] == [1, 2]


def test_sync_copies_into_a_hidden_directory_and_keeps_the_source(
    bench: Bench, source: Checkpoint
) -> None:
    bench.report(checkpoint=source)
    part = bench.part()
    assert part.dir_name == "checkpoint_000004"
    assert part.staged is not None
    assert (bench.run_path() / part.staged / "weights").read_bytes() == b"w" * 10_000
    assert [p.name for p in bench.run_path().iterdir() if not p.name.startswith(".")] == []
    assert Path(source.path, "weights").exists()


def test_sync_deletes_the_source_when_told_to(bench: Bench, source: Checkpoint) -> None:
    bench.report(checkpoint=source, delete_local=True)
    assert not Path(source.path).exists()


def test_async_reports_at_once_uploads_in_order_and_deletes_the_source(
    bench: Bench, tmp_path: Path
) -> None:
    sources = []
    for number in range(3):
        directory = tmp_path / f"source{number}"
        directory.mkdir()
        (directory / "file").write_text(str(number))
        sources.append(Checkpoint.from_directory(directory))
        bench.report(checkpoint=sources[-1], upload_mode=CheckpointUploadMode.ASYNC)
    bench.session.finish_uploads()
    bench.send_buffer.close()
    messages = [message for batch in bench.send_buffer.batches() for message in batch]
    assert [m.uploading for m in messages if isinstance(m, Reported)] == [True] * 3
    assert [m.index for m in messages if isinstance(m, Uploaded)] == [4, 5, 6]
    assert not any(Path(checkpoint.path).exists() for checkpoint in sources)


def test_an_upload_that_fails_fails_the_worker(bench: Bench, tmp_path: Path) -> None:
    bench.report(
        checkpoint=Checkpoint(str(tmp_path / "missing")), upload_mode=CheckpointUploadMode.ASYNC
    )
    assert bench.failed.wait(60)
    assert isinstance(bench.failures[0], FileNotFoundError)


def test_no_upload_wants_the_files_in_the_run_directory(bench: Bench, source: Checkpoint) -> None:
    with pytest.raises(ValueError, match="outside of the run directory"):
        bench.report(checkpoint=source, upload_mode=CheckpointUploadMode.NO_UPLOAD)
    inside = bench.run_path() / "mine"
    inside.mkdir()
    bench.report(checkpoint=Checkpoint(str(inside)), upload_mode=CheckpointUploadMode.NO_UPLOAD)
    part = bench.part()
    assert bench.session.next_report == 5  # the call that was refused does not count
    assert (part.dir_name, part.staged) == ("mine", None)


def test_an_upload_function_says_where_the_files_are(bench: Bench, source: Checkpoint) -> None:
    def upload(checkpoint: Checkpoint, name: str) -> Checkpoint:
        target = bench.run_path() / name
        target.mkdir()
        return Checkpoint(str(target))

    bench.report(checkpoint=source, dir_name="epoch_1", upload_fn=upload)
    part = bench.part()
    assert (part.dir_name, part.staged) == ("epoch_1", None)
    with pytest.raises(ValueError, match="outside of the run directory"):
        bench.report(checkpoint=source, upload_fn=lambda checkpoint, name: checkpoint)
    with pytest.raises(ValueError, match="Return a Checkpoint"):
        bench.report(checkpoint=source, upload_fn=lambda checkpoint, name: None)


@pytest.mark.parametrize("name", ["", "/abs", "../up", "a/../b", "a//b", ".tmp-x"])
def test_a_directory_name_that_leads_elsewhere_is_refused(
    bench: Bench, source: Checkpoint, name: str
) -> None:
    with pytest.raises(ValueError, match="checkpoint_dir_name"):
        bench.report(checkpoint=source, dir_name=name)


def test_bad_reports_say_what_is_wrong(bench: Bench, source: Checkpoint) -> None:
    with pytest.raises(TypeError, match="from_directory"):
        bench.report(checkpoint=source.path)
    with pytest.raises(ValueError, match="no checkpoint to validate"):
        bench.report(validation=True)
    with pytest.raises(ValueError, match="validation_config"):
        bench.report(checkpoint=source, validation=True)
    with pytest.raises(ValueError, match="pass True, or a `ValidationTaskConfig`"):
        bench.report(checkpoint=source, validation={"fn_kwargs": {}})


def test_get_checkpoint_is_the_starting_point_until_a_report_and_then_waits_for_its_commit(
    tmp_path: Path, source: Checkpoint
) -> None:
    bench = Bench(tmp_path, latest=Checkpoint("/before"))
    assert bench.session.get_checkpoint() == Checkpoint("/before")
    bench.report(checkpoint=source)
    thread, results = in_thread(bench.session.get_checkpoint)
    bench.session.deliver(Committed(index=0, checkpoint=Checkpoint("/committed")))
    thread.join(60)
    assert results == [Checkpoint("/committed")]


def test_checkpoints_of_others_do_not_change_what_this_rank_has_reported(bench: Bench) -> None:
    bench.report({"loss": 1.0})
    bench.session.deliver(Committed(index=4, checkpoint=Checkpoint("/others")))
    assert bench.session.get_checkpoint() is None


def test_all_reported_checkpoints_are_asked_for_and_a_timeout_gives_the_list_as_it_is(
    bench: Bench,
) -> None:
    thread, results = in_thread(
        lambda: bench.session.get_all_reported_checkpoints(
            CheckpointConsistencyMode.VALIDATED, 0.01
        )
    )
    first = bench.heard()
    second = [] if len(first) == 2 else bench.heard()
    questions = [message for message in first + second if isinstance(message, CheckpointsRequested)]
    assert [question.validated for question in questions] == [True, False]
    listed = (ReportedCheckpoint(Checkpoint("/c")),)
    bench.session.deliver(Checkpoints(request=questions[1].request, checkpoints=listed))
    thread.join(60)
    assert results == [list(listed)]


def test_a_meeting_returns_what_the_controller_carries(tmp_path: Path) -> None:
    bench = Bench(tmp_path, rank=1)
    thread, results = in_thread(lambda: bench.session.barrier("mine"))
    assert bench.heard() == [BarrierReached(sequence=0, data=None)]
    bench.session.deliver(BarrierReleased(sequence=0, data=cloudpickle.dumps("rank zero's")))
    thread.join(60)
    assert results == ["rank zero's"]


def test_rank_zero_sends_its_data(bench: Bench) -> None:
    in_thread(lambda: bench.session.barrier([1]))
    (message,) = bench.heard()
    assert isinstance(message, BarrierReached)
    assert message.data is not None
    assert cloudpickle.loads(message.data) == [1]


def test_a_forked_process_is_told_that_nobody_hears_it(bench: Bench) -> None:
    child = os.fork()
    if child == 0:
        try:
            with pytest.raises(
                RuntimeError, match=f"forked from the training worker {os.getppid()}"
            ):
                bench.report({"loss": 1.0})
            os._exit(0 if bench.session.get_checkpoint() is None else 2)
        except BaseException:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    bench.report({"loss": 1.0})
    assert len(bench.heard()) == 1


def test_an_attempt_that_has_predecessors_writes_where_none_of_them_does(tmp_path: Path) -> None:
    memory = PyFileSystem(FSSpecHandler(fsspec.filesystem("memory")))
    files = tmp_path / "files"
    files.mkdir()
    names = []
    for first_index, filesystem in ((0, memory), (3, memory), (3, None)):
        bench = Bench(tmp_path, first_index=first_index, storage_filesystem=filesystem)
        bench.report({}, Checkpoint.from_directory(files))
        names.append(bench.part().dir_name)
    assert names == ["checkpoint_000000", "checkpoint_000003-token-1", "checkpoint_000003"]


def test_files_that_are_gone_before_their_upload_make_no_checkpoint_of_what_is_left(
    bench: Bench, source: Checkpoint
) -> None:
    held, go = threading.Event(), threading.Event()
    stage = bench.session.storage.stage

    def later(*args: Any, **kwargs: Any) -> Any:
        held.set()
        assert go.wait(60)
        return stage(*args, **kwargs)

    bench.session.storage.stage = later  # type: ignore[method-assign]
    bench.report(checkpoint=source, upload_mode=CheckpointUploadMode.ASYNC, delete_local=False)
    assert held.wait(60)
    # `with TemporaryDirectory()` also deletes the files before the directory.
    Path(source.path, "weights").unlink()
    go.set()
    assert bench.failed.wait(60)
    assert "Do not change them after `report`" in str(bench.failures[0])
