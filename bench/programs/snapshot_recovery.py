"""Time from the SIGKILL of rank 1 in the middle of training to the next optimizer step, and the
steps that are repeated.

syncline takes automatic memory snapshots. Ray saves a checkpoint every `CHECKPOINT_EVERY` steps
(each `report` takes about two seconds). torchrun restarts its workers (`--max-restarts`), which
continue from the last asynchronous checkpoint of `torch.distributed.checkpoint`.
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

KILL_AT = 307  # the worker has trained for some seconds
CHECKPOINT_EVERY = 10
STEP_S = 0.02
"""Shortest time of a step, so that asynchronous checkpoints keep up."""


class Saving:
    """How a library keeps the state: nothing for syncline, which does it by itself.

    Args:
        config: Configuration of the training function.
        model: The model.
        optimizer: Its optimizer.
    """

    def __init__(
        self, config: dict[str, Any], model: torch.nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        self.config = config
        self.model = model
        self.optimizer = optimizer
        self.progress = {"step": 0}

    def restore(self) -> None:
        """Restore the last state, if there is one."""
        importlib.import_module("syncline.train").register_state(progress=self.progress)

    def step_done(self) -> None:
        """Save the state after a step."""

    def state(self) -> dict[str, Any]:
        """Return the state of model, optimizer and progress."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.progress["step"],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Load the result of `state`."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.progress["step"] = state["step"]


class RayCheckpoints(Saving):
    """Checkpoints of Ray."""

    def restore(self) -> None:
        checkpoint = importlib.import_module("ray.train").get_checkpoint()
        if checkpoint is not None:
            with checkpoint.as_directory() as folder:
                self.load(torch.load(Path(folder, "state.pt")))

    def step_done(self) -> None:
        if self.progress["step"] % CHECKPOINT_EVERY:
            return
        train = importlib.import_module("ray.train")
        with tempfile.TemporaryDirectory() as folder:
            torch.save(self.state(), Path(folder, "state.pt"))
            is_first = torch.distributed.get_rank() == 0
            train.report({}, train.Checkpoint.from_directory(folder) if is_first else None)


class AsyncCheckpoints(Saving):
    """Asynchronous checkpoints under torchrun; `done` names the last complete one."""

    pending: Any = None

    def restore(self) -> None:
        self.library = importlib.import_module("torch.distributed.checkpoint")
        self.states = importlib.import_module("torch.distributed.checkpoint.state_dict")
        # The thread that saves must not mix its collective operations with those of DDP.
        self.group = torch.distributed.new_group(backend="gloo")
        done = Path("done")
        if done.exists():
            # Creates the state of the optimizer, which is empty before the first step.
            self.states.get_optimizer_state_dict(self.model, self.optimizer)
            state = self.state()
            self.library.load(state, checkpoint_id=f"saved-{done.read_text()}")
            self.load(state)

    def step_done(self) -> None:
        step = self.progress["step"]
        if step % CHECKPOINT_EVERY == CHECKPOINT_EVERY // 2 and self.pending is not None:
            self.pending.result()
            if torch.distributed.get_rank() == 0:
                Path("done.new").write_text(str(step - CHECKPOINT_EVERY // 2))
                Path("done.new").rename("done")
        if step % CHECKPOINT_EVERY == 0:
            self.pending = self.library.async_save(
                self.state(), checkpoint_id=f"saved-{step}", process_group=self.group
            )


SAVING = {"syncline": Saving, "ray": RayCheckpoints, "torchrun": AsyncCheckpoints}


def train_fn(config: dict[str, Any]) -> None:
    os.chdir(config["folder"])
    rank, killed_at = torch.distributed.get_rank(), Path("killed_at")
    model = training.wrap(config["library"], torch.nn.Linear(64, 64))
    optimizer = torch.optim.AdamW(model.parameters())
    saving = SAVING[config["library"]](config, model, optimizer)
    saving.restore()
    was_killed = killed_at.exists()
    while True:
        loss = model(torch.randn(32, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if was_killed:
            break
        saving.progress["step"] += 1
        saving.step_done()
        time.sleep(STEP_S)
        if rank == 1 and saving.progress["step"] == KILL_AT:
            killed_at.write_text(repr(time.monotonic()))
            os.kill(os.getpid(), signal.SIGKILL)
    recovery_s = time.monotonic() - float(killed_at.read_text())
    if rank == 0:
        repeated = KILL_AT - saving.progress["step"]
        values = {"recovery_s": recovery_s, "rejoined_s": recovery_s, "repeated": float(repeated)}
        common.write(config["out"], values)


if __name__ == "__main__":
    options = common.arguments()
    run = {}
    if options.library == "syncline":
        snapshot = importlib.import_module("syncline.train").SnapshotConfig()
        run = {"snapshot": snapshot}
    training.train(
        options.library,
        train_fn,
        {"out": options.out, "folder": os.getcwd()},
        max_failures=1,
        run=run,
    )
