"""What a run tells its callbacks, and TensorBoard: start, steps over restarts, end. On the inline
engine.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import FileSelector

import syncline
from syncline import train, tune
from syncline.runs import LocalFiles, RunRecord
from tests.event_files import curves, event_files
from tests.train.storage.remote_filesystems import in_memory


@pytest.fixture(autouse=True)
def inline_engine() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


class Noting(train.UserCallback):
    """Notes the hooks that are called."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def on_run_start(self, run_context: train.RunConfig, start: train.RunStart) -> None:
        self.calls.append(("start", run_context.name, dict(start.config), start.next_step))
        self.path = start.path

    def on_report(self, run_context: train.RunConfig, step: int, metrics: dict[str, Any]) -> None:
        self.calls.append(("report", step, metrics))

    def after_report(
        self,
        run_context: train.RunConfig,
        metrics: list[dict[str, Any]],
        checkpoint: train.Checkpoint | None,
    ) -> None:
        self.calls.append(("after", len(metrics), checkpoint is not None))

    def after_exception(
        self, run_context: train.RunConfig, worker_exceptions: dict[int, Exception]
    ) -> None:
        self.calls.append(("exception", type(worker_exceptions[0])))

    def on_run_end(
        self, run_context: train.RunConfig, result: train.Result | None, error: BaseException | None
    ) -> None:
        self.calls.append(("end", result.metrics if result is not None else None, type(error)))

    def of(self, kind: str) -> list[Any]:
        return [call[1:] for call in self.calls if call[0] == kind]


def fit(
    function: Any,
    storage: Path,
    *callbacks: Any,
    config: dict[str, Any] | None = None,
    failures: int = 0,
) -> train.Result:
    run_config = train.RunConfig(
        name="run",
        storage_path=str(storage),
        callbacks=list(callbacks),
        failure_config=train.FailureConfig(max_failures=failures),
    )
    return train.DataParallelTrainer(
        function, train_loop_config=config, run_config=run_config
    ).fit()


