"""The page of a training run: curves, workers, where the time goes, what happened, checkpoints,
datasets, logs, actions.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Mapping

from nicegui import ui

from syncline.dashboard import look, trainings
from syncline.dashboard.pages.actions import ActionsPanel
from syncline.dashboard.pages.curves import CurvesPanel
from syncline.dashboard.pages.dataset import ExecutionChoice
from syncline.dashboard.pages.logs import LogsPanel
from syncline.dashboard.pages.view import RunView
from syncline.dashboard.trainings import WorkerRow
from syncline.runs.series import Axis, numbers

SHOWN_MOMENTS = 500
SHOWN_CHECKPOINTS = 500
MOST_BARS = 64
"""Ranks whose time is shown as a bar."""
SHOWN_METRICS = 60
SHOWN_FAILURES = 20
MOST_LINES = 16
"""Ranks that a chart of usage shows."""
JUMPS = {
    "errors": "Errors",
    "metrics": "Metrics",
    "workers": "Workers",
    "inside": "Look inside",
    "times": "Where the time goes",
    "resources": "Resources",
    "datasets": "Datasets",
    "events": "What happened",
    "checkpoints": "Checkpoints",
    "logs": "Logs",
    "configuration": "Configuration",
}
"""anchor of a part -> what links to it say."""


class TrainingPage:
    """See `view.RunPage`."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        jumps = _Jumps()
        error, facts = _ErrorPanel(view), _FactsPanel(view)
        curves = CurvesPanel(view, lambda over: _restarts(view, over))
        workers = _WorkersPanel(view)
        actions = ActionsPanel(
            view, who="rank", names=lambda: [row.rank for row in trainings.worker_rows(view.run)]
        )
        times, usage, data = _TimesPanel(view), _UsagePanel(view), _DataPanel(view)
        story, checkpoints, logs = _StoryPanel(view), _CheckpointsPanel(view), LogsPanel(view)
        self._parts = (
            error,
            facts,
            curves,
            workers,
            actions,
            times,
            usage,
            data,
            story,
            checkpoints,
            logs,
        )
        configuration = _configuration(view)
        sections = {
            "errors": error.section,
            "metrics": curves.section,
            "workers": workers.section,
            "inside": actions.section,
            "times": times.section,
            "resources": usage.section,
            "datasets": data.section,
            "events": story.section,
            "checkpoints": checkpoints.section,
            "logs": logs.section,
            "configuration": configuration,
        }
        jumps.lead_to(sections)

    def update(self) -> None:
        """Show what the record says by now."""
        for part in self._parts:
            part.update()


class _Jumps:
    """Links to the parts of the page that are seen: it is long."""

    def __init__(self) -> None:
        self._element = ui.element("nav").classes("sl-jumps").props('aria-label="On this page"')

    def lead_to(self, sections: Mapping[str, ui.element]) -> None:
        """By anchor, the parts; a link is seen when its part is."""
        with self._element:
            for anchor, section in sections.items():
                look.link(JUMPS[anchor], f"#{anchor}").bind_visibility_from(section, "visible")


class _ErrorPanel:
    """How the run failed, and what each rank of each attempt failed with."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._ranks: dict[tuple[int, str], look.Mono] = {}
        with look.section("Errors", anchor="errors") as self.section:
            self._text = look.Mono(label="The error", tall=True)
            self._text.element.classes("sl-wrap")  # often one long sentence
            self._below = ui.element("div").classes("sl-run")

    def update(self) -> None:
        run = self._view.run
        error = (run.outcome or {}).get("error")
        failures = [
            (attempt.number, rank, text)
            for attempt in run.attempts
            for rank, text in attempt.failures.items()
        ][-SHOWN_FAILURES:]
        self.section.visible = error is not None or bool(failures)
        self._text.element.visible = error is not None
        self._text.set(error or "")
        for number, rank, text in failures:
            if (number, rank) not in self._ranks:
                what = f"rank {rank} in attempt {number}"
                # Where the run goes on, nothing above says it.
                with (
                    self._below,
                    look.Expandable(
                        f"What {what} failed with", opened=error is None and not self._ranks
                    ),
                ):
                    self._ranks[number, rank] = look.Mono(label=f"What {what} failed with")
            self._ranks[number, rank].set(text)


class _FactsPanel:
    """The run in numbers."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._metrics: dict[str, look.Fact] = {}
        with look.section("Overview"):
            with look.facts():
                names = (
                    "Started",
                    "Duration",
                    "Reports",
                    "Workers",
                    "Restarts",
                    "Goodput",
                    "Checkpoints",
                    "Last activity",
                    "Host",
                )
                self._facts = {name: look.Fact(name) for name in names}
            with look.facts() as self._row:
                pass

    def update(self) -> None:
        run = self._view.run
        summary = run.summary
        end = time.time() if summary.state == "running" else summary.ended or summary.last_activity
        values: dict[str, object] = {
            "Started": look.moment(summary.started),
            "Duration": look.duration(
                end - summary.started if end is not None and summary.started is not None else None
            ),
            "Reports": look.number(summary.reports),
            "Workers": summary.workers if summary.workers is not None else "-",
            "Restarts": max(0, summary.attempts - 1),
            "Goodput": look.percent(trainings.goodput(run)),
            "Checkpoints": summary.checkpoints,
            "Last activity": look.ago(summary.last_activity),
            "Host": summary.host or "-",
        }
        for name, value in values.items():
            self._facts[name].set(value)
        for name, number in list(numbers(summary.metrics))[:SHOWN_METRICS]:
            if name not in self._metrics:
                with self._row:
                    self._metrics[name] = look.Fact(
                        look.printable(name, 120), hint="latest report of rank 0"
                    )
            self._metrics[name].set(look.number(number))


