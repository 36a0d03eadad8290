"""Blocks of several inputs in turns (`Interleaved`).

The input whose turn it is is the one that lags furthest behind its weight, by rows passed on: the
smallest `rows / weight`. It is waited for, so that the order depends on the blocks alone. An input
ends when it has its turn and nothing more. Restart point of a row: `[[[rows passed on of each
input, before its block], rows of the block before it], [point of each input]]`, with null for an
input that has ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from syncline.data.execute import stages
from syncline.data.execute.operators.base import Operator
from syncline.data.execute.operators.ledger import Ledger, Part
from syncline.data.execute.operators.passing import PassingOperator
from syncline.data.execute.stages import Stage


class InterleavedOperator(PassingOperator[stages.Interleaved]):
    """Hands on the blocks of the input whose turn it is, and holds those of the others."""

    def __init__(
        self,
        number: int,
        stage: Stage,
        grouping: stages.Interleaved,
        inputs: Sequence[Operator[Any]],
        ledger: Ledger,
        *,
        ordered: bool,
    ) -> None:
        super().__init__(number, stage, grouping, inputs, ledger, ordered=ordered)
        self._held: tuple[deque[Part], ...] = tuple(deque() for _ in inputs)
        self._passed = [0] * len(self.inputs)
        self._cut = 0  # rows of the next block that were passed on in an earlier execution
        self._points: list[
            Any
        ] = []  # of the row after the last one passed on, by input; None for those that have ended

    def open(self) -> None:
        for port, point in enumerate(self._points):
            if point is None:
                self.live_ports.discard(port)
                self.inputs[port].abandon()
        self._go_on()

    def add(self, port: int, part: Part) -> None:
        self._queue(part)
        self._held[port].append(part)
        self._go_on()

    def _input_ended(self, port: int) -> None:
        self._go_on()

    def _go_on(self) -> None:
        """Hands on what there is, as far as turns allow."""
        while not self.closed:
            port = self._turn(self._passed, self._points)
            if port is None:
                self._finish()
            elif self._held[port]:
                self._pass_on(port)
            elif port in self.live_ports:
                return
            elif self.grouping.until_shortest:
                self._finish()
            else:
                self._points[port] = None

    def _pass_on(self, port: int) -> None:
        part = self._held[port].popleft()
        self._unqueue(part)
        points = self._points.copy()
        points[port] = part.point
        point = [[self._passed.copy(), self._cut], points]
        if part.rows:
            self._passed[port] += self._cut + part.rows
            self._cut = 0
        self._points[port] = self.inputs[port].advance(part.point, part.rows, at_end=True)
        part = part._replace(point=point)
        self._count_output(part)
        self._emit(part)

    def _turn(self, passed: Sequence[int], points: Sequence[Any]) -> int | None:
        """The input whose turn it is; None if all have ended."""
        weights = self.grouping.weights
        open_ports = [port for port, point in enumerate(points) if point is not None]
        return min(open_ports, key=lambda port: passed[port] / weights[port], default=None)

    def _release_all(self) -> None:
        for held in self._held:
            self._release(held)
            held.clear()

    def needed_ports(self) -> Sequence[int]:
        turn = self._turn(self._passed, self._points)
        return () if turn is None else (turn,)

    def beginning(self) -> Any:
        return [[[0] * len(self.inputs), 0], [each.beginning() for each in self.inputs]]

    def restore(self, point: Any) -> None:
        (passed, self._cut), points = point
        self._passed, self._points = list(passed), list(points)
        for each, input_point in zip(self.inputs, points, strict=True):
            each.restore(each.beginning() if input_point is None else input_point)

    def advance(self, point: Any, rows: int, *, at_end: bool = False) -> Any:
        (passed, cut), points = point
        port = self._turn(passed, points)
        assert port is not None, f"no input has its turn at {point}"
        moved_points = list(points)
        moved_points[port] = self.inputs[port].advance(points[port], rows, at_end=at_end)
        if not at_end or not rows:
            return [[passed, cut + rows], moved_points]
        moved = list(passed)
        moved[port] += cut + rows
        return [[moved, 0], moved_points]
