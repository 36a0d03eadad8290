"""Whole runs on filesystems that are not this machine's: an S3-compatible server, fsspec's memory
and directories.
"""

from __future__ import annotations

import math
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pyarrow import fs

import syncline
from syncline import runs, train
from syncline.runs import run_list
from syncline.runs.run_storage import open_directory
from syncline.storage import retries
from syncline.storage.retries import RetryPolicy
from tests.train.storage.remote_filesystems import (
    BUCKET,
    EveryThirdFails,
    connect,
    in_directory,
    in_memory,
    s3_server,
)

ASYNC, NO_UPLOAD = train.CheckpointUploadMode.ASYNC, train.CheckpointUploadMode.NO_UPLOAD


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, EveryThirdFails]]:
    with s3_server() as served:
        yield served


@pytest.fixture(params=["s3", "memory", "directory"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> fs.FileSystem:
    if request.param == "memory":
        return in_memory()
    if request.param == "directory":
        return in_directory(tmp_path / "remote")
    return connect(request.getfixturevalue("server")[0])


@pytest.fixture
def inline_engine() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


def fit(function: Any, remote: fs.FileSystem, *, name: str, **options: Any) -> train.Result:
    run_options = {
        key: options.pop(key)
        for key in ("failure_config", "checkpoint_config", "on_conflict")
        if key in options
    }
    run_config = train.RunConfig(
        name=name, storage_path=f"{BUCKET}/runs", storage_filesystem=remote, **run_options
    )
    return train.DataParallelTrainer(function, run_config=run_config, **options).fit()


def save(text: str, name: str = "value") -> train.Checkpoint:
    directory = tempfile.mkdtemp()
    (Path(directory) / "below").mkdir()
    Path(directory, name).write_text(text)
    Path(directory, "below", name).write_text(f"below {text}")
    return train.Checkpoint.from_directory(directory)


def value(checkpoint: train.Checkpoint) -> str:
    with checkpoint.as_directory() as directory:
        assert (
            Path(directory, "below", "value").read_text()
            == f"below {Path(directory, 'value').read_text()}"
        )
        return Path(directory, "value").read_text()


def names(remote: fs.FileSystem, name: str) -> set[str]:
    """What lies in the run directory: directories, and hidden files."""
    found = remote.get_file_info(fs.FileSelector(f"{BUCKET}/runs/{name}"))
    return {
        info.base_name
        for info in found
        if info.type == fs.FileType.Directory or info.base_name.startswith(".")
    }


@pytest.mark.usefixtures("inline_engine")
def test_a_run_reports_validates_ranks_and_goes_on(
    remote: fs.FileSystem, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    name = f"whole-{request.node.callspec.id}"

    def validate(checkpoint: train.Checkpoint) -> dict[str, Any]:
        return {"score": float(value(checkpoint)) * 10}

    def loop() -> list[str]:
        checkpoint = train.get_checkpoint()
        start = 0 if checkpoint is None else int(value(checkpoint)) + 1
        for step in range(start, start + 4):
            train.report(
                {"step": step}, save(str(step)), checkpoint_upload_mode=ASYNC, validation=True
            )
        return [reported.status.value for reported in train.get_all_reported_checkpoints()]

    options: dict[str, Any] = {
        "validation_config": train.ValidationConfig(fn=validate),
        "checkpoint_config": train.CheckpointConfig(
            num_to_keep=2, checkpoint_score_attribute="score"
        ),
    }
    first = fit(loop, remote, name=name, **options)
    assert set(first.return_value) == {"VALIDATED"}
    assert [metrics["score"] for _, metrics in first.best_checkpoints] == [20.0, 30.0]
    assert names(remote, name) - {"logs"} == {"checkpoint_000002", "checkpoint_000003"}
    second = fit(loop, remote, name=name, on_conflict="takeover", **options)
    assert [value(checkpoint) for checkpoint, _ in second.best_checkpoints] == ["6", "7"]
    assert [report["metrics"]["step"] for report in second.reports] == list(range(8))
    read = train.Result.from_path(f"{BUCKET}/runs/{name}", remote)
    assert read.checkpoint == second.checkpoint
    assert (
        value(train.Checkpoint.from_directory(read.checkpoint.to_directory(tmp_path / "copy")))
        == "7"
    )
    with read.checkpoint.as_directory() as directory, read.checkpoint.as_directory() as again:
        assert directory == again
    assert not os.path.exists(directory)


@pytest.mark.usefixtures("inline_engine")
def test_files_that_a_program_puts_there_itself_are_checkpoints_too(
    remote: fs.FileSystem, request: pytest.FixtureRequest
) -> None:
    name = f"own-{request.node.callspec.id}"

    def put(checkpoint: train.Checkpoint, target: str) -> train.Checkpoint:
        place = f"{BUCKET}/runs/{name}/{target}"
        remote.create_dir(place)
        fs.copy_files(
            checkpoint.path,
            place,
            source_filesystem=checkpoint.filesystem,
            destination_filesystem=remote,
        )
        return train.Checkpoint(place, remote)

    def loop() -> None:
        train.report({"step": 0}, put(save("0"), "mine"), checkpoint_upload_mode=NO_UPLOAD)
        train.report({"step": 1}, save("1"), checkpoint_dir_name="other", checkpoint_upload_fn=put)

    result = fit(loop, remote, name=name)
    assert [
        (Path(checkpoint.path).name, value(checkpoint)) for checkpoint, _ in result.best_checkpoints
    ] == [("mine", "0"), ("other", "1")]
    assert not {entry for entry in names(remote, name) if entry.startswith(".")}


@pytest.mark.usefixtures("inline_engine")
def test_a_name_that_is_reported_again_never_overwrites_what_is_listed(
    remote: fs.FileSystem, request: pytest.FixtureRequest
) -> None:
    name = f"again-{request.node.callspec.id}"

    def loop() -> list[str]:
        seen = []
        for step in range(3):
            train.report({"step": step}, save(str(step)), checkpoint_dir_name="last")
            checkpoint = train.get_checkpoint()
            assert checkpoint is not None
            seen.append(value(checkpoint))
        return seen

    result = fit(loop, remote, name=name)
    assert result.return_value == ["0", "1", "2"]
    assert [value(checkpoint) for checkpoint, _ in result.best_checkpoints] == ["2"]
    assert len({entry for entry in names(remote, name) if entry.startswith(("last", "."))}) == 1


def report_steps(directory: Path) -> None:
    """The training function: two reports with a file per rank."""
    rank = train.get_context().get_world_rank()
    for step in range(2):
        source = directory / f"{step}-{rank}"
        source.mkdir()
        (source / f"rank{rank}").write_text(str(step))
        train.report(
            {"step": step}, train.Checkpoint.from_directory(source), checkpoint_upload_mode=ASYNC
        )


def check_steps(result: train.Result, remote: fs.FileSystem, ranks: int) -> None:
    assert [report["metrics"]["step"] for report in result.reports] == [0, 1]
    with result.checkpoint.as_directory() as directory:
        assert {path.name: path.read_text() for path in Path(directory).glob("rank*")} == {
            f"rank{rank}": "1" for rank in range(ranks)
        }
    assert names(remote, Path(result.path).name) - {"logs"} == {"checkpoint_000001"}


@pytest.mark.processes
def test_ranks_upload_together(server: tuple[str, EveryThirdFails], tmp_path: Path) -> None:
    remote = connect(server[0])
    syncline.init(num_cpus=2)
    try:
        options = {
            "scaling_config": train.ScalingConfig(num_workers=2),
            "checkpoint_config": train.CheckpointConfig(num_to_keep=1),
        }
        check_steps(
            fit(lambda: report_steps(tmp_path), remote, name=tmp_path.name, **options), remote, 2
        )
    finally:
        syncline.shutdown()


@pytest.mark.processes
def test_a_run_is_followed_while_it_is_recorded_elsewhere(
    server: tuple[str, EveryThirdFails], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "ACCESS_KEY_ID": "none",
        "SECRET_ACCESS_KEY": "none",
        "EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    before = os.listdir(tempfile.gettempdir())
    options = f"?scheme=http&region=us-east-1&endpoint_override={quote(server[0])}"
    seen: dict[str, Any] = {}

    def look() -> None:
        while not (tmp_path / "seen").exists():
            try:
                run = runs.open(f"s3://{BUCKET}/runs/followed{options}")
            except ValueError:  # not begun
                continue
            if run.summary.reports and run.samples and [log for log in run.logs if log.size_bytes]:
                seen.update(
                    state=run.state,
                    workers=run.summary.workers,
                    reports=run.summary.reports,
                    log=run.log("rank-1").lines(),
                )
                (tmp_path / "seen").touch()
            time.sleep(0.05)

    def loop() -> None:
        print("rank", train.get_context().get_world_rank())
        step = 0
        while not (tmp_path / "seen").exists() or step < 10:
            train.report({"step": step})
            time.sleep(0.02)
            step += 1

    looking = threading.Thread(target=look)
    looking.start()
    syncline.init(num_cpus=2)
    try:
        scaling = train.ScalingConfig(num_workers=2)
        result = fit(loop, connect(server[0]), name="followed", scaling_config=scaling)
    finally:
        syncline.shutdown()
        (tmp_path / "seen").touch()
        looking.join()
    assert seen["state"] == "running"
    assert (seen["workers"], seen["log"]) == (2, ["rank 1"])
    storage = open_directory(f"s3://{BUCKET}/runs{options}")
    (summary,) = [run for run in run_list.list_runs(storage) if run.name == "followed"]
    assert (summary.state, summary.reports, summary.workers) == ("finished", len(result.reports), 2)
    run = runs.open(run_list.find_run("followed", storage))
    assert [event["event"] for event in run.events] == [
        "started",
        "attempt",
        "step_times",
        "goodput",
        "finished",
    ]
    assert run.environment["packages"]
    assert [log.member for log in run.logs] == ["rank-0", "rank-1"]
    assert set(run.samples) == {"0", "1"}
    assert seen["reports"] <= summary.reports
    assert not [
        name
        for name in os.listdir(tempfile.gettempdir())
        if name.startswith("syncline-run-") and name not in before
    ]


@pytest.mark.usefixtures("inline_engine")
def test_a_server_that_fails_every_third_request_is_good_enough(
    server: tuple[str, EveryThirdFails],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(retries, "POLICY", RetryPolicy(first_pause_s=0.001))
    monkeypatch.setattr(retries, "_NOTICES", retries.Notices(quiet_s=math.inf))
    endpoint, failing = server
    remote = connect(endpoint)
    failing.armed = True
    try:
        checkpoint_config = train.CheckpointConfig(num_to_keep=1)
        result = fit(
            lambda: report_steps(tmp_path),
            remote,
            name="unsteady",
            checkpoint_config=checkpoint_config,
        )
    finally:
        failing.armed = False
    assert failing.failed > 20
    check_steps(result, remote, 1)
    assert len([record for record in caplog.records if "is retried" in record.getMessage()]) == 1


def test_a_bucket_that_does_not_exist_is_told_at_once(
    server: tuple[str, EveryThirdFails], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("there is nothing to wait for"))
    with pytest.raises(ValueError, match="nowhere/run.*cannot be written.*bucket"):
        train.storage.context.StorageContext("nowhere", "run", connect(server[0])).prepare()
