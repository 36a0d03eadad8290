"""The blocks of an execution: who needs them, which count against the budget, and what is to be
said to the driver about them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from syncline.data.execute.messages import BlockFacts, Drop, Instruction, Piece

if TYPE_CHECKING:
    from syncline.data.execute.operators.tasked import Task


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


class Ledger:
    """Counts references and bytes; a block is dropped, once, when its last reference is released.

    Blocks that a stage needs all of before it can go on (`Exchanged`, `CutEvenly`, `Shuffled`) do
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

    def admit(self, facts: BlockFacts, maker: int, *, counted: bool = True) -> Block:
        """A block that exists from now on, with one reference."""
        block = Block(facts.block, facts.rows, facts.size_bytes, maker)
        self.blocks[facts.block] = block
        self.stage_bytes[maker] += facts.size_bytes
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
