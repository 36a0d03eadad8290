"""Operators without tasks that hand blocks on at once: `First` rows, all (`Keeping`), and inputs
one after the other (`Chained`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Generic

from syncline.data.execute import stages
from syncline.data.execute.messages import Keep, Kept
from syncline.data.execute.operators.base import G, Operator
from syncline.data.execute.operators.ledger import Ledger, Part
from syncline.data.execute.stages import Stage


class PassingOperator(Operator[G], Generic[G]):
    """Base: so many rows of the output take no more than so many of each input."""

    def expect_at_most(self, rows: int) -> None:
        for each in self.inputs:
            each.expect_at_most(rows)

    def expect_more(self, rows: int) -> None:
        for each in self.inputs:
            each.expect_more(rows)


class FirstOperator(PassingOperator[stages.First]):
    """The first rows. Restart point of a row: `[rows passed on before, point in the input]`."""

    holds_blocks = False
    _passed = 0

    def open(self) -> None:
        left = self.grouping.rows - self._passed
        self.inputs[0].expect_at_most(left)
        if left <= 0:
            self._finish()

    def add(self, port: int, part: Part) -> None:
        rows = min(part.rows, self.grouping.rows - self._passed)
        part = part._replace(stop=part.start + rows, point=[self._passed, part.point])
        self._passed += rows
        self._count_output(part)
        self._emit(part)
        if self._passed >= self.grouping.rows:
            self._finish()

    def _input_ended(self, port: int) -> None:
        self._finish()

    def beginning(self) -> Any:
        return [0, self.inputs[0].beginning()]

    def restore(self, point: Any) -> None:
        self._passed, input_point = point
        self.inputs[0].restore(input_point)

    def advance(self, point: Any, rows: int, *, at_end: bool = False) -> Any:
        passed, input_point = point
        return [passed + rows, self.inputs[0].advance(input_point, rows, at_end=at_end)]


class KeepingOperator(PassingOperator[stages.Keeping]):
    """All rows; the driver is told of them, and when they were all. Restart point of a row: that of
    the input.
    """

    holds_blocks = False

    def add(self, port: int, part: Part) -> None:
        if self.grouping.keeper is not None:
            self.ledger.instructions.append(Keep(stage=self.number, piece=part.piece))
        self._count_output(part)
        self._emit(part)

    def _input_ended(self, port: int) -> None:
        if self.grouping.keeper is not None:
            self.ledger.instructions.append(Kept(stage=self.number))
        self._finish()

    def beginning(self) -> Any:
        return self.inputs[0].beginning()

    def restore(self, point: Any) -> None:
        self.inputs[0].restore(point)

    def advance(self, point: Any, rows: int, *, at_end: bool = False) -> Any:
        return self.inputs[0].advance(point, rows, at_end=at_end)


class ChainedOperator(PassingOperator[stages.Chained]):
    """One input after the other; without order all as they come. Restart point of a row: `[number
    of the input, point in it]`.
    """

    def __init__(
        self,
        number: int,
        stage: Stage,
        grouping: stages.Chained,
        inputs: Sequence[Operator[Any]],
        ledger: Ledger,
        *,
        ordered: bool,
    ) -> None:
        super().__init__(number, stage, grouping, inputs, ledger, ordered=ordered)
        self._current = 0
        self._held: tuple[deque[Part], ...] = tuple(deque() for _ in inputs)

    def open(self) -> None:
        for each in self.inputs[: self._current]:
            each.abandon()
        self.live_ports -= set(range(self._current))
        self._check_end()

    def add(self, port: int, part: Part) -> None:
        if self.ordered and port != self._current:
            self._queue(part)
            self._held[port].append(part)
        else:
            self._pass_on(port, part)

    def _pass_on(self, port: int, part: Part) -> None:
        part = part._replace(point=[port, part.point])
        self._count_output(part)
        self._emit(part)

    def _input_ended(self, port: int) -> None:
        while (
            self._current < len(self.inputs)
            and self._current not in self.live_ports
            and not self.closed
        ):
            self._current += 1
            held = self._held[self._current] if self._current < len(self.inputs) else None
            while held and not self.closed:
                part = held.popleft()
                self._unqueue(part)
                self._pass_on(self._current, part)
        self._check_end()

    def _check_end(self) -> None:
        if not self.live_ports:
            self._finish()

    def _release_all(self) -> None:
        for held in self._held:
            self._release(held)
            held.clear()

    def needed_ports(self) -> Sequence[int]:
        return (self._current,) if self.ordered else super().needed_ports()

    def beginning(self) -> Any:
        return [0, self.inputs[0].beginning()]

    def restore(self, point: Any) -> None:
        self._current, input_point = point
        for port, each in enumerate(self.inputs):
            each.restore(input_point if port == self._current else each.beginning())

    def advance(self, point: Any, rows: int, *, at_end: bool = False) -> Any:
        port, input_point = point
        return [port, self.inputs[port].advance(input_point, rows, at_end=at_end)]
