"""The operators of an execution as boxes, left to right as rows go through them; one below the other where the window is narrow.

A box says what its operator does now, and a bar where its time went. What it reads is said in words where that is not the box before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from syncline.dashboard import look
from syncline.dashboard.look.charts import PALETTE
from syncline.dashboard.operators import PARTS, OperatorView, PartKind

MOST_BOXES = 60
COLORS: dict[PartKind, str] = {
    "reading": PALETTE[0],
    "function": PALETTE[1],
    "other": PALETTE[6],
    "input": "#9aa5b4",
    "room": PALETTE[3],
    "rest": "var(--sl-line)",
}
_BOX = (
    "border: 1px solid var(--sl-line); border-radius: 8px; padding: 10px 12px; background: var(--sl-code); min-width: 0; "
    "display: flex; flex-direction: column; gap: 6px;"
)
_LIMITING_BOX = f"{_BOX} border: 2px solid var(--sl-warn); padding: 9px 11px;"
_BAR = "display: flex; height: 10px; width: 100%; border-radius: 5px; overflow: hidden; background: var(--sl-line);"


class OperatorGraph:
    """All operators of one pass; `set` shows others."""

    def __init__(self) -> None:
        self._shape: tuple[tuple[str, tuple[int, ...]], ...] = ()
        self._boxes: list[_Box] = []
        self.element = ui.element("ol").classes("flex flex-col md:flex-row md:flex-wrap gap-2 m-0 p-0 list-none w-full")
        self.element.props["aria-label"] = "Operators, in the order in which rows go through them"
        with ui.element("ul").classes("flex flex-wrap gap-x-4 gap-y-1 m-0 p-0 list-none sl-soft text-xs"):
            for kind, label in PARTS:
                with ui.element("li").classes("flex items-center gap-1"):
                    swatch = ui.element("span").style(f"width: 10px; height: 10px; border-radius: 2px; background: {COLORS[kind]};")
                    swatch.props["aria-hidden"] = "true"
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
                with ui.element("li").classes("flex flex-col md:flex-row items-center gap-2 min-w-0 w-full md:w-auto"):
                    if level:
                        _arrow()
                    with ui.element("div").classes("flex flex-col gap-2 min-w-0 w-full md:w-64"):
                        for operator in operators:
                            if operator.level == level:
                                boxes[operator.number] = _Box(operator, operators)
        self._boxes = [boxes[operator.number] for operator in operators]


def _arrow() -> None:
    for sign, classes in (("→", "hidden md:inline"), ("↓", "md:hidden")):
        look.Text("span", sign, f"sl-soft text-lg {classes}").props["aria-hidden"] = "true"


class _Box:
    """One operator."""

    def __init__(self, operator: OperatorView, operators: Sequence[OperatorView]) -> None:
        self._shown: OperatorView | None = None
        with ui.element("div").style(_BOX) as self._element:
            with ui.element("div").classes("flex flex-wrap items-center gap-2"):
                self._state = look.StateBadge()
                self._limits = look.Text("strong", "limits", "text-xs").style("color: var(--sl-warn)")
            look.Text("div", f"{operator.number + 1} · {operator.name}").style("font-weight: 600; overflow-wrap: anywhere;")
            if read := _reads(operator, operators):
                look.Text("div", read, "sl-soft text-xs")
            self._bar = ui.element("div").style(_BAR)
            self._bar.props["role"] = "img"
            self._lines = [look.Text("div", "", "text-xs") for _ in range(4)]

    def set(self, operator: OperatorView) -> None:
        if operator == self._shown:
            return
        if self._shown is None or operator.parts != self._shown.parts:
            self._draw_bar(operator)
        if self._shown is None or operator.limits != self._shown.limits:
            self._element.style(replace=_LIMITING_BOX if operator.limits else _BOX)
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
                ui.element("span").style(f"width: {100 * part.share:.2f}%; background: {COLORS[part.kind]};")
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
    rate = "" if operator.rows_per_s is None else f", {look.number(_whole(operator.rows_per_s))} rows/s"
    total = "" if operator.total is None else f" of {look.number(operator.total)}"
    tasks = f"{look.number(operator.tasks)}{total} tasks done, {look.number(operator.running)} running" if operator.parts else ""
    waits = [f"{look.number(operator.queued_rows)} rows queued"] if operator.queued_rows else []
    waits += [f"holds {look.size(operator.held_bytes)}"] if operator.held_bytes else []
    skipped = f"{look.number(operator.skipped_rows)} rows left out: a function failed" if operator.skipped_rows else ""
    return f"{look.number(operator.rows)} rows{rate}", tasks, ", ".join(waits), skipped


def _whole(rate: float) -> float | int:
    return round(rate) if rate >= 10 else rate
