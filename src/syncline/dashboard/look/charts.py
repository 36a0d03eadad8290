"""Charts of lines: any number of them, in the colours of the page, light or dark.

Colours are expressions that the browser works out when it draws (keys with a colon); every other
value, names of lines among them, is data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from nicegui import ui

from syncline.dashboard.look.text import number, printable

PALETTE = (
    "#3d7be0",
    "#e08a1e",
    "#21a179",
    "#c65bb5",
    "#d9534f",
    "#14a3bd",
    "#8b72d8",
    "#9c8f14",
    "#6b8ea8",
    "#b56a4a",
)
"""Told apart on white and on near-black."""
FEW = 12
"""Up to so many lines have a legend and share one tooltip; of more, the one under the pointer is
named.
"""

Option = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a chart."""

    name: str
    """What the legend says; any text."""
    x: Sequence[float]
    """Where its points are: reports, steps, or seconds since the epoch."""
    y: Sequence[float | None]
    """As long as `x`; None and what is not finite leave a gap."""
    color: int | None = None
    """Number of its colour; its place among the lines if not given."""
    faint: bool = False
    """Thin and pale: single ranks beside their mean."""
    dashed: bool = False
    """Drawn in dashes."""
    step: bool = False
    """Constant until the next point."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A vertical line at some x: a restart, a checkpoint."""

    x: float
    """Where."""
    label: str
    """What happened."""
    kind: Literal["bad", "good", "plain"] = "plain"
    """Its colour."""


