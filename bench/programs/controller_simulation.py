"""The training controller alone, driven by simulated workers: 100 to 10 000 ranks that report,
meet, fail, and come in other numbers.

What its instructions ask for is answered at once, so all the time is the state machine's and the
simulation's own. Microseconds per event and bytes per rank have to stay flat.
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
"""Of a round, to be broken by the death of a rank."""


class Simulation:
    """A run whose ranks all do the same, in another order in every round."""

    def __init__(self, ranks: int) -> None:
        limits = Limits(report_s=60, collective_s=60, resize_s=60)
        self.machine = TrainStateMachine(
            budgets=FailureBudgets(FailureConfig(max_failures=-1)), limits=limits
        )
        self.ranks = ranks
        self.random = random.Random(0)
        self.attempt = self.world_size = self.next_index = self.meeting = 0
        self.events = self.committed = self.failures = self.resizes = 0
        self.waiting: list[Event] = []

    def run(self) -> None:
        """Rounds until enough has happened, then the end."""
        self.tell(events.RunStarted(next_index=0))
        number = 0
        while self.events < LEAST_EVENTS or number < LEAST_ROUNDS:
            number += 1
            for event in self.round(number):
                self.tell(event)
        for rank in range(self.world_size):
            self.say(rank, Finished(return_value=None))
        assert self.machine.state is State.FINISHED, self.machine.history

    def round(self, number: int) -> Iterator[Event]:
        """All ranks report, or meet; sometimes one dies half-way, or there is room for other
        numbers of ranks.
        """
        attempt, world_size = self.attempt, self.world_size
        order = self.random.sample(range(world_size), world_size)
        victim = self.random.choice(order) if self.random.random() < FAILURE_CHANCE else None
        if number % (2 * ROUNDS_PER_CHECKPOINT) == 0:
            yield events.TimerFired(name=RESIZE_TIMER)
        index, meeting = self.next_index, self.meeting
        part = (
            CheckpointPart(dir_name="c", staged="s")
            if number % ROUNDS_PER_CHECKPOINT == 0
            else None
        )
        for rank in order:
            if self.attempt != attempt:
                return  # the group has ended, and another one has begun
            if rank == victim:
                self.failures += 1
                yield events.StreamEnded(
                    attempt=attempt,
                    rank=rank,
                    failure=WorkerFailure(exception=RuntimeError("killed"), died=True),
                )
            elif number % 3 == 0:
                yield self.said(
                    rank, BarrierReached(sequence=meeting, data=b"" if rank == 0 else None)
                )
            else:
                self.next_index = index + 1
                yield self.said(
                    rank, Reported(index=index, metrics={"loss": 1.0}, time=0.0, part=part)
                )
        if self.attempt == attempt:
            self.meeting += number % 3 == 0

    def said(self, rank: int, message: StateMessage) -> Event:
        return events.MessageReceived(attempt=self.attempt, rank=rank, message=message)

    def say(self, rank: int, message: StateMessage) -> None:
        self.tell(self.said(rank, message))

    def tell(self, event: Event) -> None:
        """An event, and what is answered to the instructions that follow from it."""
        self.waiting.append(event)
        while self.waiting:
            self.events += 1
            for instruction in self.machine.handle(self.waiting.pop()):
                self.answer(instruction)

    def answer(self, instruction: Instruction) -> None:
        match instruction:
            case events.Reserve():
                size = self.random.randint(self.ranks // 2, self.ranks)
                self.waiting.append(events.Reserved(world_size=size))
            case events.StartGroup():
                self.attempt, self.world_size, self.next_index = (
                    instruction.attempt,
                    instruction.world_size,
                    instruction.first_index,
                )
                self.meeting = 0
                self.waiting.append(events.GroupStarted(attempt=self.attempt))
            case events.CheckCapacity():
                self.waiting.append(
                    events.CapacityChanged(
                        attempt=self.attempt,
                        workers=self.random.randint(self.ranks // 2, self.ranks),
                    )
                )
            case events.DrainWorkers():
                self.waiting.extend(
                    events.StreamEnded(attempt=self.attempt, rank=rank)
                    for rank in instruction.ranks
                )
            case events.StopGroup():
                self.waiting.append(events.GroupStopped(attempt=instruction.attempt))
            case events.DrainValidations():
                self.waiting.append(events.ValidationsEnded())
            case events.CompleteRound():
                self.committed += bool(instruction.report.parts)
            case events.NotifyResize():
                self.resizes += 1


def measure(ranks: int) -> tuple[float, float, Simulation]:
    """Microseconds of CPU time per event, and bytes per rank at the end."""
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
            f"({run.events} events, {run.committed} checkpoints, {run.failures} failures, {run.resizes} resizes)",
            flush=True,
        )
        values |= {f"event_us_{size}": each_us, f"bytes_per_rank_{size}": each_bytes}
    values["growth"] = values[f"event_us_{SIZES[-1]}"] / values[f"event_us_{SIZES[0]}"]
    if options.out:
        common.write(options.out, values)
