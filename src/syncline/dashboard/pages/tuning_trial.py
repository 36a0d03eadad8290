"""One trial of a search: what it was given, what came of it, what it printed, what it uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from syncline.dashboard import look
from syncline.dashboard.pages.tuning_table import state_of
from syncline.dashboard.pages.view import in_thread
from syncline.dashboard.searches import TrialView, as_python
from syncline.runs.places import Place, checked_part
from syncline.runs.secrets import masked_text

TAIL_BYTES = 64 * 1024
"""So much of the end of each file of what a trial printed."""
MOST_FILES = 6
MOST_METRICS = 200
PRINTED = ("stdout", "stderr", "error.txt")
"""Names of files in a trial's directory that hold what it printed; so do those that end in
`.log`.
"""


class TrialPanel:
    """The trial that was chosen in the table; nothing until then."""

    def __init__(self, directory: Place) -> None:
        self._directory = directory
        self._trial: TrialView | None = None
        with look.section("Trial", anchor="trial") as self._section:
            with ui.element("div").classes("sl-title-row"):
                self._name = look.Text("strong", "")
                self._state = look.StateBadge()
            with look.facts():
                labels = (
                    "Iteration",
                    "Time",
                    "Started",
                    "Where",
                    "Ended by",
                    "Checkpoint",
                    "Directory",
                )
                self._facts = {label: look.Fact(label) for label in labels}
            with look.Expandable("Configuration", opened=True):
                self._config = look.Mono(label="Configuration of the trial")
            with look.Expandable("Last result"):
                columns = [
                    look.Column(name="name", label="Metric", yielding=True),
                    look.Column(name="value", label="Value", number=True),
                ]
                self._metrics = look.DataTable(columns, row_key="name", label="Last result")
            with ui.element("div").classes("sl-charts") as self._charts:
                self._cpu = look.LineChart(
                    title="CPU, % of one core", over_time=True, from_zero=True, height="12rem"
                )
                self._memory = look.LineChart(
                    title="Memory, MiB", over_time=True, from_zero=True, height="12rem"
                )
            self._error = look.Mono(label="Error of the trial")
            with look.Expandable("What it printed") as self._printed:
                ui.button("Read again", on_click=self._read).props("no-caps outline dense").classes(
                    "sl-action"
                )
                self._files = ui.element("div").classes("sl-run")
        self._section.visible = False

    @property
    def trial_id(self) -> str | None:
        """Which trial is shown."""
        return self._trial.id if self._trial is not None else None

    async def open(
        self, trial: TrialView, is_alive: bool, samples: Sequence[Mapping[str, Any]]
    ) -> None:
        """Show a trial."""
        self._section.visible = True
        self._files.clear()
        self.show(trial, is_alive, samples)
        ui.run_javascript("document.getElementById('trial')?.scrollIntoView({block: 'start'})")
        await self._read()

    def show(self, trial: TrialView, is_alive: bool, samples: Sequence[Mapping[str, Any]]) -> None:
        """Show what is known of the trial by now."""
        if trial is not self._trial:
            self._trial = trial
            self._say(trial)
        self._state.set(state_of(trial, is_alive))
        cpu, memory = usage_of(samples)
        self._charts.visible = bool(samples)
        self._cpu.set(
            [look.Line(name="CPU", x=[x for x, _ in cpu], y=[y for _, y in cpu])] if cpu else []
        )
        self._memory.set(
            [look.Line(name="memory", x=[x for x, _ in memory], y=[y for _, y in memory])]
            if memory
            else []
        )

    def _say(self, trial: TrialView) -> None:
        self._name.put(look.printable(trial.name or trial.id, 200))
        said = {
            "Iteration": look.number(trial.iteration),
            "Time": look.duration(trial.time_s),
            "Started": look.moment(trial.started),
            "Where": f"{trial.host}:{trial.pid}" if trial.pid else trial.host or "-",
            "Ended by": f"the {trial.stopped_by}" if trial.stopped_by else "-",
            "Checkpoint": trial.checkpoint or "-",
            "Directory": trial.directory or "-",
        }
        for label, value in said.items():
            self._facts[label].set(look.printable(value, 500))
        self._config.set(as_python(trial.config))
        metrics = list(trial.metrics.items())[:MOST_METRICS]
        self._metrics.set([{"name": name, "value": look.number(value)} for name, value in metrics])
        self._error.set(trial.error)
        self._error.element.visible = bool(trial.error)

    async def _read(self) -> None:
        """Read what the trial has printed, if that is kept (`RunConfig(log_to_file=True)`)."""
        trial = self._trial
        if trial is None:
            return
        printed = await in_thread(printed_by, self._directory, trial.directory)
        if self._trial is None or self._trial.id != trial.id or self._files.is_deleted:
            return
        self._files.clear()
        with self._files:
            for name, text in printed:
                look.Text("p", look.printable(name, 100), "sl-soft")
                look.Mono(text, label=f"{name} of the trial")
            if not printed:
                look.Text(
                    "p",
                    "Nothing is kept: RunConfig(log_to_file=True) keeps what trials print.",
                    "sl-soft",
                )


def usage_of(
    samples: Sequence[Mapping[str, Any]],
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """(time, % of one core) and (time, MiB) of a trial's process."""
    cpu: list[tuple[float, float]] = []
    memory: list[tuple[float, float]] = []
    for sample in samples:
        moment, usage = sample.get("time"), sample.get("usage")
        if not isinstance(moment, (int, float)) or not isinstance(usage, Mapping):
            continue
        percent, resident = usage.get("cpu_percent"), usage.get("rss_bytes")
        if isinstance(percent, (int, float)):
            cpu.append((moment, percent))
        if isinstance(resident, (int, float)):
            memory.append((moment, resident / 1024**2))
    return cpu, memory


def printed_by(search: Place, directory: str) -> list[tuple[str, str]]:
    """(name, end) of the files that hold what a trial printed; none where there are none, or the
    directory's name is no such name.
    """
    try:
        place = search.below(checked_part(directory))
        names = [name for name in place.file_names("") if name in PRINTED or name.endswith(".log")][
            :MOST_FILES
        ]
        return [(name, _tail(place, name)) for name in names]
    except (OSError, ValueError):
        return []


def _tail(place: Place, name: str) -> str:
    offset = max(0, place.size(name) - TAIL_BYTES)
    text = place.read_from(name, offset, TAIL_BYTES).decode(errors="replace")
    return masked_text(text.partition("\n")[2] if offset else text)
