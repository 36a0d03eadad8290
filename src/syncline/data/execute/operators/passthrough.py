"""Blocks that exist and go on as they are, as soon as there is room for them: held ones (`SourceBlocks`),
and shuffled ones (in `gathered`).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from typing import Any, Generic

from syncline.data.execute import program as stages
from syncline.data.execute.messages import BlockInfo, TeeBlock, TeeEnded
from syncline.data.execute.operators.base import Action, BlockTracker, G, Operator, Part
from syncline.data.execute.program import Stage


class BlockQueueOperator(Operator[G], Generic[G]):
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

    def next_action(self) -> Action | None:
        size_bytes = self._next_bytes()
        return None if size_bytes is None else Action(size_bytes, 0.0, False, self._pass_on)

    def _pass_on(self, beyond_slots: bool) -> None:
        number, skip_rows = self._next, self._skip_rows
        self._next, self._skip_rows = number + 1, 0
        part = self._take(number)
        self.tracker.count(part.block)
        part = Part(
            part.block, part.start + min(skip_rows, part.rows), part.stop, [number, skip_rows]
        )
        self._count_output(part)
        self._emit(part)
        self._check_end()

    def _check_end(self) -> None:
        if not self.closed and not self.live_ports and self._next_bytes() is None:
            self._finish()

    def first_point(self) -> Any:
        return [0, 0]

    def restore(self, point: Any) -> None:
        self._next, self._skip_rows = point
        self._restart_inputs()


class SourceBlockOperator(BlockQueueOperator[stages.SourceBlocks]):
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
        info = BlockInfo(self.first_name + number, held.num_rows, held.size_bytes)
        return Part(self.tracker.admit(info, self.number), 0, held.num_rows, None)


class PassthroughOperator(Operator[G], Generic[G]):
    """Base: so many rows of the output take no more than so many of each input."""

    def limit_rows(self, rows: int) -> None:
        for each in self.inputs:
            each.limit_rows(rows)

    def extend_row_limit(self, rows: int) -> None:
        for each in self.inputs:
            each.extend_row_limit(rows)


class LimitOperator(PassthroughOperator[stages.LimitRows]):
    """The first rows. Restart point of a row: `[rows passed on before, point in the input]`."""

    holds_blocks = False
    _passed = 0

    def open(self) -> None:
        left = self.grouping.rows - self._passed
        self.inputs[0].limit_rows(left)
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

    def first_point(self) -> Any:
        return [0, self.inputs[0].first_point()]

    def restore(self, point: Any) -> None:
        self._passed, input_point = point
        self.inputs[0].restore(input_point)

    def advance(self, point: Any, rows: int, *, at_end: bool = False) -> Any:
        passed, input_point = point
        return [passed + rows, self.inputs[0].advance(input_point, rows, at_end=at_end)]


class TeeOperator(PassthroughOperator[stages.TeeBlocks]):
    """All rows; the driver is told of them, and when they were all. Restart point of a row: that of
    the input.
    """

    holds_blocks = False

    def add(self, port: int, part: Part) -> None:
        if self.grouping.writer is not None:
            self.tracker.instructions.append(TeeBlock(stage=self.number, piece=part.piece))
        self._count_output(part)
        self._emit(part)

    def _input_ended(self, port: int) -> None:
        if self.grouping.writer is not None:
            self.tracker.instructions.append(TeeEnded(stage=self.number))
        self._finish()

    def first_point(self) -> Any:
        return self.inputs[0].first_point()

    def restore(self, point: Any) -> None:
        self.inputs[0].restore(point)

    def advance(self, point: Any, rows: int, *, at_end: bool = False) -> Any:
        return self.inputs[0].advance(point, rows, at_end=at_end)


class UnionOperator(PassthroughOperator[stages.UnionInputs]):
    """One input after the other; without order all as they come. Restart point of a row: `[number
    of the input, point in it]`.
    """

    def __init__(
        self,
        number: int,
        stage: Stage,
        grouping: stages.UnionInputs,
        inputs: Sequence[Operator[Any]],
        tracker: BlockTracker,
        *,
        ordered: bool,
    ) -> None:
        super().__init__(number, stage, grouping, inputs, tracker, ordered=ordered)
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

    def first_point(self) -> Any:
        return [0, self.inputs[0].first_point()]

    def restore(self, point: Any) -> None:
        self._current, input_point = point
        for port, each in enumerate(self.inputs):
            each.restore(input_point if port == self._current else each.first_point())

    def advance(self, point: Any, rows: int, *, at_end: bool = False) -> Any:
        port, input_point = point
        return [port, self.inputs[port].advance(input_point, rows, at_end=at_end)]


class MixOperator(PassthroughOperator[stages.MixInputs]):
    """Hands on the blocks of the input whose turn it is, and holds those of the others."""

    def __init__(
        self,
        number: int,
        stage: Stage,
        grouping: stages.MixInputs,
        inputs: Sequence[Operator[Any]],
        tracker: BlockTracker,
        *,
        ordered: bool,
    ) -> None:
        super().__init__(number, stage, grouping, inputs, tracker, ordered=ordered)
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
        self._emit_ready()

    def add(self, port: int, part: Part) -> None:
        self._queue(part)
        self._held[port].append(part)
        self._emit_ready()

    def _input_ended(self, port: int) -> None:
        self._emit_ready()

    def _emit_ready(self) -> None:
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

    def first_point(self) -> Any:
        return [[[0] * len(self.inputs), 0], [each.first_point() for each in self.inputs]]

    def restore(self, point: Any) -> None:
        (passed, self._cut), points = point
        self._passed, self._points = list(passed), list(points)
        for each, input_point in zip(self.inputs, points, strict=True):
            each.restore(each.first_point() if input_point is None else input_point)

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


class ShuffleOperator(BlockQueueOperator[stages.ShuffleBlocks]):
    """All blocks of the input in an order that depends on the seed and their number alone."""

    def __init__(
        self,
        number: int,
        stage: Stage,
        grouping: stages.ShuffleBlocks,
        inputs: Sequence[Operator[Any]],
        tracker: BlockTracker,
        *,
        ordered: bool,
    ) -> None:
        super().__init__(number, stage, grouping, inputs, tracker, ordered=ordered)
        self._gathered: list[Part] = []
        self._shuffled: deque[Part] = deque()

    def add(self, port: int, part: Part) -> None:
        self.tracker.uncount(part.block)
        self._queue(part)
        self._gathered.append(part)

    def _input_ended(self, port: int) -> None:
        random.Random(self.grouping.seed).shuffle(self._gathered)
        self._shuffled.extend(self._gathered)
        self._gathered = []
        for _ in range(min(self._next, len(self._shuffled))):
            part = self._shuffled.popleft()
            self._unqueue(part)
            self.tracker.release(part.block)
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
