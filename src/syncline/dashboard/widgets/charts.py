"""Charts: lines and stacked bars, in the colors of the page.

Colors are expressions that the browser evaluates when it draws (keys with a colon); all other
values, such as names of lines, are data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nicegui import ui

from syncline.dashboard.formatting import number, printable
from syncline.dashboard.widgets.elements import Text

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
"""Colors that are distinguishable on white and on near-black."""
FEW = 12
"""Maximum lines with a legend and a common tooltip; with more, the tooltip names a single line."""

Option = dict[str, object]
DRAW_BAND = """(params, api) => {
  const at = (x, y) => api.coord([api.value(x), api.value(y)]);
  return {
    type: 'polygon',
    shape: {points: [at(0, 1), at(3, 4), at(3, 5), at(0, 2)]},
    style: {fill: api.visual('color'), opacity: 0.18},
  };
}"""
"""Draws the piece of a band between two positions; the data are [x, low, high, x, low, high]."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a chart."""

    name: str
    """Name in the legend; any text."""
    x: Sequence[float]
    """Positions: reports, steps, or seconds since the epoch."""
    y: Sequence[float | None]
    """Values, as many as `x`; None and non-finite values leave gaps."""
    color: int | None = None
    """Index of the color; by default the position among the lines."""
    faint: bool = False
    """Draw thin and pale, for single ranks next to their mean."""
    dashed: bool = False
    """Draw dashed."""
    behind: bool = False
    """Draw thin and pale without a legend entry and a tooltip, for values behind their smoothed
    curve.
    """
    low: Sequence[float] = ()
    """Lower limits of a band around the line, as many as `x`; empty without a band."""
    high: Sequence[float] = ()
    """Upper limits of the band."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Vertical line for a restart."""

    x: float
    """Position."""
    label: str
    """Label."""


