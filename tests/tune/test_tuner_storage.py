"""Searches on remote storage, and searches whose directory was moved."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

import syncline
from syncline import train, tune
from syncline.tune.controller.search_store import load_trials
from tests.train.storage.remote_filesystems import BUCKET, connect, in_memory, s3_server


@pytest.fixture(autouse=True)
def inline_engine() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


@pytest.fixture(params=["s3", "memory"])
def remote(request: pytest.FixtureRequest) -> Iterator[fs.FileSystem]:
    if request.param == "memory":
        yield in_memory()
        return
    with s3_server() as (endpoint, _):
        yield connect(endpoint)


def counts(config: dict[str, Any]) -> None:
    """Trainable that fails at the third step while a marker file exists."""
    checkpoint, count = tune.get_checkpoint(), 0
    if checkpoint is not None:
        count = read(checkpoint)
    print("began at", count)
    for step in range(count + 1, 6):
        if step == 3 and os.path.exists(config["fails"]):
            raise RuntimeError("as asked")
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "count").write_text(str(step))
            tune.report(
                {"count": step, "score": step * config["x"], "began_at": count},
                checkpoint=tune.Checkpoint(directory),
            )


def read(checkpoint: tune.Checkpoint) -> int:
    with checkpoint.as_directory() as directory:
        return int(Path(directory, "count").read_text())


def names(remote: fs.FileSystem, path: str) -> set[str]:
    return {info.base_name for info in remote.get_file_info(fs.FileSelector(path))}


def tuner(path: str, fails: Path, filesystem: fs.FileSystem | None = None) -> tune.Tuner:
    return tune.Tuner(
        counts,
        param_space={"x": tune.grid_search([1, 2]), "fails": str(fails)},
        tune_config=tune.TuneConfig(metric="score", mode="max"),
        run_config=tune.RunConfig(
            name="search",
            storage_path=path,
            storage_filesystem=filesystem,
            verbose=0,
            checkpoint_config=tune.CheckpointConfig(num_to_keep=2),
        ),
    )


def test_a_search_elsewhere_fails_is_restored_and_read(
    remote: fs.FileSystem, tmp_path: Path
) -> None:
    fails, path = tmp_path / "fails", f"{BUCKET}/results/search"
    fails.touch()
    results = tuner(f"{BUCKET}/results", fails, remote).fit()
    assert (results.num_errors, [result.metrics["count"] for result in results]) == (2, [2, 2])
    fails.unlink()
    assert tune.Tuner.can_restore(path, remote)
    results = tune.Tuner.restore(path, counts, resume_errored=True, storage_filesystem=remote).fit()
    assert (results.num_errors, [result.metrics["began_at"] for result in results]) == (0, [2, 2])
    best = results.get_best_result()
    assert (best.metrics["score"], best.config["x"], read(best.checkpoint)) == (10, 2, 5)
    found = names(remote, best.path)
    assert {
        "checkpoint_000003",
        "checkpoint_000004",
        "result.json",
        "progress.csv",
        "params.json",
    } <= found
    assert not {name for name in found if name.startswith(".tmp-")} | (
        {"checkpoint_000000"} & found
    )
    with remote.open_input_file(f"{best.path}/result.json") as file:
        assert [json.loads(line)["count"] for line in file.read().splitlines()] == [1, 2, 3, 4, 5]
    analysis = tune.ExperimentAnalysis(
        path, storage_filesystem=remote, default_metric="score", default_mode="max"
    )
    assert analysis.best_config["x"] == 2
    grid = tune.ResultGrid(analysis)
    assert [read(result.checkpoint) for result in grid] == [5, 5]
    assert [list(result.metrics_dataframe["count"]) for result in grid] == [[1, 2, 3, 4, 5]] * 2
    assert {name for name in names(remote, path) if name.startswith(("search-", "journal-"))} == {
        f"search-{4:06d}.pkl"
    }


def test_checkpoints_of_a_trainer_in_a_trial_lie_with_the_search(tmp_path: Path) -> None:
    remote = in_memory()

    def loop(config: dict[str, Any]) -> None:
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "count").write_text(str(config["x"]))
            train.report({"count": config["x"]}, checkpoint=train.Checkpoint(directory))

    results = tune.Tuner(
        train.DataParallelTrainer(loop),
        param_space={"train_loop_config": {"x": tune.grid_search([3, 4])}},
        run_config=tune.RunConfig(
            name="trainers", storage_path=f"{BUCKET}/results", storage_filesystem=remote, verbose=0
        ),
    ).fit()
    assert not results.errors
    assert [read(result.checkpoint) for result in results] == [3, 4]
    assert all(
        result.checkpoint.path.startswith(f"{BUCKET}/results/trainers/") for result in results
    )


def test_a_search_that_was_moved_goes_on_and_finds_its_checkpoints(tmp_path: Path) -> None:
    fails = tmp_path / "fails"
    fails.touch()
    assert tuner(str(tmp_path / "before"), fails).fit().num_errors == 2
    fails.unlink()
    shutil.move(tmp_path / "before", tmp_path / "after")
    moved = tmp_path / "after" / "search"
    moved = moved.rename(moved.with_name("renamed"))
    assert [read(trial.checkpoint) for trial in load_trials(str(moved))] == [2, 2]
    results = tune.Tuner.restore(moved, counts, resume_errored=True).fit()
    assert [
        (result.metrics["began_at"], result.metrics["count"], read(result.checkpoint))
        for result in results
    ] == [(2, 5, 5)] * 2
    assert results.experiment_path == str(moved)
    assert all(Path(result.path).parent == moved for result in results)
    assert not (tmp_path / "before").exists()


def test_output_of_trials_is_written_to_files_by_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def prints(config: dict[str, Any]) -> None:
        import sys

        print("out of", config["x"])
        print("error of", config["x"], file=sys.stderr)

    def files(log: Any, reuse: bool) -> list[dict[str, str]]:
        results = tune.Tuner(
            prints,
            param_space={"x": tune.grid_search([1, 2])},
            tune_config=tune.TuneConfig(reuse_actors=reuse),
            run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0, log_to_file=log),
        ).fit()
        return [
            {
                name: Path(result.path, name).read_text()
                for name in os.listdir(result.path)
                if "std" in name
            }
            for result in results
        ]

    apart = [{"stdout": f"out of {x}\n", "stderr": f"error of {x}\n"} for x in (1, 2)]
    assert files(True, reuse=False) == apart
    assert files(True, reuse=True) == apart
    assert files(("a.std", "b.std"), reuse=False) == [
        {"a.std": f"out of {x}\n", "b.std": f"error of {x}\n"} for x in (1, 2)
    ]
    assert files("both.std", reuse=False) == [
        {"both.std": f"out of {x}\nerror of {x}\n"} for x in (1, 2)
    ]
    assert files(None, reuse=False) == [{}, {}]
    capsys.readouterr()
    print("after the searches")
    assert capsys.readouterr().out == "after the searches\n"
