"""Charts of metrics with their controls: filter, horizontal axis, smoothing, scale. `CurveCharts`
shows the curves of one run or of several; `CurvesPanel` is the section of a run's page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from nicegui import ui
from nicegui.events import GenericEventArguments

from syncline.dashboard import training_figures, widgets
from syncline.dashboard.metric_curves import (
    ELAPSED,
    REPORT,
    TIME,
    Curve,
    CurveStyle,
    axis_names,
    curve_of,
    elapsed_unit,
    is_counter,
)
from syncline.dashboard.pages.run_view import RunView
from syncline.runs.json_values import finite
from syncline.runs.metric_series import Axis

FIRST_CHARTS = 12
"""Number of charts shown first."""
MORE_CHARTS = 24
MAX_RANKS = 16
"""Maximum ranks drawn in addition to their mean."""
MAX_SMOOTHING = 0.99
# Sent once the slider rests, with its last value.
VALUE = """(event) => {
  clearTimeout(event.target.slTimer);
  event.target.slTimer = setTimeout(() => emit(Number(event.target.value)), 100);
}"""

Lines = Callable[[str, CurveStyle], Sequence[tuple[widgets.Line, Curve]]]
"""Returns the lines of a metric, with empty points, and their curves."""
Marks = Callable[[Axis], Sequence[widgets.Mark]]


class CurveCharts:
    """One chart per metric below a bar of controls.

    Args:
        lines: Returns the lines of a metric.
        marks: Returns the vertical lines of all charts on an axis of reports or time.
        extra: Creates further controls in the bar.
    """

    def __init__(
        self, lines: Lines, marks: Marks = lambda over: (), extra: Callable[[], None] = lambda: None
    ) -> None:
        self._lines = lines
        self._marks = marks
        self._charts: dict[str, widgets.LineChart] = {}
        self._names: list[str] = []
        self._limit = FIRST_CHARTS
        self._smoothing = 0.0
        with ui.element("div").classes("sl-bar"):
            self._filter = ui.input(placeholder="Filter metrics", on_change=self.redraw).props(
                "dense outlined clearable debounce=300"
            )
            self._filter.classes("sl-field").props["aria-label"] = "Filter metrics by name"
            with ui.element("label").classes("sl-labelled"):
                widgets.Text("span", "Horizontal axis")
                axes = axis_names(())
                self._axis = widgets.choice("Horizontal axis", axes, REPORT, self._recreate)
            with ui.element("label").classes("sl-labelled sl-slider"):
                widgets.Text("span", "Smoothing")
                slider = ui.element("input").props("type=range min=0 step=0.01")
                # As an attribute: a property would be set again with each update of the page.
                slider.props["^value"] = 0
                slider.props["max"] = MAX_SMOOTHING
                slider.on("input", self._smooth, js_handler=VALUE)
                self._weight = widgets.Text("span", "off", "sl-soft")
            extra()
            self._log = ui.switch("log scale", value=False, on_change=self._set_log)
        self._nothing = widgets.note("No numbers have been reported yet.")
        self._grid = ui.element("div").classes("sl-charts")
        self._more = widgets.button("Show more", self._show_more)

    def show(self, names: Sequence[str]) -> None:
        """Show the charts of these metrics, counters last."""
        self._names = sorted(names, key=is_counter)
        offered = axis_names(names)
        if offered != self._axis.options:
            self._axis.set_options(offered, value=self._axis.value)
        self.redraw()

    @property
    def style(self) -> CurveStyle:
        """Current settings of the curves."""
        over = self._axis.value
        return CurveStyle(over=over if isinstance(over, str) else REPORT, smoothing=self._smoothing)

    def redraw(self) -> None:
        """Draw the current values."""
        asked = str(self._filter.value or "").lower()
        style = self.style
        names = [name for name in self._names if asked in name.lower() and name != style.metric]
        self._nothing.visible = not self._names
        self._more.visible = len(names) > self._limit
        self._more.text = f"Show more ({len(names) - self._limit} hidden)"
        shown = names[: self._limit]
        for name in list(self._charts):
            if name not in shown:
                self._charts.pop(name).element.delete()
        for name in shown:
            if name not in self._charts:
                with self._grid:
                    self._charts[name] = self._chart(name, style)
            self._draw(name, style)

    def _draw(self, name: str, style: CurveStyle) -> None:
        if is_counter(name):
            style = replace(style, smoothing=0.0)
        chart, found = self._charts[name], self._lines(name, style)
        scale, unit = 1.0, ""
        if style.over == ELAPSED:
            scale, unit = elapsed_unit(max((max(c.x, default=0.0) for _, c in found), default=0.0))
            chart.x_label = f"time since start ({unit})"
        lines = []
        for line, curve in found:
            if curve.smooth_x:
                lines.append(_with_points(line, curve.x, curve.y, scale, behind=True))
                lines.append(_with_points(line, curve.smooth_x, curve.smooth_y, scale))
            else:
                lines.append(_with_points(line, curve.x, curve.y, scale))
        axis: Axis | None = {REPORT: "iteration", TIME: "time"}.get(style.over)  # type: ignore[assignment]
        chart.set(lines, self._marks(axis) if axis is not None else ())

    def _chart(self, name: str, style: CurveStyle) -> widgets.LineChart:
        return widgets.LineChart(
            title=name,
            x_label="" if style.over_time else axis_names(self._names).get(style.over, ""),
            over_time=style.over_time,
            log_y=bool(self._log.value),
        )

    def _recreate(self) -> None:
        """Create all charts again for another axis."""
        for chart in self._charts.values():
            chart.element.delete()
        self._charts.clear()
        self.redraw()

    def _smooth(self, event: GenericEventArguments) -> None:
        value = finite(event.args) or 0.0
        self._smoothing = min(MAX_SMOOTHING, max(0.0, value))
        self._weight.put(f"{self._smoothing:.2f}" if self._smoothing else "off")
        self.redraw()

    def _set_log(self) -> None:
        for chart in self._charts.values():
            chart.set_log(bool(self._log.value))

    def _show_more(self) -> None:
        self._limit += MORE_CHARTS
        self.redraw()


class CurvesPanel:
    """Metrics of one run: the mean of the ranks, or each rank.

    Args:
        view: The run.
        marks: Returns the vertical lines for an axis.
    """

    def __init__(self, view: RunView, marks: Marks) -> None:
        self._view = view
        with widgets.section("Metrics", anchor="metrics") as self.section:
            self._charts = CurveCharts(self._lines, marks, self._create_switch)

    def _create_switch(self) -> None:
        self._ranks = ui.switch("show ranks", on_change=lambda: self._charts.redraw())

    def update(self) -> None:
        """Show the current values."""
        series = self._view.run.series
        self._ranks.visible = len(series.members) > 1
        self._charts.show(series.names)

    def _lines(self, name: str, style: CurveStyle) -> list[tuple[widgets.Line, Curve]]:
        series = self._view.run.series
        start = training_figures.first_start(self._view.run)
        ranks = series.members_of(name)
        found = []
        if len(ranks) > 1:
            mean = widgets.Line(name="mean over ranks", x=(), y=(), color=0)
            found.append((mean, curve_of(series, name, None, style, start=start)))
        if len(ranks) == 1 or self._ranks.value:
            for place, rank in enumerate(ranks[:MAX_RANKS]):
                color, is_faint = place + len(found[:1]), len(ranks) > 1
                line = widgets.Line(name=f"rank {rank}", x=(), y=(), color=color, faint=is_faint)
                found.append((line, curve_of(series, name, rank, style, start=start)))
        return found


def _with_points(
    line: widgets.Line,
    x: Sequence[float],
    y: Sequence[float | None],
    scale: float,
    *,
    behind: bool = False,
) -> widgets.Line:
    return widgets.Line(
        name=line.name,
        x=x if scale == 1.0 else [each / scale for each in x],
        y=y,
        color=line.color,
        faint=line.faint,
        dashed=line.dashed,
        behind=behind,
    )
