"""What all operators have in common: where their blocks come from and go to, what they need, and
how they start in the middle.

An operator is the moving part of a `Stage`. Parts of blocks are handed from one to the next by
`add`, the end of an input by `end`; what it may do beyond that (start a task, say) it offers as a
`Move`, and the scheduler decides when. Restart points are described on each class; a point of an
operator stands for a row of its output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from syncline.data.execute.operators.ledger import Ledger, Part
from syncline.data.execute.stages import Grouping, Stage

if TYPE_CHECKING:
    from syncline.data.execute.operators.tasked import Task

G = TypeVar("G", bound=Grouping)


class Receiver(Protocol):
    """What comes after an operator."""

    def add(self, port: int, part: Part) -> None:
        """Takes over the next part of an input, and its reference to the block."""

    def end(self, port: int) -> None:
        """There are no more parts in an input."""


class Move(NamedTuple):
    """Something that an operator could do now."""

    size_bytes: int
    """What it is expected to add to the blocks that exist. What adds nothing always fits into the
    budget.
    """
    slots: float
    """CPUs that it needs."""
    is_ahead: bool
    """Whether its blocks are not those that come next in the operator's output."""
    make: Callable[[bool], Task | None]
    """Does it (the argument: although there is no free slot), and returns the task that runs now,
    if it is one.
    """


class Operator(Generic[G]):
    """Base of the operators; not for several threads.

    Subclasses define, unless they have no inputs, `add` and `_input_ended`; those that do more than
    to pass blocks on, `next_move`.
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
        ledger: Ledger,
        *,
        ordered: bool,
    ) -> None:
        self.number = number
        self.stage = stage
        self.grouping = grouping
        self.inputs = tuple(inputs)
        self.ledger = ledger
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

    def next_move(self) -> Move | None:
        """What it would do next if there was room; None if there is nothing."""
        return None

    def needed_ports(self) -> Sequence[int]:
        """The inputs that it cannot go on without."""
        return sorted(self.live_ports)

    def expect_at_most(self, rows: int) -> None:
        """No more than so many rows of its output will be used; it, and what is before it, need not
        start more than that takes.
        """

    def expect_more(self, rows: int) -> None:
        """So many of the rows that it was expected to make did not come out: as many more may be
        used.
        """

    # -- restart points

    def beginning(self) -> Any:
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

    def _restore_inputs_from_beginning(self) -> None:
        for each in self.inputs:
            each.restore(each.beginning())

    def _sliced(self, port: int, part: Part, start: int, stop: int) -> Part:
        """Rows of a part, numbered from its first one, with a reference of its own."""
        self.ledger.share(part.block)
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
            self.ledger.release(part.block)

    def _count_output(self, part: Part) -> None:
        self.output_blocks += 1
        self.output_rows += part.rows
        self.output_bytes += part.size_bytes
