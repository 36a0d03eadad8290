"""Page of a training run, from its errors and metrics to its logs and configuration."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Protocol

from nicegui import ui

from syncline.dashboard import training_figures, widgets
from syncline.dashboard.pages.actions_panel import ActionsPanel
from syncline.dashboard.pages.common_panels import CheckpointsPanel, ErrorPanel, configuration
from syncline.dashboard.pages.curves_panel import CurvesPanel
from syncline.dashboard.pages.dataset_page import ExecutionChoice
from syncline.dashboard.pages.logs_panel import LogsPanel
from syncline.dashboard.pages.media_panel import MediaPanel
from syncline.dashboard.pages.run_view import RunView
from syncline.dashboard.progress import progress_text, training_progress
from syncline.dashboard.training_figures import WorkerRow
from syncline.runs import Run
from syncline.runs.metric_series import Axis, numbers

SHOWN_MOMENTS = 500
MAX_BARS = 64
"""Maximum ranks with a time bar."""
SHOWN_METRICS = 60
MAX_LINES = 16
"""Maximum ranks in a resource chart."""
SECTION_LINKS = {
    "errors": "Errors",
    "metrics": "Metrics",
    "media": "Images and histograms",
    "workers": "Workers",
    "inside": "Inspect workers",
    "times": "Time breakdown",
    "resources": "Resources",
    "datasets": "Datasets",
    "events": "Events",
    "checkpoints": "Checkpoints",
    "logs": "Logs",
    "configuration": "Configuration",
}
"""anchor of a section -> text of its link"""


class _Panel(Protocol):
    """Section of the page."""

    section: ui.element

    def update(self) -> None:
        """Show the current record."""


class TrainingPage:
    """See `run_view.RunPage`."""

    def __init__(self, view: RunView) -> None:
        links = ui.element("nav").classes("sl-section-links").props('aria-label="On this page"')
        self._panels: dict[str, _Panel] = {
            "errors": ErrorPanel(view),
            "overview": _FactsPanel(view),
            "metrics": CurvesPanel(view, lambda over: _restarts(view, over)),
            "media": MediaPanel(view),
            "workers": _WorkersPanel(view),
            "inside": ActionsPanel(
                view,
                who="rank",
                names=lambda: [row.rank for row in training_figures.worker_rows(view.run)],
            ),
            "times": _TimesPanel(view),
            "resources": _UsagePanel(view),
            "datasets": _DataPanel(view),
            "events": _EventsPanel(view),
            "checkpoints": CheckpointsPanel(view),
            "logs": LogsPanel(view),
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
            self._progress = widgets.ProgressBar("Progress of the run")
            self._facts = widgets.Facts()
            self._metrics = widgets.Facts(hint="latest report of rank 0")

    def update(self) -> None:
        run = self._view.run
        summary = run.summary
        end = time.time() if summary.state == "running" else summary.ended or summary.last_activity
        progress = training_progress(run, time.time())
        self._progress.set(
            progress.share if progress else None, progress_text(progress) if progress else ""
        )
        self._facts.set(
            {
                "Started": widgets.moment(summary.started),
                "Duration": widgets.duration(
                    end - summary.started
                    if end is not None and summary.started is not None
                    else None
                ),
                "Reports": widgets.number(summary.reports),
                "Workers": summary.workers if summary.workers is not None else "-",
                "Restarts": max(0, summary.attempts - 1),
                "Goodput": widgets.percent(training_figures.goodput(run)),
                **_flops(run),
                "Checkpoints": summary.checkpoints,
                "Last activity": widgets.ago(summary.last_activity),
                "Host": summary.host or "-",
            }
        )
        latest = list(numbers(summary.metrics))[:SHOWN_METRICS]
        self._metrics.set(
            {widgets.printable(name, 120): widgets.number(number) for name, number in latest}
        )


def _flops(run: Run) -> dict[str, str]:
    """Return the rows about the model's floating-point operations; empty where they are unknown."""
    found = training_figures.model_flops(run)
    if found is None:
        return {}
    rows = {"Model TFLOP/s": widgets.number(found[0] / 1e12)}
    return rows if found[1] is None else {**rows, "MFU": f"{100 * found[1]:.1f} %"}


