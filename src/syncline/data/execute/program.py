"""What one task does: a head that makes blocks of the task's input, steps that change them one
after the other, and a shaper of blocks.

A chain is pickled once per execution and runs in a thread or in a worker process; it knows nothing
of stages, engines or schedulers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from syncline.core import api
from syncline.core.limits import machine_limits
from syncline.data.columnar.kernels.partition import Partitioned
from syncline.data.context import MIB, DataContext
from syncline.data.execute.block_store import OutputBlock
from syncline.data.iterate.position import Restart
from syncline.data.plan.compute import Resources
from syncline.data.plan.nodes import HeldBlock

Ports = Sequence[Sequence[pa.Table]]
"""The tables of a task, port by port, each in order; pieces are cut out already."""


@dataclass(frozen=True, kw_only=True)
class SkippedRows:
    """Rows that a user function failed on, left out because of `on_error="skip"`."""

    operator: str
    first_row: int
    """Number of the first one among the rows that the step got in this task."""
    rows: int
    error: str
    """One line: type and text."""


@dataclass(kw_only=True)
class TaskState:
    """What is known of the running task, and what its steps leave for statistics. One per run of a
    task; not for several threads.
    """

    stage: str = ""
    task: int = 0
    """Number of the task in its stage: the same when it runs again, or in a later execution that
    starts in the middle.
    """
    seed: int = 0
    """Of this execution and epoch."""
    epoch: int = 0
    skipped: list[SkippedRows] = field(default_factory=list)
    read_s: float = 0.0
    """Seconds in the head: reading, or putting pieces together."""
    function_s: float = 0.0
    """Seconds in user functions."""
    in_call: tuple[str, float, int, int] | None = None
    """(step, time.monotonic() when it began, first row, rows) of the call of a user function that
    is running, for the watchdog.
    """
    failing: frozenset[tuple[str, int]] = frozenset()
    """(step, first row) of calls that exceeded their time in an earlier run of this task: they are
    skipped.
    """


def rows_text(first_row: int, rows: int) -> str:
    """Numbers of rows for people: "row 3", or "rows 3 to 5"."""
    return f"row {first_row}" if rows == 1 else f"rows {first_row} to {first_row + rows - 1}"


class Head(Protocol):
    """Makes the first blocks of a task."""

    def __call__(self, ports: Ports, payload: Any, task: TaskState) -> Iterator[pa.Table]: ...


class Step:
    """Changes a stream of blocks. Pickled before `open`, which runs once per process; one task at a
    time.
    """

    name: str = ""

    def open(self) -> None:
        """Before the first task in this process: construct what is kept between tasks."""

    def run(self, blocks: Iterator[pa.Table], task: TaskState) -> Iterator[pa.Table]:
        """The changed blocks, made as they are asked for."""
        raise NotImplementedError

    def close(self) -> None:
        """When the process has no more tasks of this execution."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """A block that a task has made."""

    table: pa.Table
    is_last: bool
    """Whether it is known to be the task's last."""


@dataclass(frozen=True, kw_only=True)
class Chain:
    """What the tasks of a stage do."""

    head: Head
    steps: tuple[Step, ...] = ()
    context: DataContext
    """The dataset's; current while a task runs."""
    max_block_bytes: int | None = None
    """Larger blocks are cut; smaller ones of the same task are put together up to it."""
    first_block_bytes: int | None = None
    """The limit of a task's first block; it doubles from block to block up to `max_block_bytes`.
    None: that from the beginning.
    """
    max_block_rows: int | None = None
    timeout_s: float | None = None
    """The shortest time limit of its user functions."""


class CacheWriter(Protocol):
    """Makes something lasting of the blocks of one stage. For one execution, and one thread at a
    time.
    """

    @property
    def needs_store(self) -> bool:
        """Whether the blocks have to lie in the object store."""
        ...

    def begin(self) -> None:
        """Before the execution."""
        ...

    def add(self, block: OutputBlock) -> None:
        """The next rows, in order."""
        ...

    def complete(self) -> None:
        """These were all."""
        ...

    def discard(self) -> None:
        """Not all will come."""
        ...


# -- where tasks run


@dataclass(frozen=True, kw_only=True)
class Threads:
    """In the executor's own process, on threads: Arrow's kernels and native decoders let the others
    run.
    """

    size: int | None = None
    """The most tasks at once; None for as many as there is room for."""


@dataclass(frozen=True, kw_only=True)
class Workers:
    """In worker processes that several stages share."""

    resources: Resources = field(default_factory=Resources)
    resources_fn: Callable[[], Any] | None = None
    """Further options, asked for when a worker starts."""
    size: int | None = None
    """The most tasks at once; None for as many as there is room for."""


