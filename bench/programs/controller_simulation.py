"""The training controller alone, driven by 100 to 10 000 simulated ranks that report, reach
barriers, fail and change in number.

The simulation answers each instruction immediately, so that only the state machine and the
simulation take time. Microseconds per event and bytes per rank must not grow.
"""

import argparse
import random
import time
import tracemalloc
from collections.abc import Iterator

from bench.programs import common
from syncline.train.config import FailureConfig
from syncline.train.controller import events
from syncline.train.controller.attempt import FailureBudgets, WorkerFailure
from syncline.train.controller.events import Event, Instruction
from syncline.train.controller.state import TrainStateMachine
from syncline.train.controller.transitions import RESIZE_TIMER, Limits, State
from syncline.train.workers.messages import (
    BarrierReached,
    CheckpointPart,
    Finished,
    Reported,
    StateMessage,
)

SIZES = (100, 1_000, 10_000)
LEAST_EVENTS, LEAST_ROUNDS = 400_000, 200
ROUNDS_PER_CHECKPOINT = 5
FAILURE_CHANCE = 0.05
"""Probability that a rank dies in a round."""


class Simulation:
    """A run in which every rank takes the same steps, in a random order in each round."""

    def __init__(self, ranks: int) -> None:
        limits = Limits(report_s=60, collective_s=60, resize_s=60)
        self.machine = TrainStateMachine(
            budgets=FailureBudgets(FailureConfig(max_failures=-1)), limits=limits
        )
        self.ranks = ranks
        self.random = random.Random(0)
        self.attempt = self.world_size = self.next_index = self.sequence = 0
        self.events = self.committed = self.failures = self.resizes = 0
        self.pending: list[Event] = []

    def run(self) -> None:
        """Run rounds until there are enough events, then finish all ranks."""
        self.handle(events.RunStarted(next_index=0))
        number = 0
        while self.events < LEAST_EVENTS or number < LEAST_ROUNDS:
            number += 1
            for event in self.round(number):
                self.handle(event)
        for rank in range(self.world_size):
            self.handle(self.message(rank, Finished(return_value=None)))
        assert self.machine.state is State.FINISHED, self.machine.history

    def round(self, number: int) -> Iterator[Event]:
        """Yield a report or a barrier of all ranks; in some rounds a rank dies or the capacity
        changes.
        """
        attempt, world_size = self.attempt, self.world_size
        order = self.random.sample(range(world_size), world_size)
        victim = self.random.choice(order) if self.random.random() < FAILURE_CHANCE else None
        if number % (2 * ROUNDS_PER_CHECKPOINT) == 0:
            yield events.TimerFired(name=RESIZE_TIMER)
        index, sequence = self.next_index, self.sequence
        part = (
            CheckpointPart(dir_name="c", staged="s")
            if number % ROUNDS_PER_CHECKPOINT == 0
            else None
        )
        for rank in order:
            if self.attempt != attempt:
                return  # another worker group has started
            if rank == victim:
                self.failures += 1
                yield events.StreamEnded(
                    attempt=attempt,
                    rank=rank,
                    failure=WorkerFailure(exception=RuntimeError("killed"), died=True),
                )
            elif number % 3 == 0:
                yield self.message(
                    rank, BarrierReached(sequence=sequence, data=b"" if rank == 0 else None)
                )
            else:
                self.next_index = index + 1
                yield self.message(
                    rank, Reported(index=index, metrics={"loss": 1.0}, time=0.0, part=part)
                )
        if self.attempt == attempt:
            self.sequence += number % 3 == 0

    def message(self, rank: int, message: StateMessage) -> Event:
        return events.MessageReceived(attempt=self.attempt, rank=rank, message=message)

    def handle(self, event: Event) -> None:
        """Handle an event, and the answers to the instructions that follow."""
        self.pending.append(event)
        while self.pending:
            self.events += 1
            for instruction in self.machine.handle(self.pending.pop()):
                self.answer(instruction)

    def answer(self, instruction: Instruction) -> None:
        match instruction:
            case events.Reserve():
                size = self.random.randint(self.ranks // 2, self.ranks)
                self.pending.append(events.Reserved(world_size=size))
            case events.StartGroup():
                self.attempt, self.world_size, self.next_index = (
                    instruction.attempt,
                    instruction.world_size,
                    instruction.first_index,
                )
                self.sequence = 0
                self.pending.append(events.GroupStarted(attempt=self.attempt))
            case events.CheckCapacity():
                self.pending.append(
                    events.CapacityChanged(
                        attempt=self.attempt,
                        workers=self.random.randint(self.ranks // 2, self.ranks),
                    )
                )
            case events.DrainWorkers():
                self.pending.extend(
                    events.StreamEnded(attempt=self.attempt, rank=rank)
                    for rank in instruction.ranks
                )
            case events.StopGroup():
                self.pending.append(events.GroupStopped(attempt=instruction.attempt))
            case events.DrainValidations():
                self.pending.append(events.ValidationsEnded())
            case events.CompleteRound():
                self.committed += bool(instruction.report.parts)
            case events.NotifyResize():
                self.resizes += 1


def measure(ranks: int) -> tuple[float, float, Simulation]:
    """Return microseconds of CPU time per event, and bytes per rank at the end."""
    simulation = Simulation(ranks)
    begin = time.process_time()
    simulation.run()
    seconds = time.process_time() - begin
    tracemalloc.start()
    traced = Simulation(ranks)
    traced.run()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return seconds / simulation.events * 1e6, held / ranks, simulation


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("library", nargs="?")
    parser.add_argument("--out")
    options = parser.parse_args()
    values: common.Values = {}
    for size in SIZES:
        each_us, each_bytes, run = measure(size)
        print(
            f"{size:>6} ranks: {each_us:5.2f} us per event, {each_bytes:6.0f} bytes per rank "
            f"({run.events} events, {run.committed} checkpoints, {run.failures} failures, "
            f"{run.resizes} resizes)",
            flush=True,
        )
        values |= {f"event_us_{size}": each_us, f"bytes_per_rank_{size}": each_bytes}
    values["growth"] = values[f"event_us_{SIZES[-1]}"] / values[f"event_us_{SIZES[0]}"]
    if options.out:
        common.write(options.out, values)
