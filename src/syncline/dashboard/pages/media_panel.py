"""Images and histograms of a training run, each with a slider over the reports. Of several ranks
that report one, the lowest is shown.
"""

from __future__ import annotations

from nicegui import ui
from nicegui.events import GenericEventArguments

from syncline.dashboard import widgets
from syncline.dashboard.pages.run_view import RunView
from syncline.dashboard.widgets.charts import Line, LineChart
from syncline.runs.json_values import finite
from syncline.runs.metric_series import Shown, member_order

VALUE = "(event) => emit(Number(event.target.value))"


class MediaPanel:
    """See `training_page`."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._viewers: dict[str, _Viewer] = {}
        with widgets.section("Images and histograms", anchor="media") as self.section:
            self._grid = ui.element("div").classes("sl-charts")

    def update(self) -> None:
        """Show the reported images and histograms."""
        found = self._view.run.series.media
        self.section.visible = bool(found)
        for name in list(self._viewers):
            if name not in found:
                self._viewers.pop(name).element.delete()
        for name, shown in found.items():
            if name not in self._viewers:
                with self._grid:
                    self._viewers[name] = _Viewer(self._view, name)
            first = min((each.member for each in shown), key=member_order)
            self._viewers[name].show([each for each in shown if each.member == first])


class _Viewer:
    """Images or histograms of one name."""

    def __init__(self, view: RunView, name: str) -> None:
        self._view = view
        self._shown: list[Shown] = []
        self._place = -1
        self._is_last = True
        self._drawn: Shown | None = None
        with ui.element("div").classes("sl-media") as self.element:
            widgets.Text("h3", widgets.printable(name, 200))
            self._image = ui.element("img")
            self._chart = LineChart(title=f"{name}, values per bin", from_zero=True, height="14rem")
            self._caption = widgets.Text("p", "", "sl-soft")
            self._slider = ui.element("input").props("type=range min=0 step=1")
            self._slider.props["aria-label"] = f"Report of {widgets.printable(name, 200)}"
            self._slider.on("input", self._slide, js_handler=VALUE)

    def show(self, shown: list[Shown]) -> None:
        """Show the selected report; the latest one until another one is selected."""
        self._shown = list(shown)
        last = len(shown) - 1
        if self._is_last or self._place > last:
            self._place = last
        if self._slider.props.get("max") != last:
            self._slider.props["max"] = last
            if self._is_last:
                # As an attribute: a property would be set again with each update of the page.
                self._slider.props["^value"] = last
            self._slider.update()
        self._slider.visible = last > 0
        self._draw()

    def _slide(self, event: GenericEventArguments) -> None:
        last = len(self._shown) - 1
        self._place = min(last, max(0, int(finite(event.args) or 0)))
        self._is_last = self._place == last
        self._draw()

    def _draw(self) -> None:
        found = self._shown[self._place]
        if found == self._drawn:
            return
        self._drawn = found
        media = found.media
        parts = [f"report {found.iteration}, rank {widgets.printable(found.member, 40)}"]
        self._image.visible = bool(media.file)
        self._chart.element.visible = not media.file
        if media.file:
            self._image.props["src"] = self._view.url_of_file(media.file)
            self._image.props["alt"] = widgets.printable(media.caption or parts[0], 300)
            self._image.update()
            parts.append(f"{media.width} x {media.height}")
        else:
            low, high = media.edges[:-1], media.edges[1:]
            middles = [(first + second) / 2 for first, second in zip(low, high, strict=True)]
            self._chart.set([Line(name="values per bin", x=middles, y=list(media.counts))])
            parts.append(f"{widgets.number(int(sum(media.counts)))} values")
        if media.caption:
            parts.append(widgets.printable(media.caption, 300))
        self._caption.put(" · ".join(parts))