@dataclass(frozen=True, kw_only=True)
class Actors:
    """In worker processes of this stage alone, that keep the user's object between tasks."""

    min_size: int
    max_size: int | None
    initial_size: int
    in_flight: int = 1
    """Tasks that are with one of them at once."""
    resources: Resources = field(default_factory=Resources)
    resources_fn: Callable[[], Any] | None = None


ExecutorKind: TypeAlias = Threads | Workers | Actors


# -- how the blocks of the inputs become tasks, or pass through


@dataclass(frozen=True, kw_only=True)
class SourceTasks:
    """Tasks that are known from the beginning; no inputs. Task `i` gets `payloads[i]` (a
    `ReadTask`, a `HeldBlock`).
    """

    payloads: Sequence[Any]
    done: frozenset[int] = frozenset()
    """Tasks that are left out: their output is not needed."""


@dataclass(frozen=True, kw_only=True)
class SourceBlocks:
    """Blocks that exist (`HeldBlock`) go on as they are; no inputs, no tasks."""

    blocks: Sequence[HeldBlock]


@dataclass(frozen=True, kw_only=True)
class BundleBlocks:
    """Whole blocks, as many as it takes to have `min_rows`: one task. Empty blocks go along with
    the next.
    """

    min_rows: int = 1


@dataclass(frozen=True, kw_only=True)
class RebatchRows:
    """Exactly `rows` rows each (the last: what is left), across blocks; without `strict` at most
    `rows`, never across blocks.
    """

    rows: int
    strict: bool


@dataclass(frozen=True, kw_only=True)
class RepartitionRows:
    """All rows in `parts` about equal tasks, once all are there."""

    parts: int


@dataclass(frozen=True, kw_only=True)
class LimitRows:
    """The first `rows` rows pass through; then the inputs are abandoned. No tasks: the last block
    is cut.
    """

    rows: int


@dataclass(frozen=True, kw_only=True)
class TeeBlocks:
    """All blocks pass through, in order; no tasks. What passes is kept for later executions once
    the input has ended.
    """

    writer: CacheWriter | None
    """Gets the blocks; None where nothing is to be kept."""


@dataclass(frozen=True, kw_only=True)
class UnionInputs:
    """The blocks of the first input, then those of the second, …; no tasks."""


@dataclass(frozen=True, kw_only=True)
class ShuffleBlocks:
    """All blocks, once they are there, in an order drawn from `seed`; no tasks."""

    seed: int


@dataclass(frozen=True, kw_only=True)
class ZipInputs:
    """Equally many rows of every input (one port each): a task as soon as the next block boundary
    of any input is reached.

    Fails with a ValueError that names both counts where inputs end apart.
    """


@dataclass(frozen=True, kw_only=True)
class MixInputs:
    """Blocks of the inputs in turns, so that after each block the rows are as near to the weights
    as blocks allow; no tasks.

    Deterministic: which input is next depends on rows already passed on, never on time. With
    `until_shortest` the end of one input is the end, else the others go on among themselves.
    """

    weights: tuple[float, ...]
    until_shortest: bool


@dataclass(frozen=True, kw_only=True)
class ExchangeRows:
    """All to all: each block is partitioned, then there is one task per partition, with one port
    per input.

    The executor holds the input until it has ended. If it is then no more than `direct_bytes`,
    there is one partition, `prepare` and `partition` are skipped, and the one task gets the blocks
    themselves. Otherwise: with `sample`, every block is sampled, and `prepare` makes of all samples
    (in order) and the number of partitions what `partition` needs. Without `sample`, blocks are
    partitioned as they come, as soon as there is more than `direct_bytes`.
    """

    partition: tuple[Callable[[pa.Table, int, Any, int], Partitioned], ...]
    """For each input: (table, partitions, prepared, number of the block) -> rows by partition. Pure
    and picklable.
    """
    parts: int | None
    """Number of partitions that the program asked for. It always holds: also for few bytes."""
    default_parts: int
    """Number of partitions where it did not."""
    direct_bytes: int
    sample: Callable[[pa.Table, int], pa.Table] | None = None
    """(table, number of the block) -> a small table."""
    prepare: Callable[[Sequence[pa.Table], int], Any] | None = None
    """(samples, partitions) -> what partition gets as `prepared`."""
    executor: ExecutorKind = field(default_factory=Threads)
    """Where sampling and partitioning run."""


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
    """One operator of an execution."""

    name: str
    """As people see it: names of fused nodes are joined with "->"."""
    inputs: tuple[int, ...] = ()
    """Numbers of the stages whose blocks come in, one per port."""
    grouping: Grouping
    chain: Chain | None = None
    """What a task does with its pieces; None where there are no tasks."""
    executor: ExecutorKind = field(default_factory=Threads)
    keeps_rows: bool = False
    """Whether a task's output has as many rows as its input; lets a limit downstream be exact in
    time.
    """
    slots: float = 1.0
    """CPUs that one task counts as."""


