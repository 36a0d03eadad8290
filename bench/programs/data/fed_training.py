"""Speed of a training that reads its dataset shard, relative to the same training on one batch that
stays in memory; with the model of the example (argument `demo`), or one about seven times as fast
(`fast`). Two workers.

The dataset is that of the example: decoded images, cached by the first epoch, which is not counted.
Epochs with and without the dataset alternate. The CPU share compares the CPU time of a worker,
which other programs on the machine change less.
"""

import os
import statistics
import time
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

import torch
from examples.train_vit import VisionTransformer, images_of, scaled
from torch import nn

from bench import inputs
from bench.programs import common
from bench.programs.data import pipelines

WORKERS = 2
BATCH_ROWS = 64
ROWS = 6_400
ROUNDS = 3
MODELS = {
    "demo": lambda: VisionTransformer(),
    "fast": lambda: VisionTransformer(width=32, layers=1, heads=2),
}


class Pace:
    """Seconds and CPU seconds of a step, of one epoch."""

    def __init__(self, model: nn.Module, batches: Iterable[dict[str, torch.Tensor]]) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        wall, cpu, steps = time.perf_counter(), time.process_time(), 0
        for batch in batches:
            loss = nn.functional.cross_entropy(model(scaled(batch["image"])), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()
            steps += 1
        self.steps = steps
        self.wall_s = (time.perf_counter() - wall) / steps
        self.cpu_s = (time.process_time() - cpu) / steps


def compared(model: nn.Module, shard: Any) -> dict[str, float]:
    """Return the shares and the seconds of a step, medians over the rounds."""

    def fed() -> Iterator[dict[str, torch.Tensor]]:
        yield from shard.iter_torch_batches(batch_size=BATCH_ROWS, drop_last=True)

    held = next(fed())
    steps = Pace(model, fed()).steps
    pairs = [(Pace(model, repeat(held, steps)), Pace(model, fed())) for _ in range(ROUNDS)]
    return {
        "share": statistics.median(one.wall_s / all_.wall_s for one, all_ in pairs),
        "cpu_share": statistics.median(one.cpu_s / all_.cpu_s for one, all_ in pairs),
        "step_ms": statistics.median(all_.wall_s for _, all_ in pairs) * 1e3,
        "step_cpu_ms": statistics.median(all_.cpu_s for _, all_ in pairs) * 1e3,
    }


def train_fn(config: dict[str, Any]) -> None:
    from syncline import train
    from syncline.train.torch import prepare_model

    model = prepare_model(MODELS[config["model"]]())
    values = compared(model, train.get_dataset_shard("train"))
    if train.get_context().get_world_rank() == 0:
        common.write(config["out"], values)


if __name__ == "__main__":
    options = common.arguments()
    core, _ = pipelines.start("syncline")
    from syncline import train
    from syncline.train.torch import TorchTrainer

    images = images_of(pipelines.input_folder(), inputs.scaled(ROWS))
    trainer = TorchTrainer(
        train_fn,
        train_loop_config={"out": options.out, "model": options.library},
        scaling_config=train.ScalingConfig(num_workers=WORKERS),
        run_config=train.RunConfig(name="bench", storage_path=os.path.abspath("storage")),
        datasets={"train": images},
    )
    trainer.fit()
    core.shutdown()
