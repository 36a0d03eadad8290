"""A training that others kill: `python chaos_program.py FOLDER data|loader EPOCHS`.

A small vision transformer learns CIFAR-10 images with two workers, in an order that is random and
under a random augmentation, and saves everything every few steps. In the end `outcome.json` has a
digest of the weights and, by epoch, the ids of the images that the weights have seen. `progress`,
`pid-*` say where the run is; a file `order.json` makes it kill itself at a moment of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import simplejpeg
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from syncline import data, faults, train
from syncline.train.torch import (
    TorchTrainer,
    enable_reproducibility,
    prepare_data_loader,
    prepare_model,
)

WORKERS = 2
BATCH = 16
STEPS_PER_REPORT = 3


class TinyViT(nn.Module):
    """8 x 8 patches, two layers."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.positions = nn.Parameter(torch.randn(1, 16, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, 0.1, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(batch, 3, 32, 32) -> (batch, 10)"""
        tokens = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.encoder(tokens).mean(1))


def decoded(jpeg: bytes) -> np.ndarray:
    """JPEG -> float32 (3, 32, 32)."""
    return simplejpeg.decode_jpeg(jpeg).transpose(2, 0, 1).astype(np.float32) / 64 - 2


def augmented(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Decodes, and changes the brightness of each image at random, with numbers from the global
    generator.
    """
    images = np.stack([decoded(jpeg) for jpeg in batch["image"]])
    batch["image"] = images + np.random.uniform(-0.5, 0.5, (len(images), 1, 1, 1)).astype(
        np.float32
    )
    return batch


class Images(Dataset[dict[str, Any]]):
    """The same images for a DataLoader; the brightness changes with numbers from torch's
    generator.
    """

    def __init__(self, folder: Path) -> None:
        self.rows = pq.read_table(folder).to_pylist()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = self.rows[index]
        image = torch.from_numpy(decoded(row["image"])) + torch.rand(()) - 0.5
        return {"image": image, "label": row["label"], "id": row["id"]}


class Moments:
    """Obeys `order.json`: {"rank": whose, "at": step | report | upload | epoch_end, "after": so
    many steps of that rank}.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self.order, self.progress, self.rank = (
            folder / "order.json",
            folder / f"progress-{rank}",
            rank,
        )
        (folder / f"pid-{rank}").write_text(str(os.getpid()))
        self.steps = 0

    def step(self, step: int) -> None:
        self.steps += 1
        self.progress.write_text(str(step))
        self.obey("step", "report", "upload")

    def epoch_ends(self) -> None:
        self.obey("epoch_end")

    def obey(self, *moments: str) -> None:
        try:
            order = json.loads(self.order.read_text())
        except (FileNotFoundError, ValueError):
            return
        if order["rank"] != self.rank or order["at"] not in moments or self.steps < order["after"]:
            return
        self.order.unlink()
        if order["at"] in ("step", "epoch_end"):
            os.kill(os.getpid(), signal.SIGKILL)
        faults.configure(
            {"report": "train.report=kill:1", "upload": "train.uploaded=kill:1"}[order["at"]]
        )


def batches_of(mode: str, folder: Path) -> Iterable[dict[str, torch.Tensor]]:
    if mode == "loader":
        return prepare_data_loader(
            DataLoader(
                Images(folder / "images"),
                batch_size=BATCH,
                shuffle=True,
                num_workers=1,
                drop_last=True,
            )
        )
    return train.get_dataset_shard("train").iter_torch_batches(batch_size=BATCH, drop_last=True)


def train_worker(config: dict[str, Any]) -> None:
    """Everything that decides about the weights is in the checkpoint; the place in the data is
    syncline's matter.
    """
    enable_reproducibility(7)
    torch.set_num_threads(1)
    context, folder = train.get_context(), Path(config["folder"])
    rank = context.get_world_rank()
    moments = Moments(folder, rank)
    model = prepare_model(TinyViT())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    first_epoch, step, seen = 0, 0, {}
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            state = torch.load(Path(directory, f"rank-{rank}.pt"), weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first_epoch, step, seen = state["epoch"], state["step"], state["seen"]

    def save(epoch: int) -> None:
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "epoch": epoch,
            "step": step,
            "seen": seen,
        }
        with tempfile.TemporaryDirectory() as directory:
            torch.save(state, Path(directory, f"rank-{rank}.pt"))
            train.report(
                {"step": step, "epoch": epoch},
                checkpoint=train.Checkpoint.from_directory(directory),
            )

    batches = batches_of(config["mode"], folder)
    for epoch in range(first_epoch, config["epochs"]):
        for batch in batches:
            loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            seen.setdefault(epoch, []).extend(batch["id"].tolist())
            moments.step(step)
            if step % STEPS_PER_REPORT == 0:
                save(epoch)
        moments.epoch_ends()
        save(epoch + 1)
    weights = b"".join(value.numpy().tobytes() for _, value in sorted(model.state_dict().items()))
    (folder / f"end-{rank}.json").write_text(
        json.dumps({"weights": hashlib.sha256(weights).hexdigest(), "seen": seen})
    )


def outcome(folder: Path) -> Iterator[tuple[str, Any]]:
    ends = [json.loads((folder / f"end-{rank}.json").read_text()) for rank in range(WORKERS)]
    yield "weights", [end["weights"] for end in ends]
    yield (
        "seen",
        {
            epoch: sorted(row for end in ends for row in end["seen"][epoch])
            for epoch in ends[0]["seen"]
        },
    )


def main() -> None:
    folder, mode, epochs = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    (folder / "pid-driver").write_text(str(os.getpid()))
    datasets = {}
    data.DataContext.get_current().seed = 5
    if mode == "data":
        images = data.read_parquet(str(folder / "images")).random_shuffle(
            seed=data.RandomSeedConfig(seed=3, reseed_after_execution=True)
        )
        datasets = {"train": images.map_batches(augmented, batch_size=8)}
    TorchTrainer(
        train_worker,
        train_loop_config={"folder": str(folder), "mode": mode, "epochs": epochs},
        datasets=datasets,
        scaling_config=train.ScalingConfig(num_workers=WORKERS),
        run_config=train.RunConfig(
            name="run",
            storage_path=str(folder / "storage"),
            failure_config=train.FailureConfig(max_failures=-1),
            checkpoint_config=train.CheckpointConfig(num_to_keep=2),
        ),
    ).fit()
    (folder / "outcome.json").write_text(json.dumps(dict(outcome(folder))))


if __name__ == "__main__":
    main()