class _WorkersPanel:
    """Table of the workers of the latest attempt."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        columns = [
            widgets.Column(name="rank", label="Rank"),
            widgets.Column(name="state", label="State", kind="state"),
            widgets.Column(name="host", label="Node", yielding=True),
            widgets.Column(name="pid", label="Process", number=True, minor=True),
            widgets.Column(name="device", label="Device", minor=True),
            widgets.Column(name="cpu", label="CPU %", number=True),
            widgets.Column(name="rss", label="Memory", number=True),
            widgets.Column(name="gpu", label="GPU %", number=True, minor=True),
            widgets.Column(name="gpu_memory", label="GPU memory", number=True, minor=True),
            widgets.Column(name="data", label="Data wait", number=True, minor=True),
            widgets.Column(name="waited_for", label="Others wait for it", number=True),
            widgets.Column(name="verdict", label="Verdict", minor=True),
        ]
        with widgets.section(
            "Workers", "Workers of the latest attempt.", anchor="workers"
        ) as self.section:
            self._table = widgets.DataTable(
                columns, row_key="rank", label="Workers", rows_per_page=32
            )

    def update(self) -> None:
        self._table.set([_worker_row(row) for row in training_figures.worker_rows(self._view.run)])


def _worker_row(row: WorkerRow) -> dict[str, object]:
    return {
        "rank": int(row.rank) if row.rank.isdecimal() else row.rank,
        "state": row.state,
        "host": row.host,
        "pid": row.pid,
        "pid:text": str(row.pid) if row.pid is not None else "-",
        "device": row.device,
        "cpu": row.cpu_percent,
        "cpu:text": widgets.number(row.cpu_percent),
        "rss": row.rss_bytes,
        "rss:text": widgets.size(row.rss_bytes),
        "gpu": row.gpu_percent,
        "gpu:text": widgets.number(row.gpu_percent),
        "gpu_memory": row.gpu_memory_bytes,
        "gpu_memory:text": widgets.size(row.gpu_memory_bytes),
        "data": row.shares.get("data"),
        "data:text": widgets.percent(row.shares.get("data")),
        "waited_for": row.waited_for,
        "waited_for:text": widgets.percent(row.waited_for),
        "verdict": row.verdict or "-",
    }


class _TimesPanel:
    """Time breakdown of the ranks: in total, and over time."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        with widgets.section(
            "Time breakdown",
            "Share of time since the start of the latest attempt, by rank.",
            anchor="times",
        ) as self.section:
            self._bars = widgets.ShareBars(
                list(training_figures.PARTS.values()), label="Time breakdown"
            )
            self._more = widgets.Text("p", "", "sl-soft")
            with ui.element("div").classes("sl-charts"):
                self._charts = {
                    part: widgets.LineChart(
                        title=f"Time share: {words}", y_label="%", over_time=True, from_zero=True
                    )
                    for part, words in training_figures.PARTS.items()
                    if part != "compute"
                }

    def update(self) -> None:
        run = self._view.run
        shares = {
            f"rank {row.rank}": [row.shares[part] for part in training_figures.PARTS]
            for row in training_figures.worker_rows(run)
            if row.shares
        }
        self.section.visible = bool(shares)
        self._bars.set(dict(itertools.islice(shares.items(), MAX_BARS)))
        self._more.put(
            f"The first {MAX_BARS} of {len(shares)} ranks." if len(shares) > MAX_BARS else ""
        )
        for part, chart in self._charts.items():
            curves = _of_ranks(training_figures.share_curves(run, part))
            _draw(
                chart, {name: (x, [100 * share for share in y]) for name, (x, y) in curves.items()}
            )


class _UsagePanel:
    """Resource usage of processes and machines over time."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        said = "Sampled every five seconds. Values of a worker include its child processes."
        with (
            widgets.section("Resources", said, anchor="resources") as self.section,
            ui.element("div").classes("sl-charts"),
        ):
            self._gpus = {
                key: _usage_chart(title, unit)
                for key, (title, unit, _) in training_figures.GPU_USAGE.items()
            }
            self._charts = {
                key: _usage_chart(title, unit)
                for key, (title, unit, _) in training_figures.USAGE.items()
            }
            self._hosts = {
                key: _usage_chart(title, unit)
                for key, (title, unit, _) in training_figures.HOST_USAGE.items()
            }

    def update(self) -> None:
        run = self._view.run
        drawn = [
            _draw(chart, training_figures.gpu_curves(run, key)) for key, chart in self._gpus.items()
        ]
        drawn += [
            _draw(chart, _of_ranks(training_figures.usage_curves(run, key)))
            for key, chart in self._charts.items()
        ]
        drawn += [
            _draw(chart, training_figures.host_curves(run, key))
            for key, chart in self._hosts.items()
        ]
        self.section.visible = any(drawn)


def _usage_chart(title: str, unit: str) -> widgets.LineChart:
    return widgets.LineChart(title=title, y_label=unit, over_time=True, from_zero=True)


def _draw(chart: widgets.LineChart, curves: Mapping[str, training_figures.Curve]) -> bool:
    """Show the first curves if they have enough points for a line; return True if so."""
    lines = [widgets.Line(name=name, x=x, y=y) for name, (x, y) in list(curves.items())[:MAX_LINES]]
    chart.element.visible = any(len(line.x) > 1 for line in lines)
    chart.set(lines)
    return bool(chart.element.visible)


class _DataPanel:
    """Executions of the run's datasets."""

    def __init__(self, view: RunView) -> None:
        with widgets.section(
            "Datasets", "Executions that feed the workers.", anchor="datasets"
        ) as self.section:
            self._choice = ExecutionChoice(view)

    def update(self) -> None:
        self._choice.update()
        self.section.visible = self._choice.has_files


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
        rows = [
            {
                "number": moment.number,
                "time": moment.time,
                "time:text": widgets.moment(moment.time),
                "what": moment.what,
                "detail": moment.detail,
            }
            for moment in training_figures.event_views(self._view.run, SHOWN_MOMENTS)
        ]
        self._table.set(rows[::-1])


def _of_ranks(curves: Mapping[str, training_figures.Curve]) -> dict[str, training_figures.Curve]:
    return {f"rank {rank}": curve for rank, curve in curves.items()}


def _restarts(view: RunView, over: Axis) -> list[widgets.Mark]:
    return [
        widgets.Mark(x=x, label=label)
        for x, label in training_figures.restart_marks(view.run, over)
    ]
