"""Events and instructions: the plain values exchanged by the scheduler and its driver."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from syncline.data.execute.physical_plan import Payload
from syncline.data.iterate.position import RestartPoint
from syncline.records import dataclass


class TaskId(NamedTuple):
    """Identity of a task of an execution."""

    stage: int
    kind: Literal["task", "sample", "partition"]
    """Work of the task: the stage's chain, or the first two phases of an exchange."""
    number: int
    """For "task", the position in the stage's output. Otherwise the number of the block: block `i`
    of port `p` of `ports` has the number `i * ports + p`, which does not depend on the order in
    which the inputs arrive.
    """


class BlockInfo(NamedTuple):
    """Number and size of a block."""

    block: int
    """Number assigned by the driver; unique in the execution."""
    rows: int
    size_bytes: int


class Piece(NamedTuple):
    """Rows `start` to `stop` of a block."""

    block: int
    """Number assigned by the driver, or a negative number for a block of a `SourceBlocks` stage:
    an index into `physical_plan.held_blocks(stages)`.
    """
    start: int
    stop: int


# -- events


@dataclass(frozen=True, kw_only=True)
class Started:
    """Resources of the execution. The first event; sent again when they change."""

    slots: float
    """CPUs for tasks."""
    budget_bytes: int
    """Maximum total size of the blocks that exist at the same time."""


@dataclass(frozen=True, kw_only=True)
class Produced:
    """A running task produced a block. It waits for `Resume` unless the block was its last."""

    task: TaskId
    info: BlockInfo
    is_last: bool
    """True if the task has ended."""


@dataclass(frozen=True, kw_only=True)
class Partitioned:
    """A "partition" task ended. Its input can be released."""

    task: TaskId
    blocks: tuple[BlockInfo, ...]
    """Blocks produced by the task."""
    parts: tuple[Piece | None, ...]
    """Rows of each partition; None for an empty partition."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A task ended without another block. "sample" tasks always end so: the driver keeps the
    sample.
    """

    task: TaskId


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """`ExchangeRows.prepare` of a stage returned."""

    stage: int


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A task failed and is not retried."""

    task: TaskId
    error: BaseException
    """Error to raise to the user."""
    counts_as_errored_block: bool
    """True for errors of user functions and of reading, which `max_errored_blocks` may excuse;
    False for errors of the machine.
    """


@dataclass(frozen=True, kw_only=True)
class Taken:
    """The consumer took the oldest delivered block and now owns it; a `Drop` may follow."""


@dataclass(frozen=True, kw_only=True)
class Abandoned:
    """The consumer needs no more rows."""


Event: TypeAlias = Started | Produced | Partitioned | Ended | Prepared | Failed | Taken | Abandoned


# -- instructions


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Start a task."""

    task: TaskId
    ports: tuple[tuple[Piece, ...], ...] = ()
    """Input of the task; a single piece for "sample" and "partition"."""
    payload: Payload = None
    """Payload of a task of a `SourceTasks` stage."""
    skip_rows: int = 0
    """Leading output rows to leave out because an earlier execution delivered them."""
    parts: int = 0
    """Number of partitions, for "partition"."""
    port: int = 0
    """Input that the piece came from, for "sample" and "partition"."""
    beyond_slots: bool = False
    """True if no slot is free and the task starts only to keep the execution going."""


@dataclass(frozen=True, kw_only=True)
class Resume:
    """Let a task produce its next block."""

    task: TaskId


@dataclass(frozen=True, kw_only=True)
class Prepare:
    """Run `ExchangeRows.prepare` on the samples of a stage, ordered by task number."""

    stage: int
    parts: int


@dataclass(frozen=True, kw_only=True)
class Deliver:
    """Deliver the next rows of the output to the consumer."""

    piece: Piece
    size_bytes: int
    point: RestartPoint
    """JSON restart point from which a later execution delivers the output from this piece on."""


@dataclass(frozen=True, kw_only=True)
class TeeBlock:
    """Copy the next rows of a `TeeBlocks` stage to its cache writer."""

    stage: int
    piece: Piece


@dataclass(frozen=True, kw_only=True)
class TeeEnded:
    """Complete the cache of a `TeeBlocks` stage: all rows have passed."""

    stage: int


@dataclass(frozen=True, kw_only=True)
class Drop:
    """Release a block that no task needs.

    Sent exactly once per block, including source blocks that no other instruction named.
    """

    block: int


@dataclass(frozen=True, kw_only=True)
class Cancel:
    """Stop a task and ignore its further reports."""

    task: TaskId


@dataclass(frozen=True, kw_only=True)
class Finish:
    """End the execution: all blocks are delivered, taken and dropped. No instruction follows."""


@dataclass(frozen=True, kw_only=True)
class Fail:
    """Fail the execution. All tasks are cancelled and all blocks dropped, including delivered
    blocks that the consumer has not taken. No instruction follows.
    """

    error: BaseException


Instruction: TypeAlias = (
    Launch | Resume | Prepare | Deliver | TeeBlock | TeeEnded | Drop | Cancel | Finish | Fail
)
