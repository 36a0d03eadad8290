"""Programs whose runs the browser tests show: `python programs.py PROGRAM STORAGE_PATH RUN_NAME`.
Each runs until it is killed.
"""

import contextlib
import itertools
import os
import socket
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from syncline import data, serve, train, tune

MARKUP = "<b>odd</b>"


def train_rank(config: dict[str, Any]) -> None:
    """Two ranks with collective steps; rank 1 sleeps while the file `asleep` exists."""
    import torch

    from syncline.train.torch import prepare_model

    rank = train.get_context().get_world_rank()
    model = prepare_model(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rows = sum(
        len(batch["id"]) for batch in train.get_dataset_shard("numbers").iter_batches(batch_size=50)
    )
    step = 0
    while True:
        step += 1
        if rank == 1:
            doze(Path(config["signs"], "asleep"))
        loss = model(torch.randn(16, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(
            f"needle {step}" if step % 10 == 0 else f"step {step}: loss {loss.item():.4f}",
            flush=True,
        )
        with tempfile.TemporaryDirectory() as directory:
            saved = (
                train.Checkpoint.from_directory(directory) if step % 50 == 0 and rank == 0 else None
            )
            train.report(
                {"loss": loss.item(), "step": step, "nested": {"rows": rows}}, checkpoint=saved
            )
        time.sleep(0.05)


def doze(order: Path) -> None:
    while order.exists():
        time.sleep(0.05)


def training(storage: Path, name: str) -> None:
    from syncline.train.torch import TorchTrainer

    TorchTrainer(
        train_rank,
        train_loop_config={"signs": str(storage.parent), "api_key": "hunter2-hunter2", "lr": 0.01},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name=name,
            storage_path=str(storage),
            checkpoint_config=train.CheckpointConfig(num_to_keep=2),
        ),
        datasets={"numbers": data.range(400).map_batches(lambda batch: batch)},
    ).fit()


def stumble(config: dict[str, Any]) -> None:
    """Rank 1 fails in the first attempt."""
    rank = train.get_context().get_world_rank()
    for step in range(5):
        train.report({"loss": 1.0 / (step + 1)})
    marker = Path(config["signs"], config["name"])
    if rank == 1 and not marker.exists():
        marker.touch()
        look_closely(rank)
    time.sleep(3600)


def look_closely(rank: int) -> None:
    raise ArithmeticError(f"rank {rank} came to {MARKUP}")


def restarted(storage: Path, name: str) -> None:
    """Run `NAME-errored`, which fails, then a run that continues after a failure."""
    for failures, run_name in ((0, f"{name}-errored"), (1, name)):
        trainer = train.DataParallelTrainer(
            stumble,
            train_loop_config={"signs": str(storage.parent), "name": run_name},
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(
                name=run_name,
                storage_path=str(storage),
                failure_config=train.FailureConfig(max_failures=failures),
            ),
        )
        try:
            trainer.fit()
        except train.TrainingFailedError as error:
            print(error)


class Keep:
    """Identity in a process of its own, and thus in an operator of its own."""

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return batch


def execution(storage: Path, name: str) -> None:
    """A dataset with a slow function and a fast one behind it."""

    def slow(batch: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.1)
        return batch

    rows = (
        data.range(20_000_000, override_num_blocks=20_000)
        .map_batches(slow)
        .map_batches(Keep, concurrency=1)
    )
    rows.set_name(f"{name} {MARKUP}")
    for _ in rows.iter_batches(batch_size=1000):
        pass


def trial(config: dict[str, Any]) -> None:
    ends = config["width"] < 9
    for step in range(1, 4 if ends else 1_000_000):
        tune.report({"loss": abs(config["lr"] - 0.3) + 1 / step, "score": config["lr"] * step})
        time.sleep(0.01 if ends else 0.3)


def search(storage: Path, name: str) -> None:
    """Eight trials that end and two that keep running."""
    widths = tune.grid_search([1, 2, 3, 4, 5, 6, 7, 8, 9, 9])
    tune.Tuner(
        tune.with_resources(trial, {"cpu": 0.5}),
        param_space={
            "lr": tune.uniform(0.1, 1.0),
            "width": widths,
            "activation": tune.choice(["relu", MARKUP]),
        },
        tune_config=tune.TuneConfig(metric="loss", mode="min", max_concurrent_trials=3),
        run_config=tune.RunConfig(name=name, storage_path=str(storage)),
    ).fit()


class Doubler:
    """Doubles numbers in batches."""

    @serve.batch(max_batch_size=4, batch_wait_timeout_s=0.002)
    async def double(self, values: Any) -> Any:
        return [2 * value for value in values]

    async def __call__(self, value: int) -> int:
        return await self.double(value)


class Checker:
    """Takes long for 7, and refuses 13."""

    def __call__(self, value: int) -> int:
        if value == 13:
            raise ValueError(f"{value} is {MARKUP}")
        if value == 7:
            linger()
        return value


def linger() -> None:
    time.sleep(0.4)


class Front:
    """Calls both for the number in the query."""

    def __init__(self, checker: Any, doubler: Any) -> None:
        self.checker = checker
        self.doubler = doubler

    async def __call__(self, request: Any) -> int:
        value = int(request.query_params["value"])
        return await self.doubler.remote(await self.checker.remote(value))


def serving(storage: Path, name: str) -> None:
    """Two applications under a light load, with slow requests and errors."""
    os.environ["SYNCLINE_STORAGE_PATH"] = str(storage)
    options: dict[str, Any] = {"ray_actor_options": {"num_cpus": 0.1}}
    checker = serve.deployment(Checker, **options).bind()
    doubler = serve.deployment(Doubler, **options).bind()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serve.start(http_options={"port": port})
    front = serve.deployment(Front, **options).bind(checker, doubler)
    serve.run(front, name="numbers", route_prefix="/numbers")
    serve.run(serve.deployment(Doubler, **options).bind(), name="plain", route_prefix=None)
    for number in itertools.count():
        value = number % 20
        with contextlib.suppress(urllib.error.HTTPError):
            urllib.request.urlopen(
                f"http://127.0.0.1:{port}/numbers?value={value}", timeout=30
            ).read()
        time.sleep(0.05)


if __name__ == "__main__":
    programs = {
        "training": training,
        "restarted": restarted,
        "execution": execution,
        "search": search,
        "serving": serving,
    }
    programs[sys.argv[1]](Path(sys.argv[2]), sys.argv[3])
