"""A toy run: two workers, three reports. The launcher counts all lines without `user:`."""

import importlib
from typing import Any

import torch
import torch.distributed

from bench.programs import common, training


def train_fn(config: dict[str, Any]) -> None:
    model = training.wrap(config["library"], torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(3):
        loss = model(torch.randn(16, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if config["library"] != "torchrun":
            importlib.import_module(f"{config['library']}.train").report(
                {"epoch": epoch, "loss": loss.item()}
            )
    if torch.distributed.get_rank() == 0:
        print("user: trained", flush=True)
        common.write(config["out"], {})


if __name__ == "__main__":
    options = common.arguments()
    training.train(options.library, train_fn, {"out": options.out})
