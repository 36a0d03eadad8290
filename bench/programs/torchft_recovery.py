"""Time from the SIGKILL of one of two replicas to the next optimizer step of the other one, and to
the step in which both take part again: Ray with `TorchftConfig`, torchft's `Manager` and Gloo.

The program follows Ray's `torchft_linear_example`: each worker is a replica, the survivor
continues alone, and the replaced worker gets its state from it. torchft discards the step in which
a replica fails, so steps are not repeated but lost; they count as `repeated` here, because their
batches are not in the weights.
"""

import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import ray
import torch
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.train.v2.torch.torchft_config import TorchftConfig
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo
from torchft.checkpointing.pg_transport import PGTransport

from bench.programs import common
from bench.programs.snapshot_recovery import KILL_AT, STEP_S

TIMEOUT = timedelta(seconds=30)
STEPS_TO_END = 10
"""Steps until both replicas end, so that none of them ends within a step of the other."""


class Replica:
    """A replica of the training: a model, its optimizer, and torchft's manager."""

    def __init__(self, rank: int) -> None:
        layers = torch.nn.Linear(64, 64)
        optimizer = torch.optim.AdamW(layers.parameters())

        def load(state: dict[str, Any]) -> None:
            layers.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])

        group = ProcessGroupGloo(timeout=TIMEOUT)
        self.manager = Manager(
            pg=group,
            min_replica_size=1,
            load_state_dict=load,
            state_dict=lambda: {"model": layers.state_dict(), "optimizer": optimizer.state_dict()},
            world_size=1,
            rank=0,
            replica_id=f"replica_{rank}",
            timeout=2 * TIMEOUT,
            checkpoint_transport=PGTransport(group, timeout=TIMEOUT, device=torch.device("cpu")),
        )
        self._model = DistributedDataParallel(self.manager, layers)
        self._optimizer = Optimizer(self.manager, optimizer)

    def step(self) -> bool:
        """Make a step; return True if it is in the weights."""
        before = self.manager.current_step()
        self._optimizer.zero_grad()
        self._model(torch.randn(32, 64)).square().mean().backward()
        self._optimizer.step()
        time.sleep(STEP_S)
        return self.manager.current_step() > before

    @property
    def takes_part_with_other(self) -> bool:
        """True if both replicas have taken part in the last step."""
        return self.manager.num_participants() == 2


def train_fn(config: dict[str, Any]) -> None:
    rank = ray.train.get_context().get_world_rank()
    folder = Path(config["folder"])
    killed_at, end = folder / "killed_at", folder / "end"
    was_killed = killed_at.exists()
    replica = Replica(rank)
    values: dict[str, float] = {"repeated": 0.0}
    steps_together = 0
    while not end.exists() or replica.manager.current_step() < int(end.read_text()):
        is_made = replica.step()
        steps_together += is_made and replica.takes_part_with_other
        if rank == 1 and not was_killed and steps_together == KILL_AT:
            common.write(str(killed_at), {"at": time.monotonic()})
            os.kill(os.getpid(), signal.SIGKILL)
        if rank == 0 and killed_at.exists() and not end.exists():
            _note(values, replica, is_made, killed_at)
            if "rejoined_s" in values:
                common.write(config["out"], values)
                end.write_text(str(replica.manager.current_step() + STEPS_TO_END))
    replica.manager.shutdown()


def _note(values: dict[str, float], replica: Replica, is_made: bool, killed_at: Path) -> None:
    """Note the times of the survivor's steps after the kill."""
    seconds = time.monotonic() - common.read(str(killed_at))["at"]
    if not is_made:
        values["repeated"] += 1.0
    elif not replica.takes_part_with_other:
        values.setdefault("recovery_s", seconds)
    elif "recovery_s" in values:
        values["rejoined_s"] = seconds


def train(
    function: Callable[[dict[str, Any]], None], config: dict[str, Any], max_failures: int
) -> None:
    """Run `function(config)` in two workers, each of them a replica."""
    ray.init(log_to_driver=False)  # torchft logs four lines a step
    TorchTrainer(
        function,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=2),
        torch_config=TorchftConfig(lighthouse_kwargs={"min_replicas": 1}, backend="gloo"),
        run_config=RunConfig(
            name="bench",
            storage_path=os.path.abspath("storage"),
            failure_config=FailureConfig(max_failures=max_failures),
        ),
    ).fit()


if __name__ == "__main__":
    options = common.arguments()
    train(train_fn, {"out": os.path.abspath(options.out), "folder": os.getcwd()}, max_failures=3)
