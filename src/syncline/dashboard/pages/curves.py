"""The curves of what a run has reported: one chart for each metric, the mean of the ranks and each
of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from nicegui import ui

from syncline.dashboard import look
from syncline.dashboard.pages.view import RunView
from syncline.runs.series import Axis

FIRST_CHARTS = 8
"""Charts that are shown before one asks for more."""
MORE_CHARTS = 24
MOST_RANKS = 16
"""Ranks that are drawn beside their mean."""
MAX_POINTS = 600

Marks = Callable[[Axis], Sequence[look.Mark]]


class CurvesPanel:
    """The metrics of a run, chosen by a filter.

    Args:
        view: The run.
        marks: Vertical lines for an axis.
    """

    def __init__(self, view: RunView, marks: Marks) -> None:
        self._view = view
        self._marks = marks
        self._charts: dict[str, look.LineChart] = {}
        self._limit = FIRST_CHARTS
        with look.section("Metrics", anchor="metrics") as self.section:
            with ui.element("div").classes("sl-bar"):
                self._filter = ui.input(placeholder="Filter metrics", on_change=self.update).props(
                    "dense outlined clearable debounce=300"
                )
                self._filter.classes("sl-field").props["aria-label"] = "Filter metrics by name"
                axes = {"iteration": "by report", "time": "by time"}
                self._axis = ui.toggle(axes, value="iteration", on_change=self._redraw).props(
                    "dense no-caps unelevated"
                )
                self._ranks = ui.switch("each rank", value=False, on_change=self.update)
                self._log = ui.switch("logarithmic", value=False, on_change=self._set_log)
            self._nothing = look.note("No numbers have been reported yet.")
            self._grid = ui.element("div").classes("sl-charts")
            self._more = (
                ui.button("Show more", on_click=self._show_more)
                .props("no-caps outline dense")
                .classes("sl-action")
            )

    def update(self) -> None:
        """Show what the run has reported by now."""
        series = self._view.run.series
        asked = str(self._filter.value or "").lower()
        names = [name for name in series.names if asked in name.lower()]
        self._nothing.visible = not series.names
        self._ranks.visible = len(series.members) > 1
        self._more.visible = len(names) > self._limit
        self._more.text = f"Show more ({len(names) - self._limit} are not shown)"
        shown = names[: self._limit]
        for name in list(self._charts):
            if name not in shown:
                self._charts.pop(name).element.delete()
        for name in shown:
            if name not in self._charts:
                with self._grid:
                    self._charts[name] = self._chart(name)
            self._draw(name)

    def _draw(self, name: str) -> None:
        series, over = self._view.run.series, self._over
        ranks = series.members_of(name)
        lines = []
        if len(ranks) > 1:
            x, y = series.reduced(name, MAX_POINTS, over)
            lines.append(look.Line(name="mean of the ranks", x=x, y=y, color=0))
        if len(ranks) == 1 or self._ranks.value:
            for place, rank in enumerate(ranks[:MOST_RANKS]):
                x, y = series.curve(name, rank, MAX_POINTS, over)
                lines.append(
                    look.Line(
                        name=f"rank {rank}",
                        x=x,
                        y=y,
                        color=place + len(lines[:1]),
                        faint=len(ranks) > 1,
                    )
                )
        self._charts[name].set(lines, self._marks(over))

    def _chart(self, name: str) -> look.LineChart:
        is_time = self._over == "time"
        return look.LineChart(
            title=name,
            x_label="" if is_time else "report",
            over_time=is_time,
            log_y=bool(self._log.value),
        )

    @property
    def _over(self) -> Axis:
        return cast(Axis, self._axis.value)

    def _redraw(self) -> None:
        """Make every chart anew: its axis is another."""
        for chart in self._charts.values():
            chart.element.delete()
        self._charts.clear()
        self.update()

    def _set_log(self) -> None:
        for chart in self._charts.values():
            chart.set_log(bool(self._log.value))

    def _show_more(self) -> None:
        self._limit += MORE_CHARTS
        self.update()
