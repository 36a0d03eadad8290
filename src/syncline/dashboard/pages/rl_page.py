"""Page of a run of reinforcement learning, from its returns to its configuration."""

from __future__ import annotations

import time
from typing import Protocol

from nicegui import ui

from syncline.dashboard import rl_figures, widgets
from syncline.dashboard.pages.common_panels import CheckpointsPanel, ErrorPanel, configuration
from syncline.dashboard.pages.curves_panel import CurvesPanel
from syncline.dashboard.pages.run_view import RunView
from syncline.rl.records.bottleneck import PARTS
from syncline.runs.json_values import finite

MEMBER = "0"
SHOWN_EVENTS = 300
SECTION_LINKS = {
    "errors": "Errors",
    "returns": "Returns",
    "speed": "Speed",
    "losses": "Learners",
    "modules": "Modules and agents",
    "runners": "Env runners",
    "episodes": "Episodes",
    "videos": "Videos",
    "metrics": "All metrics",
    "events": "Events",
    "checkpoints": "Checkpoints",
    "configuration": "Configuration",
}
"""anchor of a section -> text of its link"""


class _Panel(Protocol):
    section: ui.element

    def update(self) -> None:
        """Show the current record."""


class RlPage:
    """See `run_view.RunPage`."""

    def __init__(self, view: RunView) -> None:
        links = ui.element("nav").classes("sl-section-links").props('aria-label="On this page"')
        self._panels: dict[str, _Panel] = {
            "errors": ErrorPanel(view),
            "overview": _FactsPanel(view),
            "returns": _ReturnsPanel(view),
            "speed": _SpeedPanel(view),
            "losses": _LossesPanel(view),
            "modules": _ModulesPanel(view),
            "runners": _RunnersPanel(view),
            "videos": _VideosPanel(view),
            "episodes": _EpisodesPanel(view),
            "metrics": CurvesPanel(view, lambda over: ()),
            "events": _EventsPanel(view),
            "checkpoints": CheckpointsPanel(view),
        }
        sections = {anchor: panel.section for anchor, panel in self._panels.items()}
        sections["configuration"] = configuration(view)
        with links:
            for anchor, text in SECTION_LINKS.items():
                link = widgets.link(text, f"#{anchor}")
                link.bind_visibility_from(sections[anchor], "visible")

    def update(self) -> None:
        """Show the current record."""
        for panel in self._panels.values():
            panel.update()


class _FactsPanel:
    """Overview of the run in numbers."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        with widgets.section("Overview") as self.section:
            self._facts = widgets.Facts()

    def update(self) -> None:
        run = self._view.run
        summary, last = run.summary, run.series.last(MEMBER)
        end = time.time() if summary.state == "running" else summary.ended or summary.last_activity
        began = summary.started
        returns = rl_figures.curve(run.series, rl_figures.RETURN, MEMBER, "").y
        restarts = finite(last.get("fault_tolerance/num_remote_worker_restarts"))
        self._facts.set(
            {
                "Algorithm": widgets.printable(run.config.get("algorithm", "-"), 60),
                "Environment": widgets.printable(run.config.get("env", "-"), 120),
                "Return": widgets.number(finite(last.get(rl_figures.RETURN))),
                "Best mean return": widgets.number(max(returns, default=None)),
                "Evaluation": widgets.number(_last_evaluation(self._view)),
                "Episode length": widgets.number(finite(last.get(rl_figures.LENGTH))),
                "Episodes": widgets.number(finite(last.get("env_runners/num_episodes_lifetime"))),
                "Environment steps": widgets.number(finite(last.get(rl_figures.STEPS))),
                "Steps per second": widgets.number(finite(last.get(rl_figures.STEPS_PER_S))),
                "Iterations": widgets.number(summary.reports),
                "Env runners": widgets.number(rl_figures.option(run, "num_env_runners")),
                "Restarts": widgets.number(restarts),
                "Duration": widgets.duration(
                    end - began if end is not None and began is not None else None
                ),
                "Started": widgets.moment(began),
                "Host": summary.host or "-",
            }
        )


def _last_evaluation(view: RunView) -> float | None:
    """Return the latest evaluation, which need not be in the last report."""
    found = rl_figures.curve(view.run.series, rl_figures.EVALUATION, MEMBER, "").y
    return found[-1] if found else None


class _ReturnsPanel:
    """Returns of episodes over steps and over time, with evaluations, and lengths."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        said = "Mean over the last episodes of training, with the lowest and the highest return."
        with widgets.section("Returns", said, anchor="returns") as self.section:
            self._nothing = widgets.note("No episode has ended yet.")
            with ui.element("div").classes("sl-charts"):
                self._charts = [
                    (rl_figures.STEPS, _chart("Return", "environment steps")),
                    (rl_figures.SECONDS, _chart("Return", "seconds of training")),
                ]
                self._length = _chart("Episode length", "environment steps")

    def update(self) -> None:
        series = self._view.run.series
        is_known = False
        for over, chart in self._charts:
            mean = rl_figures.curve(series, rl_figures.RETURN, MEMBER, over)
            low = rl_figures.curve(series, rl_figures.RETURN_MIN, MEMBER, over)
            high = rl_figures.curve(series, rl_figures.RETURN_MAX, MEMBER, over)
            is_known |= bool(mean.x)
            has_band = list(mean.x) == list(low.x) == list(high.x)
            lines = [
                widgets.Line(
                    name="training",
                    x=mean.x,
                    y=mean.y,
                    low=low.y if has_band else (),
                    high=high.y if has_band else (),
                )
            ]
            evaluation = rl_figures.curve(series, rl_figures.EVALUATION, MEMBER, over)
            if evaluation.x:
                lines.append(widgets.Line(name="evaluation", x=evaluation.x, y=evaluation.y))
            chart.set(lines)
        lengths = rl_figures.curve(series, rl_figures.LENGTH, MEMBER, rl_figures.STEPS)
        self._length.set([widgets.Line(name="length", x=lengths.x, y=lengths.y)])
        self._nothing.visible = not is_known