class _WorkersPanel:
    """A row for each worker of the latest attempt."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        columns = [
            look.Column(name="rank", label="Rank"),
            look.Column(name="state", label="State", kind="state"),
            look.Column(name="host", label="Node", yielding=True),
            look.Column(name="pid", label="Process", number=True, minor=True),
            look.Column(name="device", label="Device", minor=True),
            look.Column(name="cpu", label="CPU %", number=True),
            look.Column(name="rss", label="Memory", number=True),
            look.Column(name="gpu", label="GPU %", number=True, minor=True),
            look.Column(name="gpu_memory", label="GPU memory", number=True, minor=True),
            look.Column(name="data", label="Waits for data", number=True, minor=True),
        ]
        with look.section(
            "Workers", "Of the latest attempt, as last seen.", anchor="workers"
        ) as self.section:
            self._table = look.DataTable(columns, row_key="rank", label="Workers", rows_per_page=32)

    def update(self) -> None:
        self._table.set([_worker_row(row) for row in trainings.worker_rows(self._view.run)])


def _worker_row(row: WorkerRow) -> dict[str, object]:
    return {
        "rank": int(row.rank) if row.rank.isdecimal() else row.rank,
        "state": row.state,
        "host": row.host,
        "pid": row.pid,
        "pid:text": str(row.pid) if row.pid is not None else "-",
        "device": row.device,
        "cpu": row.cpu_percent,
        "cpu:text": look.number(row.cpu_percent),
        "rss": row.rss_bytes,
        "rss:text": look.size(row.rss_bytes),
        "gpu": row.gpu_percent,
        "gpu:text": look.number(row.gpu_percent),
        "gpu_memory": row.gpu_memory_bytes,
        "gpu_memory:text": look.size(row.gpu_memory_bytes),
        "data": row.shares.get("data"),
        "data:text": look.percent(row.shares.get("data")),
    }


class _TimesPanel:
    """Where the time of the ranks goes: as a whole, and over time."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        with look.section(
            "Where the time goes",
            "Shares of the time since the latest attempt began, for each rank.",
            anchor="times",
        ) as self.section:
            self._bars = look.ShareBars(list(trainings.PARTS.values()), label="Where the time goes")
            self._more = look.Text("p", "", "sl-soft")
            with ui.element("div").classes("sl-charts"):
                self._charts = {
                    part: look.LineChart(
                        title=f"Share of time {words}", y_label="%", over_time=True, from_zero=True
                    )
                    for part, words in trainings.PARTS.items()
                    if part != "compute"
                }

    def update(self) -> None:
        run = self._view.run
        shares = {
            f"rank {row.rank}": [row.shares[part] for part in trainings.PARTS]
            for row in trainings.worker_rows(run)
            if row.shares
        }
        self.section.visible = bool(shares)
        self._bars.set(dict(itertools.islice(shares.items(), MOST_BARS)))
        self._more.put(
            f"The first {MOST_BARS} of {len(shares)} ranks." if len(shares) > MOST_BARS else ""
        )
        for part, chart in self._charts.items():
            curves = {
                f"rank {rank}": (x, [100 * share for share in y])
                for rank, (x, y) in trainings.share_curves(run, part).items()
            }
            _draw(chart, curves)


