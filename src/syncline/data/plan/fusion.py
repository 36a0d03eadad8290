"""Fusion: decide which nodes share tasks. A stage draft collects the steps of several nodes.

Steps without user functions run in the tasks of any stage. Steps with user functions join the
tasks before them, reads included, if those need the same resources; this moves the tasks from
threads to worker processes. Classes get actors of their own, which keep the instances. User
functions never join the tasks of an exchange, which may be a single task for all rows.
"""

from __future__ import annotations

from dataclasses import field, replace

from syncline.data.context import MIB, DataContext
from syncline.data.execute.physical_plan import (
    Actors,
    BundleBlocks,
    Chain,
    ExchangeRows,
    ExecutorKind,
    Grouping,
    Head,
    RepartitionRows,
    ShuffleBlocks,
    SourceTasks,
    Stage,
    Step,
    Threads,
    Workers,
    ZipInputs,
)
from syncline.data.execute.steps.block_steps import WriteStep
from syncline.data.plan.compute import (
    ActorPoolStrategy,
    ComputeStrategy,
    Resources,
    TaskPoolStrategy,
)
from syncline.data.plan.nodes import UserFunction
from syncline.records import dataclass

# Each step pulls blocks from the previous one, and Python's stack is limited to a thousand calls.
_MAX_STEPS = 100
# Size of the first output block of a task, so that the first batch is available early. Later blocks
# double in size.
_FIRST_BLOCK_BYTES = MIB


@dataclass(frozen=True, kw_only=True)
class StepRequest:
    """A step of a node, and the requirements on the tasks that run it."""

    name: str
    step: Step
    executor: ExecutorKind = field(default_factory=Threads)
    """Required executor; `Threads()` allows any executor."""
    slots: float = 1.0
    keeps_rows: bool = False
    """True if the step returns as many rows as it gets."""
    min_rows: int = 1
    """Minimum number of rows in a task, so that batches and files have their requested size."""
    min_bytes: int = 0
    """Minimum number of bytes that a task passes to the step."""
    timeout_s: float | None = None
    in_driver: bool = False
    """True if the step must run in the driver process."""

    @property
    def runs_anywhere(self) -> bool:
        """True if any executor can run the step."""
        return self.executor == Threads() and not self.in_driver


