"""The page of a dataset's execution: its operators, what each of them does, and which one the
others wait for.

`ExecutionChoice` and `ExecutionPanel` are also part of the page of a training run, whose files have
many passes each. What is shown is worked out in `dashboard.executions`.
"""

from __future__ import annotations

import json
import time

from nicegui import ui

from syncline.dashboard import look
from syncline.dashboard.executions import ExecutionLines, ExecutionView, PassLine
from syncline.dashboard.operators import OperatorView
from syncline.dashboard.pages.operator_graph import MOST_BOXES, OperatorGraph
from syncline.dashboard.pages.view import RunView
from syncline.runs.directory import DATA_DIRECTORY

LATEST = -1
"""Stands for the latest pass, whichever that is."""
MOST_CHOICES = 300
"""Passes that one can choose from; of more, the latest ones."""
MOST_FILES = 200
_LOOKED_INTO = 20
"""Of so many files the first line says what they are; of more, the name has to do."""
_FACTS = {
    "Rows": "That the program got",
    "Rows/s": "Now, or as a whole once it has ended",
    "Time": "Since it began",
    "Program waited": "The part of its time that the program waited for rows",
    "Memory held": "By blocks that count against the budget; what a sort or shuffle gathers does not",
    "Most held": "At any moment that was looked at",
    "Budget": "The most that blocks may hold, from execution_options.resource_limits.object_store_memory",
}
_STATES = {
    "silent": "no sign of life",
    "running": "running",
    "finished": "finished",
    "stopped": "stopped",
    "errored": "errored",
}


class DatasetPage:
    """The page of a run of kind "data"."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        with look.section("Error") as self._error_section:
            self._error = look.Mono(label="The error")
        self._nothing = look.note("Nothing is recorded yet.")
        self._choice = ExecutionChoice(view)
        with look.section("Plan", "As it was written, and as it is executed.", anchor="plan"):
            plan = view.run.config.get("plan")
            look.Mono(plan if isinstance(plan, str) else "", label="The plan")
            with look.Expandable("Configuration"):
                look.Mono(
                    _as_text(
                        {name: value for name, value in view.run.config.items() if name != "plan"}
                    ),
                    label="Configuration",
                )
            with look.Expandable("Environment"):
                look.Mono(_as_text(view.run.environment), label="Environment")

    def update(self) -> None:
        """Show what the record says by now."""
        error = (self._view.run.outcome or {}).get("error")
        self._error_section.visible = error is not None
        self._error.set(error or "")
        self._choice.update()
        self._nothing.visible = not self._choice.has_files


class ExecutionChoice:
    """The executions that are recorded in a run: one of them at a time, chosen by its dataset."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._labels: dict[str, str] = {}
        self._panels: dict[str, ExecutionPanel] = {}
        with ui.element("div").classes("sl-bar") as self._bar:
            self._file = (
                ui.select({}, label="Dataset", on_change=self.update)
                .props("dense outlined")
                .classes("sl-field")
            )
        self._below = ui.element("div").classes("sl-run")

    @property
    def has_files(self) -> bool:
        """Whether there is any execution."""
        return bool(self._labels)

    def update(self) -> None:
        """Show what the record says by now."""
        labels = self._found()
        if labels != self._labels:
            first_before, self._labels = next(iter(self._labels), None), labels
            stays = self._file.value in labels and self._file.value != first_before
            self._file.set_options(
                labels, value=self._file.value if stays else next(iter(labels), None)
            )
        self._bar.visible = len(labels) > 1
        chosen = self._file.value
        if chosen in labels and chosen not in self._panels:
            with self._below:
                self._panels[chosen] = ExecutionPanel(self._view, f"{DATA_DIRECTORY}/{chosen}")
        for name, panel in self._panels.items():
            panel.element.visible = name == chosen
        if chosen in self._panels:
            self._panels[chosen].update()

    def _found(self) -> dict[str, str]:
        """File -> what it is called: by dataset, of each the latest one first."""
        names = sorted(
            name for name in self._view.run.names_in(DATA_DIRECTORY) if name.endswith(".jsonl")
        )[:MOST_FILES]
        stems = {name: look.printable(name.removesuffix(".jsonl"), 120) for name in names}
        if len(names) > _LOOKED_INTO:
            return stems
        firsts = {name: self._first_line(name) for name in names}
        names.sort(key=lambda name: (firsts[name].dataset, -(firsts[name].began or 0.0)))
        return {name: _file_label(firsts[name], stems[name]) for name in names}

    def _first_line(self, name: str) -> ExecutionView:
        lines = ExecutionLines()
        lines.add(self._view.run.lines(f"{DATA_DIRECTORY}/{name}")[:1])
        return lines.view(now=0.0, is_live=False)