@dataclass(kw_only=True)
class LineChart:
    """Chart of lines. Zooms with Ctrl and the mouse wheel; scrolls by dragging.

    Create it while the page is built. `set` replaces the lines; unchanged data is not sent again,
    and the zoom is kept.
    """

    title: str
    """Title, also used for screen readers."""
    x_label: str = ""
    """Label of the horizontal axis."""
    y_label: str = ""
    """Unit of the vertical axis, shown in parentheses after the title."""
    over_time: bool = False
    """x is seconds since the epoch, shown as time of day."""
    from_zero: bool = False
    """The vertical axis begins at 0."""
    height: str = "16rem"
    """Height in CSS units."""
    log_y: bool = False
    """Logarithmic vertical axis; points at or below zero are left out."""
    fewest_named: int = 2
    """Minimum number of lines for a legend; 1 if the name of a single line is informative."""
    element: ui.echart = field(init=False)
    """Underlying element."""
    _lines: tuple[Line, ...] = field(init=False, default=())
    _marks: tuple[Mark, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        self.element = (
            ui.echart(self._options()).classes("sl-chart").style(f"height: {self.height}")
        )
        self.element.props["role"] = "img"
        self.element.props["tabindex"] = "0"
        self._describe()
        # Sent by the browser when the color mode changes; the colors are evaluated again.
        ui.on("sl-theme", self.element.update)

    def set(self, lines: Sequence[Line], marks: Sequence[Mark] = ()) -> None:
        """Replace lines and marks."""
        if tuple(lines) == self._lines and tuple(marks) == self._marks:
            return
        self._lines, self._marks = tuple(lines), tuple(marks)
        self._redraw()

    def set_log(self, log_y: bool) -> None:
        """Set the scale of the vertical axis."""
        if log_y != self.log_y:
            self.log_y = log_y
            self._redraw()

    def _redraw(self) -> None:
        self.element.options.clear()
        self.element.options.update(self._options())
        self._describe()
        self.element.update()

    def _describe(self) -> None:
        """Set the description for screen readers."""
        ends = [
            (line.name, next((y for y in reversed(line.y) if y is not None), None))
            for line in [line for line in self._lines if not line.behind][:FEW]
        ]
        said = "; ".join(f"{name} ends at {number(last)}" for name, last in ends)
        self.element.props["aria-label"] = printable(f"{self.title}: {said or 'no data yet'}", 1000)

    def _options(self) -> Option:
        named = [printable(line.name, 120) for line in self._lines if not line.behind]
        many = len(named) > FEW
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
                "show": self.fewest_named <= len(named) <= FEW,
                "data": named,
                "type": "scroll",
                "top": 20,
                "left": 0,
                "itemHeight": 12,  # taller texts are cut off in a legend with pages
                "itemWidth": 16,
                "textStyle": {"fontSize": 11, ":color": _css("--sl-soft")},
                "pageTextStyle": {":color": _css("--sl-soft")},
                ":pageIconColor": _css("--sl-accent"),
            },
            "grid": self._grid(),
            # Rendered as text instead of HTML, because names of lines are untrusted.
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
            "series": [
                *(self._series(line, place) for place, line in enumerate(self._lines)),
                *(self._band(line, place) for place, line in enumerate(self._lines) if line.low),
            ],
        }

    def _grid(self) -> Option:
        """Return the margins: room for title, legend, labels of marks and the axis name."""
        named = sum(not line.behind for line in self._lines)
        top = 34 + (14 if self.fewest_named <= named <= FEW else 0) + (12 if self._marks else 0)
        return {
            "left": 8,
            "right": 30,  # half of the last label of the axis
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

    def _band(self, line: Line, place: int) -> Option:
        """Return the band of a line; it shares the line's name, so that the legend hides both."""
        scale = 1000 if self.over_time else 1
        corners = [
            [x * scale, low, high] for x, low, high in zip(line.x, line.low, line.high, strict=True)
        ]
        return {
            "type": "custom",
            "name": printable(line.name, 120),
            "data": [first + second for first, second in zip(corners, corners[1:], strict=False)],
            "encode": {"x": [0, 3], "y": [1, 2, 4, 5]},
            ":renderItem": DRAW_BAND,
            "itemStyle": {"color": _color(line, place)},
            "silent": True,
            "clip": True,
            "tooltip": {"show": False},
            "z": 1,
        }

    def _series(self, line: Line, place: int) -> Option:
        color = _color(line, place)
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
                "width": 1 if line.faint or line.behind else 1.8,
                "opacity": 0.3 if line.behind else 0.45 if line.faint else 1.0,
                "type": "dashed" if line.dashed else "solid",
            },
            "emphasis": {"focus": "series"} if len(self._lines) > 1 else {"disabled": True},
            "sampling": "lttb",
        }
        if line.behind:
            made |= {"silent": True, "tooltip": {"show": False}}
        if place == 0 and self._marks:
            made["markLine"] = {
                "symbol": "none",
                "silent": True,
                "data": [self._mark(mark, scale) for mark in self._marks],
            }
        return made

    def _mark(self, mark: Mark, scale: int) -> Option:
        color = _css("--sl-bad")
        return {
            "xAxis": mark.x * scale,
            "name": printable(mark.label, 60),
            "label": {
                "formatter": "{b}",
                "fontSize": 10,
                ":color": color,
                "position": "end",
                "distance": 3,
            },
            "lineStyle": {":color": color, "type": "dashed", "width": 1},
        }


def _color(line: Line, place: int) -> str:
    return PALETTE[(place if line.color is None else line.color) % len(PALETTE)]


def _css(variable: str) -> str:
    """Return the browser expression of a color variable."""
    return f"slColor('{variable}')"


def _drawable(y: float | None, log_y: bool) -> float | None:
    return None if y is None or not math.isfinite(y) or (log_y and y <= 0) else y


LEAST_LABELLED = 0.08
"""Smallest share that gets a number as its label."""


