"""`Result`: its fields, the best checkpoint, and reading it from a run directory."""

import math
import pickle

import pytest
from pyarrow import fs

from syncline.runs import RunDirectory
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import CheckpointConfig
from syncline.train.controller.checkpoint_manager import CheckpointManager
from syncline.train.errors import TrainingFailedError
from syncline.train.result import Result
from syncline.train.storage.context import StorageContext

REPORTS = [
    {"iteration": 0, "time": 1.0, "rank": 0, "metrics": {"loss": 2.0, "valid": {"acc": 0.1}}},
    {"iteration": 1, "time": 2.0, "rank": 0, "metrics": {"loss": 1.0}},
]


def place(kind, tmp_path):
    if kind == "local":
        return StorageContext(tmp_path, "run")
    (tmp_path / "bucket").mkdir()
    return StorageContext(
        "runs", "run", fs.SubTreeFileSystem(str(tmp_path / "bucket"), fs.LocalFileSystem())
    )


@pytest.fixture(params=["local", "remote"])
def storage(request, tmp_path):
    context = place(request.param, tmp_path)
    context.prepare()
    return context


def write_run(storage, scores=(0.2, 0.9, 0.5), keep=2, error=None):
    manager = CheckpointManager(
        CheckpointConfig(num_to_keep=keep, checkpoint_score_attribute="acc")
    )
    with RunDirectory(storage.files) as run:
        run.write_run("run", {})
        for index, score in enumerate(scores):
            run.report(index, 1, {"acc": -1})
            run.report(index, 0, {"acc": score})
            manager.register(index, storage.checkpoint(f"checkpoint_{index:06d}"), {"acc": score})
            run.write_checkpoints(manager.to_json(storage.name_of))
        run.report(len(scores), 0, {"done": True})
        run.write_outcome("failed" if error else "finished", error=error)


def read(storage):
    return Result.from_path(
        storage.experiment_fs_path, storage_filesystem=storage.storage_filesystem
    )


def test_the_dataframe_has_a_row_for_every_report():
    table = Result(
        metrics=REPORTS[-1]["metrics"], checkpoint=None, reports=REPORTS
    ).metrics_dataframe
    assert len(table) == 2
    assert list(table["loss"]) == [2.0, 1.0]
    assert table["valid/acc"][0] == 0.1
    assert math.isnan(table["valid/acc"][1])
    assert list(table["iteration"]) == [0, 1]


def test_without_a_report_there_is_no_dataframe():
    assert Result(metrics=None, checkpoint=None).metrics_dataframe is None


def test_the_filesystem_is_local_if_not_told():
    assert Result(metrics=None, checkpoint=None).filesystem == fs.LocalFileSystem()


def test_it_prints_its_fields_readably():
    text = repr(Result(metrics={"loss": 1.0}, checkpoint=Checkpoint("/run/c"), path="/run"))
    assert text.startswith(
        "Result(\n  metrics={'loss': 1.0},\n"
        "  checkpoint=Checkpoint(filesystem=local, path=/run/c),\n"
    )
    assert "path='/run'" in text


def test_it_survives_pickle():
    result = Result(
        metrics={"a": 1},
        checkpoint=Checkpoint("/run/c"),
        path="/run",
        best_checkpoints=[(Checkpoint("/run/c"), {"a": 1})],
    )
    assert pickle.loads(pickle.dumps(result)) == result


class TestBestCheckpoint:
    result = Result(
        metrics=None,
        checkpoint=None,
        best_checkpoints=[
            (Checkpoint("/r/0"), {"loss": 3, "valid": {"acc": 0.5}}),
            (Checkpoint("/r/1"), {"loss": 1, "name": "x"}),
            (Checkpoint("/r/2"), {"loss": math.nan}),
            (Checkpoint("/r/3"), {"loss": 1}),
        ],
    )

    def test_highest_and_lowest_with_the_later_of_equals_and_never_nan(self):
        assert self.result.get_best_checkpoint("loss", "max").path == "/r/0"
        assert self.result.get_best_checkpoint("loss", "min").path == "/r/3"

    def test_nested_metrics(self):
        assert self.result.get_best_checkpoint("valid/acc", "max").path == "/r/0"

    def test_an_unknown_metric_lists_those_that_exist(self):
        with pytest.raises(RuntimeError, match="'accuracy'.*'loss', 'name', 'valid/acc'"):
            self.result.get_best_checkpoint("accuracy", "max")

    def test_an_unknown_mode_is_refused(self):
        with pytest.raises(ValueError, match="mode='best'"):
            self.result.get_best_checkpoint("loss", "best")

    def test_without_checkpoints_there_is_no_best(self):
        assert Result(metrics=None, checkpoint=None).get_best_checkpoint("loss", "max") is None


class TestFromPath:
    def test_a_finished_run(self, storage):
        write_run(storage)
        result = read(storage)
        assert result.metrics == {"done": True}
        assert result.checkpoint == storage.checkpoint("checkpoint_000002")
        assert [
            (checkpoint.path[-1], metrics["acc"]) for checkpoint, metrics in result.best_checkpoints
        ] == [("2", 0.5), ("1", 0.9)]
        assert result.get_best_checkpoint("acc", "max") == storage.checkpoint("checkpoint_000001")
        assert len(result.metrics_dataframe) == 4
        assert result.error is None
        assert (result.path, result.filesystem) == (
            storage.experiment_fs_path,
            storage.storage_filesystem,
        )

    def test_the_latest_checkpoint_need_not_be_among_the_best(self, storage):
        write_run(storage, scores=(0.9, 0.8, 0.1), keep=2)
        result = read(storage)
        assert result.checkpoint == storage.checkpoint("checkpoint_000002")
        assert [checkpoint.path[-1] for checkpoint, _ in result.best_checkpoints] == ["1", "0"]

    def test_a_failed_run_has_its_error(self, storage):
        write_run(storage, error="[Rank 0 Error Snippet]: boom")
        assert isinstance(read(storage).error, TrainingFailedError)
        assert "boom" in str(read(storage).error)

    def test_a_run_that_was_killed_at_once(self, storage):
        with RunDirectory(storage.files) as run:
            run.write_run("run", {})
        result = read(storage)
        assert (result.metrics, result.checkpoint, result.error, result.best_checkpoints) == (
            None,
            None,
            None,
            [],
        )

    def test_a_moved_run_finds_its_checkpoints(self, tmp_path):
        storage = StorageContext(tmp_path, "run")
        storage.prepare()
        write_run(storage)
        (tmp_path / "run").rename(tmp_path / "moved")
        assert (
            Result.from_path(tmp_path / "moved").checkpoint.path
            == f"{tmp_path}/moved/checkpoint_000002"
        )

    def test_a_missing_directory_is_refused(self, tmp_path):
        with pytest.raises(RuntimeError, match="no directory.*missing"):
            Result.from_path(tmp_path / "missing")

    def test_a_directory_that_holds_no_run_is_refused(self, tmp_path):
        with pytest.raises(RuntimeError, match="run.json.*storage_path"):
            Result.from_path(tmp_path)

    def test_a_damaged_record_is_a_value_error(self, storage):
        write_run(storage)
        storage.files.write("checkpoints.json", b"{")
        with pytest.raises(ValueError, match="checkpoints.json.*damaged"):
            read(storage)
