"""The scheduler of datasets alone, driven by simulated tasks: CPU time per event with 10 000 to
1 000 000 blocks on 1 000 nodes.

Blocks are read, processed by two stages, and consumed in order. Tasks end in a random order. There
are no rows and no processes, so that only the scheduler and the simulation take time. Microseconds
per event must not grow.
"""

import argparse
import random
import resource
import time
from collections import deque

from bench.programs import common
from syncline.data.execute import physical_plan as stages
from syncline.data.execute.messages import (
    BlockInfo,
    Deliver,
    Event,
    Finish,
    Launch,
    Produced,
    Resume,
    Started,
    Taken,
    TaskId,
)
from syncline.data.execute.scheduler import Scheduler

NODES, SLOTS_PER_NODE = 1000, 8
SIZES = (10_000, 100_000, 1_000_000)
BLOCK_BYTES, BLOCK_ROWS = 64 << 20, 1000
BLOCKS_PER_READ = 2


def pipeline(blocks: int) -> tuple[stages.Stage, ...]:
    """Return the stages: read, a function, and a function in actors."""
    actors = stages.Actors(min_size=1, max_size=NODES * SLOTS_PER_NODE, initial_size=1)
    return (
        stages.Stage(
            name="read", grouping=stages.SourceTasks(payloads=range(blocks // BLOCKS_PER_READ))
        ),
        stages.Stage(
            name="map", inputs=(0,), grouping=stages.BundleBlocks(), executor=stages.Workers()
        ),
        stages.Stage(name="predict", inputs=(1,), grouping=stages.BundleBlocks(), executor=actors),
    )


class Simulation:
    """An execution in which a random running task makes the next block."""

    def __init__(self, blocks: int) -> None:
        self.scheduler = Scheduler(pipeline(blocks), preserve_order=True, max_errored_blocks=0)
        self.random = random.Random(0)
        self.running: list[TaskId] = []
        self.left: dict[TaskId, int] = {}
        self.untaken = 0
        self.delivered = 0
        self.block = 0
        self.events = 0
        self.is_over = False

    def run(self) -> None:
        slots = NODES * SLOTS_PER_NODE
        self.handle(Started(slots=slots, budget_bytes=4 * slots * BLOCK_BYTES))
        while not self.is_over:
            for event in self.round():
                self.handle(event)

    def round(self) -> deque[Event]:
        """Return the next events: a block is made, and the consumer takes all delivered ones."""
        events: deque[Event] = deque(Taken() for _ in range(self.untaken))
        self.untaken = 0
        if self.running:
            index = self.random.randrange(len(self.running))
            task, self.running[index] = self.running[index], self.running[-1]
            self.running.pop()
            self.block += 1
            self.left[task] -= 1
            is_last = not self.left[task]
            if is_last:
                del self.left[task]
            events.append(
                Produced(
                    task=task, info=BlockInfo(self.block, BLOCK_ROWS, BLOCK_BYTES), is_last=is_last
                )
            )
        return events

    def handle(self, event: Event) -> None:
        self.events += 1
        for instruction in self.scheduler.handle(event):
            match instruction:
                case Launch(task=task):
                    self.left[task] = BLOCKS_PER_READ if task.stage == 0 else 1
                    self.running.append(task)
                case Resume(task=task):
                    self.running.append(task)
                case Deliver():
                    self.untaken += 1
                    self.delivered += 1
                case Finish():
                    self.is_over = True


def measure(blocks: int) -> tuple[float, float]:
    """Return events per second and microseconds per event, of CPU time."""
    simulation = Simulation(blocks)
    begin = time.process_time()
    simulation.run()
    seconds = time.process_time() - begin
    assert simulation.delivered == blocks, (
        f"{simulation.delivered} of {blocks} blocks were delivered"
    )
    return simulation.events / seconds, seconds / simulation.events * 1e6


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("library", nargs="?")
    parser.add_argument("--out")
    options = parser.parse_args()
    values: common.Values = {}
    for size in SIZES:
        per_s, each_us = measure(size)
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{size:>9} blocks: {per_s:9.0f} events/s, {each_us:5.1f} us per event, "
            f"peak {peak_mb:.0f} MB",
            flush=True,
        )
        values |= {
            f"events_per_s_{size}": per_s,
            f"event_us_{size}": each_us,
            f"peak_mb_{size}": peak_mb,
        }
    values["growth"] = values[f"event_us_{SIZES[-1]}"] / values[f"event_us_{SIZES[0]}"]
    if options.out:
        common.write(options.out, values)
