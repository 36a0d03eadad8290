"""The blocks of an execution: who needs them, which count against the budget, and what is to be
said to the driver about them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from syncline.data.execute.messages import BlockInfo, Drop, Instruction, Piece
from syncline.data.execute.program import Grouping, Stage

if TYPE_CHECKING:
    from syncline.data.execute.operators.task_operator import Task


class Block:
    """A block that exists."""

    __slots__ = ("counted", "maker", "number", "references", "rows", "size_bytes")

    def __init__(self, number: int, rows: int, size_bytes: int, maker: int) -> None:
        self.number = number
        self.rows = rows
        self.size_bytes = size_bytes
        self.maker = maker
        """Number of the stage that it comes from."""
        self.references = 1
        """Parts of it that somebody holds."""
        self.counted = False
        """Whether it counts against the budget."""


class Part(NamedTuple):
    """Rows of a block on their way. Who holds one holds one reference to the block."""

    block: Block
    start: int
    stop: int
    point: Any
    """Where a later execution may start so that the stage which passed it on begins with these
    rows.
    """

    @property
    def rows(self) -> int:
        return self.stop - self.start

    @property
    def size_bytes(self) -> int:
        """Its share of the block's bytes; those of all parts of a block add up to the block's."""
        block = self.block
        if self.stop - self.start == block.rows:
            return block.size_bytes
        return (
            block.size_bytes * self.stop // block.rows - block.size_bytes * self.start // block.rows
        )

    @property
    def piece(self) -> Piece:
        return Piece(self.block.number, self.start, self.stop)


class BlockTracker:
    """Counts references and bytes; a block is dropped, once, when its last reference is released.

    Blocks that a stage needs all of before it can go on (`ExchangeRows`, `RepartitionRows`, `ShuffleBlocks`) do
    not count against the budget, nor do partitioned ones: they cannot be bounded, and they lie in
    the object store, which moves to disk what does not fit.
    """

    def __init__(self, stages: int) -> None:
        self.blocks: dict[int, Block] = {}
        """All that exist, by number."""
        self.counted_bytes = 0
        """Of the blocks that count against the budget."""
        self.stage_bytes = [0] * stages
        """Of the blocks that exist, by the stage that they come from."""
        self.instructions: list[Instruction] = []
        """For the driver, as answer to the current event."""
        self.cancelled: list[Task] = []
        """Running or waiting tasks that an operator needs no more; the scheduler takes them off its
        books.
        """
        self.failure: BaseException | None = None
        """Set by an operator that cannot go on."""

    def admit(self, info: BlockInfo, maker: int, *, counted: bool = True) -> Block:
        """A block that exists from now on, with one reference."""
        block = Block(info.block, info.rows, info.size_bytes, maker)
        self.blocks[info.block] = block
        self.stage_bytes[maker] += info.size_bytes
        if counted:
            self.count(block)
        return block

    def share(self, block: Block) -> None:
        """One reference more."""
        block.references += 1

    def release(self, block: Block) -> None:
        """One reference less."""
        block.references -= 1
        assert block.references >= 0, (
            f"block {block.number} was released more often than it was held"
        )
        if not block.references:
            self.uncount(block)
            self.stage_bytes[block.maker] -= block.size_bytes
            del self.blocks[block.number]
            self.instructions.append(Drop(block=block.number))

    def count(self, block: Block) -> None:
        """Let it count against the budget."""
        if not block.counted:
            block.counted = True
            self.counted_bytes += block.size_bytes

    def uncount(self, block: Block) -> None:
        """Let it not count."""
        if block.counted:
            block.counted = False
            self.counted_bytes -= block.size_bytes


G = TypeVar("G", bound=Grouping)


class Receiver(Protocol):
    """What comes after an operator."""

    def add(self, port: int, part: Part) -> None:
        """Takes over the next part of an input, and its reference to the block."""

    def end(self, port: int) -> None:
        """There are no more parts in an input."""


class Action(NamedTuple):
    """Something that an operator could do now."""

    size_bytes: int
    """What it is expected to add to the blocks that exist. What adds nothing always fits into the
    budget.
    """
    slots: float
    """CPUs that it needs."""
    is_ahead: bool
    """Whether its blocks are not those that come next in the operator's output."""
    perform: Callable[[bool], Task | None]
    """Does it (the argument: although there is no free slot), and returns the task that runs now,
    if it is one.
    """