def _chart(title: str, x_label: str, *, from_zero: bool = False) -> widgets.LineChart:
    return widgets.LineChart(title=title, x_label=x_label, from_zero=from_zero)


class _SpeedPanel:
    """Steps per second, and what limits them."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        with widgets.section(
            "Speed", "Where the time of the last iterations went.", anchor="speed"
        ) as self.section:
            self._advice = widgets.note("")
            self._bars = widgets.ShareBars(list(PARTS.values()), label="Where the time goes")
            with ui.element("div").classes("sl-charts"):
                self._steps = _chart("Steps per second", "environment steps", from_zero=True)
                self._iteration = _chart("Seconds of an iteration", "environment steps")

    def update(self) -> None:
        run = self._view.run
        found = rl_figures.limits(run)
        self.section.visible = found is not None
        if found is None:
            return
        self._advice.show(found.advice.replace("`", ""))
        names = {"iteration": "iterations"}
        self._bars.set(
            {
                names.get(name, name): [row[part] for part in PARTS]
                for name, row in found.rows.items()
            }
        )
        steps = rl_figures.curve(run.series, rl_figures.STEPS_PER_S, MEMBER, rl_figures.STEPS)
        self._steps.set([widgets.Line(name="steps per second", x=steps.x, y=steps.y)])
        lines = []
        for part, text in (
            ("total", "in all"),
            ("sampling", "sampling"),
            ("learning", "learning"),
            ("evaluation", "evaluation"),
        ):
            name = f"time_split/{part}_s"
            each = rl_figures.curve(run.series, name, MEMBER, rl_figures.STEPS)
            if any(each.y):
                lines.append(widgets.Line(name=text, x=each.x, y=each.y))
        self._iteration.set(lines)


class _LossesPanel:
    """Losses, divergence and entropy of the modules."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._charts: dict[str, widgets.LineChart] = {}
        said = "One line for each module."
        with widgets.section("Learners", said, anchor="losses") as self.section:
            self._grid = ui.element("div").classes("sl-charts")

    def update(self) -> None:
        series = self._view.run.series
        modules = rl_figures.modules(series)
        for name, title in rl_figures.LOSSES.items():
            lines = []
            for place, module in enumerate(modules):
                each = rl_figures.curve(
                    series, f"learners/{module}/{name}", MEMBER, rl_figures.STEPS
                )
                if each.x:
                    lines.append(widgets.Line(name=module, x=each.x, y=each.y, color=place))
            if not lines:
                continue
            if name not in self._charts:
                with self._grid:
                    self._charts[name] = _chart(title.capitalize(), "environment steps")
            self._charts[name].set(lines)
        self.section.visible = bool(self._charts)


class _ModulesPanel:
    """Modules and agents: returns and counts."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        columns = [
            widgets.Column(name="name", label="Name", yielding=True),
            widgets.Column(name="kind", label="Kind"),
            widgets.Column(name="return", label="Mean return", number=True),
            widgets.Column(name="steps", label="Sampled steps", number=True),
            widgets.Column(name="trained", label="Trained steps", number=True, minor=True),
            widgets.Column(name="parameters", label="Parameters", number=True, minor=True),
        ]
        with widgets.section("Modules and agents", anchor="modules") as self.section:
            self._table = widgets.DataTable(
                columns, row_key="key", label="Modules and agents", rows_per_page=20
            )

    def update(self) -> None:
        rows = rl_figures.module_rows(self._view.run.series)
        self.section.visible = bool(rows)
        self._table.set(
            [
                {
                    "key": f"{row.kind} {row.name}",
                    "name": widgets.printable(row.name, 200),
                    "kind": row.kind,
                    **_cell("return", row.episode_return),
                    **_cell("steps", row.steps),
                    **_cell("trained", row.trained),
                    **_cell("parameters", row.parameters),
                }
                for row in rows
            ]
        )


def _cell(name: str, value: float | None) -> dict[str, object]:
    shown = int(value) if value is not None and float(value).is_integer() else value
    return {name: value, f"{name}:text": widgets.number(shown)}


class _RunnersPanel:
    """Env runners: where their time goes, and restarts."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        columns = [
            widgets.Column(name="index", label="Runner"),
            widgets.Column(name="pid", label="Process", number=True, minor=True),
            widgets.Column(name="restarts", label="Restarts", number=True),
            widgets.Column(name="steps", label="Steps", number=True),
            *(
                widgets.Column(name=part, label=text, number=True, minor=part == "other")
                for part, text in _RUNNER_PARTS.items()
            ),
            widgets.Column(name="cpu", label="CPU %", number=True),
            widgets.Column(name="rss", label="Memory", number=True),
        ]
        said = "Shares of the time of each process. Runner 0 is in the process of the algorithm."
        with widgets.section("Env runners", said, anchor="runners") as self.section:
            self._table = widgets.DataTable(
                columns, row_key="index", label="Env runners", rows_per_page=32
            )

    def update(self) -> None:
        rows = rl_figures.runner_rows(self._view.run)
        self.section.visible = bool(rows)
        self._table.set([_runner_row(row) for row in rows])


