"""Operators that need their whole input before they go on: evenly cut (`CutEvenly`), and blocks in
random order (`Shuffled`).

What they gather does not count against the budget (see `Ledger`). Restart point of a row: `[number
of the task or block, rows of it before that]`; everything upstream starts from its beginning.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from typing import Any

from syncline.data.execute import stages
from syncline.data.execute.operators.base import Operator
from syncline.data.execute.operators.ledger import Ledger, Part
from syncline.data.execute.operators.reserve import ReserveOperator
from syncline.data.execute.operators.tasked import QueuedOperator, Spec
from syncline.data.execute.stages import Stage


class CutEvenlyOperator(QueuedOperator[stages.CutEvenly]):
    """As many tasks as asked for, whose rows differ by one at most."""

    needs_all = True

    def __init__(
        self,
        number: int,
        stage: Stage,
        grouping: stages.CutEvenly,
        inputs: Sequence[Operator[Any]],
        ledger: Ledger,
        *,
        ordered: bool,
    ) -> None:
        super().__init__(number, stage, grouping, inputs, ledger, ordered=ordered)
        self._gathered: deque[Part] = deque()
        self._first = 0

    def add(self, port: int, part: Part) -> None:
        self.ledger.uncount(part.block)
        self._queue(part)
        self._gathered.append(part)

    def _input_ended(self, port: int) -> None:
        if self._gathered:
            self._cut()
        self._check_end()

    def _cut(self) -> None:
        """Deals out the rows. A task without rows gets an empty part, for the sake of the
        columns.
        """
        left, count, before = self._gathered, self.grouping.parts, 0
        total = self.queued_rows
        for number in range(count):
            wanted = total * (number + 1) // count - before
            before += wanted
            parts = self._take_rows(wanted)
            if number < self._first:
                self._give_up(parts)
            else:
                self._ready.append(Spec(number, number, (parts,), None, wanted))
        self._give_up(tuple(left))
        left.clear()

    def _take_rows(self, wanted: int) -> tuple[Part, ...]:
        left = self._gathered
        parts: list[Part] = []
        while wanted or not parts:
            part = left[0]
            taken = min(wanted, part.rows)
            if taken == part.rows and (wanted or len(left) > 1):
                left.popleft()
            else:
                self.ledger.share(part.block)
                left[0] = part._replace(start=part.start + taken)
                part = part._replace(stop=part.start + taken)
                self.queued_blocks += 1
            parts.append(part)
            wanted -= taken
        return tuple(parts)

    def _give_up(self, parts: Sequence[Part]) -> None:
        for part in parts:
            self._unqueue(part)
        self._release(parts)

    def beginning(self) -> Any:
        return [0, 0]

    def restore(self, point: Any) -> None:
        self._first, self._skip_rows = point
        self._restore_inputs_from_beginning()

    def _release_all(self) -> None:
        super()._release_all()
        self._release(self._gathered)
        self._gathered.clear()


class ShuffledOperator(ReserveOperator[stages.Shuffled]):
    """All blocks of the input in an order that depends on the seed and their number alone."""

    def __init__(
        self,
        number: int,
        stage: Stage,
        grouping: stages.Shuffled,
        inputs: Sequence[Operator[Any]],
        ledger: Ledger,
        *,
        ordered: bool,
    ) -> None:
        super().__init__(number, stage, grouping, inputs, ledger, ordered=ordered)
        self._gathered: list[Part] = []
        self._shuffled: deque[Part] = deque()

    def add(self, port: int, part: Part) -> None:
        self.ledger.uncount(part.block)
        self._queue(part)
        self._gathered.append(part)

    def _input_ended(self, port: int) -> None:
        random.Random(self.grouping.seed).shuffle(self._gathered)
        self._shuffled.extend(self._gathered)
        self._gathered = []
        for _ in range(min(self._next, len(self._shuffled))):
            part = self._shuffled.popleft()
            self._unqueue(part)
            self.ledger.release(part.block)
        self._check_end()

    def _next_bytes(self) -> int | None:
        return self._shuffled[0].block.size_bytes if self._shuffled else None

    def _take(self, number: int) -> Part:
        part = self._shuffled.popleft()
        self._unqueue(part)
        return part

    def _release_all(self) -> None:
        self._release(self._gathered)
        self._gathered = []
        self._release(self._shuffled)
        self._shuffled.clear()
