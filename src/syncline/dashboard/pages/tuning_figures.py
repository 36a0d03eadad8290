"""Figures of a search: learning curves, parallel coordinates, parameter importance."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from nicegui import ui

from syncline.dashboard import widgets
from syncline.dashboard.pages.run_view import in_thread
from syncline.dashboard.search_figures import (
    HIGHLIGHTED,
    Curves,
    Importance,
    ParallelAxis,
    ParallelLines,
    TrialCurve,
    color_range,
    importance_of,
    parallel_coordinates,
    select_curves,
)
from syncline.dashboard.search_trials import ENDED, Mode, SearchSnapshot, short_names
from syncline.dashboard.widgets.charts import Line, LineChart, Option
from syncline.runs.metric_series import Axis, Series

GREY = 8
"""Palette index of trials that are not among the best."""
COLOURS = ("#3d7be0", "#14a3bd", "#21a179", "#c9a21a", "#e07a2e")
"""Colors from the smallest to the largest value: blue to orange, which color-blind people can
distinguish, visible on white and on near-black.
"""
LABEL_CHARACTERS = 16
"""Maximum characters of a category's axis label."""
AGAIN_AT = 1.1
"""Growth factor of the number of ended trials after which importance is computed again."""
_BAR = (
    "display: grid; grid-template-columns: minmax(8ch, 24ch) 1fr 6ch; gap: 10px; "
    "align-items: center; width: 100%;"
)


@dataclass(frozen=True, kw_only=True)
class Objective:
    """Selected objective."""

    metric: str | None
    """Metric; None if nothing was reported."""
    mode: Mode
    """Direction of optimization."""


class CurvesFigure:
    """Learning curves of the trials."""

    def __init__(self) -> None:
        self._drawn: object = None
        self._again: Callable[[], None] = lambda: None
        with ui.element("div").classes("sl-bar"):
            axes = {"iteration": "over iterations", "time": "over time"}
            self._over = widgets.toggle(axes, "iteration", lambda: self._again())
            self._log = ui.switch("log scale", on_change=lambda: self._again())
        self._chart = LineChart(title="Learning curves", height="20rem")
        self._note = widgets.Text("p", "", "sl-soft")

    def show(self, snapshot: SearchSnapshot, series: Series, chosen: Objective) -> None:
        """Draw the current curves unless this snapshot is drawn already."""
        self._again = lambda: self.show(snapshot, series, chosen)
        over: Axis = "time" if self._over.value == "time" else "iteration"
        self._chart.set_log(bool(self._log.value))
        state = (snapshot, chosen, over)
        if chosen.metric is None or state == self._drawn:
            return
        self._drawn = state
        curves = select_curves(snapshot.trials, series, chosen.metric, chosen.mode, over)
        self._chart.title = chosen.metric
        self._chart.x_label = (
            "iteration" if over == "iteration" else "seconds since the trial's first result"
        )
        self._chart.set(curve_lines(curves))
        self._note.put(curves.left_out)


class ParallelFigure:
    """Parallel coordinates."""

    def __init__(self) -> None:
        self._drawn: object = None
        self._axes: object = None
        self._chart: ui.echart | None = None
        self._box = ui.element("div").style("width: 100%; min-height: 22rem;")
        self._note = widgets.Text("p", "", "sl-soft")
        ui.on("sl-theme", lambda: self._chart.update() if self._chart is not None else None)

    def show(self, snapshot: SearchSnapshot, chosen: Objective) -> None:
        """Draw the trials that have a value of the metric."""
        state = (snapshot, chosen)
        if chosen.metric is None or state == self._drawn:
            return
        self._drawn = state
        parallel = parallel_coordinates(
            snapshot.trials, snapshot.varying, chosen.metric, chosen.mode
        )
        if parallel.lines:
            self._draw(parallel)
        self._note.put(
            parallel.left_out if parallel.lines else "No trial has reported the metric yet."
        )

    def _draw(self, parallel: ParallelLines) -> None:
        options = parallel_options(parallel)
        axes = [(axis.name, axis.kind) for axis in parallel.axes]
        # An existing chart would keep its axes in their order.
        if self._chart is None or axes != self._axes:
            self._axes = axes
            self._box.clear()
            with self._box:
                self._chart = ui.echart(options).classes("sl-chart").style("height: 22rem")
            self._chart.props["role"] = "img"
            self._chart.props["tabindex"] = "0"
        else:
            self._chart.options.clear()
            self._chart.options.update(options)
        names = ", ".join(short_names(axis.name for axis in parallel.axes).values())
        self._chart.props["aria-label"] = widgets.printable(
            f"Parallel coordinates of {len(parallel.lines)} trials: {names}", 1000
        )
        self._chart.update()


