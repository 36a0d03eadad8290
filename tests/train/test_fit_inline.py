"""`fit()` from end to end on the inline engine: one worker in this process."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline import train
from syncline.train.workers.worker_session import WorkerSession


@pytest.fixture(autouse=True)
def inline_engine() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


def fit(
    function: Any,
    storage: Path,
    *,
    name: str = "run",
    config: dict[str, Any] | None = None,
    **options: Any,
) -> train.Result:
    run_options = {
        key: options.pop(key)
        for key in (
            "failure_config",
            "checkpoint_config",
            "callbacks",
            "logging_config",
            "verbose",
            "on_conflict",
        )
        if key in options
    }
    run_config = train.RunConfig(name=name, storage_path=str(storage), **run_options)
    return train.DataParallelTrainer(
        function, train_loop_config=config, run_config=run_config, **options
    ).fit()


def report(metrics: dict[str, Any], **options: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "value").write_text(repr(metrics))
        train.report(metrics, checkpoint=train.Checkpoint.from_directory(directory), **options)


def test_a_run_gives_back_what_it_reported_and_returned(tmp_path: Path) -> None:
    def loop(config: dict[str, Any]) -> str:
        for step in range(3):
            report({"step": step, "times": config["times"]})
        train.report({"step": 3})
        return "value"

    result = fit(loop, tmp_path, config={"times": 2})
    assert result.metrics == {"step": 3}
    assert result.return_value == "value"
    assert result.path == str(tmp_path / "run")
    assert result.checkpoint is not None
    assert Path(result.checkpoint.path, "value").read_text() == "{'step': 2, 'times': 2}"
    assert result.metrics_dataframe is not None
    assert list(result.metrics_dataframe["step"]) == [0, 1, 2, 3]
    assert len(result.best_checkpoints) == 3


def test_the_error_of_the_function_is_raised_with_its_own_frames_only(tmp_path: Path) -> None:
    def broken() -> None:
        raise LookupError("the user's")

    with pytest.raises(train.WorkerGroupError, match="the user's") as raised:
        fit(broken, tmp_path)
    assert isinstance(raised.value.worker_failures[0], LookupError)
    assert "in broken" in str(raised.value)
    assert "workers/worker.py" not in str(raised.value)
    assert isinstance(
        train.Result.from_path(str(tmp_path / "run")).error, train.TrainingFailedError
    )


def test_leaving_early_counts_as_an_error(tmp_path: Path) -> None:
    with pytest.raises(train.WorkerGroupError) as raised:
        fit(lambda: (_ for _ in ()).throw(SystemExit(0)), tmp_path)
    assert isinstance(raised.value.worker_failures[0], SystemExit)


def test_a_failed_attempt_is_followed_by_one_from_the_latest_checkpoint(tmp_path: Path) -> None:
    def loop() -> int:
        checkpoint = train.get_checkpoint()
        start = (
            0
            if checkpoint is None
            else eval(Path(checkpoint.path, "value").read_text())["step"] + 1
        )
        for step in range(start, 4):
            if step == 2 and not (tmp_path / "failed").exists():
                (tmp_path / "failed").touch()
                raise ValueError("once")
            report({"step": step})
        return start

    result = fit(loop, tmp_path, failure_config=train.FailureConfig(max_failures=1))
    assert result.return_value == 2
    assert [r["metrics"]["step"] for r in result.reports] == [0, 1, 2, 3]
    assert [r["iteration"] for r in result.reports] == [0, 1, 2, 3]


def test_a_run_that_takes_over_the_name_continues_the_first(tmp_path: Path) -> None:
    def loop() -> str | None:
        checkpoint = train.get_checkpoint()
        report({"run": 1})
        return None if checkpoint is None else Path(checkpoint.path).name

    assert fit(loop, tmp_path).return_value is None
    second = fit(loop, tmp_path, on_conflict="takeover")
    assert second.return_value == "checkpoint_000000"
    assert [r["iteration"] for r in second.reports] == [0, 1]
    assert fit(loop, tmp_path, name="other").return_value is None


def test_all_upload_modes_and_names_end_as_checkpoints(tmp_path: Path) -> None:
    def loop() -> list[str]:
        report({"step": 0}, checkpoint_dir_name="first")
        session = train.session.get_session()
        assert isinstance(session, WorkerSession)
        inside = Path(session.storage.experiment_fs_path, "third")
        kept = tempfile.mkdtemp()
        train.report(
            {"step": 1},
            train.Checkpoint.from_directory(kept),
            checkpoint_upload_mode=train.CheckpointUploadMode.ASYNC,
        )
        inside.mkdir()
        train.report(
            {"step": 2},
            train.Checkpoint(str(inside)),
            checkpoint_upload_mode=train.CheckpointUploadMode.NO_UPLOAD,
        )
        return [
            Path(reported.checkpoint.path).name for reported in train.get_all_reported_checkpoints()
        ]

    assert fit(loop, tmp_path).return_value == ["first", "checkpoint_000001", "third"]


def test_only_the_best_and_the_latest_are_kept(tmp_path: Path) -> None:
    def loop() -> None:
        for score in (1, 5, 2, 3):
            report({"score": score})

    config = train.CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="score")
    result = fit(loop, tmp_path, checkpoint_config=config)
    assert [metrics["score"] for _, metrics in result.best_checkpoints] == [5]
    assert sorted(p.name for p in (tmp_path / "run").glob("checkpoint_*")) == [
        "checkpoint_000001",
        "checkpoint_000003",
    ]


class Recorder(train.UserCallback):
    def __init__(self) -> None:
        self.reports: list[Any] = []
        self.exceptions: list[Any] = []

    def after_report(
        self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: train.Checkpoint | None
    ) -> None:
        self.reports.append((run_context.name, metrics, checkpoint is not None))

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        self.exceptions.append({rank: type(error) for rank, error in worker_exceptions.items()})


def test_callbacks_hear_of_reports_and_failures(tmp_path: Path) -> None:
    def loop() -> None:
        train.report({"a": 1})
        report({"a": 2})
        raise ValueError

    recorder = Recorder()
    with pytest.raises(train.WorkerGroupError):
        fit(loop, tmp_path, callbacks=[recorder])
    assert recorder.reports == [("run", [{"a": 1}], False), ("run", [{"a": 2}], True)]
    assert recorder.exceptions == [{0: ValueError}]


def test_an_error_of_a_callback_is_the_controllers(tmp_path: Path) -> None:
    class Broken(train.UserCallback):
        def after_report(self, run_context: Any, metrics: Any, checkpoint: Any) -> None:
            raise KeyError("callback")

    def loop() -> None:
        train.report({"a": 1})
        train.collective.barrier()

    with pytest.raises(train.ControllerError) as raised:
        fit(loop, tmp_path, callbacks=[Broken()])
    assert isinstance(raised.value.controller_failure, KeyError)


def test_validations_are_merged_before_fit_returns_and_their_failures_fail_nothing(
    tmp_path: Path,
) -> None:
    def validate(checkpoint: train.Checkpoint, offset: int = 0) -> dict[str, Any]:
        step = eval(Path(checkpoint.path, "value").read_text())["step"]
        if step == 1:
            raise ValueError("no")
        return {"accuracy": step + offset}

    def loop() -> list[str]:
        report({"step": 0}, validation=True)
        report({"step": 1}, validation=True)
        report({"step": 2}, validation=train.ValidationTaskConfig(fn_kwargs={"offset": 10}))
        return [reported.status.value for reported in train.get_all_reported_checkpoints()]

    result = fit(
        loop,
        tmp_path,
        validation_config=train.ValidationConfig(fn=validate),
        checkpoint_config=train.CheckpointConfig(checkpoint_score_attribute="accuracy"),
    )
    assert result.return_value == ["VALIDATED", "VALIDATION_FAILED", "VALIDATED"]
    assert [metrics.get("accuracy") for _, metrics in result.best_checkpoints] == [None, 0, 12]


def test_ten_thousand_reports_arrive(tmp_path: Path) -> None:
    def loop() -> None:
        for index in range(10_000):
            train.report({"index": index})

    result = fit(loop, tmp_path)
    assert [r["metrics"]["index"] for r in result.reports] == list(range(10_000))


def test_a_value_that_cannot_be_returned_is_explained(tmp_path: Path) -> None:
    with pytest.raises(train.WorkerGroupError, match=r"cannot become\s+`Result.return_value`"):
        fit(lambda: threading.Lock(), tmp_path)


def test_several_workers_need_several_processes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="local_mode=True"):
        fit(lambda: None, tmp_path, scaling_config=train.ScalingConfig(num_workers=2))


def test_a_quiet_run_prints_three_lines_and_none_above_its_level(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fit(lambda: train.report({"loss": 0.5}), tmp_path)
    out, err = capfd.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 3
    assert err.splitlines()[1].startswith("syncline: goodput ")
    assert "loss=0.5" in err
    for quiet in ({"logging_config": train.LoggingConfig(log_level="warning")}, {"verbose": 0}):
        fit(lambda: None, tmp_path, **quiet)
        assert capfd.readouterr() == ("", "")


def test_a_misspelled_score_attribute_fails_at_the_first_checkpoint(tmp_path: Path) -> None:
    config = train.CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="lss")

    def loop() -> None:
        train.report({"epoch": 0})
        report({"loss": 1.0})

    with pytest.raises(train.WorkerGroupError, match=r"'lss'.*Did you mean 'loss'\?"):
        fit(loop, tmp_path, checkpoint_config=config)


def test_later_checkpoints_may_lack_the_score_also_after_a_restart(tmp_path: Path) -> None:
    config = train.CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="loss")

    def loop() -> None:
        if train.get_checkpoint() is None:
            report({"loss": 1.0})
            report({"epoch": 1})
            raise RuntimeError("once")
        report({"epoch": 2})

    failures = train.FailureConfig(max_failures=1)
    result = fit(loop, tmp_path, checkpoint_config=config, failure_config=failures)
    assert result.best_checkpoints is not None
    assert [metrics for _, metrics in result.best_checkpoints] == [{"loss": 1.0}]
