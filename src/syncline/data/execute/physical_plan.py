"""The physical plan: the stages of an execution, and the work of their tasks.

A logical plan is lowered to a tuple of stages, inputs before their readers. The output of the last
stage is the output of the execution. The output of each stage is a sequence of blocks in a fixed
order: tasks are numbered in the order of their input, and the blocks of a task keep their order.

Covered: chains (the work of a task), groupings (which tasks a stage has), executor kinds (where
tasks run), and the CPUs and bytes that blocks are sized for. Not covered: running the plan.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from syncline.core import api
from syncline.core.cgroups import machine_limits
from syncline.data.columnar.kernels.partition import Partitioned
from syncline.data.context import MIB, DataContext
from syncline.data.execute.block_store import OutputBlock
from syncline.data.iterate.position import Restart, RestartPoint
from syncline.data.plan.compute import Resources
from syncline.data.plan.nodes import HeldBlock
from syncline.records import dataclass

# -- the work of a task

Payload: TypeAlias = Any
"""Input of a source task: a `ReadTask` or a `HeldBlock`; None for other tasks."""
Ports = Sequence[Sequence[pa.Table]]
"""Input tables of a task: one sequence per input of the stage, already cut to the task's rows."""
Prepared: TypeAlias = Any
"""Result of `ExchangeRows.prepare`; only the partition functions of the same exchange read it."""


@dataclass(frozen=True, kw_only=True)
class SkippedRows:
    """Rows left out because a user function with `on_error="skip"` failed on them."""

    operator: str
    first_row: int
    """Number of the first row, counted among the rows that the step received in this task."""
    rows: int
    error: str
    """Type and message in one line."""


@dataclass(kw_only=True)
class TaskState:
    """Identity and statistics of a running task. Not thread-safe."""

    stage: str = ""
    task: int = 0
    """Number of the task in its stage. Retries and resumed executions use the same number."""
    seed: int = 0
    """Seed of the execution."""
    epoch: int = 0
    skipped: list[SkippedRows] = field(default_factory=list)
    read_s: float = 0.0
    """Seconds spent in the head, which reads or assembles the input."""
    function_s: float = 0.0
    """Seconds spent in user functions."""
    in_call: tuple[str, float, int, int] | None = None
    """(step, start on `time.monotonic`, first row, rows) of the current call of a user function;
    read by the watchdog.
    """
    timed_out_calls: frozenset[tuple[str, int]] = frozenset()
    """(step, first row) of calls that timed out in an earlier attempt; they are skipped."""


def rows_text(first_row: int, rows: int) -> str:
    """Format row numbers: "row 3" or "rows 3 to 5"."""
    return f"row {first_row}" if rows == 1 else f"rows {first_row} to {first_row + rows - 1}"


Head: TypeAlias = Callable[[Ports, Payload, TaskState], Iterator[pa.Table]]
"""First element of a chain: produces tables from the input of a task."""


class Step:
    """Transformation of a stream of blocks.

    Pickled before `open`. A process opens a step once and then runs one task at a time with it.
    """

    name: str = ""

    def open(self) -> None:
        """Prepare for the first task of this process, for example construct the user's object."""

    def run(self, blocks: Iterator[pa.Table], task: TaskState) -> Iterator[pa.Table]:
        """Yield the transformed blocks lazily."""
        raise NotImplementedError

    def close(self) -> None:
        """Release resources after the last task of the execution in this process."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """Block produced by a task."""

    table: pa.Table
    is_last: bool
    """True if the task is known to produce no further block."""


@dataclass(frozen=True, kw_only=True)
class Chain:
    """Work of the tasks of a stage. Pickled once per execution."""

    head: Head
    steps: tuple[Step, ...] = ()
    context: DataContext
    """Settings of the dataset; current while a task runs."""
    max_block_bytes: int | None = None
    """Target size of blocks: larger blocks are split, smaller blocks of a task are combined."""
    first_block_bytes: int | None = None
    """Target size of the first block of a task. The target doubles with each block up to
    `max_block_bytes`. None starts with `max_block_bytes`.
    """
    max_block_rows: int | None = None
    timeout_s: float | None = None
    """Shortest time limit of the user functions in the chain."""


class CacheWriter(Protocol):
    """Writer that stores the blocks of one stage for later executions.

    Belongs to one execution and is used by one thread at a time. `begin` comes first, then `add`
    for each block in order, then either `complete` or `discard`.
    """

    @property
    def needs_store(self) -> bool:
        """True if `add` requires blocks in the object store."""
        ...

    def begin(self) -> None:
        """Prepare before the execution starts."""
        ...

    def add(self, block: OutputBlock) -> None:
        """Add the next block."""
        ...

    def complete(self) -> None:
        """Publish the blocks: all of them were added."""
        ...

    def discard(self) -> None:
        """Drop the blocks: the execution ended early."""
        ...


# -- where tasks run


@dataclass(frozen=True, kw_only=True)
class Threads:
    """Threads of the driver's process. Arrow kernels and native decoders release the GIL."""

    size: int | None = None
    """Maximum number of concurrent tasks; None for the number of slots."""


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Worker processes shared by several stages."""

    resources: Resources = field(default_factory=Resources)
    resources_fn: Callable[[], Any] | None = None
    """Returns further actor options; called when a worker starts."""
    size: int | None = None
    """Maximum number of concurrent tasks; None for the number of slots."""


@dataclass(frozen=True, kw_only=True)
class Actors:
    """Pool of worker processes of one stage. Each keeps the user's object between tasks."""

    min_size: int
    max_size: int | None
    initial_size: int
    in_flight: int = 1
    """Maximum number of tasks assigned to one actor at the same time."""
    resources: Resources = field(default_factory=Resources)
    resources_fn: Callable[[], Any] | None = None


