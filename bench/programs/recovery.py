"""Time from the SIGKILL of rank 1 to the first step of the next attempt, which starts from a small
checkpoint.
"""

import importlib
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed

from bench.programs import common, training

# Long enough for every library to commit the checkpoint: Ray commits it after report() returns.
TRAIN_BEFORE_KILL_S = 5.0


def train_fn(config: dict[str, Any]) -> None:
    train = importlib.import_module(f"{config['library']}.train")
    rank, killed_at = torch.distributed.get_rank(), Path(config["killed_at"])
    layers = torch.nn.Linear(64, 64)
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            layers.load_state_dict(torch.load(Path(folder, "model.pt")))
    model = training.wrap(config["library"], layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        loss = model(torch.randn(32, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    step()
    if killed_at.exists():  # the second attempt
        if rank == 0:
            recovery_s = time.monotonic() - float(killed_at.read_text())
            common.write(
                config["out"],
                {"recovery_s": recovery_s, "from_checkpoint": float(checkpoint is not None)},
            )
        return
    with tempfile.TemporaryDirectory() as folder:
        torch.save(layers.state_dict(), Path(folder, "model.pt"))
        train.report(
            {"step": 1}, checkpoint=train.Checkpoint.from_directory(folder) if rank == 0 else None
        )
    reported_at = time.monotonic()
    while rank == 0 or time.monotonic() - reported_at < TRAIN_BEFORE_KILL_S:
        step()  # rank 0 trains until it notices that rank 1 has died
    killed_at.write_text(repr(time.monotonic()))
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    options = common.arguments()
    training.train(
        options.library,
        train_fn,
        {"out": options.out, "killed_at": os.path.abspath("killed_at")},
        max_failures=1,
    )
