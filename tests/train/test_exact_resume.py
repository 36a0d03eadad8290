"""Runs whose workers are killed, or that are started again: the weights are those of an undisturbed
run, each sample is seen once an epoch.

The dataset is shuffled anew in each epoch and augmented at random in its workers, and the training
function draws random numbers, too.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import syncline
from syncline import data, faults, train

pytestmark = pytest.mark.processes

ROWS, BATCH, EPOCHS = 48, 4, 3
STEPS = ROWS // BATCH // 2  # of a rank in an epoch
SYNC, ASYNC, NO_UPLOAD = (
    train.CheckpointUploadMode.SYNC,
    train.CheckpointUploadMode.ASYNC,
    train.CheckpointUploadMode.NO_UPLOAD,
)


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    syncline.shutdown()
    syncline.init(num_cpus=4)
    yield
    syncline.shutdown()


def augment(batch: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": batch["id"],
        "x": batch["id"] + np.random.rand(len(batch["id"])) + random.random(),
    }


def dataset() -> Any:
    """Drawn from one seed in every run, in another order in each epoch; tasks of several batches,
    so that restarts are in their middle.
    """
    context = data.DataContext.get_current()
    before, context.seed = context.seed, 11
    try:
        return (
            data.range(ROWS, override_num_blocks=4)
            .random_shuffle(num_blocks=3)
            .map_batches(augment, batch_size=5)
        )
    finally:
        context.seed = before


def loop(config: dict[str, Any]) -> None:
    """Trains one number per rank, and keeps which ids it has seen in each epoch. What it saves ends
    in the run directory.
    """
    faults.configure(config.get("faults", ""))
    rank = train.get_context().get_world_rank()
    random.seed(rank)
    np.random.seed(rank)
    weight, epoch, step, seen = 0.0, 0, 0, [[] for _ in range(EPOCHS)]
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        weight, epoch, step, seen = json.loads(Path(checkpoint.path, f"rank{rank}").read_text())
    random.random()  # as a model would that is made before its weights are loaded

    def save(epoch: int) -> None:
        run = Path(train.get_context().get_storage().experiment_fs_path)
        mode = config["mode"]
        target = run / (
            f"step-{step}-{epoch}"
            if mode is NO_UPLOAD
            else f"../source-{os.getpid()}-{rank}-{step}-{epoch}"
        )
        target.mkdir(exist_ok=True, parents=True)
        (target / f"rank{rank}").write_text(json.dumps([weight, epoch, step, seen]))
        train.report(
            {"step": step}, checkpoint=train.Checkpoint(str(target)), checkpoint_upload_mode=mode
        )

    while epoch < config["epochs"]:
        for batch in train.get_dataset_shard("train").iter_batches(batch_size=BATCH):
            seen[epoch] += batch["id"].tolist()
            weight = (
                0.9 * weight + float(batch["x"].mean()) * random.random() + float(np.random.rand())
            )
            step += 1
            if (
                config.get("die_at") == step
                and train.get_checkpoint() is not None
                and not Path(config["marker"]).exists()
            ):
                Path(config["marker"]).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if step % config["every"] == 0:
                save(epoch)
        epoch += 1
        if config["at_ends"]:
            save(epoch)
    Path(config["out"], f"rank{rank}").write_text(json.dumps([weight, seen]))


def fit(
    storage: Path, out: Path, *, resume: bool = True, failures: int = 0, **config: Any
) -> list[Any]:
    """(weight, ids by epoch) of each rank."""
    out.mkdir(exist_ok=True)
    settings = {
        "out": str(out),
        "mode": SYNC,
        "every": 2,
        "at_ends": True,
        "epochs": EPOCHS,
        "marker": str(out / "marker"),
        **config,
    }
    train.DataParallelTrainer(
        loop,
        train_loop_config=settings,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            storage_path=str(storage),
            name="run",
            failure_config=train.FailureConfig(max_failures=failures),
        ),
        datasets={"train": dataset()},
        dataset_config=train.DataConfig(resume=resume),
    ).fit()
    return [json.loads((out / f"rank{rank}").read_text()) for rank in (0, 1)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What becomes of a run that nothing happens to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    ranks = fit(folder, folder / "out")
    orders = [ranks[0][1][epoch] + ranks[1][1][epoch] for epoch in range(EPOCHS)]
    assert [sorted(order) for order in orders] == [list(range(ROWS))] * EPOCHS
    assert orders[0] != orders[1]
    return ranks


def test_undisturbed_runs_are_alike(tmp_path: Path, undisturbed: list[Any]) -> None:
    assert fit(tmp_path, tmp_path / "out") == undisturbed


@pytest.mark.promise
@pytest.mark.parametrize(("point", "times"), [("train.report", 2), ("train.uploaded", 6)])
def test_a_worker_killed_in_a_report_changes_nothing(
    tmp_path: Path, undisturbed: list[Any], point: str, times: int
) -> None:
    out = tmp_path / "out"
    fault = f"{point}=kill:{times}@{tmp_path / 'killed'}"
    assert fit(tmp_path, out, failures=1, faults=fault) == undisturbed
    assert (tmp_path / "killed").exists()


@pytest.mark.parametrize(("mode", "die_at"), [(ASYNC, STEPS + 3), (NO_UPLOAD, 2 * STEPS + 1)])
def test_a_worker_killed_between_reports_changes_nothing(
    tmp_path: Path, undisturbed: list[Any], mode: Any, die_at: int
) -> None:
    assert fit(tmp_path, tmp_path / "out", failures=1, mode=mode, die_at=die_at) == undisturbed
    assert (tmp_path / "out" / "marker").exists()


def test_only_ends_of_epochs_are_saved(tmp_path: Path, undisturbed: list[Any]) -> None:
    assert (
        fit(tmp_path, tmp_path / "out", failures=1, every=1000, die_at=2 * STEPS + 2) == undisturbed
    )
    assert (tmp_path / "out" / "marker").exists()


def test_the_run_started_again_goes_on_where_it_was_and_says_so(
    tmp_path: Path, undisturbed: list[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(train.TrainingFailedError):
        fit(tmp_path, tmp_path / "out", at_ends=False, every=4, die_at=STEPS + 4)
    capfd.readouterr()
    assert fit(tmp_path, tmp_path / "out") == undisturbed
    told = capfd.readouterr().err
    assert f"(dataset 'train': epoch 1, {2 * BATCH * (8 - STEPS)} rows)" in told


def test_without_resume_the_epoch_begins_anew(tmp_path: Path) -> None:
    ranks = fit(
        tmp_path, tmp_path / "out", failures=1, resume=False, at_ends=False, every=4, die_at=5
    )
    seen = Counter(ranks[0][1][0] + ranks[1][1][0])
    assert sum(seen.values()) == ROWS + 4 * BATCH * 2
    assert max(seen.values()) == 2


def test_ranks_that_give_no_files_go_on_where_they_were_too(tmp_path: Path) -> None:
    """Only rank 0 saves, as with models that are equal on all ranks: ids and random numbers of rank
    1 are exact all the same.
    """
    out = tmp_path / "out"
    out.mkdir()

    def rank_zero_saves(config: dict[str, Any]) -> None:
        rank = train.get_context().get_world_rank()
        random.seed(rank)
        checkpoint = train.get_checkpoint()
        step = 0 if checkpoint is None else int(Path(checkpoint.path, "step").read_text())
        log = out / f"{config['name']}-rank{rank}"
        lines = log.read_text().splitlines()[:step] if checkpoint is not None else []
        while step < 2 * STEPS:
            for batch in train.get_dataset_shard("train").iter_batches(batch_size=BATCH):
                lines.append(
                    json.dumps([batch["id"].tolist(), batch["x"].tolist(), random.random()])
                )
                log.write_text("\n".join(lines))
                step += 1
                files = None
                if rank == 0 and step % 4 == 0:
                    source = out / f"source-{step}"
                    source.mkdir(exist_ok=True)
                    (source / "step").write_text(str(step))
                    files = train.Checkpoint(str(source))
                train.report({"step": step}, checkpoint=files)
                train.collective.barrier()
                if config["dies"] and rank == 1 and step == 6 and not (out / "marker").exists():
                    (out / "marker").touch()
                    os.kill(os.getpid(), signal.SIGKILL)

    def run(name: str, *, dies: bool) -> list[list[str]]:
        train.DataParallelTrainer(
            rank_zero_saves,
            train_loop_config={"name": name, "dies": dies},
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(
                storage_path=str(tmp_path),
                name=name,
                failure_config=train.FailureConfig(max_failures=1),
            ),
            datasets={"train": dataset()},
        ).fit()
        return [(out / f"{name}-rank{rank}").read_text().splitlines() for rank in (0, 1)]

    assert run("killed", dies=True) == run("undisturbed", dies=False)
    assert (out / "marker").exists()
