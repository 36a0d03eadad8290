"""Details of one trial: configuration, results, resource usage, output."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from syncline.dashboard import widgets
from syncline.dashboard.pages.run_view import in_thread
from syncline.dashboard.pages.tuning_table import state_of
from syncline.dashboard.search_trials import TrialView, as_python
from syncline.dashboard.training_figures import usage_curve
from syncline.runs.json_values import Record
from syncline.runs.run_storage import StorageDirectory, checked_file_name
from syncline.runs.secrets import masked_text

TAIL_BYTES = 64 * 1024
"""Bytes shown of the end of each output file."""
MAX_FILES = 6
MAX_METRICS = 200
PRINTED = ("stdout", "stderr", "error.txt")
"""Names of output files in a trial's directory, besides `*.log`."""


class TrialPanel:
    """Details of the trial selected in the table; hidden until one is selected."""

    def __init__(self, directory: StorageDirectory) -> None:
        self._directory = directory
        self._trial: TrialView | None = None
        with widgets.section("Trial", anchor="trial") as self._section:
            with ui.element("div").classes("sl-title-row"):
                self._name = widgets.Text("strong", "")
                self._state = widgets.StateBadge()
            self._facts = widgets.Facts()
            with widgets.Expandable("Configuration", opened=True):
                self._config = widgets.Mono(label="Configuration of the trial")
            with widgets.Expandable("Latest result"):
                columns = [
                    widgets.Column(name="name", label="Metric", yielding=True),
                    widgets.Column(name="value", label="Value", number=True),
                ]
                self._metrics = widgets.DataTable(columns, row_key="name", label="Latest result")
            with ui.element("div").classes("sl-charts") as self._charts:
                self._cpu = widgets.LineChart(
                    title="CPU (% of one core)", over_time=True, from_zero=True, height="12rem"
                )
                self._memory = widgets.LineChart(
                    title="Memory (MiB)", over_time=True, from_zero=True, height="12rem"
                )
            self._error = widgets.Mono(label="Error of the trial")
            with widgets.Expandable("Output") as self._printed:
                widgets.button("Refresh", self._read)
                self._files = ui.element("div").classes("sl-run")
        self._section.visible = False

    @property
    def trial_id(self) -> str | None:
        """ID of the selected trial."""
        return self._trial.id if self._trial is not None else None

    async def open(self, trial: TrialView, is_alive: bool, samples: Sequence[Record]) -> None:
        """Select a trial."""
        self._section.visible = True
        self._files.clear()
        self.show(trial, is_alive, samples)
        ui.run_javascript("document.getElementById('trial')?.scrollIntoView({block: 'start'})")
        await self._read()

    def show(self, trial: TrialView, is_alive: bool, samples: Sequence[Record]) -> None:
        """Show the current state of the trial."""
        if trial is not self._trial:
            self._trial = trial
            self._show_facts(trial)
        self._state.set(state_of(trial, is_alive))
        self._charts.visible = bool(samples)
        for chart, name, key, scale in (
            (self._cpu, "CPU", "cpu_percent", 1.0),
            (self._memory, "memory", "rss_bytes", 1 / 1024**2),
        ):
            x, y = usage_curve(samples, key, scale)
            chart.set([widgets.Line(name=name, x=x, y=y)] if x else [])

    def _show_facts(self, trial: TrialView) -> None:
        self._name.put(widgets.printable(trial.name or trial.id, 200))
        facts = {
            "Iteration": widgets.number(trial.iteration),
            "Time": widgets.duration(trial.time_s),
            "Started": widgets.moment(trial.started),
            "Host": f"{trial.host}:{trial.pid}" if trial.pid else trial.host or "-",
            "Stopped by": trial.stopped_by or "-",
            "Checkpoint": trial.checkpoint or "-",
            "Directory": trial.directory or "-",
        }
        self._facts.set({label: widgets.printable(value, 500) for label, value in facts.items()})
        self._config.set(as_python(trial.config))
        metrics = list(trial.metrics.items())[:MAX_METRICS]
        self._metrics.set(
            [{"name": name, "value": widgets.number(value)} for name, value in metrics]
        )
        self._error.set(trial.error)
        self._error.element.visible = bool(trial.error)

    async def _read(self) -> None:
        """Read the output of the trial, if it is stored (`RunConfig(log_to_file=True)`)."""
        trial = self._trial
        if trial is None:
            return
        printed = await in_thread(read_output, self._directory, trial.directory)
        if self._trial is None or self._trial.id != trial.id or self._files.is_deleted:
            return
        self._files.clear()
        with self._files:
            for name, text in printed:
                widgets.Text("p", widgets.printable(name, 100), "sl-soft")
                widgets.Mono(text, label=f"{name} of the trial")
            if not printed:
                widgets.Text(
                    "p",
                    "No output is stored. Set RunConfig(log_to_file=True) to store it.",
                    "sl-soft",
                )


def read_output(search: StorageDirectory, directory: str) -> list[tuple[str, str]]:
    """Return (name, end) of a trial's output files; empty if there are none or the directory name
    is invalid.
    """
    try:
        place = search.subdirectory(checked_file_name(directory))
        names = [name for name in place.file_names("") if name in PRINTED or name.endswith(".log")][
            :MAX_FILES
        ]
        return [(name, _tail(place, name)) for name in names]
    except (OSError, ValueError):
        return []


def _tail(place: StorageDirectory, name: str) -> str:
    offset = max(0, place.size(name) - TAIL_BYTES)
    text = place.read_range(name, offset, TAIL_BYTES).decode(errors="replace")
    return masked_text(text.partition("\n")[2] if offset else text)
