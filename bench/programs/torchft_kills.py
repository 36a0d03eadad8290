"""Goodput of a training whose replicas are killed with SIGKILL at random moments: Ray with
`TorchftConfig`, torchft's `Manager` and Gloo.

The kills are those of `kills`: a random one of two replicas kills itself a random time after both
have begun to train together. The survivor trains alone meanwhile, so a step counts by the share of
the replicas that took part. Steps that torchft discards count as repeated. The replicas have random
batches, so samples and weights are not compared.
"""

import itertools
import os
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

import ray

from bench.programs import common
from bench.programs.kills import RANKS, die_later
from bench.programs.torchft_recovery import STEPS_TO_END, Replica, train
from bench.rows.train import KILLS


class Step(NamedTuple):
    """One line of the log of a replica."""

    number: int
    at: float
    participants: int
    is_made: bool


def train_fn(config: dict[str, Any]) -> None:
    os.chdir(config["folder"])
    rank, killed, end = ray.train.get_context().get_world_rank(), Path("killed"), Path("end")
    log = os.open(f"steps-{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    replica, planned = Replica(rank), -1
    while not end.exists() or replica.manager.current_step() < int(end.read_text()):
        is_made, together = replica.step(), replica.takes_part_with_other
        step = replica.manager.current_step()
        line = f"{step} {time.monotonic()} {RANKS if together else 1} {int(is_made)}\n"
        os.write(log, line.encode())
        number = len(list(killed.iterdir()))
        if not is_made or not together or number == planned:
            continue
        planned = number
        die_later(killed, rank)
        if number >= KILLS and rank == 0:
            Path("ends").write_text(str(step + STEPS_TO_END))
            os.rename("ends", end)
    replica.manager.shutdown()


def made(rank: int) -> list[Step]:
    """Return the steps of a replica in the order in which it tried them."""
    lines = [line.split() for line in Path(f"steps-{rank}").read_text().splitlines()]
    return [Step(int(n), float(at), int(count), kept == "1") for n, at, count, kept in lines]


def values() -> common.Values:
    """Return the result of the training."""
    logs = [made(rank) for rank in range(RANKS)]
    steps = [step for log in logs for step in log]
    step_s = statistics.median(
        b.at - a.at
        for log in logs
        for a, b in itertools.pairwise(log)
        if a.participants == b.participants == RANKS and b.number == a.number + 1
    )
    kept: dict[int, int] = {}
    for step in steps:
        if step.is_made:
            kept[step.number] = max(step.participants, kept.get(step.number, 0))
    useful_s = sum(kept.values()) / RANKS * step_s
    lasted_s = max(step.at for step in steps) - min(step.at for step in steps) + step_s
    return {
        "goodput": 100.0 * useful_s / lasted_s,
        "lost_s": (lasted_s - useful_s) / KILLS,
        "repeated": sum(not step.is_made for step in steps) / RANKS / KILLS,
        "steps": float(len(kept)),
    }


if __name__ == "__main__":
    options = common.arguments()
    Path("killed").mkdir()
    train(train_fn, {"folder": os.getcwd()}, max_failures=2 * KILLS)
    common.write(options.out, values())