@dataclass(kw_only=True)
class LineChart:
    """A chart of lines; `set` shows others. Zooms with the wheel while Ctrl is held, and by
    dragging.

    Made where the page is built. Updates that change nothing send nothing, and where one has zoomed
    to stays.
    """

    title: str
    """Above it, and what it is called for those who do not see it."""
    x_label: str = ""
    """Below the horizontal axis."""
    y_label: str = ""
    """The unit of the vertical axis: in brackets behind the title."""
    over_time: bool = False
    """x is seconds since the epoch, shown as time of day."""
    from_zero: bool = False
    """The vertical axis begins at 0."""
    height: str = "16rem"
    """As CSS has it."""
    log_y: bool = False
    """The vertical axis is logarithmic: points at or below zero are left out."""
    element: ui.echart = field(init=False)
    """The element, to place it."""
    _lines: tuple[Line, ...] = field(init=False, default=())
    _marks: tuple[Mark, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        self.element = (
            ui.echart(self._options()).classes("sl-chart").style(f"height: {self.height}")
        )
        self.element.props["role"] = "img"
        self.element.props["tabindex"] = "0"
        self._describe()
        # The browser says so when light turns to dark: the colours are worked out again.
        ui.on("sl-theme", self.element.update)

    def set(self, lines: Sequence[Line], marks: Sequence[Mark] = ()) -> None:
        """Show these lines and marks instead of the present ones."""
        if tuple(lines) == self._lines and tuple(marks) == self._marks:
            return
        self._lines, self._marks = tuple(lines), tuple(marks)
        self._redraw()

    def set_log(self, log_y: bool) -> None:
        """Make the vertical axis logarithmic, or not."""
        if log_y != self.log_y:
            self.log_y = log_y
            self._redraw()

    def _redraw(self) -> None:
        self.element.options.clear()
        self.element.options.update(self._options())
        self._describe()
        self.element.update()

    def _describe(self) -> None:
        """What the chart says, in words."""
        ends = [
            (line.name, next((y for y in reversed(line.y) if y is not None), None))
            for line in self._lines[:FEW]
        ]
        said = "; ".join(f"{name} ends at {number(last)}" for name, last in ends)
        self.element.props["aria-label"] = printable(f"{self.title}: {said or 'no data yet'}", 1000)

    def _options(self) -> Option:
        many = len(self._lines) > FEW
        return {
            "animation": False,
            "color": list(PALETTE),
            "title": {
                "text": printable(
                    f"{self.title} ({self.y_label})" if self.y_label else self.title, 120
                ),
                "left": 4,
                "top": 0,
                "textStyle": {
                    "fontSize": 13,
                    "fontWeight": 600,
                    ":color": _css("--sl-ink"),
                    "width": 320,
                    "overflow": "truncate",
                },
            },
            "legend": {
                "show": 1 < len(self._lines) <= FEW,
                "type": "scroll",
                "top": 20,
                "left": 0,
                "itemHeight": 12,  # of a legend with pages, texts that are taller are cut
                "itemWidth": 16,
                "textStyle": {"fontSize": 11, ":color": _css("--sl-soft")},
                "pageTextStyle": {":color": _css("--sl-soft")},
                ":pageIconColor": _css("--sl-accent"),
            },
            "grid": self._grid(),
            # Drawn, not written as HTML: names of lines are foreign.
            "tooltip": {
                "trigger": "item" if many else "axis",
                "renderMode": "richText",
                "confine": True,
                "order": "valueDesc",
                ":backgroundColor": _css("--sl-panel"),
                ":borderColor": _css("--sl-line"),
                "textStyle": {"fontSize": 12, ":color": _css("--sl-ink")},
                "axisPointer": {"lineStyle": {":color": _css("--sl-soft")}},
            },
            "xAxis": self._axis("time" if self.over_time else "value", self.x_label),
            "yAxis": self._axis("log" if self.log_y else "value", ""),
            "dataZoom": [
                {
                    "type": "inside",
                    "zoomOnMouseWheel": "ctrl",
                    "moveOnMouseWheel": False,
                    "preventDefaultMouseMove": False,
                }
            ],
            "series": [self._series(line, place) for place, line in enumerate(self._lines)],
        }

    def _grid(self) -> Option:
        """Room for the title, the legend and what marks are called; for half of the last label; and
        for the name of the horizontal axis.
        """
        top = 34 + (14 if 1 < len(self._lines) <= FEW else 0) + (12 if self._marks else 0)
        return {
            "left": 8,
            "right": 26 if self.over_time else 18,
            "top": top,
            "bottom": 24 if self.x_label else 8,
            "containLabel": True,
        }

    def _axis(self, kind: str, label: str) -> Option:
        return {
            "type": kind,
            "scale": not self.from_zero,
            "name": printable(label, 80),
            "nameLocation": "middle",
            "nameGap": 24,
            "nameTextStyle": {"fontSize": 11, ":color": _css("--sl-soft")},
            "axisLabel": {"fontSize": 11, "hideOverlap": True, ":color": _css("--sl-soft")},
            "axisLine": {"lineStyle": {":color": _css("--sl-line")}},
            "splitLine": {"lineStyle": {":color": _css("--sl-line")}},
        }

    def _series(self, line: Line, place: int) -> Option:
        color = PALETTE[(place if line.color is None else line.color) % len(PALETTE)]
        scale = 1000 if self.over_time else 1
        points = [
            [x * scale, _drawable(y, self.log_y)] for x, y in zip(line.x, line.y, strict=True)
        ]
        made: Option = {
            "type": "line",
            "name": printable(line.name, 120),
            "data": points,
            "symbol": "circle",
            "showSymbol": len(points) == 1,
            "symbolSize": 6,
            "color": color,
            "lineStyle": {
                "width": 1 if line.faint else 1.8,
                "opacity": 0.45 if line.faint else 1.0,
                "type": "dashed" if line.dashed else "solid",
            },
            "emphasis": {"focus": "series"} if len(self._lines) > 1 else {"disabled": True},
            "sampling": "lttb",
        }
        if line.step:
            made["step"] = "end"
        if place == 0 and self._marks:
            made["markLine"] = {
                "symbol": "none",
                "silent": True,
                "data": [self._mark(mark, scale) for mark in self._marks],
            }
        return made

    def _mark(self, mark: Mark, scale: int) -> Option:
        color = {"bad": "--sl-bad", "good": "--sl-good", "plain": "--sl-soft"}[mark.kind]
        label: Mapping[str, object] = {
            "formatter": "{b}",
            "fontSize": 10,
            ":color": _css(color),
            "position": "end",
            "distance": 3,
        }
        return {
            "xAxis": mark.x * scale,
            "name": printable(mark.label, 60),
            "label": label,
            "lineStyle": {":color": _css(color), "type": "dashed", "width": 1},
        }


def _css(variable: str) -> str:
    """The expression that gives a colour of the page."""
    return f"slColor('{variable}')"


def _drawable(y: float | None, log_y: bool) -> float | None:
    return None if y is None or not math.isfinite(y) or (log_y and y <= 0) else y
