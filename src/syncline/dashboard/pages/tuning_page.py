"""Page of a search: progress, best trial, learning curves, parameters, trials, and one trial in
detail.
"""

from __future__ import annotations

import time

from nicegui import background_tasks, ui
from nicegui.events import GenericEventArguments

from syncline.dashboard import widgets
from syncline.dashboard.pages.actions_panel import ActionsPanel
from syncline.dashboard.pages.rl_comparison import Compared, ReturnsComparison, group_of, title_of
from syncline.dashboard.pages.run_view import RunView, in_thread
from syncline.dashboard.pages.tuning_figures import (
    CurvesFigure,
    ImportanceFigure,
    Objective,
    ParallelFigure,
)
from syncline.dashboard.pages.tuning_table import CUT_OFF, TableContents, TrialTable, state_of
from syncline.dashboard.pages.tuning_trial import TrialPanel
from syncline.dashboard.progress import progress_text, search_progress
from syncline.dashboard.rl_figures import RETURN
from syncline.dashboard.search_figures import latest_results
from syncline.dashboard.search_trials import (
    ENDED,
    Mode,
    SearchSnapshot,
    TrialReader,
    TrialView,
    as_json,
    as_python,
    expected_of,
    guessed_mode,
    objective,
    prefix_of,
)
from syncline.runs.metric_series import Series
from syncline.runs.run_directory import METRICS_FILE, TRIALS_FILE
from syncline.runs.run_list import search_state
from syncline.runs.tailing import LineReader

AT_ONCE_BYTES = 1_000_000
"""Maximum size of a local trials file that is read while the page is built, which takes longer."""
# Browsers have no clipboard API outside secure contexts: select the text instead.
COPY = """() => {
  const box = document.querySelector('[data-sl-config]');
  if (navigator.clipboard)
    return navigator.clipboard.writeText(box.textContent).then(() => emit(true), () => emit(false));
  getSelection().selectAllChildren(box);
  emit(false);
}"""


class _Reader:
    """Incremental reader of the trials of a search. For one thread at a time."""

    def __init__(self, view: RunView) -> None:
        self._place = view.run.directory
        self._lines = LineReader(view.run.directory, TRIALS_FILE)
        self._trials = TrialReader(prefix_of(view.run.config))
        self.snapshot = SearchSnapshot()
        """Latest snapshot."""
        self.expected = expected_of(view.run.config)
        """Total number of trials, if known."""
        self.stamp: object = None
        """Changes when something was reported."""

    def read(self) -> None:
        """Read new data. OSError if that fails."""
        if self._trials.add(self._lines.read()):
            snapshot = self._trials.snapshot()
            # Compute the cached properties here instead of on the event loop.
            _ = snapshot.varying, snapshot.metrics, snapshot.counts, snapshot.by_id
            self.snapshot = snapshot
        self.expected = search_state(self._place).trials.get("expected", self.expected)
        self.stamp = self._place.file_info(METRICS_FILE)

    @property
    def is_quick(self) -> bool:
        """True if reading is fast enough for the event loop."""
        return self._place.local_path is not None and self._place.size(TRIALS_FILE) <= AT_ONCE_BYTES


