"""Search for the learning rate, weight decay and size of a small vision transformer on CIFAR-10.

    python examples/tune_vit.py    # eight trials on the sample, in less than a minute
    python examples/tune_vit.py --data DIR --rows 50000 --trials 40 --epochs 27

The images are decoded once and stored in shared memory, from which all trials read. Each epoch
reports a checkpoint and the accuracy on held-out images; ASHA stops trials that fall behind. Rerun
with the same `--name` to resume a search that was killed.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from syncline import tune
from syncline.tune.schedulers import ASHAScheduler
from syncline.tune.search.optuna import OptunaSearch
from train_vit import SAMPLE, VisionTransformer, images_of, scaled, shift_and_flip

BATCH_SIZE = 64
SPACE = {
    "lr": tune.loguniform(1e-4, 1e-2),
    "weight_decay": tune.loguniform(1e-3, 0.3),
    "model": {"width": tune.choice([32, 64, 96]), "layers": tune.randint(1, 4)},
}

Split = tuple[Tensor, Tensor]
"""Images, uint8 (n, 3, 32, 32), and labels (n,)."""


def load(folder: Path, rows: int) -> Split:
    """Load the first rows of a folder of Parquet files."""
    batches = list(images_of(folder, rows).iter_batches(batch_size=1000))
    images, labels = (
        torch.from_numpy(np.concatenate([batch[name] for batch in batches]))
        for name in ("image", "label")
    )
    return images, labels


def train_trial(config: dict[str, Any], training: Split, held_out: Split, epochs: int) -> None:
    """Run one trial from the beginning or from its checkpoint; report after each epoch."""
    model = VisionTransformer(**config["model"])
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config["lr"], weight_decay=config["weight_decay"]
    )
    first_epoch = restore(model, optimizer)
    for epoch in range(first_epoch, epochs):
        torch.manual_seed(epoch)
        train_one_epoch(model, optimizer, *training)
        metrics = {"epoch": epoch + 1, "accuracy": accuracy_of(model, *held_out)}
        with tempfile.TemporaryDirectory() as folder:
            torch.save(
                {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "epoch": epoch + 1,
                },
                Path(folder) / "state.pt",
            )
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder))


def restore(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the trial's checkpoint, if any; return the next epoch."""
    checkpoint = tune.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as folder:
        state = torch.load(Path(folder) / "state.pt")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["epoch"])


def train_one_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor
) -> None:
    model.train()
    for chosen in torch.randperm(len(images)).split(BATCH_SIZE):
        loss = nn.functional.cross_entropy(
            model(shift_and_flip(scaled(images[chosen]))), labels[chosen]
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def accuracy_of(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the accuracy on held-out images."""
    model.eval()
    answers = torch.cat([model(scaled(batch)).argmax(1) for batch in images.split(250)])
    return (answers == labels).float().mean().item()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Search for the hyper-parameters of a small vision transformer on CIFAR-10."
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=SAMPLE,
        help="folder with train/*.parquet and test/*.parquet (default: the sample)",
    )
    parser.add_argument(
        "--rows",
        type=int,
        default=1500,
        help="images to train with; half as many are used for testing (default: %(default)s)",
    )
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument(
        "--epochs", type=int, default=9, help="maximum epochs of a trial (default: %(default)s)"
    )
    parser.add_argument(
        "--name", default="tune_vit", help="name of the search; reuse it to resume a killed search"
    )
    parser.add_argument(
        "--storage-path",
        default="~/syncline_results",
        help="parent of the search's directory (default: %(default)s)",
    )
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    trainable = tune.with_parameters(
        train_trial,
        training=load(arguments.data / "train", arguments.rows),
        held_out=load(arguments.data / "test", arguments.rows // 2),
        epochs=arguments.epochs,
    )
    directory = Path(arguments.storage_path, arguments.name)
    if tune.Tuner.can_restore(directory):
        tuner = tune.Tuner.restore(directory, trainable)
    else:
        tuner = tune.Tuner(
            trainable,
            param_space=SPACE,
            tune_config=tune.TuneConfig(
                metric="accuracy",
                mode="max",
                num_samples=arguments.trials,
                search_alg=OptunaSearch(
                    points_to_evaluate=[
                        {"lr": 2e-3, "weight_decay": 0.05, "model/width": 64, "model/layers": 2}
                    ]
                ),
                scheduler=ASHAScheduler(max_t=arguments.epochs, grace_period=1, reduction_factor=3),
            ),
            run_config=tune.RunConfig(
                name=arguments.name,
                storage_path=arguments.storage_path,
                checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
            ),
        )
    results = tuner.fit()
    best = results.get_best_result()
    print(f"best: {best.config}, accuracy {best.metrics['accuracy']:.3f}, {best.checkpoint.path}")
    curves = Path(results.experiment_path) / "learning_curves.html"
    results.plot("learning_curves", path=curves)
    print(f"learning curves: {curves}")


if __name__ == "__main__":
    main()
