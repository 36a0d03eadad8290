"""Median DDP step of a small model with two workers and one torch thread each."""

import time
from typing import Any

import torch
import torch.distributed

from bench.programs import common, training

WARM_UP_STEPS = 100
STEPS = 1000


def check_equal_weights(model: torch.nn.Module) -> None:
    """Raise RuntimeError unless two ranks have equal weights: only DDP makes them equal."""
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    gathered = [torch.empty_like(weights) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(gathered, weights)
    if len(gathered) != 2 or not torch.equal(gathered[0], gathered[1]):
        raise RuntimeError(
            f"the {len(gathered)} ranks have no equal weights: this is no DDP run with two workers"
        )


def train_fn(config: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    rank = torch.distributed.get_rank()
    # Ranks differ in data and initial weights, so that only DDP makes the weights equal.
    torch.manual_seed(rank)
    layers = torch.nn.Sequential(
        torch.nn.Linear(256, 512),
        torch.nn.ReLU(),
        torch.nn.Linear(512, 512),
        torch.nn.ReLU(),
        torch.nn.Linear(512, 10),
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
    check_equal_weights(model)
    if rank == 0:
        values = {
            "step_ms": common.median_ms(seconds[WARM_UP_STEPS:]),
            "torch_threads": float(torch.get_num_threads()),
        }
        common.write(config["out"], values)


if __name__ == "__main__":
    options = common.arguments()
    training.train(options.library, train_fn, {"out": options.out})
