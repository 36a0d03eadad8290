"""Blocks that exist and go on as they are, as soon as there is room for them: held ones (`Passed`),
and shuffled ones (in `gathered`).
"""

from __future__ import annotations

from typing import Any, Generic

from syncline.data.execute import stages
from syncline.data.execute.messages import BlockFacts
from syncline.data.execute.operators.base import G, Move, Operator
from syncline.data.execute.operators.ledger import Part


class ReserveOperator(Operator[G], Generic[G]):
    """Base: passes block after block on. Restart point of a row: `[number of the block, rows of it
    before that]`.
    """

    _next = 0
    _skip_rows = 0

    def _next_bytes(self) -> int | None:
        """Size of the next block, None if there is none (yet)."""
        raise NotImplementedError

    def _take(self, number: int) -> Part:
        """The block with that number, which is the next."""
        raise NotImplementedError

    def next_move(self) -> Move | None:
        size_bytes = self._next_bytes()
        return None if size_bytes is None else Move(size_bytes, 0.0, False, self._pass_on)

    def _pass_on(self, beyond_slots: bool) -> None:
        number, skip_rows = self._next, self._skip_rows
        self._next, self._skip_rows = number + 1, 0
        part = self._take(number)
        self.ledger.count(part.block)
        part = Part(
            part.block, part.start + min(skip_rows, part.rows), part.stop, [number, skip_rows]
        )
        self._count_output(part)
        self._emit(part)
        self._check_end()

    def _check_end(self) -> None:
        if not self.closed and not self.live_ports and self._next_bytes() is None:
            self._finish()

    def beginning(self) -> Any:
        return [0, 0]

    def restore(self, point: Any) -> None:
        self._next, self._skip_rows = point
        self._restore_inputs_from_beginning()


class PassedOperator(ReserveOperator[stages.Passed]):
    """Blocks that somebody else holds; what they are called see `messages.Piece`."""

    first_name = 0
    """The name of the first block: a negative number."""

    def open(self) -> None:
        self._check_end()

    def _next_bytes(self) -> int | None:
        blocks = self.grouping.blocks
        return blocks[self._next].size_bytes if self._next < len(blocks) else None

    def _take(self, number: int) -> Part:
        held = self.grouping.blocks[number]
        facts = BlockFacts(self.first_name + number, held.num_rows, held.size_bytes)
        return Part(self.ledger.admit(facts, self.number), 0, held.num_rows, None)