class _UsagePanel:
    """What processes and machines use, over time."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        said = "Looked at every five seconds. A worker counts together with the processes that it has started."
        with (
            look.section("Resources", said, anchor="resources") as self.section,
            ui.element("div").classes("sl-charts"),
        ):
            self._gpus = {
                key: _usage_chart(title, unit)
                for key, (title, unit, _) in trainings.GPU_USAGE.items()
            }
            self._charts = {
                key: _usage_chart(title, unit) for key, (title, unit, _) in trainings.USAGE.items()
            }
            self._hosts = {
                key: _usage_chart(title, unit)
                for key, (title, unit, _) in trainings.HOST_USAGE.items()
            }

    def update(self) -> None:
        run = self._view.run
        drawn = [_draw(chart, trainings.gpu_curves(run, key)) for key, chart in self._gpus.items()]
        for key, chart in self._charts.items():
            drawn.append(
                _draw(
                    chart,
                    {
                        f"rank {rank}": curve
                        for rank, curve in trainings.usage_curves(run, key).items()
                    },
                )
            )
        drawn += [
            _draw(chart, trainings.host_curves(run, key)) for key, chart in self._hosts.items()
        ]
        self.section.visible = any(drawn)


def _usage_chart(title: str, unit: str) -> look.LineChart:
    return look.LineChart(title=title, y_label=unit, over_time=True, from_zero=True)


def _draw(chart: look.LineChart, curves: Mapping[str, trainings.Curve]) -> bool:
    """Show the first curves, if there are enough points for a line; gives back whether there
    are.
    """
    lines = [look.Line(name=name, x=x, y=y) for name, (x, y) in list(curves.items())[:MOST_LINES]]
    chart.element.visible = any(len(line.x) > 1 for line in lines)
    chart.set(lines)
    return bool(chart.element.visible)


class _DataPanel:
    """The executions that feed the run."""

    def __init__(self, view: RunView) -> None:
        with look.section(
            "Datasets", "What feeds the workers, and where its time goes.", anchor="datasets"
        ) as self.section:
            self._choice = ExecutionChoice(view)

    def update(self) -> None:
        self._choice.update()
        self.section.visible = self._choice.has_files


class _StoryPanel:
    """What happened, the latest first."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        columns = [
            look.Column(name="time", label="Time"),
            look.Column(name="what", label="What"),
            look.Column(name="detail", label="Details", kind="mono", yielding=True, sortable=False),
        ]
        with look.section("What happened", anchor="events") as self.section:
            self._table = look.DataTable(
                columns, row_key="number", label="What happened", rows_per_page=10
            )

    def update(self) -> None:
        rows = [
            {
                "number": moment.number,
                "time": moment.time,
                "time:text": look.moment(moment.time),
                "what": moment.what,
                "detail": moment.detail,
            }
            for moment in trainings.moments(self._view.run, SHOWN_MOMENTS)
        ]
        self._table.set(rows[::-1])


class _CheckpointsPanel:
    """The checkpoints that are kept, the latest first."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        columns = [
            look.Column(name="index", label="Report"),
            look.Column(name="name", label="Directory", kind="mono", yielding=True),
            look.Column(
                name="metrics", label="Metrics", kind="mono", yielding=True, sortable=False
            ),
        ]
        with look.section(
            "Checkpoints", "Those that are kept.", anchor="checkpoints"
        ) as self.section:
            self._table = look.DataTable(
                columns, row_key="index", label="Checkpoints", rows_per_page=10
            )

    def update(self) -> None:
        kept = self._view.run.checkpoints[-SHOWN_CHECKPOINTS:]
        self.section.visible = bool(kept)
        rows = [
            {
                "index": entry.get("index"),
                "name": entry.get("name"),
                "metrics": _short(entry.get("metrics")),
            }
            for entry in kept
        ]
        self._table.set(rows[::-1])


def _configuration(view: RunView) -> ui.element:
    run = view.run
    with look.section("Configuration", anchor="configuration") as section:
        look.Mono(_as_text(run.config), label="Configuration")
        environment = dict(run.environment)
        difference = environment.pop("git_diff", None)
        with look.Expandable("Environment"):
            look.Mono(_as_text(environment), label="Environment")
        if difference:
            with look.Expandable(
                f"What differs from the git revision {str(environment.get('git_revision'))[:12]}"
            ):
                look.Mono(difference, label="Differences", tall=True)
    return section


def _restarts(view: RunView, over: Axis) -> list[look.Mark]:
    return [
        look.Mark(x=x, label=label, kind=kind) for x, label, kind in trainings.marks(view.run, over)
    ]


def _short(metrics: object) -> str:
    shown = (
        [f"{name}={look.number(value)}" for name, value in numbers(metrics)]
        if isinstance(metrics, dict)
        else []
    )
    return "  ".join(shown[:8]) + ("  …" if len(shown) > 8 else "")


def _as_text(value: object) -> str:
    return json.dumps(value, indent=2, default=str, ensure_ascii=False)
