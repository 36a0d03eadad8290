"""Which nodes share tasks: a stage that is still being put together, and the work that one more
node wants of its tasks.

Work without user functions runs wherever the blocks are. Work with user functions goes into the
tasks before it, reads included, if those hold the same resources; it takes them from threads to
worker processes. Classes get actors of their own, since those keep what they constructed. Nothing
of a program's own goes into the tasks of an exchange, which may be a single one for all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from syncline.data.context import MIB, DataContext
from syncline.data.execute.chain import Chain, Head, Step
from syncline.data.execute.stages import (
    Actors,
    Aligned,
    Bundled,
    CutEvenly,
    Exchanged,
    Grouping,
    Lane,
    Listed,
    Shuffled,
    Stage,
    Threads,
    Workers,
)
from syncline.data.execute.steps.write import WriteStep
from syncline.data.plan.compute import (
    ActorPoolStrategy,
    ComputeStrategy,
    Resources,
    TaskPoolStrategy,
)
from syncline.data.plan.nodes import UserFunction

# Each step asks the one before it for blocks, and Python's stack ends at a thousand calls.
_MOST_STEPS = 100
# Rows of a task are passed on when there are so many bytes of them, later twice as many, and so on:
# so that the first batch comes soon.
_FIRST_BLOCK_BYTES = MIB


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a node wants of tasks: one step."""

    name: str
    step: Step
    lane: Lane = field(default_factory=Threads)
    """Where it has to run; `Threads()` is content with any place."""
    slots: float = 1.0
    keeps_rows: bool = False
    """Whether the step gives as many rows as it gets."""
    min_rows: int = 1
    """Rows that a task should have, for batches and files that are not smaller than asked for."""
    timeout_s: float | None = None
    in_program: bool = False
    """Whether it has to run in the process of the program."""

    @property
    def runs_anywhere(self) -> bool:
        """Whether it does not care where it runs."""
        return self.lane == Threads() and not self.in_program