def held_blocks(stages: Sequence[Stage]) -> list[HeldBlock]:
    """The blocks of all `SourceBlocks` stages, in order: pieces name them by their negative indices."""
    return [
        block
        for stage in stages
        if isinstance(stage.grouping, SourceBlocks)
        for block in stage.grouping.blocks
    ]


# Blocks that an operator makes at once, and those that wait for the next, have to fit into the
# budget several times over.
_BLOCKS_IN_BUDGET_PER_CPU = 4


@dataclass(frozen=True, kw_only=True)
class ExecutionLimits:
    """CPUs and bytes that an execution is laid out for."""

    cpus: int
    budget_bytes: int

    def block_bytes(self, context: DataContext) -> int:
        """Bytes at which a task begins a new block."""
        fitting = max(MIB, self.budget_bytes // (_BLOCKS_IN_BUDGET_PER_CPU * self.cpus))
        return (
            fitting
            if context.target_max_block_size is None
            else min(context.target_max_block_size, fitting)
        )

    def to_list(self) -> list[int]:
        """A form for JSON."""
        return [self.cpus, self.budget_bytes]


def limits_for(context: DataContext) -> ExecutionLimits:
    """The shape of executions of a context, here and now: all CPUs of the machine or cluster, and
    the budget of the options.

    Without a limit in the options the budget is a quarter of the machine's memory.
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
    """Asked once: reading the system's limits takes longer than starting an execution."""
    return machine_limits().memory_bytes


@dataclass(frozen=True, kw_only=True)
class Program:
    """What is to be executed."""

    stages: tuple[Stage, ...]
    context: DataContext
    limits: ExecutionLimits
    seed: int
    epoch: int = 0
    first_row: int = 0
    """Number of the first row that is delivered."""
    point: Any = None
    """Where to start; None for the beginning."""
    caches: tuple[Any, ...] = ()
    """What it does about the caches of the plan (`data.cache`), JSON."""
    name: str = ""
    is_pass: bool = False
    """Whether it delivers the rows of an epoch to those who iterate, other than executions that
    look something up.
    """
    plan: Callable[[], str] | None = None
    """What is executed, as text for people."""

    def restart_at(self, point: Any) -> list[Any]:
        """A point of the scheduler's with all that it depends on."""
        return restart_point(self.limits, point, self.caches)


def restart_point(limits: ExecutionLimits, point: Any, caches: tuple[Any, ...]) -> list[Any]:
    """What `Restart.point` holds, JSON: a point of the scheduler's, and what an execution of a plan
    depends on beside seed and epoch.
    """
    return [*limits.to_list(), point, *([list(caches)] if caches else [])]


def point_of(restart: Restart) -> Any:
    """The scheduler's point in a restart point."""
    _cpus, _budget_bytes, point, *_caches = restart.point
    return point


def stages_to_store(stages: Sequence[Stage]) -> frozenset[int]:
    """Numbers of the stages whose blocks have to lie in the object store.

    They are needed by worker processes; or all of them have to be there before the next operator
    goes on, and what memory does not hold is moved to disk from there.
    """
    wanted: set[int] = set()
    for number in reversed(range(len(stages))):
        stage = stages[number]
        grouping = stage.grouping
        executor = grouping.executor if isinstance(grouping, ExchangeRows) else stage.executor
        passes_on = isinstance(grouping, LimitRows | TeeBlocks | UnionInputs | MixInputs | ShuffleBlocks)
        holds = isinstance(grouping, ExchangeRows | RepartitionRows | ShuffleBlocks) or _keeps_in_store(grouping)
        if (
            holds
            or (passes_on and number in wanted)
            or (not passes_on and isinstance(executor, Workers | Actors))
        ):
            wanted.update(stage.inputs)
    return frozenset(number for number in wanted if not isinstance(stages[number].grouping, SourceBlocks))


def _keeps_in_store(grouping: Grouping) -> bool:
    return (
        isinstance(grouping, TeeBlocks)
        and grouping.writer is not None
        and grouping.writer.needs_store
    )
