"""Share of a step that two training workers wait for decoded images from syncline.data, Ray Data or
a DataLoader, with the model of the example.

Ray gets two CPUs more than its training workers use, because its datasets would wait forever
otherwise. The first epoch is not counted. With the argument `loader`, syncline trains and each
worker reads with a DataLoader of one process.
"""

import importlib
import os
import time
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from examples.train_vit import VisionTransformer
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

from bench.inputs import scaled
from bench.programs import common
from bench.programs.data import image_loader, images, pipelines
from bench.programs.data.decoding import decode_native

WORKERS = 2
BATCH_ROWS = 64
ROWS = 8_000
EPOCHS = 2
CPUS = {"ray": pipelines.CPUS + WORKERS}


def loader_of(rank: int) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
    """Return a DataLoader over this rank's shard."""
    rows = image_loader.Images(decode_native, scaled(ROWS))
    sampler: DistributedSampler[Any] = DistributedSampler(
        rows, WORKERS, rank, shuffle=False, drop_last=True
    )
    return DataLoader(
        rows, batch_size=BATCH_ROWS, sampler=sampler, num_workers=1, persistent_workers=True
    )


def shard_of(train: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the batches of this rank's dataset shard."""
    for batch in train.get_dataset_shard("train").iter_torch_batches(batch_size=BATCH_ROWS):
        yield batch["image"], batch["label"]


class Epoch:
    """Training over batches; counts rows, total seconds, and seconds spent waiting for batches."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer
        self.rows, self.waited_s, self.total_s = 0, 0.0, 0.0

    def run(self, batches: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> None:
        begin = time.perf_counter()
        waiting_since, source = begin, iter(batches)
        while (batch := next(source, None)) is not None:
            self.waited_s += time.perf_counter() - waiting_since
            self.step(*batch)
            self.rows += len(batch[1])
            waiting_since = time.perf_counter()
        self.waited_s += time.perf_counter() - waiting_since
        self.total_s = time.perf_counter() - begin

    def step(self, pixels: torch.Tensor, labels: torch.Tensor) -> None:
        inputs = pixels.permute(0, 3, 1, 2).contiguous().float() / 64 - 2
        loss = nn.functional.cross_entropy(self.model(inputs), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        loss.item()


def train_fn(config: dict[str, Any]) -> None:
    train = importlib.import_module(f"{config['library']}.train")
    rank = train.get_context().get_world_rank()
    model = importlib.import_module(f"{config['library']}.train.torch").prepare_model(
        VisionTransformer()
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loader = loader_of(rank) if config["reads"] == "loader" else None
    for _ in range(EPOCHS):
        epoch = Epoch(model, optimizer)
        epoch.run(loader or shard_of(train))
    if rank == 0:
        common.write(
            config["out"],
            {
                "wait_share": epoch.waited_s / epoch.total_s,
                "rows_per_s": WORKERS * epoch.rows / epoch.total_s,
            },
        )


if __name__ == "__main__":
    options = common.arguments()
    library = "syncline" if options.library == "loader" else options.library
    core, data = pipelines.start(library, cpus=CPUS.get(library, pipelines.CPUS))
    train = importlib.import_module(f"{library}.train")
    trainer = importlib.import_module(f"{library}.train.torch").TorchTrainer(
        train_fn,
        train_loop_config={"library": library, "reads": options.library, "out": options.out},
        scaling_config=train.ScalingConfig(num_workers=WORKERS),
        run_config=train.RunConfig(name="bench", storage_path=os.path.abspath("storage")),
        datasets={}
        if options.library == "loader"
        else {"train": images.decoded(data, "native").limit(scaled(ROWS))},
    )
    trainer.fit()
    core.shutdown()
