"""Base of the operators, and the accounting of blocks.

An operator is the running part of a `Stage`. It hands parts of blocks to the next one with `add`
and ends an input with `end`. Anything else it could do, such as starting a task, it offers as an
`Action`, and the scheduler decides when to perform it. Each class documents its restart points: the
restart point of an operator refers to a row of its output.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from syncline.data.execute.messages import BlockInfo, Drop, Instruction, Piece, TaskId
from syncline.data.execute.physical_plan import Grouping, Payload, Stage
from syncline.data.iterate.position import RestartPoint


class Block:
    """An existing block."""

    __slots__ = ("counted", "maker", "number", "references", "rows", "size_bytes")

    def __init__(self, number: int, rows: int, size_bytes: int, maker: int) -> None:
        self.number = number
        self.rows = rows
        self.size_bytes = size_bytes
        self.maker = maker
        """Number of the stage that produced it."""
        self.references = 1
        """Number of parts that operators hold."""
        self.counted = False
        """True if it counts against the budget."""


class Part(NamedTuple):
    """Rows of a block. The holder of a part holds a reference to the block."""

    block: Block
    start: int
    stop: int
    point: RestartPoint
    """Restart point of the emitting operator for the first row."""

    @property
    def rows(self) -> int:
        return self.stop - self.start

    @property
    def size_bytes(self) -> int:
        """Share of the block's bytes; the shares of all parts add up to the block's size."""
        block = self.block
        if self.stop - self.start == block.rows:
            return block.size_bytes
        return (
            block.size_bytes * self.stop // block.rows - block.size_bytes * self.start // block.rows
        )

    @property
    def piece(self) -> Piece:
        return Piece(self.block.number, self.start, self.stop)


class TaskSpec(NamedTuple):
    """A task that can be started. Holds references to its parts."""

    number: int
    point: RestartPoint
    """Restart point of the task."""
    ports: tuple[tuple[Part, ...], ...]
    payload: Payload = None
    rows: int | None = None
    """Number of input rows, if known."""


class TaskOwner(Protocol):
    """Operator that started a task."""

    running: int

    def produced(self, task: Task, info: BlockInfo, *, is_last: bool) -> None:
        """Handle a block of a task."""

    def ended(self, task: Task) -> None:
        """Handle the end of a task without another block."""

    def failed(self, task: Task) -> None:
        """Handle an excused failure of a task: its remaining rows are missing."""


class Task:
    """A started task that has not ended, or whose blocks are not all emitted."""

    __slots__ = (
        "expected_rows",
        "finished",
        "held",
        "id",
        "operator",
        "reserved_bytes",
        "rows",
        "running",
        "skip_rows",
        "slots",
        "spec",
    )

    def __init__(self, id: TaskId, operator: TaskOwner, spec: TaskSpec, skip_rows: int = 0) -> None:
        self.id = id
        self.operator = operator
        self.spec = spec
        self.skip_rows = skip_rows
        """Leading output rows to leave out."""
        self.rows = skip_rows
        """Output rows so far, including skipped ones."""
        self.expected_rows: int | None = None
        """Total number of output rows, if known."""
        self.held: deque[Part] = deque()
        """Output that waits for the output of earlier tasks."""
        self.finished = False
        # Set by the scheduler.
        self.running = False
        self.slots = 0.0
        self.reserved_bytes = 0


class BlockTracker:
    """Counts references and bytes of blocks; drops a block when its last reference is released.

    Blocks that a stage collects completely (`ExchangeRows`, `RepartitionRows`, `ShuffleBlocks`) do
    not count against the budget, nor do partitioned blocks. Their size cannot be bounded, and they
    are in the object store, which spills to disk.
    """

    def __init__(self, stages: int) -> None:
        self.blocks: dict[int, Block] = {}
        """Existing blocks by number."""
        self.counted_bytes = 0
        """Bytes of the blocks that count against the budget."""
        self.stage_bytes = [0] * stages
        """Bytes of the existing blocks by producing stage."""
        self.instructions: list[Instruction] = []
        """Instructions in response to the current event."""
        self.cancelled: list[Task] = []
        """Started tasks that an operator no longer needs; the scheduler cancels them."""
        self.failure: BaseException | None = None
        """Set by an operator that cannot continue."""

    def admit(self, info: BlockInfo, maker: int, *, counted: bool = True) -> Block:
        """Add a block with one reference."""
        block = Block(info.block, info.rows, info.size_bytes, maker)
        self.blocks[info.block] = block
        self.stage_bytes[maker] += info.size_bytes
        if counted:
            self.count(block)
        return block

    def share(self, block: Block) -> None:
        """Add a reference."""
        block.references += 1

    def release(self, block: Block) -> None:
        """Remove a reference."""
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
        """Count a block against the budget."""
        if not block.counted:
            block.counted = True
            self.counted_bytes += block.size_bytes

    def uncount(self, block: Block) -> None:
        """Stop counting a block against the budget."""
        if block.counted:
            block.counted = False
            self.counted_bytes -= block.size_bytes


G = TypeVar("G", bound=Grouping)


class Receiver(Protocol):
    """Target of an operator's output."""

    def add(self, port: int, part: Part) -> None:
        """Take over the next part of an input and its reference to the block."""

    def end(self, port: int) -> None:
        """End an input."""