ExecutorKind: TypeAlias = Threads | Workers | Actors


# -- groupings: how the blocks of the inputs become tasks, or pass through


@dataclass(frozen=True, kw_only=True)
class SourceTasks:
    """Tasks known in advance, without inputs. Task `i` receives `payloads[i]`."""

    payloads: Sequence[Payload]
    done: frozenset[int] = frozenset()
    """Numbers of tasks whose output is not needed; they are skipped."""


@dataclass(frozen=True, kw_only=True)
class SourceBlocks:
    """Existing blocks, passed on unchanged. No inputs, no tasks."""

    blocks: Sequence[HeldBlock]


@dataclass(frozen=True, kw_only=True)
class BundleBlocks:
    """One task per bundle of whole blocks with at least `min_rows` rows and `min_bytes` bytes in
    total. An empty block joins the next bundle.
    """

    min_rows: int = 1
    min_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class RebatchRows:
    """One task per `rows` rows; the last task has the remainder.

    With `strict`, tasks span blocks. Otherwise tasks stay within a block and may be smaller.
    """

    rows: int
    strict: bool


@dataclass(frozen=True, kw_only=True)
class RepartitionRows:
    """All rows, split into `parts` tasks of about equal size after the input has ended."""

    parts: int


@dataclass(frozen=True, kw_only=True)
class LimitRows:
    """Pass on the first `rows` rows, then abandon the inputs. No tasks; slices the last block."""

    rows: int


@dataclass(frozen=True, kw_only=True)
class TeeBlocks:
    """Pass on all blocks in order and copy them to a cache writer. No tasks."""

    writer: CacheWriter | None
    """Receives the blocks; None to store nothing."""


@dataclass(frozen=True, kw_only=True)
class UnionInputs:
    """Pass on the blocks of the first input, then those of the second, and so on. No tasks."""


@dataclass(frozen=True, kw_only=True)
class ShuffleBlocks:
    """Pass on all blocks in an order drawn from `seed`, after the input has ended. No tasks."""

    seed: int


@dataclass(frozen=True, kw_only=True)
class ZipInputs:
    """One task per range of rows that no block boundary of any input divides; one port per input.

    Fails with a ValueError that names both row counts if the inputs differ in length.
    """


@dataclass(frozen=True, kw_only=True)
class MixInputs:
    """Interleave the blocks of the inputs so that row counts follow the weights. No tasks.

    The choice of the next input depends on the rows already passed on, never on time. With
    `until_shortest`, the end of any input ends the output; otherwise the other inputs continue.
    """

    weights: tuple[float, ...]
    until_shortest: bool


@dataclass(frozen=True, kw_only=True)
class ExchangeRows:
    """Exchange rows all-to-all: partition each block, then run one task per partition.

    Each task has one port per input. The scheduler collects the input until it ends. If the input
    has at most `direct_bytes`, there is a single partition: `prepare` and `partition` are skipped
    and the only task receives the blocks. Otherwise `sample` runs on every block, and `prepare`
    turns the samples (in order) and the number of partitions into the value that `partition`
    needs. Without `sample`, blocks are partitioned as they arrive, once they exceed
    `direct_bytes`.
    """

    partition: tuple[Callable[[pa.Table, int, Prepared, int], Partitioned], ...]
    """One pure, picklable function per input: (table, number of partitions, prepared value, block
    number) -> rows by partition.
    """
    parts: int | None
    """Number of partitions requested by the user; applies to small inputs as well."""
    default_parts: int
    """Number of partitions if the user requested none."""
    direct_bytes: int
    sample: Callable[[pa.Table, int], pa.Table] | None = None
    """(table, block number) -> a small table."""
    prepare: Callable[[Sequence[pa.Table], int], Prepared] | None = None
    """(samples, number of partitions) -> prepared value."""
    executor: ExecutorKind = field(default_factory=Threads)
    """Executor of the sampling and partitioning tasks."""


