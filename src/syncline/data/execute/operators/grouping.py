"""Operators that make tasks of rows of their inputs: bundle, rebatch, repartition, zip.

Restart point of a task: `[its number, restart point of its first row in the input]` for bundle and
rebatch; its number for repartition, which starts its input from the beginning; `[its number,
[restart point of its first row in each input], rows before it]` for zip. The parts of a task depend
only on the input since the task before it, so restarting there gives the same tasks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic

from syncline.data.execute import physical_plan as stages
from syncline.data.execute.operators.base import G, OperatorSetup, Part, TaskSpec
from syncline.data.execute.operators.task_operator import QueuedOperator
from syncline.data.iterate.position import RestartPoint


class _CollectingOperator(QueuedOperator[G], Generic[G]):
    """Collects parts until they make a task."""

    def __init__(self, setup: OperatorSetup) -> None:
        super().__init__(setup)
        self._collected: list[Part] = []
        self._collected_rows = self._collected_bytes = 0
        self._made = 0  # number of the next task

    def _collect(self, part: Part) -> None:
        self.queued_rows += part.rows
        self._collected.append(part)
        self._collected_rows += part.rows
        self._collected_bytes += part.size_bytes

    def _make_task(self) -> None:
        parts = tuple(self._collected)
        self._ready.append(
            TaskSpec(self._made, [self._made, parts[0].point], (parts,), None, self._collected_rows)
        )
        self._made += 1
        self._collected = []
        self._collected_rows = self._collected_bytes = 0

    def _input_ended(self, port: int) -> None:
        # Without rows there is one task nevertheless, which keeps the columns.
        if self._collected_rows or (self._collected and not self._made):
            self._make_task()
        self._release_collected()
        self._check_end()

    def _release_collected(self) -> None:
        for part in self._collected:
            self.queued_rows -= part.rows
        self._release(self._collected)
        self._collected = []

    def first_point(self) -> RestartPoint:
        return [[0, self.inputs[0].first_point()], 0]

    def restore(self, point: RestartPoint) -> None:
        (self._made, input_point), self._skip_rows = point
        self.inputs[0].restore(input_point)

    def _release_all(self) -> None:
        super()._release_all()
        self._release_collected()


class BundleOperator(_CollectingOperator[stages.BundleBlocks]):
    """Makes a task once there are enough rows and bytes. A bundle may exceed the budget."""

    def add(self, port: int, part: Part) -> None:
        self._collect(part)
        if (
            self._collected_rows >= max(1, self.grouping.min_rows)
            and self._collected_bytes >= self.grouping.min_bytes
        ):
            self._make_task()

    def _max_collected_rows(self) -> int:
        return max(0, self.grouping.min_rows - 1)


class RebatchOperator(_CollectingOperator[stages.RebatchRows]):
    """Makes tasks of a fixed number of rows; with `strict`, across blocks."""

    def add(self, port: int, part: Part) -> None:
        start = 0
        while start < part.rows:
            stop = min(part.rows, start + self.grouping.rows - self._collected_rows)
            self._collect(self._sliced(port, part, start, stop))
            start = stop
            if self._collected_rows == self.grouping.rows or not self.grouping.strict:
                self._make_task()
        if part.rows:
            self.tracker.release(part.block)
        else:
            self._collect(part)

    def _max_collected_rows(self) -> int:
        return self.grouping.rows - 1 if self.grouping.strict else 0


class RepartitionOperator(QueuedOperator[stages.RepartitionRows]):
    """Splits the whole input into tasks whose numbers of rows differ by one at most."""

    needs_all = True

    def __init__(self, setup: OperatorSetup) -> None:
        super().__init__(setup)
        self._gathered: deque[Part] = deque()
        self._first = 0

    def add(self, port: int, part: Part) -> None:
        self.tracker.uncount(part.block)
        self.queued_rows += part.rows
        self._gathered.append(part)

    def _input_ended(self, port: int) -> None:
        if self._gathered:
            self._split()
        self._check_end()

    def _split(self) -> None:
        """Assign the rows to tasks. A task without rows gets an empty part for the columns."""
        left, count, before = self._gathered, self.grouping.parts, 0
        total = self.queued_rows
        for number in range(count):
            wanted = total * (number + 1) // count - before
            before += wanted
            parts = self._take_rows(wanted)
            if number < self._first:
                self._release_queued(parts)
            else:
                self._ready.append(TaskSpec(number, number, (parts,), None, wanted))
        self._release_queued(tuple(left))
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
                self.tracker.share(part.block)
                left[0] = part._replace(start=part.start + taken)
                part = part._replace(stop=part.start + taken)
            parts.append(part)
            wanted -= taken
        return tuple(parts)

    def _release_queued(self, parts: Sequence[Part]) -> None:
        for part in parts:
            self.queued_rows -= part.rows
        self._release(parts)

    def first_point(self) -> RestartPoint:
        return [0, 0]

    def restore(self, point: RestartPoint) -> None:
        self._first, self._skip_rows = point
        self._restart_inputs()

    def _release_all(self) -> None:
        super()._release_all()
        self._release(self._gathered)
        self._gathered.clear()


class ZipOperator(QueuedOperator[stages.ZipInputs]):
    """Makes tasks of equally many rows of every input; a task ends with a block of any input.

    Fails if an input has ended and another has rows left.
    """

    def __init__(self, setup: OperatorSetup) -> None:
        super().__init__(setup)
        self._held: tuple[deque[Part], ...] = tuple(deque() for _ in self.inputs)
        self._received = [0] * len(self.inputs)  # rows per input
        self._empty: dict[int, Part] = {}  # inputs without rows so far; they provide the columns
        self._made = 0
        self._rows_before = 0

    def add(self, port: int, part: Part) -> None:
        if not part.rows:
            self._keep_empty(port, part)
            return
        self.queued_rows += part.rows
        self._held[port].append(part)
        self._received[port] += part.rows
        while all(self._held):
            self._make_task()
        self._check_equal()

    def _keep_empty(self, port: int, part: Part) -> None:
        if self._made or port in self._empty:
            self.tracker.release(part.block)
        else:
            self._empty[port] = part

    def _make_task(self) -> None:
        rows = min(held[0].rows for held in self._held)
        ports = tuple((self._take(port, rows),) for port in range(len(self._held)))
        self._add_task(ports, rows)
        self._release_empty()

    def _add_task(self, ports: tuple[tuple[Part, ...], ...], rows: int) -> None:
        point = [self._made, [parts[0].point for parts in ports], self._rows_before]
        self._ready.append(TaskSpec(self._made, point, ports, None, rows))
        self._made += 1
        self._rows_before += rows

    def _take(self, port: int, rows: int) -> Part:
        held = self._held[port]
        part = held[0]
        if part.rows == rows:
            return held.popleft()
        self.tracker.share(part.block)
        held[0] = part._replace(
            start=part.start + rows, point=self.inputs[port].advance(part.point, rows)
        )
        return part._replace(stop=part.start + rows)

    def _input_ended(self, port: int) -> None:
        self._check_equal()
        if not self.live_ports and not self._made and len(self._empty) == len(self.inputs):
            self._add_task(tuple((self._empty.pop(each),) for each in range(len(self.inputs))), 0)
        self._check_end()

    def _check_equal(self) -> None:
        ended = [
            port
            for port in range(len(self.inputs))
            if port not in self.live_ports and not self._held[port]
        ]
        longer = [port for port, held in enumerate(self._held) if held]
        if not ended or not longer:
            return
        short, long = ended[0], longer[0]
        at_least = "at least " if long in self.live_ports else ""
        self.tracker.failure = ValueError(
            f"zip needs datasets with equally many rows, but input {short} has "
            f"{self._received[short]} rows and input {long} has {at_least}{self._received[long]}."
        )

    def needed_ports(self) -> Sequence[int]:
        return [port for port in sorted(self.live_ports) if not self._held[port]]

    def first_point(self) -> RestartPoint:
        return [[0, [each.first_point() for each in self.inputs], 0], 0]

    def restore(self, point: RestartPoint) -> None:
        (self._made, points, self._rows_before), self._skip_rows = point
        self._received = [self._rows_before] * len(self.inputs)
        for each, input_point in zip(self.inputs, points, strict=True):
            each.restore(input_point)

    def _release_empty(self) -> None:
        self._release(self._empty.values())
        self._empty.clear()

    def _release_all(self) -> None:
        super()._release_all()
        for held in self._held:
            self._release(held)
            held.clear()
        self._release_empty()