class Operator(Generic[G]):
    """Base of the operators; not for several threads.

    Subclasses define, unless they have no inputs, `add` and `_input_ended`; those that do more than
    to pass blocks on, `next_action`.
    """

    holds_blocks: ClassVar[bool] = True
    """Whether blocks wait in it or are made by it; else it is no further from the consumer than the
    operator after it.
    """

    def __init__(
        self,
        number: int,
        stage: Stage,
        grouping: G,
        inputs: Sequence[Operator[Any]],
        tracker: BlockTracker,
        *,
        ordered: bool,
    ) -> None:
        self.number = number
        self.stage = stage
        self.grouping = grouping
        self.inputs = tuple(inputs)
        self.tracker = tracker
        self.ordered = ordered
        """Whether its output is in the order of its tasks, else as they come."""
        self.target: Receiver
        self.target_port = 0
        self.closed = False
        """Whether it has passed on all that it ever will."""
        self.live_ports = set(range(len(inputs)))
        """Inputs that have not ended."""
        # Kept by the scheduler: where it stands, and what it does.
        self.depth = 0
        """Operators between it and the consumer, that hold blocks."""
        self.needed = True
        """Whether the consumer waits, directly or not, for this branch."""
        self.running = 0
        """Tasks that run."""
        # What there is to count, for progress and statistics.
        self.queued_blocks = 0
        self.queued_rows = 0
        self.queued_bytes = 0
        self.output_blocks = 0
        self.output_rows = 0
        self.output_bytes = 0

    # -- the flow

    def open(self) -> None:
        """At the beginning, inputs first: what there is to do, or to end, without any event."""

    def add(self, port: int, part: Part) -> None:
        """Takes over the next part of an input, and its reference to the block."""
        raise NotImplementedError

    def end(self, port: int) -> None:
        """There are no more parts in an input."""
        if not self.closed:
            self.live_ports.discard(port)
            self._input_ended(port)

    def _input_ended(self, port: int) -> None:
        """Another input has ended: `live_ports` are those that have not."""

    def _emit(self, part: Part) -> None:
        self.target.add(self.target_port, part)

    def _finish(self) -> None:
        """Everything is passed on. Inputs that go on are abandoned."""
        if not self.closed:
            self.abandon()
            self.target.end(self.target_port)

    def abandon(self) -> None:
        """Nobody wants its output any more: gives up all that it holds, and its inputs."""
        if self.closed:
            return
        self.closed = True
        self._release_all()
        self.queued_blocks = self.queued_rows = self.queued_bytes = 0
        for each in self.inputs:
            each.abandon()

    def _release_all(self) -> None:
        """Gives up every part that it holds, and its tasks."""

    # -- what it may do, and needs

    def next_action(self) -> Action | None:
        """What it would do next if there was room; None if there is nothing."""
        return None

    def needed_ports(self) -> Sequence[int]:
        """The inputs that it cannot go on without."""
        return sorted(self.live_ports)

    def limit_rows(self, rows: int) -> None:
        """No more than so many rows of its output will be used; it, and what is before it, need not
        start more than that takes.
        """

    def extend_row_limit(self, rows: int) -> None:
        """So many of the rows that it was expected to make did not come out: as many more may be
        used.
        """

    # -- restart points

    def first_point(self) -> Any:
        """The point of the very first row."""
        raise NotImplementedError

    def restore(self, point: Any) -> None:
        """Before `open`: begin at this point."""
        raise NotImplementedError

    def advance(self, point: Any, rows: int, *, at_end: bool = False) -> Any:
        """The point that lies so many rows after another one: within its block, or (`at_end`)
        behind it.
        """
        return [point[0], point[1] + rows]

    # -- for subclasses

    def _restart_inputs(self) -> None:
        for each in self.inputs:
            each.restore(each.first_point())

    def _sliced(self, port: int, part: Part, start: int, stop: int) -> Part:
        """Rows of a part, numbered from its first one, with a reference of its own."""
        self.tracker.share(part.block)
        point = self.inputs[port].advance(part.point, start) if start else part.point
        return Part(part.block, part.start + start, part.start + stop, point)

    def _queue(self, part: Part) -> None:
        """Count a part that waits here."""
        self.queued_blocks += 1
        self.queued_rows += part.rows
        self.queued_bytes += part.size_bytes

    def _unqueue(self, part: Part) -> None:
        self.queued_blocks -= 1
        self.queued_rows -= part.rows
        self.queued_bytes -= part.size_bytes

    def _release(self, parts: Sequence[Part]) -> None:
        for part in parts:
            self.tracker.release(part.block)

    def _count_output(self, part: Part) -> None:
        self.output_blocks += 1
        self.output_rows += part.rows
        self.output_bytes += part.size_bytes
