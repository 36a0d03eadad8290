"""What an execution consists of: stages, whose tasks turn pieces of blocks into blocks.

A plan is lowered to a tuple of stages, inputs before those that read them; the last one's output is
the execution's. Every stage's output is one sequence of blocks in a fixed order: its tasks are
numbered in the order of their input, and each task's blocks come in order. Covered: which tasks a
stage has (`grouping`) and where they run (`lane`). What a task does is its `Chain`. Not covered:
running them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from syncline.data.plan.compute import Resources

if TYPE_CHECKING:
    import pyarrow as pa

    from syncline.data.columnar.kernels.partition import Partitioned
    from syncline.data.execute.chain import Chain
    from syncline.data.execute.keeping import Keeper
    from syncline.data.plan.nodes import HeldBlock

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


Lane: TypeAlias = Threads | Workers | Actors


# -- how the blocks of the inputs become tasks, or pass through


@dataclass(frozen=True, kw_only=True)
class Listed:
    """Tasks that are known from the beginning; no inputs. Task `i` gets `payloads[i]` (a
    `ReadTask`, a `HeldBlock`).
    """

    payloads: Sequence[Any]
    done: frozenset[int] = frozenset()
    """Tasks that are left out: their output is not needed."""


@dataclass(frozen=True, kw_only=True)
class Passed:
    """Blocks that exist (`HeldBlock`) go on as they are; no inputs, no tasks."""

    blocks: Sequence[HeldBlock]


@dataclass(frozen=True, kw_only=True)
class Bundled:
    """Whole blocks, as many as it takes to have `min_rows`: one task. Empty blocks go along with
    the next.
    """

    min_rows: int = 1


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Exactly `rows` rows each (the last: what is left), across blocks; without `strict` at most
    `rows`, never across blocks.
    """

    rows: int
    strict: bool


@dataclass(frozen=True, kw_only=True)
class CutEvenly:
    """All rows in `parts` about equal tasks, once all are there."""

    parts: int


@dataclass(frozen=True, kw_only=True)
class First:
    """The first `rows` rows pass through; then the inputs are abandoned. No tasks: the last block
    is cut.
    """

    rows: int


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """All blocks pass through, in order; no tasks. What passes is kept for later executions once
    the input has ended.
    """

    keeper: Keeper | None
    """Gets the blocks; None where nothing is to be kept."""


@dataclass(frozen=True, kw_only=True)
class Chained:
    """The blocks of the first input, then those of the second, …; no tasks."""


@dataclass(frozen=True, kw_only=True)
class Shuffled:
    """All blocks, once they are there, in an order drawn from `seed`; no tasks."""

    seed: int


@dataclass(frozen=True, kw_only=True)
class Aligned:
    """Equally many rows of every input (one port each): a task as soon as the next block boundary
    of any input is reached.

    Fails with a ValueError that names both counts where inputs end apart.
    """


@dataclass(frozen=True, kw_only=True)
class Interleaved:
    """Blocks of the inputs in turns, so that after each block the rows are as near to the weights
    as blocks allow; no tasks.

    Deterministic: which input is next depends on rows already passed on, never on time. With
    `until_shortest` the end of one input is the end, else the others go on among themselves.
    """

    weights: tuple[float, ...]
    until_shortest: bool


@dataclass(frozen=True, kw_only=True)
class Exchanged:
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
    lane: Lane = field(default_factory=Threads)
    """Where sampling and partitioning run."""


Grouping: TypeAlias = (
    Listed
    | Passed
    | Bundled
    | Cut
    | CutEvenly
    | First
    | Keeping
    | Chained
    | Shuffled
    | Aligned
    | Interleaved
    | Exchanged
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
    lane: Lane = field(default_factory=Threads)
    keeps_rows: bool = False
    """Whether a task's output has as many rows as its input; lets a limit downstream be exact in
    time.
    """
    slots: float = 1.0
    """CPUs that one task counts as."""


def held_blocks(stages: Sequence[Stage]) -> list[HeldBlock]:
    """The blocks of all `Passed` stages, in order: pieces name them by their negative indices."""
    return [
        block
        for stage in stages
        if isinstance(stage.grouping, Passed)
        for block in stage.grouping.blocks
    ]
