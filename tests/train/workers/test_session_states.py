"""Where a rank's readers are, among the files that it reports: taken at the call, there with the
checkpoint or not at all.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

from syncline.train import Checkpoint, CheckpointUploadMode
from syncline.train.backend import Worker
from syncline.train.resume_state import Readers, read_states, states_path
from syncline.train.session import ReportCall
from syncline.train.storage.context import StorageContext
from syncline.train.workers.messages import (
    BarrierReleased,
    CheckpointPart,
    Committed,
    Reported,
    Uploaded,
    WorkerMessage,
    as_message,
)
from syncline.train.workers.send_buffer import SendBuffer
from syncline.train.workers.spec import WorkerSpec
from syncline.train.workers.worker_session import WorkerSession


class Counter:
    """A reader that is somewhere."""

    waited_s = 0.0

    def __init__(self) -> None:
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": 0, "ended": False, "at": self.at}

    def load_state_dict(self, states: Any, /) -> None:
        self.at = states[0]["at"]


class Rank:
    """One rank of two, with a reader and a directory that it reports."""

    def __init__(
        self,
        directory: Path,
        *,
        rank: int = 0,
        resumes: bool = False,
        latest: Checkpoint | None = None,
        filesystem: FileSystem | None = None,
    ) -> None:
        self.storage = StorageContext(directory / "storage", "run", filesystem)
        self.storage.prepare()
        place = Worker(
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
            worker=place,
            world_size=2,
            run_name="run",
            attempt=1,
            token="token",
            storage=self.storage,
            use_gpu=False,
            first_index=0,
            latest_checkpoint=latest,
            has_validation=False,
            resumes=resumes,
            visible_gpus=None,
            log_path=None,
        )
        self.send_buffer = SendBuffer()
        self.session = WorkerSession(spec, self.send_buffer, lambda error: None)
        self.reader = Counter()
        self.session.readers.add("counter", self.reader)
        self.source = directory / f"source-{rank}"
        self.source.mkdir(parents=True)
        (self.source / "weights").write_text("w")

    def report(
        self, *, files: bool = True, checkpoint: Checkpoint | None = None, **options: Any
    ) -> None:
        given = checkpoint or (Checkpoint.from_directory(self.source) if files else None)
        self.session.report(ReportCall({}, given, **options))

    def said(self) -> list[WorkerMessage]:
        """All; there can be no more."""
        self.session.finish_uploads()
        self.send_buffer.close()
        return [as_message(message) for batch in self.send_buffer.batches() for message in batch]

    def reports(self) -> list[Reported]:
        return [message for message in self.said() if isinstance(message, Reported)]

    def parts(self) -> list[CheckpointPart]:
        parts = [
            message.part for message in self.said() if isinstance(message, Reported | Uploaded)
        ]
        return [part for part in parts if part is not None]

    def place_in(self, name: str) -> Any:
        """Where the reader was by the states in a directory of the run directory."""
        states = read_states(self.storage.checkpoint(name), self.session.world_rank)
        return None if states is None else states.readers["counter"]["at"]


def test_states_are_staged_with_the_files_and_the_source_stays_as_it_is(tmp_path: Path) -> None:
    rank = Rank(tmp_path, rank=1)
    rank.reader.at = 5
    rank.report()
    (part,) = rank.parts()
    assert part.staged is not None
    assert rank.place_in(part.staged) == 5
    assert os.listdir(rank.source) == ["weights"]


def test_states_are_those_of_the_call_also_where_the_upload_comes_later(tmp_path: Path) -> None:
    rank = Rank(tmp_path)
    release = threading.Event()

    def upload(checkpoint: Checkpoint, name: str) -> Checkpoint:
        assert release.wait(60)
        return checkpoint_in(rank, name)

    rank.reader.at = 5
    rank.report(upload_mode=CheckpointUploadMode.ASYNC, upload_fn=upload)
    rank.reader.at = 6
    release.set()
    rank.session.finish_uploads()
    assert rank.place_in("checkpoint_000000") == 5


def checkpoint_in(rank: Rank, name: str) -> Checkpoint:
    path = Path(rank.storage.experiment_fs_path, name)
    path.mkdir()
    (path / "weights").write_text("w")
    return Checkpoint(str(path))


def test_states_go_where_a_checkpoint_that_is_not_copied_lies(tmp_path: Path) -> None:
    rank = Rank(tmp_path)
    rank.reader.at = 5
    rank.report(checkpoint=checkpoint_in(rank, "mine"), upload_mode=CheckpointUploadMode.NO_UPLOAD)
    assert rank.place_in("mine") == 5


def test_states_go_to_other_filesystems_too(tmp_path: Path) -> None:
    rank = Rank(tmp_path, filesystem=PyFileSystem(FSSpecHandler(fsspec.filesystem("memory"))))
    rank.reader.at = 5
    rank.report()
    (part,) = rank.parts()
    assert rank.place_in(part.staged or part.dir_name) == 5


@pytest.mark.parametrize("is_remote", [False, True])
def test_states_that_were_copied_from_an_earlier_checkpoint_are_left_out(
    tmp_path: Path, is_remote: bool
) -> None:
    rank = Rank(
        tmp_path,
        filesystem=PyFileSystem(FSSpecHandler(fsspec.filesystem("memory"))) if is_remote else None,
    )
    (rank.source / states_path(1)).parent.mkdir()
    (rank.source / states_path(1)).write_text("of another report")
    for delete in (False, True):
        rank.report(delete_local=delete, dir_name=f"deleted-{delete}")
    for part in rank.parts():
        name = part.staged or part.dir_name
        assert rank.place_in(name) == 0
        assert read_states(rank.storage.checkpoint(name), 1) is None


def test_a_rank_that_gives_no_files_sends_its_states_until_it_gives_some(tmp_path: Path) -> None:
    rank = Rank(tmp_path, rank=1)
    rank.reader.at = 5
    rank.report(files=False)
    rank.report()
    rank.report(files=False)
    along, _, alone = rank.reports()
    assert along.states is not None
    assert json.loads(along.states)["readers"]["counter"]["at"] == 5
    assert alone.states is None


def test_rank_zero_sends_states_with_metrics_only_once_others_have_given_files_without_it(
    tmp_path: Path,
) -> None:
    rank = Rank(tmp_path)
    rank.report(files=False)
    rank.session.deliver(Committed(index=0, checkpoint=Checkpoint("/others")))
    rank.report(files=False)
    assert [report.states is None for report in rank.reports()] == [True, False]


@pytest.mark.parametrize("resumes", [True, False])
def test_readers_go_on_only_if_the_run_resumes(tmp_path: Path, resumes: bool) -> None:
    first = Rank(tmp_path)
    first.reader.at = 5
    first.report(
        dir_name="done",
        checkpoint=checkpoint_in(first, "done"),
        upload_mode=CheckpointUploadMode.NO_UPLOAD,
    )
    again = Rank(tmp_path / "again", resumes=resumes, latest=first.storage.checkpoint("done"))
    assert again.reader.at == (5 if resumes else 0)


def test_barriers_count_as_communication_and_reports_do_not(tmp_path: Path) -> None:
    rank = Rank(tmp_path)
    rank.report(files=False)
    reported_s = rank.session.reported_s
    assert reported_s > 0
    rank.session.deliver(BarrierReleased(sequence=0, data=None))
    assert rank.session.step_times().communication_s == 0
    rank.session.barrier(None)
    assert rank.session.reported_s == reported_s
    assert rank.session.step_times().communication_s > 0


def test_the_median_step_is_known_after_some_reports(tmp_path: Path) -> None:
    rank = Rank(tmp_path)
    for _ in range(5):
        rank.report(files=False)
    assert rank.session.median_step_s is None
    rank.report(files=False)
    assert rank.session.median_step_s is not None
    assert rank.session.median_step_s >= 0


def test_a_rank_that_reads_nothing_sends_no_states(tmp_path: Path) -> None:
    rank = Rank(tmp_path, rank=1)
    rank.session.readers = Readers(rank=1, world_size=2)
    rank.report(files=False)
    assert [report.states for report in rank.reports()] == [None]
