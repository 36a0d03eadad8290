"""Examples of searches: parts without a search, and each search with a few trials."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import syncline
from syncline.tune.examples import (
    custom_func_checkpointing,
    mnist_pytorch,
    mnist_pytorch_trainable,
    pbt_example,
    pbt_function,
)
from syncline.tune.trainable import wrap_function
from syncline.tune.trainable.session import Reported


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write files in MNIST's format; images of each digit are bright in one column."""
    directory = tmp_path_factory.mktemp("digits")
    generator = np.random.default_rng(0)
    for prefix, count in (("train", 640), ("t10k", 320)):
        labels = generator.integers(0, 10, count, dtype=np.uint8)
        images = generator.integers(0, 30, (count, 28, 28), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[:, 2 * label : 2 * label + 4] = 250
        (directory / f"{prefix}-images-idx3-ubyte").write_bytes(
            struct.pack(">IIII", 2051, count, 28, 28) + images.tobytes()
        )
        (directory / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(
            gzip.compress(struct.pack(">II", 2049, count) + labels.tobytes())
        )
    return directory


class TestMnist:
    """The network on digits."""

    def test_images_and_labels_are_read_packed_or_not(self, digits: Path) -> None:
        train_loader, test_loader = mnist_pytorch.get_data_loaders(32, str(digits))
        images, labels = next(iter(train_loader))
        assert (images.shape, images.dtype, labels.shape) == ((32, 1, 28, 28), torch.float32, (32,))
        assert (len(train_loader.dataset), len(test_loader.dataset)) == (640, 320)
        brightest = images.sum(dim=(1, 2)).unfold(1, 4, 1).sum(dim=2)[:, 0:20:2].argmax(dim=1)
        assert torch.equal(brightest, labels)
        assert images.max() == pytest.approx((250 / 255 - 0.1307) / 0.3081)

    def test_files_may_lie_where_torchvision_puts_them(self, digits: Path, tmp_path: Path) -> None:
        (tmp_path / "MNIST").mkdir()
        (tmp_path / "MNIST" / "raw").symlink_to(digits)
        assert len(mnist_pytorch.get_data_loaders(directory=str(tmp_path))[0].dataset) == 640

    def test_without_files_it_says_where_to_put_them(self, tmp_path: Path) -> None:
        with pytest.raises(
            FileNotFoundError,
            match=r"no train-images-idx3-ubyte .* nothing is downloaded: put the four files",
        ):
            mnist_pytorch.get_data_loaders(directory=str(tmp_path))

    def test_the_network_learns(self, digits: Path) -> None:
        torch.manual_seed(0)
        train_loader, test_loader = mnist_pytorch.get_data_loaders(directory=str(digits))
        model = mnist_pytorch.ConvNet()
        assert model(torch.zeros(5, 1, 28, 28)).shape == (5, 10)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        before = mnist_pytorch.test(model, test_loader)
        for _ in range(3):
            mnist_pytorch.train(model, optimizer, train_loader, device=torch.device("cpu"))
        assert mnist_pytorch.test(model, test_loader) > max(before, 0.5)

    def test_an_epoch_is_bounded(self, digits: Path) -> None:
        seen: list[int] = []

        class Counting(mnist_pytorch.ConvNet):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                seen.append(len(x))
                return super().forward(x)

        train_loader, test_loader = mnist_pytorch.get_data_loaders(64, str(digits))
        model = Counting()
        mnist_pytorch.train_func(model, torch.optim.SGD(model.parameters(), lr=0.1), train_loader)
        assert sum(seen) == mnist_pytorch.EPOCH_SIZE + 64
        seen.clear()
        mnist_pytorch.test_func(model, test_loader)
        assert sum(seen) == mnist_pytorch.TEST_SIZE + 64

    def test_the_function_reports_and_saves(self, digits: Path) -> None:
        trial = wrap_function(mnist_pytorch.train_mnist)(
            {"lr": 0.1, "momentum": 0.9, "data_dir": str(digits), "should_checkpoint": True}
        )
        assert 0 <= trial.train()["mean_accuracy"] <= 1
        assert trial.session.latest is not None
        assert (Path(trial.session.latest.path) / "model.pt").exists()
        trial.stop()

    def test_the_class_goes_on_from_its_checkpoint(self, digits: Path, tmp_path: Path) -> None:
        config = {"lr": 0.1, "data_dir": str(digits)}
        first, second = (mnist_pytorch_trainable.TrainMNIST(config) for _ in range(2))
        first.train()
        first.save(tmp_path)
        second.restore(tmp_path)
        assert all(
            torch.equal(a, b)
            for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True)
        )
        assert second.train()["training_iteration"] == 2


def test_the_function_with_checkpoints_goes_on_where_it_was() -> None:
    config = {"steps": 4, "width": 20, "height": 30}
    first, second = (wrap_function(custom_func_checkpointing.train_func)(config) for _ in range(2))
    for _ in range(2):
        first.train()
    assert first.session.latest is not None
    second.restore(first.session.latest)  # while the first one waits, its files are there
    assert [second.train()["iterations"] for _ in range(2)] == [2, 3]
    first.stop()
    second.stop()


def test_the_toy_of_the_populations_learns_fastest_at_its_best_rate() -> None:
    assert [pbt_example.optimal_lr(accuracy) for accuracy in (0, 50, 100, 150, 200)] == [
        0.001,
        0.005,
        0.01,
        0.005,
        0.001,
    ]
    trainable = pbt_example.PBTBenchmarkExample({"lr": 0.01})
    trainable.load_checkpoint({"accuracy": 300.0})
    assert trainable.train()["done"]
    assert trainable.reset({"lr": 0.02})
    assert trainable.train()["cur_lr"] == 0.02


def test_the_populations_function_saves_when_the_population_exchanges() -> None:
    trial = wrap_function(pbt_function.pbt_function)({"lr": 0.01, "checkpoint_interval": 2})
    saved = []
    for _ in range(4):
        trial.train()
        assert isinstance(trial.message, Reported)
        saved.append(trial.message.checkpoint is not None)
    assert saved == [False, True, False, True]
    trial.stop()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setenv("SYNCLINE_STORAGE_PATH", str(tmp_path_factory.mktemp("results")))
    syncline.init(num_cpus=2)
    yield
    syncline.shutdown()
    patch.undo()


@pytest.mark.processes
@pytest.mark.usefixtures("engine")
class TestSearches:
    """Run `main` of each example at a small size."""

    @pytest.mark.parametrize(
        ("name", "options", "trials"),
        [
            ("tune_basic_example", {"num_samples": 2, "steps": 3}, 4),
            ("async_hyperband_example", {"num_samples": 4, "steps": 8}, 4),
            ("custom_func_checkpointing", {"num_samples": 2, "steps": 3}, 2),
            ("pbt_example", {"num_samples": 3, "iterations": 11}, 3),
            ("pbt_function", {"num_samples": 3, "iterations": 11}, 3),
            ("optuna_example", {"num_samples": 4, "steps": 4}, 4),
            ("xgboost_example", {"num_samples": 2, "max_rounds": 4}, 2),
        ],
    )
    def test_it_ends_with_a_best_trial(
        self, name: str, options: dict[str, Any], trials: int
    ) -> None:
        for library in {
            "optuna_example": ["optuna"],
            "xgboost_example": ["xgboost", "sklearn"],
        }.get(name, []):
            pytest.importorskip(library)
        results = import_module(f"syncline.tune.examples.{name}").main(**options)
        assert (len(results), results.num_errors) == (trials, 0)
        assert results.get_best_result().config

    @pytest.mark.parametrize("name", ["mnist_pytorch", "mnist_pytorch_trainable"])
    def test_digits_are_searched(self, name: str, digits: Path) -> None:
        results = import_module(f"syncline.tune.examples.{name}").main(
            num_samples=2, iterations=2, data_dir=str(digits)
        )
        assert (len(results), results.num_errors) == (2, 0)
        best = results.get_best_result()
        assert best.metrics is not None
        assert best.metrics["training_iteration"] <= 2
        assert (best.checkpoint is not None) == (name == "mnist_pytorch_trainable")
