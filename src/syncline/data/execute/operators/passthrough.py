"""Operators without tasks, which pass blocks on: source blocks, shuffle, limit, tee, union, mix."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from typing import Generic

from syncline.data.execute import physical_plan as stages
from syncline.data.execute.messages import BlockInfo, TeeBlock, TeeEnded
from syncline.data.execute.operators.base import Action, G, Operator, OperatorSetup, Part
from syncline.data.iterate.position import RestartPoint


class BlockQueueOperator(Operator[G], Generic[G]):
    """Base: emits existing blocks one by one as the budget allows.

    Restart point of a row: `[number of the block, rows of the block before it]`.
    """

    _next = 0
    _skip_rows = 0

    def _next_bytes(self) -> int | None:
        """Return the size of the next block, or None without a block so far."""
        raise NotImplementedError

    def _take(self, number: int) -> Part:
        """Return the next block, which has this number."""
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
        self._count_and_emit(part)
        self._check_end()

    def _check_end(self) -> None:
        if not self.closed and not self.live_ports and self._next_bytes() is None:
            self._finish()

    def first_point(self) -> RestartPoint:
        return [0, 0]

    def restore(self, point: RestartPoint) -> None:
        self._next, self._skip_rows = point
        self._restart_inputs()


class SourceBlockOperator(BlockQueueOperator[stages.SourceBlocks]):
    """Emits blocks that exist outside of the execution."""

    first_number = 0
    """Number of the first block; negative, see `messages.Piece`."""

    def open(self) -> None:
        self._check_end()

    def _next_bytes(self) -> int | None:
        blocks = self.grouping.blocks
        return blocks[self._next].size_bytes if self._next < len(blocks) else None

    def _take(self, number: int) -> Part:
        held = self.grouping.blocks[number]
        info = BlockInfo(self.first_number + number, held.num_rows, held.size_bytes)
        return Part(self.tracker.admit(info, self.number), 0, held.num_rows, None)


class PassthroughOperator(Operator[G], Generic[G]):
    """Base: a number of output rows takes no more rows of each input."""

    def limit_rows(self, rows: int) -> None:
        for each in self.inputs:
            each.limit_rows(rows)

    def extend_row_limit(self, rows: int) -> None:
        for each in self.inputs:
            each.extend_row_limit(rows)


class LimitOperator(PassthroughOperator[stages.LimitRows]):
    """Emits the first rows. Restart point: `[rows emitted before, restart point in the input]`."""

    holds_blocks = False
    _emitted = 0

    def open(self) -> None:
        left = self.grouping.rows - self._emitted
        self.inputs[0].limit_rows(left)
        if left <= 0:
            self._finish()

    def add(self, port: int, part: Part) -> None:
        rows = min(part.rows, self.grouping.rows - self._emitted)
        part = part._replace(stop=part.start + rows, point=[self._emitted, part.point])
        self._emitted += rows
        self._count_and_emit(part)
        if self._emitted >= self.grouping.rows:
            self._finish()

    def _input_ended(self, port: int) -> None:
        self._finish()

    def first_point(self) -> RestartPoint:
        return [0, self.inputs[0].first_point()]

    def restore(self, point: RestartPoint) -> None:
        self._emitted, input_point = point
        self.inputs[0].restore(input_point)

    def advance(self, point: RestartPoint, rows: int, *, at_end: bool = False) -> RestartPoint:
        emitted, input_point = point
        return [emitted + rows, self.inputs[0].advance(input_point, rows, at_end=at_end)]


class TeeOperator(PassthroughOperator[stages.TeeBlocks]):
    """Emits all rows and copies them to a cache writer. Restart points are those of the input."""

    holds_blocks = False

    def add(self, port: int, part: Part) -> None:
        if self.grouping.writer is not None:
            self.tracker.instructions.append(TeeBlock(stage=self.number, piece=part.piece))
        self._count_and_emit(part)

    def _input_ended(self, port: int) -> None:
        if self.grouping.writer is not None:
            self.tracker.instructions.append(TeeEnded(stage=self.number))
        self._finish()

    def first_point(self) -> RestartPoint:
        return self.inputs[0].first_point()

    def restore(self, point: RestartPoint) -> None:
        self.inputs[0].restore(point)

    def advance(self, point: RestartPoint, rows: int, *, at_end: bool = False) -> RestartPoint:
        return self.inputs[0].advance(point, rows, at_end=at_end)


class _MergeOperator(PassthroughOperator[G], Generic[G]):
    """Base: holds parts of inputs that are not the current one."""

    def __init__(self, setup: OperatorSetup) -> None:
        super().__init__(setup)
        self._held: tuple[deque[Part], ...] = tuple(deque() for _ in self.inputs)

    def _release_all(self) -> None:
        for held in self._held:
            self._release(held)
            held.clear()


class UnionOperator(_MergeOperator[stages.UnionInputs]):
    """Emits one input after the other; without order, all inputs as they arrive.

    Restart point of a row: `[number of the input, restart point in it]`.
    """

    _current = 0

    def open(self) -> None:
        for each in self.inputs[: self._current]:
            each.abandon()
        self.live_ports -= set(range(self._current))
        self._check_end()

    def add(self, port: int, part: Part) -> None:
        if self.ordered and port != self._current:
            self.queued_rows += part.rows
            self._held[port].append(part)
        else:
            self._pass_on(port, part)

    def _pass_on(self, port: int, part: Part) -> None:
        self._count_and_emit(part._replace(point=[port, part.point]))

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
                self.queued_rows -= part.rows
                self._pass_on(self._current, part)
        self._check_end()

    def _check_end(self) -> None:
        if not self.live_ports:
            self._finish()

    def needed_ports(self) -> Sequence[int]:
        return (self._current,) if self.ordered else super().needed_ports()

    def first_point(self) -> RestartPoint:
        return [0, self.inputs[0].first_point()]

    def restore(self, point: RestartPoint) -> None:
        self._current, input_point = point
        for port, each in enumerate(self.inputs):
            each.restore(input_point if port == self._current else each.first_point())

    def advance(self, point: RestartPoint, rows: int, *, at_end: bool = False) -> RestartPoint:
        port, input_point = point
        return [port, self.inputs[port].advance(input_point, rows, at_end=at_end)]


class MixOperator(_MergeOperator[stages.MixInputs]):
    """Emits the blocks of the input that is furthest behind its weight.

    That is the input with the smallest `rows / weight`, by emitted rows. It is waited for, so that
    the order depends on the blocks alone. An input ends when it is its turn and it has no more
    rows. Restart point of a row: `[[[rows of each input emitted before its block], rows of the
    block before it], [restart point of each input]]`, with null for an ended input.
    """

    def __init__(self, setup: OperatorSetup) -> None:
        super().__init__(setup)
        self._emitted = [0] * len(self.inputs)
        self._skipped_rows = 0  # rows of the next block that an earlier execution delivered
        # Restart point of the next row of each input; None for ended inputs.
        self._points: list[RestartPoint] = []

    def open(self) -> None:
        for port, point in enumerate(self._points):
            if point is None:
                self.live_ports.discard(port)
                self.inputs[port].abandon()
        self._emit_ready()

    def add(self, port: int, part: Part) -> None:
        self.queued_rows += part.rows
        self._held[port].append(part)
        self._emit_ready()

    def _input_ended(self, port: int) -> None:
        self._emit_ready()

    def _emit_ready(self) -> None:
        """Emit the parts that are next."""
        while not self.closed:
            port = self._next_port(self._emitted, self._points)
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
        self.queued_rows -= part.rows
        points = self._points.copy()
        points[port] = part.point
        point = [[self._emitted.copy(), self._skipped_rows], points]
        if part.rows:
            self._emitted[port] += self._skipped_rows + part.rows
            self._skipped_rows = 0
        self._points[port] = self.inputs[port].advance(part.point, part.rows, at_end=True)
        self._count_and_emit(part._replace(point=point))

    def _next_port(self, emitted: Sequence[int], points: Sequence[RestartPoint]) -> int | None:
        """Return the input whose turn it is; None if all have ended."""
        weights = self.grouping.weights
        open_ports = [port for port, point in enumerate(points) if point is not None]
        return min(open_ports, key=lambda port: emitted[port] / weights[port], default=None)

    def needed_ports(self) -> Sequence[int]:
        port = self._next_port(self._emitted, self._points)
        return () if port is None else (port,)

    def first_point(self) -> RestartPoint:
        return [[[0] * len(self.inputs), 0], [each.first_point() for each in self.inputs]]

    def restore(self, point: RestartPoint) -> None:
        (emitted, self._skipped_rows), points = point
        self._emitted, self._points = list(emitted), list(points)
        for each, input_point in zip(self.inputs, points, strict=True):
            each.restore(each.first_point() if input_point is None else input_point)

    def advance(self, point: RestartPoint, rows: int, *, at_end: bool = False) -> RestartPoint:
        (emitted, skipped), points = point
        port = self._next_port(emitted, points)
        assert port is not None, f"all inputs have ended at {point}"
        moved_points = list(points)
        moved_points[port] = self.inputs[port].advance(points[port], rows, at_end=at_end)
        if not at_end or not rows:
            return [[emitted, skipped + rows], moved_points]
        moved = list(emitted)
        moved[port] += skipped + rows
        return [[moved, 0], moved_points]


class ShuffleOperator(BlockQueueOperator[stages.ShuffleBlocks]):
    """Emits all blocks of the input in an order that depends on the seed and their numbers."""

    def __init__(self, setup: OperatorSetup) -> None:
        super().__init__(setup)
        self._gathered: list[Part] = []
        self._shuffled: deque[Part] = deque()

    def add(self, port: int, part: Part) -> None:
        self.tracker.uncount(part.block)
        self.queued_rows += part.rows
        self._gathered.append(part)

    def _input_ended(self, port: int) -> None:
        random.Random(self.grouping.seed).shuffle(self._gathered)
        self._shuffled.extend(self._gathered)
        self._gathered = []
        for _ in range(min(self._next, len(self._shuffled))):
            part = self._shuffled.popleft()
            self.queued_rows -= part.rows
            self.tracker.release(part.block)
        self._check_end()

    def _next_bytes(self) -> int | None:
        return self._shuffled[0].block.size_bytes if self._shuffled else None

    def _take(self, number: int) -> Part:
        part = self._shuffled.popleft()
        self.queued_rows -= part.rows
        return part

    def _release_all(self) -> None:
        self._release(self._gathered)
        self._gathered = []
        self._release(self._shuffled)
        self._shuffled.clear()
