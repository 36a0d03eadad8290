"""The operators of an execution as boxes, left to right as rows go through them; one below the
other where the window is narrow.

A box says what its operator does now, and a bar where its time went. What it reads is said in words
where that is not the box before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from syncline.dashboard import look
from syncline.dashboard.operators import PARTS, OperatorView, PartKind

MOST_BOXES = 60
"""Of larger plans the others are in the table alone."""


class OperatorGraph:
    """All operators of one pass; `set` shows others."""

    def __init__(self) -> None:
        self._shape: tuple[tuple[str, tuple[int, ...]], ...] = ()
        self._boxes: list[_Box] = []
        self.element = ui.element("ol").classes("sl-graph")
        self.element.props["aria-label"] = "Operators, in the order in which rows go through them"
        with ui.element("ul").classes("sl-legend"):
            for kind, label in PARTS:
                with ui.element("li"):
                    _part(kind)
                    look.Text("span", label)

    def set(self, operators: Sequence[OperatorView]) -> None:
        """Show these operators."""
        shown = operators[:MOST_BOXES]
        shape = tuple((operator.name, operator.inputs) for operator in shown)
        if shape != self._shape:
            self._shape = shape
            self._build(shown)
        for box, operator in zip(self._boxes, shown, strict=True):
            box.set(operator)

    def _build(self, operators: Sequence[OperatorView]) -> None:
        self.element.clear()
        boxes: dict[int, _Box] = {}
        with self.element:
            for level in sorted({operator.level for operator in operators}):
                with ui.element("li"), ui.element("div").classes("sl-level"):
                    for operator in operators:
                        if operator.level == level:
                            boxes[operator.number] = _Box(operator, operators)
        self._boxes = [boxes[operator.number] for operator in operators]


def _part(kind: PartKind) -> ui.element:
    made = ui.element("span").classes("sl-part")
    made.props["data-kind"] = kind
    return made


class _Box:
    """One operator."""

    def __init__(self, operator: OperatorView, operators: Sequence[OperatorView]) -> None:
        self._shown: OperatorView | None = None
        with ui.element("div").classes("sl-operator") as self._element:
            with ui.element("div").classes("sl-bar"):
                self._state = look.StateBadge()
                self._limits = look.Text("strong", "bottleneck")
            look.Text(
                "div",
                f"{operator.number + 1} · {operator.name.replace('->', ' → ')}",
                "sl-operator-name",
            )
            if read := _reads(operator, operators):
                look.Text("div", read, "sl-soft")
            self._bar = ui.element("div").classes("sl-parts")
            self._bar.props["role"] = "img"
            self._lines = [look.Text("div") for _ in range(4)]

    def set(self, operator: OperatorView) -> None:
        if operator == self._shown:
            return
        if self._shown is None or operator.parts != self._shown.parts:
            self._draw_bar(operator)
        if operator.limits != (self._shown is not None and self._shown.limits):
            self._element.props(
                add="data-limits" if operator.limits else None,
                remove=None if operator.limits else "data-limits",
            )
        self._shown = operator
        self._state.set(operator.state)
        self._limits.visible = operator.limits
        for line, said in zip(self._lines, _said(operator), strict=True):
            line.put(said)
            line.visible = bool(said)

    def _draw_bar(self, operator: OperatorView) -> None:
        labels = dict(PARTS)
        words = [f"{labels[part.kind]} {look.percent(part.share)}" for part in operator.parts]
        self._bar.visible = bool(words)
        self._bar.props["aria-label"] = f"Time: {', '.join(words)}"
        self._bar.props["title"] = "\n".join(words)
        self._bar.clear()
        with self._bar:
            for part in operator.parts:
                _part(part.kind).style(f"width: {100 * part.share:.2f}%")
        self._bar.update()


def _reads(operator: OperatorView, operators: Sequence[OperatorView]) -> str:
    """What it reads, unless the arrow before it says so."""
    before = [each.number for each in operators if each.level == operator.level - 1]
    beside = [each.number for each in operators if each.level == operator.level]
    if not operator.inputs or (list(operator.inputs) == before and len(beside) == 1):
        return ""
    return f"reads {', '.join(str(number + 1) for number in operator.inputs)}"


def _said(operator: OperatorView) -> tuple[str, str, str, str]:
    """What a box says below its bar: rows, tasks, what waits, what was left out."""
    rate = (
        ""
        if operator.rows_per_s is None
        else f", {look.number(_whole(operator.rows_per_s))} rows/s"
    )
    # What a shuffle makes of its input, in another number of tasks, is counted with it.
    total = (
        ""
        if operator.total is None or operator.total < operator.tasks
        else f" of {look.number(operator.total)}"
    )
    tasks = (
        f"{look.number(operator.tasks)}{total} tasks done, {look.number(operator.running)} running"
        if operator.parts
        else ""
    )
    waits = [f"{look.number(operator.queued_rows)} rows queued"] if operator.queued_rows else []
    waits += [f"holds {look.size(operator.held_bytes)}"] if operator.held_bytes else []
    skipped = (
        f"{look.number(operator.skipped_rows)} rows left out: a function failed"
        if operator.skipped_rows
        else ""
    )
    return f"{look.number(operator.rows)} rows{rate}", tasks, ", ".join(waits), skipped


def _whole(rate: float) -> float | int:
    return round(rate) if rate >= 10 else rate