class Action(NamedTuple):
    """A step that an operator offers to perform."""

    size_bytes: int
    """Expected size of the block that it adds; zero always fits into the budget."""
    slots: float
    """CPUs needed."""
    is_ahead: bool
    """True if its blocks are not the next ones of the operator's output."""
    perform: Callable[[bool], Task | None]
    """(no slot is free) -> the task that runs now, if the action starts or resumes one."""


class OperatorSetup(NamedTuple):
    """Arguments of an operator's constructor."""

    number: int
    """Number of the stage."""
    stage: Stage
    inputs: tuple[AnyOperator, ...]
    tracker: BlockTracker
    ordered: bool
    """True if the output is in the order of the tasks; False if in order of production."""


class Operator(Generic[G]):
    """Base class. Not thread-safe.

    Subclasses with inputs define `add` and `_input_ended`; operators that do more than forward
    blocks define `next_action`.
    """

    holds_blocks: ClassVar[bool] = True
    """False if it neither produces nor queues blocks, so that it adds no depth."""

    def __init__(self, setup: OperatorSetup) -> None:
        self.number = setup.number
        self.stage = setup.stage
        self.grouping = cast("G", setup.stage.grouping)
        self.inputs = setup.inputs
        self.tracker = setup.tracker
        self.ordered = setup.ordered
        self.target: Receiver
        self.target_port = 0
        self.closed = False
        """True once it has emitted everything or was abandoned."""
        self.live_ports = set(range(len(setup.inputs)))
        """Inputs that have not ended."""
        # Set by the scheduler.
        self.depth = 0
        """Number of operators between it and the consumer that hold blocks."""
        self.needed = True
        """True if the consumer waits for this branch, directly or indirectly."""
        self.running = 0
        """Number of running tasks."""
        # Statistics.
        self.queued_rows = 0
        """Input rows without a task so far."""
        self.output_blocks = 0
        self.output_rows = 0
        self.output_bytes = 0

    # -- data flow

    def open(self) -> None:
        """Start or end without waiting for input. Readers are opened before their inputs."""

    def add(self, port: int, part: Part) -> None:
        """Take over the next part of an input and its reference to the block."""
        raise NotImplementedError

    def end(self, port: int) -> None:
        """End an input."""
        if not self.closed:
            self.live_ports.discard(port)
            self._input_ended(port)

    def _input_ended(self, port: int) -> None:
        """Handle the end of an input; `live_ports` are the remaining ones."""

    def _emit(self, part: Part) -> None:
        self.target.add(self.target_port, part)

    def _count_and_emit(self, part: Part) -> None:
        self._count_output(part)
        self._emit(part)

    def _finish(self) -> None:
        """End the output and abandon the remaining inputs."""
        if not self.closed:
            self.abandon()
            self.target.end(self.target_port)

    def abandon(self) -> None:
        """Release everything, including the inputs: the reader needs no more output."""
        if self.closed:
            return
        self.closed = True
        self._release_all()
        self.queued_rows = 0
        for each in self.inputs:
            each.abandon()

    def _release_all(self) -> None:
        """Release all parts and tasks."""

    # -- actions and needs

    def next_action(self) -> Action | None:
        """Return the next action if resources allow; None if there is nothing to do."""
        return None

    def needed_ports(self) -> Sequence[int]:
        """Return the inputs that the operator waits for."""
        return sorted(self.live_ports)

    def limit_rows(self, rows: int) -> None:
        """Limit the work to what `rows` output rows need, here and upstream."""

    def extend_row_limit(self, rows: int) -> None:
        """Raise the limit by `rows`: expected rows were not produced."""

    # -- restart points

    def first_point(self) -> RestartPoint:
        """Return the restart point of the first row."""
        raise NotImplementedError

    def restore(self, point: RestartPoint) -> None:
        """Begin at a restart point; called before `open`."""
        raise NotImplementedError

    def advance(self, point: RestartPoint, rows: int, *, at_end: bool = False) -> RestartPoint:
        """Return the restart point `rows` rows after another.

        With `at_end`, the rows are the whole part and the result refers to the next part.
        """
        return [point[0], point[1] + rows]

    # -- for subclasses

    def _restart_inputs(self) -> None:
        for each in self.inputs:
            each.restore(each.first_point())

    def _sliced(self, port: int, part: Part, start: int, stop: int) -> Part:
        """Return rows of a part, numbered from its first row, with a reference of their own."""
        self.tracker.share(part.block)
        point = self.inputs[port].advance(part.point, start) if start else part.point
        return Part(part.block, part.start + start, part.start + stop, point)

    def _release(self, parts: Iterable[Part]) -> None:
        for part in parts:
            self.tracker.release(part.block)

    def _count_output(self, part: Part) -> None:
        self.output_blocks += 1
        self.output_rows += part.rows
        self.output_bytes += part.size_bytes


AnyOperator: TypeAlias = Operator[Any]