def report(step: int, *, keep: bool) -> None:
    """Report a loss of that number, with a checkpoint that says it if it is to be kept."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "step").write_text(str(step))
        train.report(
            {"loss": float(step)},
            checkpoint=train.Checkpoint.from_directory(directory) if keep else None,
        )


def training(until: int, fail_at: int | None = None) -> Any:
    """Reports each step, every second one with a checkpoint, and goes on from the latest; fails
    once before step `fail_at`.
    """
    left = [fail_at]

    def loop() -> None:
        checkpoint = train.get_checkpoint()
        for step in range(
            0 if checkpoint is None else int(Path(checkpoint.path, "step").read_text()) + 1, until
        ):
            if step == left[0]:
                left[0] = None
                raise ValueError("once")
            report(step, keep=step % 2 == 0)
        train.collective.barrier()

    return loop


def test_a_run_is_told_from_its_start_to_its_end(tmp_path: Path) -> None:
    def loop(config: dict[str, Any]) -> None:
        report(0, keep=True)
        report(1, keep=False)

    noting = Noting()
    fit(loop, tmp_path, noting, config={"lr": 0.1, "activation": len, "api_key": "very secret"})
    assert noting.calls[0] == (
        "start",
        "run",
        {"lr": 0.1, "activation": "builtins.len", "api_key": "***"},
        0,
    )
    assert noting.of("report") == [(0, {"loss": 0.0}), (1, {"loss": 1.0})]
    assert noting.of("after") == [(1, True), (1, False)]
    assert noting.calls[-1] == ("end", {"loss": 1.0}, type(None))
    assert len(noting.calls) == 6
    assert noting.path == str(tmp_path / "run")


def test_the_end_says_how_a_run_has_failed(tmp_path: Path) -> None:
    noting = Noting()
    with pytest.raises(train.WorkerGroupError):
        fit(training(3, fail_at=1), tmp_path, noting)
    assert [call[0] for call in noting.calls if call[0] != "after"] == [
        "start",
        "report",
        "exception",
        "end",
    ]
    assert noting.of("end") == [(None, train.WorkerGroupError)]


def test_the_end_says_that_a_run_was_broken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    noting = Noting()
    monkeypatch.setattr("syncline.train.controller.driver.TrainController._loop", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit(training(1), tmp_path, noting)
    assert noting.of("end") == [(None, KeyboardInterrupt)]


def test_steps_that_are_done_again_have_the_steps_that_they_had(tmp_path: Path) -> None:
    noting = Noting()
    fit(training(5, fail_at=4), tmp_path, noting, failures=1)
    assert [(step, metrics["loss"]) for step, metrics in noting.of("report")] == [
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 3),
        (3, 3),
        (4, 4),
    ]
    assert curves(tmp_path / "run") == {"loss": [(step, float(step)) for step in range(5)]}
    assert len(event_files(tmp_path / "run")) == 1


def test_another_program_goes_on_with_the_steps(tmp_path: Path) -> None:
    with pytest.raises(train.WorkerGroupError):
        fit(training(9, fail_at=4), tmp_path)
    noting = Noting()
    fit(training(6), tmp_path, noting)
    assert noting.of("start")[0][-1] == 4
    assert [step for step, *_ in noting.of("report")] == [3, 4, 5]
    assert curves(tmp_path / "run") == {"loss": [(step, float(step)) for step in range(6)]}
    assert len(event_files(tmp_path / "run")) == 2


def test_a_callback_that_refuses_the_run_ends_it_before_it_begins(tmp_path: Path) -> None:
    class Refusing(train.UserCallback):
        def on_run_start(self, run_context: train.RunConfig, start: train.RunStart) -> None:
            raise LookupError("no key")

    def loop() -> None:
        raise AssertionError("must not run")

    before, after = Noting(), Noting()
    with pytest.raises(train.ControllerError, match="no key") as raised:
        fit(loop, tmp_path, before, Refusing(), after)
    assert isinstance(raised.value.controller_failure, LookupError)
    assert before.of("end") == [(None, train.ControllerError)]
    assert after.calls == []


def test_a_callback_that_fails_at_the_end_is_logged_and_the_outcome_stands(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(train.UserCallback):
        def on_run_end(
            self,
            run_context: train.RunConfig,
            result: train.Result | None,
            error: BaseException | None,
        ) -> None:
            raise LookupError("no route")

    noting = Noting()
    with caplog.at_level(logging.ERROR, "syncline"):
        result = fit(training(1), tmp_path, Failing(), noting)
    assert result.metrics == {"loss": 0.0}
    assert "Failing.on_run_end failed" in caplog.text
    assert "no route" in caplog.text
    assert len(noting.of("end")) == 1


def test_callbacks_of_searches_in_a_configuration_for_both_are_left_alone(tmp_path: Path) -> None:
    noting = Noting()
    run_config = tune.RunConfig(
        name="run", storage_path=str(tmp_path), callbacks=[tune.Callback(), noting]
    )
    train.DataParallelTrainer(training(1), run_config=run_config).fit()
    assert [call[0] for call in noting.calls] == ["start", "report", "after", "end"]


def test_a_disk_that_takes_no_file_for_tensorboard_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("syncline.runs.tensorboard_writer.ScalarWriter.add", full)
    assert fit(training(3), tmp_path).metrics == {"loss": 2.0}
    assert [record.message.partition(" of ")[0] for record in caplog.records] == ["The record"]


def test_attempts_say_their_steps_in_the_record(tmp_path: Path) -> None:
    fit(training(5, fail_at=4), tmp_path, failures=1)
    attempts = [
        event
        for event in RunRecord(LocalFiles(tmp_path / "run")).events()
        if event["event"] == "attempt"
    ]
    assert [(attempt["first_report"], attempt["first_step"]) for attempt in attempts] == [
        (0, 0),
        (4, 3),
    ]


def test_storage_elsewhere_gets_the_file_for_tensorboard_with_the_checkpoints_and_at_the_end(
    tmp_path: Path,
) -> None:
    filesystem = in_memory()
    run_config = train.RunConfig(name="run", storage_path="runs", storage_filesystem=filesystem)
    train.DataParallelTrainer(training(4), run_config=run_config).fit()
    listed = filesystem.get_file_info(FileSelector("runs/run"))
    (path,) = (info.path for info in listed if "tfevents" in info.path)
    with filesystem.open_input_stream(path) as stream:
        (tmp_path / Path(path).name).write_bytes(stream.read())
    assert curves(tmp_path) == {"loss": [(step, float(step)) for step in range(4)]}


def test_what_rank_0_has_reported_alone_is_told_too_because_the_record_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noting = Noting()
    monkeypatch.setattr(
        "syncline.train.controller.attempt.ReportCollector._complete", lambda self: []
    )
    fit(training(2), tmp_path, noting)
    assert [step for step, _ in noting.of("report")] == [0, 1]
    assert RunRecord(LocalFiles(tmp_path / "run")).reports(0)[-1]["iteration"] == 1