class TuningPage:
    """Page of a run of kind "tune"."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._reader = _Reader(view)
        self._snapshot = SearchSnapshot()
        self._seen: object = None
        self._is_reading = False
        self._metric, self._mode = objective(view.run.config, ())
        self._errors = _Errors(view)
        self._overview = _Overview()
        with ui.element("div").classes("sl-bar"):
            self._metrics = ui.select(
                {}, label="Metric", with_input=True, on_change=self._metric_chosen
            )
            self._metrics.props("outlined dense options-dense").classes("sl-field")
            modes = {"min": "minimize", "max": "maximize"}
            self._modes = widgets.toggle(modes, self._mode, self._mode_chosen)
        self._best = _Best()
        with widgets.section("Learning curves"):
            self._curves = CurvesFigure()
        self._returns = ReturnsComparison()
        with widgets.section(
            "Parameters",
            "One line per trial through its parameters to its result, which sets the color.",
        ):
            self._parallel = ParallelFigure()
        with widgets.section(
            "Importance", "How strongly each parameter separates the better trials from all trials."
        ):
            self._importance = ImportanceFigure()
        with widgets.section("Trials", anchor="trials"):
            self._table = TrialTable(self._open)
        self._trial = TrialPanel(view.run.directory)
        self._actions = ActionsPanel(view, who="trial", names=self._running, kinds=("cpu",))
        if self._reader.is_quick:
            self._reader.read()

    def update(self) -> None:
        """Show the latest snapshot and start reading new data."""
        self._actions.update()
        read = (self._reader.snapshot, self._reader.stamp, self._is_alive)
        if read != self._seen:
            self._seen = read
            # Only the frame changes the series, and not while it calls `update`.
            series = self._view.run.series
            self._snapshot = self._reader.snapshot.with_latest(
                latest_results(self._reader.snapshot.trials, series)
            )
            self._show()
        self._draw_curves()
        self._show_trial()
        if not self._is_reading:
            self._is_reading = True
            background_tasks.create(self._read_new(), name="trials of a search")

    async def _read_new(self) -> None:
        try:
            await in_thread(self._reader.read)
        except OSError:  # the frame also reads the record and shows the error
            return
        finally:
            self._is_reading = False
        if self._metrics.is_deleted:
            return
        if not self._snapshot.trials and self._reader.snapshot.trials:
            self._snapshot = self._reader.snapshot
            self._show()
        await self._importance.show(self._snapshot, self._chosen)

    # -- display

    def _show(self) -> None:
        snapshot = self._snapshot
        self._update_metrics(snapshot)
        chosen = self._chosen
        self._errors.show(snapshot)
        self._overview.show(snapshot, self._reader.expected, self._view.run.started, self._is_alive)
        self._best.show(snapshot, chosen, self._is_alive)
        self._parallel.show(snapshot, chosen)
        self._table.show(
            TableContents(snapshot=snapshot, metric=chosen.metric, is_alive=self._is_alive)
        )

    def _draw_curves(self) -> None:
        series = self._view.run.series
        self._curves.show(self._snapshot, series, self._chosen)
        self._returns.show(compared_returns(self._snapshot, series))

    def _show_trial(self) -> None:
        trial = self._snapshot.by_id.get(self._trial.trial_id or "")
        if trial is not None:
            self._trial.show(trial, self._is_alive, self._view.run.samples.get(trial.id, ()))

    def _update_metrics(self, snapshot: SearchSnapshot) -> None:
        if self._metric is None:
            self._metric, self._mode = objective(self._view.run.config, snapshot.metrics)
            self._modes.set_value(self._mode)
        names = sorted({*snapshot.metrics, *([self._metric] if self._metric else [])})
        offered = {name: widgets.printable(name, 120) for name in names}
        if offered != self._metrics.options:
            self._metrics.set_options(offered, value=self._metric)

    @property
    def _chosen(self) -> Objective:
        return Objective(metric=self._metric, mode=self._mode)

    @property
    def _is_alive(self) -> bool:
        return self._view.run.state == "running"

    def _running(self) -> list[str]:
        return [trial.id for trial in self._snapshot.trials if trial.status == "RUNNING"]

    # -- events

    async def _metric_chosen(self) -> None:
        metric = self._metrics.value
        if isinstance(metric, str) and metric != self._metric:
            self._metric, self._mode = metric, guessed_mode(metric)
            self._modes.set_value(self._mode)
            await self._show_chosen()

    async def _mode_chosen(self) -> None:
        mode: Mode = "max" if self._modes.value == "max" else "min"
        if mode != self._mode:
            self._mode = mode
            await self._show_chosen()

    async def _show_chosen(self) -> None:
        self._show()
        await self._importance.show(self._snapshot, self._chosen)

    async def _open(self, trial_id: str) -> None:
        trial = self._snapshot.by_id.get(trial_id)
        if trial is not None:
            await self._trial.open(trial, self._is_alive, self._view.run.samples.get(trial_id, ()))


def compared_returns(snapshot: SearchSnapshot, series: Series) -> list[Compared]:
    """Return the trials that reported returns of reinforcement learning."""
    having = set(series.members_of(RETURN))  # once: a search may have 10 000 trials
    return [
        Compared(
            label=trial.name or trial.id,
            series=series,
            member=trial.id,
            group=group_of(trial.parameters),
            title=title_of(trial.parameters, snapshot.varying),
        )
        for trial in snapshot.trials
        if trial.id in having
    ]


class _Errors:
    """Error of the search, and the first error of its trials."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        with widgets.section("Errors", anchor="errors") as self._section:
            self._count = widgets.Text("p", "", "sl-soft")
            self._text = widgets.Mono(label="Error")
            self._text.element.classes("sl-wrap")

    def show(self, snapshot: SearchSnapshot) -> None:
        errored = [trial for trial in snapshot.trials if trial.status == "ERROR"]
        error = (self._view.run.outcome or {}).get("error")
        first = min(errored, key=lambda trial: trial.changed or 0.0, default=None)
        self._section.visible = error is not None or first is not None
        count = f"{len(errored)} of {len(snapshot.trials)} trials errored"
        name = f"; the first was {first.name or first.id}." if first is not None else ""
        self._count.show(f"{count}{name}" if errored else "")
        self._text.set(error or (first.error if first is not None else ""))