Grouping: TypeAlias = (
    SourceTasks
    | SourceBlocks
    | BundleBlocks
    | RebatchRows
    | RepartitionRows
    | LimitRows
    | TeeBlocks
    | UnionInputs
    | ShuffleBlocks
    | ZipInputs
    | MixInputs
    | ExchangeRows
)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Operator of a physical plan."""

    name: str
    """Display name; the names of fused nodes are joined with "->"."""
    inputs: tuple[int, ...] = ()
    """Numbers of the input stages, one per port."""
    grouping: Grouping
    chain: Chain | None = None
    """Work of the tasks; None for a stage without tasks."""
    executor: ExecutorKind = field(default_factory=Threads)
    keeps_rows: bool = False
    """True if a task outputs as many rows as it receives; a downstream limit then stops early."""
    slots: float = 1.0
    """CPUs reserved by one task."""


def held_blocks(stages: Sequence[Stage]) -> list[HeldBlock]:
    """Return the blocks of all `SourceBlocks` stages; pieces refer to them by negative index."""
    return [
        block
        for stage in stages
        if isinstance(stage.grouping, SourceBlocks)
        for block in stage.grouping.blocks
    ]


# The blocks that tasks are producing and the blocks that wait for the next operator have to fit
# into the budget several times.
_BLOCKS_IN_BUDGET_PER_CPU = 4


@dataclass(frozen=True, kw_only=True)
class ExecutionLimits:
    """CPUs and bytes that the blocks of an execution are sized for."""

    cpus: int
    budget_bytes: int

    def block_bytes(self, context: DataContext) -> int:
        """Return the size at which a task begins a new block."""
        fitting = max(MIB, self.budget_bytes // (_BLOCKS_IN_BUDGET_PER_CPU * self.cpus))
        return (
            fitting
            if context.target_max_block_size is None
            else min(context.target_max_block_size, fitting)
        )

    def to_list(self) -> list[int]:
        """Return a JSON form."""
        return [self.cpus, self.budget_bytes]


def limits_for(context: DataContext) -> ExecutionLimits:
    """Return the limits of executions on this machine or cluster: all CPUs and the memory budget.

    Without a limit in the options, the budget is a quarter of the machine's memory.
    """
    limits = context.execution_options.resource_limits
    cpus = min(api.cluster_resources().get("CPU", 1), limits.cpu)
    budget = limits.object_store_memory
    return ExecutionLimits(
        cpus=max(1, int(cpus)),
        budget_bytes=_memory_bytes() // 4 if math.isinf(budget) else max(MIB, int(budget)),
    )


@functools.cache
def _memory_bytes() -> int:
    """Return the memory of the machine. Cached, because reading it is slow."""
    return machine_limits().memory_bytes


@dataclass(frozen=True, kw_only=True)
class PhysicalPlan:
    """Everything that an execution needs to know."""

    stages: tuple[Stage, ...]
    context: DataContext
    limits: ExecutionLimits
    seed: int
    epoch: int = 0
    first_row: int = 0
    """Number of the first row of the output."""
    point: RestartPoint = None
    """Restart point of the scheduler; None starts at the beginning."""
    caches: tuple[Any, ...] = ()
    """JSON state of the caches of the logical plan, see `cache.CacheUses`."""
    name: str = ""
    is_pass: bool = False
    """True if the execution delivers an epoch to an iterator; False for look-ups."""
    describe: Callable[[], str] | None = None
    """Returns the plan as text."""

    def restart_at(self, point: RestartPoint) -> list[Any]:
        """Return the value of `Restart.point` for a restart point of the scheduler."""
        return restart_point(self.limits, point, self.caches)


def restart_point(
    limits: ExecutionLimits, point: RestartPoint, caches: tuple[Any, ...]
) -> list[Any]:
    """Return the JSON value of `Restart.point`.

    It holds the restart point of the scheduler and everything besides seed and epoch that the
    blocks depend on.
    """
    return [*limits.to_list(), point, *([list(caches)] if caches else [])]


def point_of(restart: Restart) -> RestartPoint:
    """Return the restart point of the scheduler."""
    _cpus, _budget_bytes, point, *_caches = restart.point
    return point


def stages_to_store(stages: Sequence[Stage]) -> frozenset[int]:
    """Return the numbers of the stages whose blocks go to the object store.

    Worker processes read them from there. Blocks that an operator collects go there too, because
    the object store spills to disk what does not fit into memory.
    """
    wanted: set[int] = set()
    for number in reversed(range(len(stages))):
        stage = stages[number]
        grouping = stage.grouping
        executor = grouping.executor if isinstance(grouping, ExchangeRows) else stage.executor
        passes_on = isinstance(
            grouping, LimitRows | TeeBlocks | UnionInputs | MixInputs | ShuffleBlocks
        )
        holds = isinstance(
            grouping, ExchangeRows | RepartitionRows | ShuffleBlocks
        ) or _keeps_in_store(grouping)
        if (
            holds
            or (passes_on and number in wanted)
            or (not passes_on and isinstance(executor, Workers | Actors))
        ):
            wanted.update(stage.inputs)
    return frozenset(
        number for number in wanted if not isinstance(stages[number].grouping, SourceBlocks)
    )


def _keeps_in_store(grouping: Grouping) -> bool:
    return (
        isinstance(grouping, TeeBlocks)
        and grouping.writer is not None
        and grouping.writer.needs_store
    )
