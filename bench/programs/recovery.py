"""From the SIGKILL of rank 1 to the first step of the new attempt, which starts from a small checkpoint."""

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

STEPS_BEFORE_KILL = 20


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
    if checkpoint is not None:
        if rank == 0:
            common.write(config["out"], {"recovery_s": time.monotonic() - float(killed_at.read_text())})
        return
    with tempfile.TemporaryDirectory() as folder:
        torch.save(layers.state_dict(), Path(folder, "model.pt"))
        train.report({"step": 1}, checkpoint=train.Checkpoint.from_directory(folder) if rank == 0 else None)
    for _ in range(STEPS_BEFORE_KILL):
        step()
    if rank == 1:
        killed_at.write_text(repr(time.monotonic()))
        os.kill(os.getpid(), signal.SIGKILL)
    step()  # waits for rank 1, as training does


if __name__ == "__main__":
    options = common.arguments()
    training.train(options.library, train_fn, {"out": options.out, "killed_at": os.path.abspath("killed_at")}, max_failures=1)
