"""Train a small vision transformer on CIFAR-10 with several workers.

    python examples/train_vit.py                           # the sample of 9 000 images
    python examples/train_vit.py --data DIR --epochs 30    # the full set

DIR has `train/*.parquet` and `test/*.parquet`, with the columns `image` (JPEG bytes, 32x32) and
`label` (0 to 9). Every epoch reports the accuracy on the images of `test` with a checkpoint. The
program prints the path of the best checkpoint at the end.
"""

import argparse
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg
import torch
import torch.distributed as dist
from torch import Tensor, nn
from tqdm import tqdm

from syncline import data, train
from syncline.train.torch import TorchTrainer, get_device, prepare_model

SAMPLE = Path(__file__).resolve().parent / "data" / "cifar10"
CLASSES = 10
IMAGE_SIZE = 32
CROP_MARGIN = 4


def decode(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Decode JPEG bytes to uint8 (batch, 3, 32, 32)."""
    pixels = np.empty((len(batch["image"]), IMAGE_SIZE, IMAGE_SIZE, 3), np.uint8)
    for jpeg, image in zip(batch["image"], pixels, strict=True):
        simplejpeg.decode_jpeg(jpeg, buffer=image)
    return {"image": np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)), "label": batch["label"]}


def images_of(folder: Path, rows: int | None) -> data.Dataset:
    """Return the decoded images of a folder of Parquet files, cached during the first epoch."""
    images = data.read_parquet(str(folder), columns=["image", "label"])
    return (images if rows is None else images.limit(rows)).map_batches(decode).cache()


def shift_and_flip(images: Tensor) -> Tensor:
    """Shift each image of (batch, 3, 32, 32) by up to four pixels, and flip half of them."""
    padded = nn.functional.pad(images, (CROP_MARGIN,) * 4, mode="reflect")
    span = torch.arange(IMAGE_SIZE)
    rows = torch.randint(2 * CROP_MARGIN + 1, (len(images), 1)) + span
    columns = torch.randint(2 * CROP_MARGIN + 1, (len(images), 1)) + span
    columns = torch.where(torch.rand(len(images), 1) < 0.5, columns, columns.flip(1))
    return (
        padded[torch.arange(len(images))[:, None, None], :, rows[:, :, None], columns[:, None, :]]
        .permute(0, 3, 1, 2)
        .contiguous()
    )


def scaled(images: Tensor) -> Tensor:
    """Convert uint8 to float in [-2, 2]."""
    return images.float() / 64 - 2


class VisionTransformer(nn.Module):
    """A ViT whose patches come from three strided convolutions, which learn faster from few images
    than one large patch.
    """

    def __init__(self, width: int = 128, layers: int = 4, heads: int = 4) -> None:
        super().__init__()
        channels = (3, width // 4, width // 2, width // 2)
        stem: list[nn.Module] = []
        for before, after in zip(channels, channels[1:], strict=False):
            stem += [
                nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False),
                nn.GroupNorm(8, after),
                nn.ReLU(),
            ]
        self.patches = nn.Sequential(*stem, nn.Conv2d(channels[-1], width, 1))
        self.positions = nn.Parameter(torch.randn(1, (IMAGE_SIZE // 8) ** 2, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, heads, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (batch, 3, 32, 32) to logits (batch, 10)."""
        tokens = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.norm(self.encoder(tokens)).mean(1))


def warm_up_then_cosine(steps: int) -> Any:
    """Return the factor of the learning rate by step: a linear warm-up over an eighth of the steps,
    then a cosine decay.
    """
    warm_up = max(1, steps // 8)

    def factor(step: int) -> float:
        if step < warm_up:
            return (step + 1) / warm_up
        return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))

    return factor


