"""Train a small network with workers on a cluster, or on this machine without a cluster.

    export SYNCLINE_ADDRESS=HOST:6379 SYNCLINE_STORAGE_PATH=/shared/runs
    python examples/cluster/train.py --workers 8

Prints the host of each worker, the loss after each epoch, and the path of the last checkpoint.
"""

import argparse
import socket
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import syncline
from syncline import train
from syncline.train.torch import TorchTrainer, prepare_data_loader, prepare_model

SAMPLES, FEATURES = 4096, 16


def train_worker(config: dict[str, Any]) -> None:
    """Train in one worker on its shard of the samples."""
    context = train.get_context()
    print(
        f"rank {context.get_world_rank()} of {context.get_world_size()} runs on "
        f"{socket.gethostname()}",
        flush=True,
    )
    x = torch.randn(SAMPLES, FEATURES, generator=torch.Generator().manual_seed(0))
    loader = prepare_data_loader(
        DataLoader(TensorDataset(x, x.sin().sum(1, keepdim=True)), batch_size=64, shuffle=True)
    )
    model = prepare_model(nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    for epoch in range(config["epochs"]):
        for features, target in loader:
            loss = nn.functional.mse_loss(model(features), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with tempfile.TemporaryDirectory() as folder:
            torch.save(model.state_dict(), Path(folder, "model.pt"))
            train.report(
                {"epoch": epoch, "loss": loss.item()},
                checkpoint=train.Checkpoint.from_directory(folder),
            )


def main() -> None:
    """Parse the command line, train, and print the result."""
    parser = argparse.ArgumentParser(description="Train a small network with workers on a cluster.")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--gpus", action="store_true", help="give every worker a GPU")
    options = parser.parse_args()

    syncline.init()
    print(f"{len(syncline.nodes())} nodes with {syncline.cluster_resources().get('CPU', 0):g} CPUs")
    trainer = TorchTrainer(
        train_worker,
        train_loop_config={"lr": 0.01, "epochs": options.epochs},
        scaling_config=train.ScalingConfig(
            num_workers=options.workers, use_gpu=options.gpus, placement_strategy="SPREAD"
        ),
    )
    result = trainer.fit()
    print(f"loss {result.metrics['loss']:.4f} after {result.metrics['epoch'] + 1} epochs")
    print(f"checkpoint {result.checkpoint.path}")


if __name__ == "__main__":
    main()