class ExecutionPanel:
    """One file of executions: its latest pass, or the one that is chosen.

    Args:
        view: The run.
        file: Name of the file in the run: `data/train-0123abcd.jsonl`.
    """

    def __init__(self, view: RunView, file: str) -> None:
        self._view = view
        self._file = file
        self._lines = ExecutionLines()
        self._taken = 0
        self._choices: dict[int, str] = {}
        with ui.element("div").classes("sl-run") as self.element:
            with look.section("Execution"):
                with ui.element("div").classes("sl-bar"):
                    self._state = look.StateBadge()
                    self._title = look.Text("span", "", "sl-soft")
                    self._pass = ui.select(
                        {LATEST: "latest pass"}, value=LATEST, label="Pass", on_change=self._show
                    )
                    self._pass.props("dense outlined options-dense").classes("sl-field")
                self._verdict = look.note("")
                self._error = look.note("", "error")
                with look.facts():
                    self._facts = {
                        name: look.Fact(name, hint=hint) for name, hint in _FACTS.items()
                    }
            with look.section("Operators", "What each of them does, and where its time goes."):
                self._graph = OperatorGraph()
                self._more = look.Text("p", "", "sl-soft")
                with look.Expandable("In numbers"):
                    self._table = look.DataTable(
                        _COLUMNS, row_key="number", label="Operators", rows_per_page=25
                    )
            with (
                look.section("Over time") as self._over_time,
                ui.element("div").classes("sl-charts"),
            ):
                self._rates = look.LineChart(
                    title="Rows per second", over_time=True, from_zero=True
                )
                self._memory = look.LineChart(
                    title="Memory held (MiB)", over_time=True, from_zero=True
                )

    def update(self) -> None:
        """Show what the record says by now."""
        lines = self._view.run.lines(self._file)
        self._lines.add(lines[self._taken :])
        self._taken = len(lines)
        self._show()

    def _show(self) -> None:
        chosen = self._pass.value
        number = chosen if isinstance(chosen, int) and chosen != LATEST else None
        shown = self._lines.view(number, now=time.time(), is_live=self._view.run.state == "running")
        self._offer(shown.passes)
        self._state.set(_STATES.get(shown.state, shown.state))
        self._title.put(_title(shown))
        self._verdict.put(shown.verdict)
        self._verdict.visible = bool(shown.verdict)
        self._error.put(shown.error)
        self._error.visible = bool(shown.error)
        self._show_facts(shown)
        self._graph.set(shown.operators)
        self._more.put(_not_shown(shown))
        self._table.set([_row(operator, shown) for operator in shown.operators])
        self._over_time.visible = (
            max((len(x) for x, _ in shown.rate_curves.values()), default=0) > 1
        )
        self._rates.set(
            [look.Line(name=name, x=x, y=y) for name, (x, y) in shown.rate_curves.items()]
        )
        memory = {
            name: (x, [each / 2**20 for each in y]) for name, (x, y) in shown.memory_curves.items()
        }
        self._memory.set(
            [
                look.Line(name=name, x=x, y=y, dashed=name == "budget")
                for name, (x, y) in memory.items()
            ]
        )

    def _offer(self, passes: tuple[PassLine, ...]) -> None:
        choices = {
            LATEST: "latest pass",
            **{each.number: _pass_label(each) for each in passes[-MOST_CHOICES:][::-1]},
        }
        if choices != self._choices:
            self._choices = choices
            self._pass.set_options(
                choices, value=self._pass.value if self._pass.value in choices else LATEST
            )
        self._pass.visible = len(passes) > 1

    def _show_facts(self, shown: ExecutionView) -> None:
        said = {
            "Rows": look.number(shown.rows),
            "Rows/s": look.number(None if shown.rows_per_s is None else round(shown.rows_per_s, 1)),
            "Time": look.duration(shown.wall_s),
            "Program waited": look.percent(shown.waited_share),
            "Memory held": look.size(shown.held_bytes),
            "Most held": look.size(shown.peak_bytes),
            "Budget": look.size(shown.budget_bytes),
        }
        for name, text in said.items():
            self._facts[name].set(text)