def train_one_epoch(
    model: nn.Module, batches: Any, optimizer: Any, schedule: Any, bar: tqdm
) -> float:
    """Train one epoch; return the mean loss of this rank."""
    model.train()
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.05)
    total, count = 0.0, 0
    for batch in batches:
        images = shift_and_flip(scaled(batch["image"]))
        loss = loss_of(model(images), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        total, count = total + loss.item(), count + 1
        bar.update()
    return total / max(1, count)


@torch.no_grad()
def accuracy_of(model: nn.Module, batches: Any) -> float:
    """Return the accuracy on the held-out images of all ranks."""
    model.eval()
    counts = torch.zeros(2, device=get_device())
    for batch in batches:
        counts[0] += (model(scaled(batch["image"])).argmax(1) == batch["label"]).sum()
        counts[1] += len(batch["label"])
    if dist.is_initialized():
        dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def train_worker(config: dict[str, Any]) -> None:
    """Train in one worker on its shard; report each epoch with a checkpoint."""
    rank = train.get_context().get_world_rank()
    torch.manual_seed(config["seed"] + rank)
    batches = train.get_dataset_shard("train").iter_torch_batches(
        batch_size=config["batch_size"], drop_last=True
    )
    held_out = train.get_dataset_shard("test").iter_torch_batches(batch_size=250)
    steps = config["images"] // train.get_context().get_world_size() // config["batch_size"]

    model = prepare_model(VisionTransformer())
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"], weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, warm_up_then_cosine(config["epochs"] * steps)
    )

    for epoch in range(config["epochs"]):
        with tqdm(
            total=steps,
            desc=f"epoch {epoch + 1}/{config['epochs']}",
            disable=rank != 0,
            mininterval=0.5,
        ) as bar:
            loss = train_one_epoch(model, batches, optimizer, schedule, bar)
            accuracy = accuracy_of(model, held_out)
            bar.set_postfix(loss=f"{loss:.3f}", accuracy=f"{accuracy:.3f}")
        if rank == 0:
            print(
                f"epoch {epoch + 1}: loss {loss:.3f}, accuracy on held-out images {accuracy:.3f}",
                flush=True,
            )
        report_with_checkpoint(model, {"epoch": epoch + 1, "loss": loss, "accuracy": accuracy})


def report_with_checkpoint(model: nn.Module, metrics: dict[str, Any]) -> None:
    """Report on every rank; rank 0 attaches the weights, which are equal on all ranks."""
    if train.get_context().get_world_rank() != 0:
        train.report(metrics)
        return
    plain = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    with tempfile.TemporaryDirectory() as folder:
        torch.save(plain.state_dict(), Path(folder) / "model.pt")
        train.report(metrics, checkpoint=train.Checkpoint.from_directory(folder))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train a small vision transformer on CIFAR-10 with several workers."
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=SAMPLE,
        help="folder with train/*.parquet and test/*.parquet (default: the sample)",
    )
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rows", type=int, help="read only the first ROWS images of each split")
    parser.add_argument(
        "--storage-path", help="parent of the run directory (default: ~/syncline_results)"
    )
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    training, held_out = (
        images_of(arguments.data / split, arguments.rows) for split in ("train", "test")
    )
    config = {
        "images": training.count(),
        "epochs": arguments.epochs,
        "batch_size": 128 // max(1, arguments.workers),
        "lr": 2e-3,
        "seed": 0,
    }
    trainer = TorchTrainer(
        train_worker,
        train_loop_config=config,
        datasets={"train": training.random_shuffle(), "test": held_out},
        scaling_config=train.ScalingConfig(
            num_workers=arguments.workers,
            use_gpu=torch.cuda.device_count() >= max(1, arguments.workers),
        ),
        run_config=train.RunConfig(
            storage_path=arguments.storage_path,
            checkpoint_config=train.CheckpointConfig(
                num_to_keep=2, checkpoint_score_attribute="accuracy"
            ),
        ),
    )
    result = trainer.fit()
    if not result.best_checkpoints:
        return  # --workers 0 trains in this process and keeps no checkpoint
    checkpoint, metrics = result.best_checkpoints[-1]
    print(
        f"best checkpoint: epoch {metrics['epoch']}, accuracy {metrics['accuracy']:.3f}, "
        f"{checkpoint.path}"
    )


if __name__ == "__main__":
    main()
