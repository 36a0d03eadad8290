"""Operators that make tasks of one input as it comes: whole blocks (`Bundled`), or so many rows
(`Cut`).

Restart point of a task: `[its number, point of its first row in the input]`. Which parts a task
gets depends only on what has come since the task before it, so that starting there gives the same
tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic

from syncline.data.execute import stages
from syncline.data.execute.operators.base import G, Operator
from syncline.data.execute.operators.ledger import Ledger, Part
from syncline.data.execute.operators.tasked import QueuedOperator, Spec
from syncline.data.execute.stages import Stage


class _CollectingOperator(QueuedOperator[G], Generic[G]):
    """Collects parts until they make a task."""

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
        super().__init__(number, stage, grouping, inputs, ledger, ordered=ordered)
        self._collected: list[Part] = []
        self._collected_rows = 0
        self._made = 0  # number of the next task

    def _collect(self, part: Part) -> None:
        self._queue(part)
        self._collected.append(part)
        self._collected_rows += part.rows

    def _make_task(self) -> None:
        parts = tuple(self._collected)
        self._ready.append(
            Spec(self._made, [self._made, parts[0].point], (parts,), None, self._collected_rows)
        )
        self._made += 1
        self._collected = []
        self._collected_rows = 0

    def _input_ended(self, port: int) -> None:
        # Without any row there is still one task, for the sake of the columns.
        if self._collected_rows or (self._collected and not self._made):
            self._make_task()
        self._give_up_collected()
        self._check_end()

    def _give_up_collected(self) -> None:
        for part in self._collected:
            self._unqueue(part)
        self._release(self._collected)
        self._collected = []

    def beginning(self) -> Any:
        return [[0, self.inputs[0].beginning()], 0]

    def restore(self, point: Any) -> None:
        (self._made, input_point), self._skip_rows = point
        self.inputs[0].restore(input_point)

    def _release_all(self) -> None:
        super()._release_all()
        self._give_up_collected()


class BundledOperator(_CollectingOperator[stages.Bundled]):
    """A task as soon as there are so many rows. A bundle is kept whatever its size, also beyond the
    budget.
    """

    def add(self, port: int, part: Part) -> None:
        self._collect(part)
        if self._collected_rows >= max(1, self.grouping.min_rows):
            self._make_task()

    def _most_collected(self) -> int:
        return max(0, self.grouping.min_rows - 1)


class CutOperator(_CollectingOperator[stages.Cut]):
    """Tasks of so many rows, of several blocks if strict."""

    def add(self, port: int, part: Part) -> None:
        start = 0
        while start < part.rows:
            stop = min(part.rows, start + self.grouping.rows - self._collected_rows)
            self._collect(self._sliced(port, part, start, stop))
            start = stop
            if self._collected_rows == self.grouping.rows or not self.grouping.strict:
                self._make_task()
        if part.rows:
            self.ledger.release(part.block)
        else:
            self._collect(part)

    def _most_collected(self) -> int:
        return self.grouping.rows - 1 if self.grouping.strict else 0