class _Overview:
    """Number of trials by status."""

    def __init__(self) -> None:
        with widgets.section("Progress"):
            self._bar = widgets.ProgressBar("Ended trials")
            self._facts = widgets.Facts()

    def show(
        self, snapshot: SearchSnapshot, expected: int | None, started: float | None, is_alive: bool
    ) -> None:
        counts = snapshot.counts
        ended = sum(counts.get(status, 0) for status in ENDED)
        known = len(snapshot.trials) + snapshot.left_out
        total = max(expected, known) if expected is not None else None
        running = counts.get("RUNNING", 0)
        number = widgets.number
        trials = (
            f"{number(ended)} ended" if total is None else f"{number(ended)} of {number(total)}"
        )
        cut_off = f"0 ({number(running)} {CUT_OFF})"
        self._facts.set(
            {
                "Trials": trials,
                "Running": running if is_alive or not running else cut_off,
                "Pending": counts.get("PENDING", 0),
                "Paused": counts.get("PAUSED", 0),
                "Finished": counts.get("TERMINATED", 0),
                "Errored": counts.get("ERROR", 0),
                "Stopped by scheduler": sum(
                    trial.stopped_by == "scheduler" for trial in snapshot.trials
                ),
                "Results": sum(trial.iteration for trial in snapshot.trials),
            }
        )
        progress = search_progress(counts, total, started if is_alive else None, time.time())
        self._bar.set(
            progress.share if progress else None, progress_text(progress) if progress else ""
        )


class _Best:
    """Best trial with its configuration."""

    def __init__(self) -> None:
        self._trial: TrialView | None = None
        with widgets.section("Best trial", anchor="best"):
            self._facts = widgets.Facts()
            with ui.element("div").classes("sl-bar"):
                forms = {"python": "Python", "json": "JSON"}
                self._form = widgets.toggle(forms, "python", self._show_config)
                button = widgets.button("Copy configuration", None, icon="content_copy")
                button.on("click", self._copied, js_handler=COPY)
            self._config = widgets.Mono(label="Configuration of the best trial")
            self._config.element.props["data-sl-config"] = True

    def show(self, snapshot: SearchSnapshot, chosen: Objective, is_alive: bool) -> None:
        trial = snapshot.best(chosen.metric, chosen.mode) if chosen.metric is not None else None
        self._trial = trial
        self._show_config()
        if trial is None or chosen.metric is None:
            self._facts.set(
                dict.fromkeys(("Trial", "Value", "Iteration", "Status", "Checkpoint"), "-")
            )
            return
        value = widgets.number(trial.metrics[chosen.metric])
        self._facts.set(
            {
                "Trial": widgets.printable(trial.name or trial.id, 200),
                "Value": f"{widgets.printable(chosen.metric, 80)} = {value}",
                "Iteration": widgets.number(trial.iteration),
                "Status": state_of(trial, is_alive),
                "Checkpoint": widgets.printable(trial.checkpoint or "-", 500),
            }
        )

    def _show_config(self) -> None:
        if self._trial is None:
            self._config.set("No trial has reported the metric yet.")
            return
        config = self._trial.config
        self._config.set(as_json(config) if self._form.value == "json" else as_python(config))

    def _copied(self, event: GenericEventArguments) -> None:
        ui.notify(
            "Copied."
            if event.args is True
            else "The configuration is selected: press Ctrl+C to copy it."
        )
