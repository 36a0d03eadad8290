"""Tasks of equally many rows of every input, side by side (`Aligned`).

A task ends where a block of any input ends. Restart point of a task: `[its number, [point of its
first row in each input], rows before it]`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from syncline.data.execute import stages
from syncline.data.execute.operators.base import Operator
from syncline.data.execute.operators.ledger import Ledger, Part
from syncline.data.execute.operators.tasked import QueuedOperator, Spec
from syncline.data.execute.stages import Stage


class AlignedOperator(QueuedOperator[stages.Aligned]):
    """Holds the parts of each input until all have some. Fails where one input has ended and
    another has rows left.
    """

    def __init__(
        self,
        number: int,
        stage: Stage,
        grouping: stages.Aligned,
        inputs: Sequence[Operator[Any]],
        ledger: Ledger,
        *,
        ordered: bool,
    ) -> None:
        super().__init__(number, stage, grouping, inputs, ledger, ordered=ordered)
        self._held: tuple[deque[Part], ...] = tuple(deque() for _ in inputs)
        self._came = [0] * len(self.inputs)  # rows of each input so far
        self._empty: dict[int, Part] = {}  # of inputs without rows so far: tells the columns
        self._made = 0
        self._rows_before = 0

    def add(self, port: int, part: Part) -> None:
        if not part.rows:
            self._keep_empty(port, part)
            return
        self._queue(part)
        self._held[port].append(part)
        self._came[port] += part.rows
        while all(self._held):
            self._make_task()
        self._check_equal()

    def _keep_empty(self, port: int, part: Part) -> None:
        if self._made or port in self._empty:
            self.ledger.release(part.block)
        else:
            self._queue(part)
            self._empty[port] = part

    def _make_task(self) -> None:
        rows = min(held[0].rows for held in self._held)
        ports = tuple((self._take(port, rows),) for port in range(len(self._held)))
        self._add_task(ports, rows)
        self._give_up_empty()

    def _add_task(self, ports: tuple[tuple[Part, ...], ...], rows: int) -> None:
        point = [self._made, [parts[0].point for parts in ports], self._rows_before]
        self._ready.append(Spec(self._made, point, ports, None, rows))
        self._made += 1
        self._rows_before += rows

    def _take(self, port: int, rows: int) -> Part:
        held = self._held[port]
        part = held[0]
        if part.rows == rows:
            return held.popleft()
        self.ledger.share(part.block)
        self.queued_blocks += 1
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
        self.ledger.failure = ValueError(
            f"zip puts rows side by side, but its input {short} has {self._came[short]} rows and its input {long} has {at_least}"
            f"{self._came[long]}: give it datasets with equally many rows"
        )

    def needed_ports(self) -> Sequence[int]:
        return [port for port in sorted(self.live_ports) if not self._held[port]]

    def beginning(self) -> Any:
        return [[0, [each.beginning() for each in self.inputs], 0], 0]

    def restore(self, point: Any) -> None:
        (self._made, points, self._rows_before), self._skip_rows = point
        self._came = [self._rows_before] * len(self.inputs)
        for each, input_point in zip(self.inputs, points, strict=True):
            each.restore(input_point)

    def _give_up_empty(self) -> None:
        for part in self._empty.values():
            self._unqueue(part)
            self.ledger.release(part.block)
        self._empty.clear()

    def _release_all(self) -> None:
        super()._release_all()
        for held in self._held:
            self._release(held)
            held.clear()
        self._give_up_empty()