_RUNNER_PARTS = {
    "environment": "Environment",
    "inference": "Inference",
    "other": "Other sampling",
    "waiting": "Waiting",
}


def _runner_row(row: rl_figures.RunnerRow) -> dict[str, object]:
    made: dict[str, object] = {
        "index": row.index,
        "pid": row.pid,
        "pid:text": str(row.pid) if row.pid is not None else "-",
        "restarts": row.restarts,
        **_cell("steps", row.env_steps),
        **_cell("cpu", row.cpu_percent),
        "rss": row.rss_bytes,
        "rss:text": widgets.size(row.rss_bytes),
    }
    for part in _RUNNER_PARTS:
        share = row.shares.get(part)
        made |= {part: share, f"{part}:text": widgets.percent(share)}
    return made


class _EpisodesPanel:
    """The last episodes, the latest first."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        columns = [
            widgets.Column(name="iteration", label="Iteration"),
            widgets.Column(name="return", label="Return", number=True),
            widgets.Column(name="length", label="Length", number=True),
            widgets.Column(name="duration", label="Duration", number=True),
            widgets.Column(name="agents", label="Agents", kind="mono", yielding=True),
        ]
        with widgets.section(
            "Episodes", "The last ones of each iteration.", anchor="episodes"
        ) as self.section:
            self._table = widgets.DataTable(
                columns, row_key="number", label="Episodes", rows_per_page=10
            )

    def update(self) -> None:
        lines = self._view.run.recent_lines(rl_figures.EPISODES_FILE, rl_figures.MAX_LINES)
        found = rl_figures.episodes(lines)
        self.section.visible = bool(found)
        self._table.set(
            [
                {
                    "number": number,
                    "iteration": each.iteration,
                    **_cell("return", each.episode_return),
                    **_cell("length", each.length),
                    "duration": each.duration_s,
                    "duration:text": widgets.duration(each.duration_s),
                    "agents": "  ".join(
                        f"{widgets.printable(name, 60)}={widgets.number(value)}"
                        for name, value in each.agents.items()
                    ),
                }
                for number, each in enumerate(found)
            ]
        )


class _VideosPanel:
    """Videos of episodes, the latest first."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._shown: list[rl_figures.Video] = []
        with widgets.section(
            "Videos", "Episodes that were played after evaluations.", anchor="videos"
        ) as self.section:
            self._grid = ui.element("div").classes("sl-charts")

    def update(self) -> None:
        found = rl_figures.videos(self._view.run)
        self.section.visible = bool(found)
        if found == self._shown:
            return
        self._shown = found
        self._grid.clear()
        with self._grid:
            for place, video in enumerate(found):
                self._show(video, is_first=place == 0)

    def _show(self, video: rl_figures.Video, *, is_first: bool) -> None:
        with ui.element("figure").classes("sl-media"):
            made = ui.element("img" if video.is_image else "video")
            made.props["src"] = self._view.url_of_file(video.file)
            if video.is_image:
                made.props["alt"] = video.caption
                made.props["loading"] = "eager" if is_first else "lazy"
            else:
                made.props["controls"] = made.props["loop"] = made.props["muted"] = True
                made.props["autoplay"] = is_first
                made.props["preload"] = "auto" if is_first else "metadata"
                made.props["aria-label"] = video.caption
            widgets.Text("figcaption", video.caption, "sl-soft")


class _EventsPanel:
    """Events, the latest first."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        columns = [
            widgets.Column(name="time", label="Time"),
            widgets.Column(name="what", label="Event"),
            widgets.Column(
                name="detail", label="Details", kind="mono", yielding=True, sortable=False
            ),
        ]
        with widgets.section("Events", anchor="events") as self.section:
            self._table = widgets.DataTable(
                columns, row_key="number", label="Events", rows_per_page=10
            )

    def update(self) -> None:
        rows = []
        for number, event in list(enumerate(self._view.run.events))[-SHOWN_EVENTS:]:
            what, detail = rl_figures.event_text(event)
            moment = finite(event.get("time"))
            rows.append(
                {
                    "number": number,
                    "time": moment,
                    "time:text": widgets.moment(moment),
                    "what": widgets.printable(what, 60),
                    "detail": widgets.printable(detail, 300),
                }
            )
        self._table.set(rows[::-1])
