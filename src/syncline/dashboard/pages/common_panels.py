"""Sections that the pages of several kinds of runs share: errors, checkpoints, configuration."""

from __future__ import annotations

from nicegui import ui

from syncline.dashboard import widgets
from syncline.dashboard.pages.run_view import RunView
from syncline.runs.metric_series import numbers

SHOWN_CHECKPOINTS = 500
SHOWN_FAILURES = 20


class ErrorPanel:
    """Error of the run, and the error of each failed rank by attempt."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._ranks: dict[tuple[int, str], widgets.Mono] = {}
        with widgets.section("Errors", anchor="errors") as self.section:
            self._text = widgets.Mono(label="Error", tall=True)
            self._text.element.classes("sl-wrap")  # often one long sentence
            self._below = ui.element("div").classes("sl-run")

    def update(self) -> None:
        """Show the current record."""
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
                title = f"Rank {rank}, attempt {number}: traceback"
                is_first = error is None and not self._ranks  # nothing above shows an error
                with self._below, widgets.Expandable(title, opened=is_first):
                    self._ranks[number, rank] = widgets.Mono(label=title)
            self._ranks[number, rank].set(text)


class CheckpointsPanel:
    """Kept checkpoints, the latest first."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        columns = [
            widgets.Column(name="index", label="Report"),
            widgets.Column(name="name", label="Directory", kind="mono", yielding=True),
            widgets.Column(
                name="metrics", label="Metrics", kind="mono", yielding=True, sortable=False
            ),
        ]
        with widgets.section(
            "Checkpoints", "Checkpoints that are kept.", anchor="checkpoints"
        ) as self.section:
            self._table = widgets.DataTable(
                columns, row_key="index", label="Checkpoints", rows_per_page=10
            )

    def update(self) -> None:
        """Show the current record."""
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


def configuration(view: RunView) -> ui.element:
    """Create the section with configuration and environment; return it."""
    run = view.run
    with widgets.section("Configuration", anchor="configuration") as section:
        widgets.Mono(widgets.json_text(run.config), label="Configuration")
        environment = dict(run.environment)
        difference = environment.pop("git_diff", None)
        with widgets.Expandable("Environment"):
            widgets.Mono(widgets.json_text(environment), label="Environment")
        if difference:
            revision = str(environment.get("git_revision"))[:12]
            with widgets.Expandable(f"Git diff against {revision}"):
                widgets.Mono(difference, label="Git diff", tall=True)
    return section


def _short(metrics: object) -> str:
    shown = (
        [f"{name}={widgets.number(value)}" for name, value in numbers(metrics)]
        if isinstance(metrics, dict)
        else []
    )
    return "  ".join(shown[:8]) + ("  …" if len(shown) > 8 else "")