class ImportanceFigure:
    """Bars of the parameter importance."""

    def __init__(self) -> None:
        self._worked_out: tuple[Objective, int] | None = None
        self._is_at_work = False
        self._shown: Importance | None = None
        self._box = (
            ui.element("div")
            .props('role="list"')
            .style("display: flex; flex-direction: column; gap: 6px; width: 100%;")
        )
        self._note = widgets.Text("p", "", "sl-soft")

    async def show(self, snapshot: SearchSnapshot, chosen: Objective) -> None:
        """Compute the importance in a thread if enough trials have ended since the last time."""
        ended = sum(trial.status in ENDED for trial in snapshot.trials)
        if chosen.metric is None or self._is_at_work or not self._is_due(chosen, ended):
            return
        self._is_at_work, self._worked_out = True, (chosen, ended)
        if self._shown is None:
            self._note.put("Computing …")
        try:
            found = await in_thread(
                importance_of, snapshot.trials, snapshot.varying, chosen.metric, chosen.mode
            )
        finally:
            self._is_at_work = False
        if found != self._shown and not self._box.is_deleted:
            self._shown = found
            self._draw(found)

    def _is_due(self, chosen: Objective, ended: int) -> bool:
        if self._worked_out is None or self._worked_out[0] != chosen:
            return True
        before = self._worked_out[1]
        return ended != before and (ended >= before * AGAIN_AT or ended < 50)

    def _draw(self, importance: Importance) -> None:
        shorts = short_names(name for name, _ in importance.shares)
        largest = max((share for _, share in importance.shares), default=0.0) or 1.0
        self._box.clear()
        with self._box:
            for name, share in importance.shares:
                with ui.element("div").props('role="listitem"').style(_BAR):
                    widgets.Text("span", widgets.printable(shorts[name], 60)).style(
                        "overflow-wrap: anywhere;"
                    )
                    width = 100 * share / largest
                    ui.element("div").style(
                        "background: var(--sl-accent); height: 10px; border-radius: 3px; "
                        f"width: {width:.1f}%;"
                    )
                    widgets.Text("span", widgets.percent(share), "sl-soft")
        reported = f"PED-ANOVA of {importance.trials} ended trials."
        self._note.put(importance.problem or reported)


def curve_lines(curves: Curves) -> list[Line]:
    """Return thin lines, and thick ones for the best trials, which come last. Equal ranks have
    equal colors.
    """
    return [_line(curve) for curve in curves.curves if len(curve.x)]


def _line(curve: TrialCurve) -> Line:
    is_best = curve.rank is not None and curve.rank < HIGHLIGHTED
    name = curve.trial.name or curve.trial.id
    rank = "" if curve.rank is None else f"{curve.rank + 1}. "
    return Line(
        name=f"{rank}{name}",
        x=curve.x,
        y=curve.y,
        color=(curve.rank or 0) if is_best else GREY,
        faint=not is_best,
    )


def parallel_options(parallel: ParallelLines) -> Option:
    """Return the echarts options. Texts of runs are used as values only, never as keys."""
    shorts = short_names(axis.name for axis in parallel.axes)
    results = [values[-1] for _, values in parallel.lines]
    low, high = color_range([value for value in results if value is not None])
    return {
        "animation": False,
        "parallel": {"left": 40, "right": 60, "top": 48, "bottom": 24, "axisExpandable": False},
        "parallelAxis": [
            _axis(number, axis, shorts[axis.name]) for number, axis in enumerate(parallel.axes)
        ],
        "visualMap": {
            "show": False,
            "type": "continuous",
            "dimension": max(0, len(parallel.axes) - 1),
            "min": low,
            "max": high,
            "inRange": {"color": list(COLOURS)},
        },
        "tooltip": {
            "trigger": "item",
            "renderMode": "richText",
            "confine": True,
            ":backgroundColor": "slColor('--sl-panel')",
            ":borderColor": "slColor('--sl-line')",
            "textStyle": {"fontSize": 12, ":color": "slColor('--sl-ink')"},
        },
        "series": [
            {
                "type": "parallel",
                "smooth": False,
                "lineStyle": {
                    "width": 1.2 if len(parallel.lines) > 100 else 2,
                    "opacity": 0.35 if len(parallel.lines) > 100 else 0.7,
                },
                "emphasis": {"lineStyle": {"width": 4, "opacity": 1}},
                "data": [
                    {
                        "name": widgets.printable(trial.name or trial.id, 120),
                        "value": [_sent(value) for value in values],
                    }
                    for trial, values in parallel.lines
                ],
            }
        ],
    }


def _axis(number: int, axis: ParallelAxis, short: str) -> Option:
    made: Option = {
        "dim": number,
        "name": widgets.printable(short, 40),
        "type": axis.kind,
        "nameTextStyle": {
            "fontSize": 11,
            ":color": "slColor('--sl-ink')",
            "width": 110,
            "overflow": "truncate",
        },
        "z": 10,  # draw labels above the lines
        "axisLabel": {
            "fontSize": 10,
            ":color": "slColor('--sl-ink')",
            ":backgroundColor": "slColor('--sl-panel') + 'b0'",
            "padding": [1, 3],
            "borderRadius": 3,
            "hideOverlap": True,
        },
        "axisLine": {"lineStyle": {":color": "slColor('--sl-soft')"}},
        "axisTick": {"lineStyle": {":color": "slColor('--sl-line')"}},
    }
    if axis.kind == "category":
        return {
            **made,
            "data": [
                widgets.printable(category, 40)[:LABEL_CHARACTERS] for category in axis.categories
            ],
        }
    if axis.kind == "log":
        return {
            **made,
            "min": 10.0 ** math.floor(math.log10(axis.low)),
            "max": 10.0 ** math.ceil(math.log10(axis.high)),
        }
    return {**made, "scale": True}


def _sent(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
