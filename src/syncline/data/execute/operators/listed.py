"""Tasks that are known from the beginning, such as reading. Task `i` has the restart point `i`."""

from __future__ import annotations

from typing import Any

from syncline.data.execute import stages
from syncline.data.execute.operators.tasked import Spec, TaskedOperator


class ListedOperator(TaskedOperator[stages.Listed]):
    """A task per payload, but for those that are done."""

    _next = 0

    def open(self) -> None:
        self._skip_done()
        self._check_end()

    def _skip_done(self) -> None:
        while self._next in self.grouping.done:
            self._next += 1
            self._skip_rows = 0

    def _has_spec(self) -> bool:
        return self._next < len(self.grouping.payloads)

    def _take_spec(self) -> Spec:
        number, payload = self._next, self.grouping.payloads[self._next]
        self._next += 1
        self._skip_done()
        return Spec(number, number, (), payload, getattr(payload, "num_rows", None))

    @property
    def total(self) -> int | None:
        return len(self.grouping.payloads) - len(self.grouping.done)

    def beginning(self) -> Any:
        return [0, 0]

    def restore(self, point: Any) -> None:
        self._next, self._skip_rows = point
