"""The network of `mnist_pytorch` as a class, which the search checkpoints."""

from __future__ import annotations

import argparse
import os
from typing import Any

import torch
from torch import optim

from syncline import tune
from syncline.tune.examples.mnist_pytorch import (
    DATA_DIRECTORY,
    ConvNet,
    accuracy,
    get_data_loaders,
    train,
)
from syncline.tune.schedulers import ASHAScheduler

MODEL_FILE = "model.pth"


class TrainMNIST(tune.Trainable):
    """Trains one epoch per step."""

    def setup(self, config: dict[str, Any]) -> None:
        """Load the images, create model and optimizer."""
        use_cuda = config.get("use_gpu") and torch.cuda.is_available()
        self.device = torch.device("cuda" if use_cuda else "cpu")
        self.train_loader, self.test_loader = get_data_loaders(
            directory=config.get("data_dir", DATA_DIRECTORY)
        )
        self.model = ConvNet().to(self.device)
        self.optimizer = optim.SGD(
            self.model.parameters(), lr=config.get("lr", 0.01), momentum=config.get("momentum", 0.9)
        )

    def step(self) -> dict[str, Any]:
        """Train one epoch and test."""
        train(self.model, self.optimizer, self.train_loader, device=self.device)
        return {"mean_accuracy": accuracy(self.model, self.test_loader, self.device)}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write the states of model and optimizer."""
        states = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(states, os.path.join(checkpoint_dir, MODEL_FILE))

    def load_checkpoint(self, checkpoint: str) -> None:
        """Restore model and optimizer."""
        states = torch.load(os.path.join(checkpoint, MODEL_FILE), map_location=self.device)
        self.model.load_state_dict(states["model"])
        self.optimizer.load_state_dict(states["optimizer"])


def main(
    num_samples: int = 20, iterations: int = 20, data_dir: str = DATA_DIRECTORY, gpus: float = 0
) -> tune.ResultGrid:
    """Try `num_samples` learning rates and momenta, for up to `iterations` epochs or until the
    accuracy is 95 %.
    """
    tuner = tune.Tuner(
        tune.with_resources(TrainMNIST, {"cpu": 1, "gpu": gpus}),
        run_config=tune.RunConfig(
            name="mnist_pytorch_trainable",
            stop={"mean_accuracy": 0.95, "training_iteration": iterations},
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True, checkpoint_frequency=3),
        ),
        tune_config=tune.TuneConfig(
            metric="mean_accuracy", mode="max", scheduler=ASHAScheduler(), num_samples=num_samples
        ),
        param_space={
            "lr": tune.uniform(0.001, 0.1),
            "momentum": tune.uniform(0.1, 0.9),
            "data_dir": data_dir,
            "use_gpu": gpus > 0,
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
    best = main(**size, data_dir=args.data_dir, gpus=args.gpus).get_best_result()
    print("Best config is:", best.config)
    print("Its checkpoint:", best.checkpoint)