class ShareBars:
    """Stacked bars of shares, one per row, with a common legend.

    Args:
        parts: Names of the parts from left to right.
        label: Description for screen readers.
    """

    def __init__(self, parts: Sequence[str], *, label: str) -> None:
        self._parts = list(parts)
        self._shown: dict[str, list[float]] = {}
        with ui.element("div").classes("sl-shares") as self.element:
            _part_legend(self._parts)
            self._rows = ui.element("div").classes("sl-shares-rows")
        self.element.props["role"] = "group"
        self.element.props["aria-label"] = printable(label, 200)

    def set(self, rows: Mapping[str, Sequence[float]]) -> None:
        """Show these rows: by name, a share for each part."""
        clean = {
            name: [share if math.isfinite(share) and share > 0 else 0.0 for share in shares]
            for name, shares in rows.items()
        }
        if clean == self._shown:
            return
        self._shown = clean
        self._rows.clear()
        with self._rows:
            for name, shares in clean.items():
                self._row(name, shares)

    def _row(self, name: str, shares: Sequence[float]) -> None:
        Text("span", printable(name, 80), "sl-shares-name")
        said = ", ".join(
            f"{part} {share:.0%}" for part, share in zip(self._parts, shares, strict=True)
        )
        with ui.element("div").classes("sl-shares-bar") as bar:
            for place, share in enumerate(shares):
                if share > 0:
                    text = f"{100 * share:.0f} %" if share >= LEAST_LABELLED else ""
                    Text("span", text).style(
                        f"flex-grow: {share:.4f}; background: {PALETTE[place % len(PALETTE)]}"
                    )
        bar.props["role"] = "img"
        bar.props["title"] = bar.props["aria-label"] = printable(f"{name}: {said}", 500)


@dataclass(frozen=True, kw_only=True)
class Span:
    """A row of a `Timeline`."""

    name: str
    start: float
    """Beginning on the axis."""
    parts: Sequence[float]
    """Lengths of the parts, in the order of the timeline's names."""
    text: str
    """Label of the length, such as "17.4 ms"."""
    is_child: bool = False
    """Indent the name: the span is nested in the previous one that is not its child."""


class Timeline:
    """Spans over a common axis from 0, as of the calls of one request.

    Args:
        parts: Names of the parts of a span from left to right.
        label: Description for screen readers.
    """

    def __init__(self, parts: Sequence[str], *, label: str) -> None:
        self._parts = list(parts)
        self._shown: list[Span] = []
        with ui.element("div").classes("sl-shares") as self.element:
            _part_legend(self._parts)
            self._rows = ui.element("div").classes("sl-timeline")
        self.element.props["role"] = "group"
        self.element.props["aria-label"] = printable(label, 200)

    def set(self, spans: Sequence[Span]) -> None:
        """Show these spans; the one that ends last fills the row."""
        if list(spans) == self._shown:
            return
        self._shown = list(spans)
        length = max((each.start + sum(each.parts) for each in spans), default=0.0)
        self._rows.clear()
        with self._rows:
            for each in spans:
                self._row(each, length or 1.0)

    def _row(self, span: Span, length: float) -> None:
        name = Text("span", printable(span.name, 80), "sl-shares-name")
        if span.is_child:
            name.classes("sl-timeline-child")
        Text("span", printable(span.text, 40), "sl-timeline-length")
        said = ", ".join(
            f"{part} {100 * value / length:.0f} %"
            for part, value in zip(self._parts, span.parts, strict=True)
            if value > 0
        )
        with ui.element("div").classes("sl-timeline-bar") as bar:
            ui.element("span").style(f"flex-grow: {span.start / length:.5f}")
            for place, value in enumerate(span.parts):
                if value > 0:
                    color = PALETTE[place % len(PALETTE)]
                    ui.element("span").style(
                        f"flex-grow: {value / length:.5f}; background: {color}"
                    )
            rest = 1.0 - (span.start + sum(span.parts)) / length
            ui.element("span").style(f"flex-grow: {max(0.0, rest):.5f}")
        bar.props["role"] = "img"
        bar.props["title"] = bar.props["aria-label"] = printable(
            f"{span.name}, {span.text}: {said}", 500
        )


def _part_legend(parts: Sequence[str]) -> None:
    with ui.element("div").classes("sl-shares-legend"):
        for place, part in enumerate(parts):
            with ui.element("span"):
                ui.element("i").style(f"background: {PALETTE[place % len(PALETTE)]}")
                Text("span", part)
