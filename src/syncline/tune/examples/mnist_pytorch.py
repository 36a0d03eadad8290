"""Search for learning rate and momentum of a small convolutional network on MNIST.

Nothing is downloaded: `get_data_loaders` reads the four original files of MNIST
(`train-images-idx3-ubyte` and so on, with or without `.gz`) from a local directory.
"""

from __future__ import annotations

import argparse
import gzip
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset

from syncline import tune
from syncline.tune import Checkpoint
from syncline.tune.schedulers import AsyncHyperBandScheduler

EPOCH_SIZE = 512
"""Approximate number of images per epoch; more images give a slower and better search."""
TEST_SIZE = 256
"""Approximate number of images per test."""
DATA_DIRECTORY = "~/data"
_LAYOUTS = ("", "MNIST/raw", "mnist")
_MEAN, _DEVIATION = 0.1307, 0.3081


class ConvNet(nn.Module):
    """Maps images (batch, 1, 28, 28) to log-probabilities (batch, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 3, kernel_size=3)
        self.fc = nn.Linear(192, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the log-probabilities of `x`."""
        x = F.relu(F.max_pool2d(self.conv1(x), 3))
        return F.log_softmax(self.fc(x.view(-1, 192)), dim=1)


def train(
    model: nn.Module,
    optimizer: optim.Optimizer,
    train_loader: DataLoader[Any],
    device: torch.device | None = None,
) -> None:
    """Train for one epoch of about EPOCH_SIZE images."""
    device = device or torch.device("cpu")
    model.train()
    for index, (data, target) in enumerate(train_loader):
        if index * len(data) > EPOCH_SIZE:
            return
        optimizer.zero_grad()
        loss = F.nll_loss(model(data.to(device)), target.to(device))
        loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch
        optimizer.step()


def accuracy(
    model: nn.Module, data_loader: DataLoader[Any], device: torch.device | None = None
) -> float:
    """Return the fraction of correct predictions for about TEST_SIZE images."""
    device = device or torch.device("cpu")
    model.eval()
    correct = total = 0
    with torch.no_grad():
        for index, (data, target) in enumerate(data_loader):
            if index * len(data) > TEST_SIZE:
                break
            predicted = model(data.to(device)).argmax(dim=1)
            correct += int((predicted == target.to(device)).sum())
            total += len(target)
    return correct / total


# Names in Ray's example; pytest would collect a `def test`.
train_func, test, test_func = train, accuracy, accuracy


class Digits(Dataset[tuple[torch.Tensor, int]]):
    """Images with labels; images are normalized on access."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        """`images` is uint8 (count, 28, 28), `labels` uint8 (count,)."""
        self._images, self._labels = torch.from_numpy(images), labels

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return (self._images[index].unsqueeze(0) / 255 - _MEAN) / _DEVIATION, int(
            self._labels[index]
        )


def get_data_loaders(
    batch_size: int = 64, directory: str = DATA_DIRECTORY
) -> tuple[DataLoader[Any], DataLoader[Any]]:
    """Return shuffled loaders of the training and the test images.

    Raises:
        FileNotFoundError: The files are neither in `directory` nor in its `MNIST/raw`.
    """
    train_digits, test_digits = (_digits(directory, prefix) for prefix in ("train", "t10k"))
    return DataLoader(train_digits, batch_size=batch_size, shuffle=True), DataLoader(
        test_digits, batch_size=batch_size, shuffle=True
    )


def _digits(directory: str, prefix: str) -> Digits:
    images = np.frombuffer(_read(directory, f"{prefix}-images-idx3-ubyte"), np.uint8, offset=16)
    labels = np.frombuffer(_read(directory, f"{prefix}-labels-idx1-ubyte"), np.uint8, offset=8)
    return Digits(images.reshape(-1, 28, 28), labels)


def _read(directory: str, name: str) -> bytearray:
    """Return the content of a file as a buffer that tensors can share."""
    root = Path(directory).expanduser()
    for path in (root / layout / name for layout in _LAYOUTS):
        if path.exists():
            return bytearray(path.read_bytes())
        packed = path.with_name(f"{name}.gz")
        if packed.exists():
            return bytearray(gzip.decompress(packed.read_bytes()))
    raise FileNotFoundError(
        f"There is no {name} (nor {name}.gz) in {root}, and nothing is downloaded: put the four "
        f"files of MNIST there or in {root / 'MNIST/raw'}, or pass their directory as `data_dir`."
    )


def train_mnist(config: dict[str, Any]) -> None:
    """Train until the trial is stopped. `should_checkpoint` in `config` saves the model at each
    report; `data_dir` is the directory of the images.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader, test_loader = get_data_loaders(directory=config.get("data_dir", DATA_DIRECTORY))
    model = ConvNet().to(device)
    optimizer = optim.SGD(model.parameters(), lr=config["lr"], momentum=config["momentum"])

    while True:
        train(model, optimizer, train_loader, device)
        metrics = {"mean_accuracy": accuracy(model, test_loader, device)}
        if config.get("should_checkpoint", False):
            with tempfile.TemporaryDirectory() as directory:
                torch.save(model.state_dict(), os.path.join(directory, "model.pt"))
                tune.report(metrics, checkpoint=Checkpoint.from_directory(directory))
        else:
            tune.report(metrics)


def main(
    num_samples: int = 50, iterations: int = 100, data_dir: str = DATA_DIRECTORY, gpus: float = 0
) -> tune.ResultGrid:
    """Try `num_samples` learning rates and momenta, for up to `iterations` epochs or until the
    accuracy is 98 %.
    """
    tuner = tune.Tuner(
        tune.with_resources(train_mnist, {"cpu": 1, "gpu": gpus}),
        run_config=tune.RunConfig(
            name="mnist_pytorch", stop={"mean_accuracy": 0.98, "training_iteration": iterations}
        ),
        tune_config=tune.TuneConfig(
            metric="mean_accuracy",
            mode="max",
            scheduler=AsyncHyperBandScheduler(),
            num_samples=num_samples,
        ),
        param_space={
            "lr": tune.loguniform(1e-4, 1e-2),
            "momentum": tune.uniform(0.1, 0.9),
            "data_dir": data_dir,
        },
    )
    return tuner.fit()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data-dir", default=DATA_DIRECTORY, help="directory with the files of MNIST"
    )
    parser.add_argument("--gpus", type=float, default=0, help="GPUs for each trial")
    parser.add_argument("--smoke-test", action="store_true", help="finish quickly")
    args = parser.parse_args()
    size = {"num_samples": 2, "iterations": 3} if args.smoke_test else {}
    print(
        "Best config is:",
        main(**size, data_dir=args.data_dir, gpus=args.gpus).get_best_result().config,
    )
