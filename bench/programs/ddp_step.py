"""The median DDP step of a small model with two workers, one torch thread each, whoever launches them."""

import time
from typing import Any

import torch
import torch.distributed

from bench.programs import common, training

WARM_UP_STEPS = 100
STEPS = 1500


def train_fn(config: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)
    )
    model = training.wrap(config["library"], layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    features, target = torch.randn(64, 256), torch.randint(10, (64,))
    seconds = []
    for _ in range(WARM_UP_STEPS + STEPS):
        begin = time.perf_counter()
        loss = torch.nn.functional.cross_entropy(model(features), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    if torch.distributed.get_rank() == 0:
        common.write(config["out"], {"step_ms": common.median_ms(seconds[WARM_UP_STEPS:]), "torch_threads": torch.get_num_threads()})


if __name__ == "__main__":
    options = common.arguments()
    training.train(options.library, train_fn, {"out": options.out})