_COLUMNS = [
    look.Column(name="number", label="#", number=True),
    look.Column(name="name", label="Operator", yielding=True),
    look.Column(name="state", label="State", kind="state"),
    look.Column(name="rows", label="Rows", number=True),
    look.Column(name="rate", label="Rows/s", number=True),
    look.Column(name="busy", label="Busy", number=True),
    look.Column(name="running", label="Running", number=True, minor=True),
    look.Column(name="tasks", label="Tasks done", number=True, minor=True),
    look.Column(name="queued", label="Queued rows", number=True, minor=True),
    look.Column(name="held", label="Held", number=True, minor=True),
]


def _row(operator: OperatorView, shown: ExecutionView) -> dict[str, object]:
    part = (
        f" ({look.percent(operator.held_bytes / shown.budget_bytes)} of the budget)"
        if shown.budget_bytes and operator.held_bytes
        else ""
    )
    return {
        "number": operator.number + 1,
        "name": f"{operator.name} (bottleneck)" if operator.limits else operator.name,
        "state": operator.state,
        "rows": operator.rows,
        "rows:text": look.number(operator.rows),
        "rate": operator.rows_per_s,
        "rate:text": look.number(operator.rows_per_s),
        "busy": operator.busy_share,
        "busy:text": look.percent(operator.busy_share),
        "running": operator.running,
        "tasks": operator.tasks,
        "queued": operator.queued_rows,
        "queued:text": look.number(operator.queued_rows),
        "held": operator.held_bytes,
        "held:text": look.size(operator.held_bytes) + part,
    }


def _title(shown: ExecutionView) -> str:
    parts = [shown.dataset, shown.process]
    if shown.number is not None and len(shown.passes) > 1:
        parts.append(
            f"pass {shown.number + 1}"
            + (f", epoch {shown.epoch}" if shown.epoch is not None else "")
        )
    if shown.state in ("running", "silent"):
        parts.append(f"as of {look.ago(shown.seen)}")
    elif shown.began is not None:
        parts.append(f"began {look.moment(shown.began)}")
    return " · ".join(part for part in parts if part)


def _file_label(first: ExecutionView, stem: str) -> str:
    began = f"since {look.moment(first.began)}" if first.began is not None else ""
    return look.printable(
        ", ".join(part for part in (first.dataset or stem, first.process, began) if part), 200
    )


def _pass_label(each: PassLine) -> str:
    epoch = "" if each.epoch is None else f" (epoch {each.epoch})"
    return f"{each.number + 1}{epoch}: {look.number(each.rows)} rows in {look.duration(each.wall_s)}, {_STATES.get(each.state, each.state)}"


def _not_shown(shown: ExecutionView) -> str:
    boxes = len(shown.operators) - MOST_BOXES
    said = [f"{boxes} more operators are in the table below." if boxes > 0 else ""]
    said.append(
        f"{shown.left_out} operators before these were not recorded." if shown.left_out else ""
    )
    return " ".join(part for part in said if part)


def _as_text(value: object) -> str:
    return json.dumps(value, indent=2, default=str, ensure_ascii=False)
