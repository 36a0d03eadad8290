"""Returns of several runs or trials in common charts: runs that differ only in their seeds are
drawn as their mean with a band.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from nicegui import ui

from syncline.dashboard import rl_figures, widgets
from syncline.runs.metric_series import Series

MAX_GROUPS = 12
MAX_CURVES = 60
"""Curves that are drawn or averaged."""
_AXES = {rl_figures.STEPS: "environment steps", rl_figures.SECONDS: "seconds of training"}


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A run or a trial."""

    label: str
    series: Series
    member: str
    """Trial, or rank "0" of a run."""
    group: str
    """Equal for runs that differ in their seeds alone."""
    title: str = ""
    """Name of the group; "" for the common beginning of the labels."""


class ReturnsComparison:
    """Section with the returns over steps and over time, and the evaluations over steps."""

    def __init__(self) -> None:
        said = (
            "Runs that differ in their seeds alone are drawn as their mean. The band is its 95 % "
            "interval, or the range of two or three runs."
        )
        with (
            widgets.section("Returns", said, anchor="returns") as self.section,
            ui.element("div").classes("sl-charts"),
        ):
            self._charts = [
                (name, over, widgets.LineChart(title=title, x_label=text))
                for name, title in (
                    (rl_figures.RETURN, "Return"),
                    (rl_figures.EVALUATION, "Return of evaluations"),
                )
                for over, text in _AXES.items()
            ]
        self.section.visible = False

    def show(self, compared: Sequence[Compared]) -> None:
        """Show these runs or trials; hide the section if none reports returns."""
        found = [each for each in compared if each.series.members_of(rl_figures.RETURN)]
        self.section.visible = bool(found)
        groups: dict[str, list[Compared]] = {}
        for each in found[:MAX_CURVES]:
            groups.setdefault(each.group, []).append(each)
        for name, over, chart in self._charts:
            lines = [
                line
                for place, group in enumerate(list(groups.values())[:MAX_GROUPS])
                for line in _lines(group, name, over, place)
            ]
            chart.element.visible = bool(lines)
            chart.set(lines)


def group_of(parameters: Mapping[str, object], *, without: Sequence[str] = ("seed",)) -> str:
    """Return a text that is equal for configurations that differ in their seeds alone."""
    kept = {name: value for name, value in parameters.items() if name not in without}
    return repr(sorted(kept.items()))


def title_of(
    parameters: Mapping[str, object],
    varying: Collection[str],
    *,
    without: Sequence[str] = ("seed",),
) -> str:
    """Return the parameters in which a trial differs from others as a text: "lr=0.001"."""
    return ", ".join(
        f"{name}={parameters[name]}"
        for name in varying
        if name in parameters and name not in without
    )


def _lines(group: Sequence[Compared], name: str, over: str, color: int) -> list[widgets.Line]:
    curves = {each.label: rl_figures.curve(each.series, name, each.member, over) for each in group}
    drawn = {label: each for label, each in curves.items() if each.x}
    mean = rl_figures.band(list(drawn.values()))
    if mean is None:
        return [
            widgets.Line(name=label, x=each.x, y=each.y, color=color + place)
            for place, (label, each) in enumerate(drawn.items())
        ]
    label = f"mean of {mean.count}: {group[0].title or _common(list(drawn))}"
    return [
        widgets.Line(name=label, x=mean.x, y=mean.mean, low=mean.low, high=mean.high, color=color),
        *(
            widgets.Line(name=name, x=each.x, y=each.y, color=color, behind=True)
            for name, each in drawn.items()
        ),
    ]


def _common(labels: Sequence[str]) -> str:
    """Return the common beginning of labels, or the first one."""
    first, last = min(labels), max(labels)
    length = next(
        (place for place, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]),
        len(first),
    )
    return first[:length].rstrip("-_ ") or labels[0]