@dataclass(kw_only=True)
class StageDraft:
    """A stage that steps can be added to."""

    names: list[str]
    grouping: Grouping
    inputs: tuple[int, ...] = ()
    head: Head | None = None
    """None for stages without tasks."""
    steps: list[Step] = field(default_factory=list)
    executor: ExecutorKind = field(default_factory=Threads)
    slots: float = 1.0
    keeps_rows: bool = False
    timeout_s: float | None = None
    in_driver: bool = False
    """True if the tasks must run in the driver process."""
    whole_blocks: bool = False
    """True if each task returns exactly one block, of any size."""
    fixed_block_count: bool = False
    """True if the program requested a number of blocks, so that the first ones are not smaller."""
    sealed: bool = False
    """True if no step may be added to the tasks."""
    rows_per_task: int | None = None
    """Minimum number of output rows of all tasks but the last; None if unknown."""

    def try_add(self, request: StepRequest) -> bool:
        """Add a step if it can run in the same tasks; return False otherwise."""
        executor = self._executor_with(request) if len(self.steps) < _MAX_STEPS else None
        if executor is None or not self._has_enough_rows(request):
            return False
        if not request.runs_anywhere:
            self.slots = request.slots
            self.whole_blocks = False
        self.executor = executor
        self.add(request)
        return True

    def add(self, request: StepRequest) -> None:
        """Add a step whose requirements the tasks meet."""
        self.in_driver = self.in_driver or request.in_driver
        self.names.append(request.name)
        self.steps.append(request.step)
        timeouts = [limit for limit in (self.timeout_s, request.timeout_s) if limit is not None]
        self.timeout_s = min(timeouts, default=None)
        if not request.keeps_rows:
            self.keeps_rows = False
            self.rows_per_task = None

    def _executor_with(self, request: StepRequest) -> ExecutorKind | None:
        """Return the executor of the tasks with this step; None if they cannot run it."""
        if self.head is None or self.sealed:
            return None
        if request.runs_anywhere:
            return self.executor
        if (
            isinstance(self.grouping, ExchangeRows)
            or isinstance(self.executor, Actors)
            or isinstance(request.executor, Actors)
        ):
            return None
        if (self.in_driver or request.in_driver) and not (
            isinstance(self.executor, Threads) and isinstance(request.executor, Threads)
        ):
            return None
        sizes = {self.executor.size, request.executor.size} - {None}
        if self.slots != request.slots or len(sizes) > 1:
            return None
        size = next(iter(sizes), None)
        if isinstance(request.executor, Threads):
            return replace(self.executor, size=size)
        workers = self.executor if isinstance(self.executor, Workers) else Workers()
        if (
            without_cpus(workers.resources) != without_cpus(request.executor.resources)
            or workers.resources_fn is not request.executor.resources_fn
        ):
            return None
        return replace(request.executor, size=size)

    def _has_enough_rows(self, request: StepRequest) -> bool:
        """Return True if the tasks have the required rows, or an unknown number of rows. Raises the
        bundle size if that is enough. The bytes of the last step are never known.
        """
        is_single = isinstance(self.grouping, SourceTasks) and len(self.grouping.payloads) <= 1
        if request.min_bytes:
            return is_single
        if isinstance(self.grouping, BundleBlocks):
            if self.keeps_rows and request.min_rows > self.grouping.min_rows:
                self.grouping = BundleBlocks(min_rows=request.min_rows)
            return True
        if isinstance(self.grouping, ZipInputs | ExchangeRows):
            return request.min_rows <= 1
        return is_single or self.rows_per_task is None or self.rows_per_task >= request.min_rows

    @property
    def prefers_large_blocks(self) -> bool:
        """True if small first blocks have no use: the stage needs all of its input, or writes each
        block to a file.
        """
        return isinstance(self.grouping, ExchangeRows | RepartitionRows | ShuffleBlocks) or any(
            isinstance(step, WriteStep) for step in self.steps
        )

    def stage(self, context: DataContext, block_bytes: int, *, small_first_block: bool) -> Stage:
        """Return the finished stage. `small_first_block`: the first rows of a task are needed
        early.
        """
        chain = None
        if self.head is not None:
            small = small_first_block and not (
                self.whole_blocks
                or self.fixed_block_count
                or isinstance(self.grouping, ExchangeRows)
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
            executor=self.executor,
            keeps_rows=self.keeps_rows,
            slots=self.slots,
        )


def function_executor(function: UserFunction, context: DataContext) -> tuple[ExecutorKind, float]:
    """Return the executor of a user function and the CPUs that its tasks count as."""
    compute = function.compute
    if function.is_class and not isinstance(compute, ActorPoolStrategy):
        compute = ActorPoolStrategy()
    executor = worker_executor(compute, function.resources, context)
    if function.resources_fn is not None:
        executor = replace(executor, resources_fn=function.resources_fn)
    return executor, task_slots(function.resources, is_actor=isinstance(executor, Actors))


def worker_executor(
    compute: ComputeStrategy | None, resources: Resources, context: DataContext
) -> Workers | Actors:
    """Return the worker processes for a strategy: shared workers, or actors."""
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


def task_slots(resources: Resources, *, is_actor: bool = False) -> float:
    """Return the CPUs that a task counts as."""
    if resources.num_cpus is not None:
        return float(resources.num_cpus)
    return 0.0 if is_actor and resources.num_gpus else 1.0


def without_cpus(resources: Resources) -> Resources:
    """Return the resources that a process must be started with; slots count CPUs."""
    return replace(resources, num_cpus=None)
