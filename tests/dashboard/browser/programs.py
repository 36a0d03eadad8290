"""The programs whose runs the browser looks at: `python programs.py NAME STORAGE_PATH`. Each goes on until it is killed.

A program stops waiting where a file of some name appears in the directory above the storage path, or while one is there.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from syncline import data, train, tune

STORAGE = Path(sys.argv[2]) if __name__ == "__main__" else Path()
SIGNS = STORAGE.parent
ODD_NAME = "<b>odd</b>"


def is_there(sign: str, signs: Path) -> bool:
    return (signs / sign).exists()


def train_rank(config: dict[str, Any]) -> None:
    """Two ranks that take steps together; rank 1 sleeps while there is `asleep`."""
    import torch
    from syncline.train.torch import prepare_model

    rank = train.get_context().get_world_rank()
    model = prepare_model(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sum(len(batch["id"]) for batch in train.get_dataset_shard("numbers").iter_batches(batch_size=50))
    step = 0
    while True:
        step += 1
        while rank == 1 and is_there("asleep", Path(config["signs"])):
            doze()
        loss = model(torch.randn(16, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}" if step % 10 else f"needle {step}")
        with tempfile.TemporaryDirectory() as directory:
            saved = train.Checkpoint.from_directory(directory) if step % 100 == 0 and rank == 0 else None
            train.report({"loss": loss.item(), "step": step, "nested": {"of rank": rank}}, checkpoint=saved)
        time.sleep(0.03)


def doze() -> None:
    time.sleep(0.05)


def training() -> None:
    from syncline.train.torch import TorchTrainer

    TorchTrainer(
        train_rank,
        train_loop_config={"signs": str(SIGNS), "api_key": "hunter2-hunter2", "lr": 0.01},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name="training", storage_path=str(STORAGE), checkpoint_config=train.CheckpointConfig(num_to_keep=2)
        ),
        datasets={"numbers": data.range(400).map_batches(lambda batch: batch)},
    ).fit()


def stumble(config: dict[str, Any]) -> None:
    """Rank 1 fails at its first start."""
    context = train.get_context()
    for step in range(5):
        train.report({"loss": 1.0 / (step + 1)})
    marker = Path(config["signs"], "stumbled")
    if context.get_world_rank() == 1 and not marker.exists():
        if not config["always"]:
            marker.touch()
        look_closely(context)
    time.sleep(0.3 if config["always"] else 3600)


def look_closely(context: Any) -> None:
    raise ArithmeticError(f"rank {context.get_world_rank()} came to <b>nothing</b>")


def failing() -> None:
    """A run that ends with an error, and one that goes on after one."""
    from syncline.train.trainer import DataParallelTrainer

    for name, always in (("errored", True), ("restarted", False)):
        trainer = DataParallelTrainer(
            stumble,
            train_loop_config={"signs": str(SIGNS), "always": always},
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(
                name=name, storage_path=str(STORAGE), failure_config=train.FailureConfig(max_failures=0 if always else 1)
            ),
        )
        try:
            trainer.fit()
        except train.TrainingFailedError as error:
            print(error)


def execution() -> None:
    """A dataset whose second operator is slow."""

    def slow(batch: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.05)
        return batch

    def even(row: dict[str, Any]) -> bool:
        return bool(row["id"] % 2 == 0)

    rows = data.range(2_000_000, override_num_blocks=4_000).map_batches(slow, concurrency=1).filter(even, concurrency=1)
    rows.set_name(f"digits {ODD_NAME}")
    for _ in rows.iter_batches(batch_size=100):
        pass


def trial(config: dict[str, Any]) -> None:
    for step in range(1, 6 if config["width"] < 5 else 100_000):
        tune.report({"score": config["lr"] * step, "loss": abs(config["lr"] - 0.3) + 1 / step})
        time.sleep(0.02 if config["width"] < 5 else 0.3)


def search() -> None:
    """Eight trials that end, and two that go on."""
    space = {"lr": tune.uniform(0.1, 1.0), "width": tune.grid_search([1, 2, 3, 4, 1, 2, 3, 4, 9, 9]), "act": tune.choice(["relu", ODD_NAME])}
    tune.Tuner(
        tune.with_resources(trial, {"cpu": 0.5}),
        param_space=space,
        tune_config=tune.TuneConfig(metric="loss", mode="min", max_concurrent_trials=3),
        run_config=tune.RunConfig(name="search", storage_path=str(STORAGE)),
    ).fit()


if __name__ == "__main__":
    {"training": training, "failing": failing, "execution": execution, "search": search}[sys.argv[1]]()