@dataclass(kw_only=True)
class Draft:
    """A stage to which more may be added."""

    names: list[str]
    grouping: Grouping
    inputs: tuple[int, ...] = ()
    head: Head | None = None
    """None for stages without tasks."""
    steps: list[Step] = field(default_factory=list)
    lane: Lane = field(default_factory=Threads)
    slots: float = 1.0
    keeps_rows: bool = False
    timeout_s: float | None = None
    in_program: bool = False
    """Whether its tasks have to run in the process of the program."""
    whole_blocks: bool = False
    """Whether each task gives one block, whatever its size."""
    counted_blocks: bool = False
    """Whether the program asked for so many blocks, so that they do not begin small."""
    sealed: bool = False
    """Whether nothing may be added to its tasks."""
    rows_per_task: int | None = None
    """Rows that tasks have at least after all steps so far, but the last one; None where that is
    not known.
    """

    def take(self, work: Work) -> bool:
        """Add work, if its step may run in the same tasks."""
        lane = self._lane_with(work) if len(self.steps) < _MOST_STEPS else None
        if lane is None or not self._is_large_enough(work):
            return False
        if not work.runs_anywhere:
            self.slots = work.slots
            self.whole_blocks = False
        self.lane = lane
        self.add(work)
        return True

    def add(self, work: Work) -> None:
        """Add work to tasks that were made for it."""
        self.in_program = self.in_program or work.in_program
        self.names.append(work.name)
        self.steps.append(work.step)
        self.timeout_s = min(
            (limit for limit in (self.timeout_s, work.timeout_s) if limit is not None), default=None
        )
        if not work.keeps_rows:
            self.keeps_rows = False
            self.rows_per_task = None

    def _lane_with(self, work: Work) -> Lane | None:
        """Where the tasks run with this work; None if it does not belong there."""
        if self.head is None or self.sealed:
            return None
        if work.runs_anywhere:
            return self.lane
        if (
            isinstance(self.grouping, Exchanged)
            or isinstance(self.lane, Actors)
            or isinstance(work.lane, Actors)
        ):
            return None
        if (self.in_program or work.in_program) and not (
            isinstance(self.lane, Threads) and isinstance(work.lane, Threads)
        ):
            return None
        sizes = {self.lane.size, work.lane.size} - {None}
        if self.slots != work.slots or len(sizes) > 1:
            return None
        size = next(iter(sizes), None)
        if isinstance(work.lane, Threads):
            return replace(self.lane, size=size)
        of_tasks = self.lane if isinstance(self.lane, Workers) else Workers()
        if (
            needs(of_tasks.resources) != needs(work.lane.resources)
            or of_tasks.resources_fn is not work.lane.resources_fn
        ):
            return None
        return replace(work.lane, size=size)

    def _is_large_enough(self, work: Work) -> bool:
        """Whether tasks have the rows that the work asks for; where that is not known, they are
        taken as they are.
        """
        if (
            isinstance(self.grouping, Bundled)
            and self.keeps_rows
            and work.min_rows > self.grouping.min_rows
        ):
            self.grouping = Bundled(min_rows=work.min_rows)
        if isinstance(self.grouping, Bundled):
            return True
        if isinstance(self.grouping, Aligned | Exchanged):
            return work.min_rows <= 1
        is_single = isinstance(self.grouping, Listed) and len(self.grouping.payloads) <= 1
        return is_single or self.rows_per_task is None or self.rows_per_task >= work.min_rows

    @property
    def gathers(self) -> bool:
        """Whether it does nothing before all its input is there, or makes a file of each block:
        small blocks would be of no use to it.
        """
        return isinstance(self.grouping, Exchanged | CutEvenly | Shuffled) or any(
            isinstance(step, WriteStep) for step in self.steps
        )

    def stage(self, context: DataContext, block_bytes: int, *, begins_small: bool) -> Stage:
        """The finished stage. `begins_small`: whether the first rows of a task are wanted soon."""
        chain = None
        if self.head is not None:
            small = begins_small and not (
                self.whole_blocks or self.counted_blocks or isinstance(self.grouping, Exchanged)
            )
            chain = Chain(
                head=self.head,
                steps=tuple(self.steps),
                context=context,
                max_block_bytes=None if self.whole_blocks else block_bytes,
                first_block_bytes=_FIRST_BLOCK_BYTES if small else None,
                timeout_s=self.timeout_s,
            )
        return Stage(
            name="->".join(self.names),
            inputs=self.inputs,
            grouping=self.grouping,
            chain=chain,
            lane=self.lane,
            keeps_rows=self.keeps_rows,
            slots=self.slots,
        )


def function_lane(function: UserFunction, context: DataContext) -> tuple[Lane, float]:
    """Where a user function runs, and the CPUs that a task of it counts as."""
    compute = function.compute
    if function.is_class and not isinstance(compute, ActorPoolStrategy):
        compute = ActorPoolStrategy()
    lane = lane_of(compute, function.resources, context)
    if function.resources_fn is not None:
        lane = replace(lane, resources_fn=function.resources_fn)
    return lane, slots_of(function.resources, is_actor=isinstance(lane, Actors))


def lane_of(
    compute: ComputeStrategy | None, resources: Resources, context: DataContext
) -> Workers | Actors:
    """Worker processes for a strategy: shared ones, or actors."""
    if isinstance(compute, ActorPoolStrategy):
        return Actors(
            min_size=compute.min_size,
            max_size=compute.max_size,
            initial_size=compute.initial_size,
            in_flight=compute.max_tasks_in_flight_per_actor
            or context.max_tasks_in_flight_per_actor
            or 1,
            resources=resources,
        )
    return Workers(
        resources=resources, size=compute.size if isinstance(compute, TaskPoolStrategy) else None
    )


def slots_of(resources: Resources, *, is_actor: bool = False) -> float:
    """CPUs that a task counts as."""
    if resources.num_cpus is not None:
        return float(resources.num_cpus)
    return 0.0 if is_actor and resources.num_gpus else 1.0


def needs(resources: Resources) -> Resources:
    """Resources without the CPUs, which slots count: what a process has to have been started
    with.
    """
    return replace(resources, num_cpus=None)
