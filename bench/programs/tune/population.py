"""Population-based training of a small convolutional network on the sample of CIFAR-10: four
members on two CPUs, eight intervals.

Values: the wall time of the search and the best final accuracy. BENCH_SCALE multiplies the images.
"""

import importlib
import io
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from PIL import Image

from bench.inputs import SAMPLE, scaled
from bench.programs import common
from bench.programs.tune import searches

MEMBERS, INTERVALS = 4, 8
TRAIN_IMAGES, TEST_IMAGES = 4_000, 1_000
BATCH_ROWS = 64


def images(part: str, limit: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return float32 [limit, 3, 32, 32] in [-1, 1), and labels."""
    (file,) = (SAMPLE / part).glob("*.parquet")
    table = pq.read_table(file).slice(0, limit)
    pixels = np.stack(
        [np.asarray(Image.open(io.BytesIO(jpeg))) for jpeg in table["image"].to_pylist()]
    )
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 128 - 1, torch.tensor(
        table["label"].to_pylist()
    )


def network() -> torch.nn.Module:
    return torch.nn.Sequential(
        *(torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)),
        *(torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)),
        *(torch.nn.Flatten(), torch.nn.Linear(32 * 8 * 8, 10)),
    )


def train_fn(config: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tune = importlib.import_module(f"{config['library']}.tune")
    data = torch.load(config["images"])
    features, labels = data["train"]
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=config["momentum"])
    epoch, checkpoint = 0, tune.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder, "state.pt"))
        epoch = state["epoch"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        for group in optimizer.param_groups:
            group |= {"lr": config["lr"], "momentum": config["momentum"]}
    while True:  # until the search stops the trial
        epoch += 1
        for rows in torch.randperm(len(labels)).split(BATCH_ROWS):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(features[rows]), labels[rows]).backward()
            optimizer.step()
        with tempfile.TemporaryDirectory() as folder:
            state = {
                "epoch": epoch,
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
            }
            torch.save(state, Path(folder, "state.pt"))
            metrics = {"accuracy": accuracy(model, *data["test"]), "epoch": epoch}
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder))


@torch.no_grad()
def accuracy(model: torch.nn.Module, features: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the share of correctly classified images."""
    return float((model(features).argmax(1) == labels).float().mean())


if __name__ == "__main__":
    options = common.arguments()
    tune = searches.start(options.library)
    schedulers = importlib.import_module(f"{options.library}.tune.schedulers")
    path = Path("images.pt").absolute()
    torch.save(
        {
            "train": images("train", scaled(TRAIN_IMAGES)),
            "test": images("test", scaled(TEST_IMAGES)),
        },
        path,
    )
    random.seed(0)
    np.random.seed(0)
    scheduler = schedulers.PopulationBasedTraining(
        time_attr="training_iteration",
        metric="accuracy",
        mode="max",
        perturbation_interval=1,
        hyperparam_mutations={
            "lr": tune.loguniform(1e-3, 1e-1),
            "momentum": tune.uniform(0.5, 0.99),
        },
    )
    space = {
        "lr": tune.loguniform(1e-3, 1e-1),
        "momentum": tune.uniform(0.5, 0.99),
        "library": options.library,
        "images": str(path),
    }
    run = {"stop": {"training_iteration": INTERVALS}}
    tuner = searches.tuner(
        tune, train_fn, space, MEMBERS, name="population", run=run, scheduler=scheduler
    )
    begin = time.perf_counter()
    results = tuner.fit()
    fit_s = time.perf_counter() - begin
    assert results.num_errors == 0, results.errors
    ends = [result.metrics for result in results]
    assert len(ends) == MEMBERS, ends
    assert all(end["training_iteration"] >= INTERVALS for end in ends), ends
    common.write(
        options.out, {"fit_s": fit_s, "best_accuracy": max(end["accuracy"] for end in ends)}
    )
    importlib.import_module(options.library).shutdown()
