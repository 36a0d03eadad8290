"""What the scheduler and its driver say to each other. Events go in, instructions come out; both
are plain values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias


class TaskId(NamedTuple):
    """One task of an execution."""

    stage: int
    kind: Literal["task", "sample", "partition"]
    """What it does: the stage's chain, or the first two steps of an exchange."""
    number: int
    """For "task": in the order of the stage's output. For the others that of the block: block `i`
    of port `p` of `ports` is `i * ports + p`, so that numbers do not depend on which input is
    faster.
    """


class BlockInfo(NamedTuple):
    """What is known of a block."""

    block: int
    """Number that the driver gave it: unique in the execution."""
    rows: int
    size_bytes: int


class Piece(NamedTuple):
    """Rows `start` to `stop` of a block."""

    block: int
    """The driver's number; or a negative one for a block of a `SourceBlocks` stage, where the last block
    of the last such stage is -1, the one before it -2, and so on through all stages' blocks:
    `held_blocks(stages)[block]` (in `stages`) is it.
    """
    start: int
    stop: int


# -- events


@dataclass(frozen=True, kw_only=True)
class Started:
    """The first event: what there is to work with. Sent again when it changes."""

    slots: float
    """CPUs for tasks."""
    budget_bytes: int
    """Bytes of blocks that exist at one moment."""


@dataclass(frozen=True, kw_only=True)
class Produced:
    """A running task has made a block, and waits until it is resumed, unless that was its last."""

    task: TaskId
    info: BlockInfo
    is_last: bool
    """The task has ended with it."""


@dataclass(frozen=True, kw_only=True)
class Partitioned:
    """A "partition" task has ended: where the rows of each partition lie. Its input is needed no
    more.
    """

    task: TaskId
    blocks: tuple[BlockInfo, ...]
    """The blocks that it made."""
    parts: tuple[Piece | None, ...]
    """For each partition its rows; None where there are none."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A task has ended without another block ("sample" tasks end so, too: the driver keeps the
    sample).
    """

    task: TaskId


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """`ExchangeRows.prepare` of a stage has run."""

    stage: int


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A task has failed for good (whatever may be tried again was): `error` is what the program
    would get.
    """

    task: TaskId
    error: BaseException
    counts_as_errored_block: bool
    """Whether `max_errored_blocks` may excuse it: errors of user functions and of reading are,
    those of the machine are not.
    """


@dataclass(frozen=True, kw_only=True)
class Taken:
    """The consumer has taken the oldest delivered block, and looks after it from now on: a `Drop`
    may follow at once.
    """


@dataclass(frozen=True, kw_only=True)
class Abandoned:
    """The consumer wants nothing more."""


Event: TypeAlias = Started | Produced | Partitioned | Ended | Prepared | Failed | Taken | Abandoned


# -- instructions


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Start a task."""

    task: TaskId
    ports: tuple[tuple[Piece, ...], ...] = ()
    """The pieces that it works on; for "sample" and "partition" one piece."""
    payload: Any = None
    """For `SourceTasks`."""
    skip_rows: int = 0
    """Rows of its output that are not wanted: an earlier execution has delivered them."""
    parts: int = 0
    """For "partition": number of partitions."""
    port: int = 0
    """For "sample" and "partition": the input that the piece came from."""
    beyond_slots: bool = False
    """There is no free slot, but the execution could not go on without it."""


@dataclass(frozen=True, kw_only=True)
class Resume:
    """Let a task make its next block."""

    task: TaskId


@dataclass(frozen=True, kw_only=True)
class Prepare:
    """Run `ExchangeRows.prepare` on the samples of a stage's "sample" tasks, in order."""

    stage: int
    parts: int


@dataclass(frozen=True, kw_only=True)
class Deliver:
    """The next rows of the output, for the consumer."""

    piece: Piece
    size_bytes: int
    point: Any
    """From where an execution may start to deliver exactly what comes from here on; JSON."""


@dataclass(frozen=True, kw_only=True)
class TeeBlock:
    """The next rows that pass through a `TeeBlocks` stage."""

    stage: int
    piece: Piece


@dataclass(frozen=True, kw_only=True)
class TeeEnded:
    """All rows have passed through a `TeeBlocks` stage."""

    stage: int


@dataclass(frozen=True, kw_only=True)
class Drop:
    """Nobody needs this block any more. Comes once for every block; for negative ones as well, also
    for some that no instruction has named (they had no rows, or were left over).
    """

    block: int


@dataclass(frozen=True, kw_only=True)
class Cancel:
    """Stop a task; what it says from now on is not listened to."""

    task: TaskId


@dataclass(frozen=True, kw_only=True)
class Finish:
    """All is delivered, taken and dropped. The last instruction, as is `Fail`."""


@dataclass(frozen=True, kw_only=True)
class Fail:
    """The execution has failed: everything was cancelled and dropped, also what is delivered but
    not taken.
    """

    error: BaseException


Instruction: TypeAlias = (
    Launch | Resume | Prepare | Deliver | TeeBlock | TeeEnded | Drop | Cancel | Finish | Fail
)
