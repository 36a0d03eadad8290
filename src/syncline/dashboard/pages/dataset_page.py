"""Page of a dataset's executions: operators with their state and time, and the bottleneck.

`ExecutionChoice` and `ExecutionPanel` are also part of the training page, whose files have many
passes each. The values are computed in `dataset_executions`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from nicegui import ui

from syncline.dashboard import widgets
from syncline.dashboard.dataset_executions import ExecutionReader, ExecutionView, PassLine
from syncline.dashboard.operator_views import PARTS, OperatorView, PartKind
from syncline.dashboard.pages.run_view import RunView
from syncline.runs.run_directory import DATA_DIRECTORY

LATEST = -1
"""Select value of the latest pass."""
MAX_CHOICES = 300
"""Maximum selectable passes, the latest ones."""
MAX_FILES = 200
_LOOKED_INTO = 20
"""Maximum files that are labelled by their first line; more are labelled by name."""
_FACTS = {
    "Rows": "Rows delivered to the program",
    "Rows/s": "Current rate while running, average afterwards",
    "Time": "Time since the start",
    "Program wait": "Share of time that the program waited for rows",
    "Headroom": "How many times faster the operators could deliver rows than the program takes "
    "them, estimated from the time of their tasks; below 1 the program waits",
    "Memory in use": "Blocks that count against the budget; without data of sorts and shuffles",
    "Peak memory": "Maximum of all samples",
    "Budget": "Maximum for blocks: execution_options.resource_limits.object_store_memory",
}
_STATES = {
    "silent": "not responding",
    "running": "running",
    "finished": "finished",
    "stopped": "stopped",
    "errored": "errored",
}


class DatasetPage:
    """Page of a run of kind "data"."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        with widgets.section("Error") as self._error_section:
            self._error = widgets.Mono(label="Error")
        self._nothing = widgets.note("No execution has been recorded yet.")
        self._choice = ExecutionChoice(view)
        with widgets.section(
            "Plan", "Operations as written, operators as executed.", anchor="plan"
        ):
            plan = view.run.config.get("plan")
            widgets.Mono(plan if isinstance(plan, str) else "", label="Plan")
            with widgets.Expandable("Configuration"):
                widgets.Mono(
                    widgets.json_text(
                        {name: value for name, value in view.run.config.items() if name != "plan"}
                    ),
                    label="Configuration",
                )
            with widgets.Expandable("Environment"):
                widgets.Mono(widgets.json_text(view.run.environment), label="Environment")

    def update(self) -> None:
        """Show the current record."""
        error = (self._view.run.outcome or {}).get("error")
        self._error_section.visible = error is not None
        self._error.set(error or "")
        self._choice.update()
        self._nothing.visible = not self._choice.has_files


class ExecutionChoice:
    """The executions recorded in a run; the visitor selects one by its dataset."""

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
        """True if an execution is recorded."""
        return bool(self._labels)

    def update(self) -> None:
        """Show the current record."""
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
        """Return file -> label, sorted by dataset, the latest first."""
        names = sorted(
            name for name in self._view.run.names_in(DATA_DIRECTORY) if name.endswith(".jsonl")
        )[:MAX_FILES]
        stems = {name: widgets.printable(name.removesuffix(".jsonl"), 120) for name in names}
        if len(names) > _LOOKED_INTO:
            return stems
        firsts = {name: self._first_line(name) for name in names}
        names.sort(key=lambda name: (firsts[name].dataset, -(firsts[name].began or 0.0)))
        return {name: _file_label(firsts[name], stems[name]) for name in names}

    def _first_line(self, name: str) -> ExecutionView:
        lines = ExecutionReader()
        lines.add(self._view.run.lines(f"{DATA_DIRECTORY}/{name}")[:1])
        return lines.view(now=0.0, is_live=False)


class ExecutionPanel:
    """One file of executions: its latest pass, or a selected one.

    Args:
        view: The run.
        file: Name of the file in the run: `data/train-0123abcd.jsonl`.
    """

    def __init__(self, view: RunView, file: str) -> None:
        self._view = view
        self._file = file
        self._lines = ExecutionReader()
        self._taken = 0
        self._choices: dict[int, str] = {}
        with ui.element("div").classes("sl-run") as self.element:
            with widgets.section("Execution"):
                with ui.element("div").classes("sl-bar"):
                    self._state = widgets.StateBadge()
                    self._title = widgets.Text("span", "", "sl-soft")
                    self._pass = ui.select(
                        {LATEST: "latest pass"}, value=LATEST, label="Pass", on_change=self._show
                    )
                    self._pass.props("dense outlined options-dense").classes("sl-field")
                self._bottleneck = widgets.note("")
                self._error = widgets.note("", "error")
                self._facts = widgets.Facts(_FACTS)
            with widgets.section("Operators", "State of each operator and where its time goes."):
                self._graph = OperatorGraph()
                self._more = widgets.Text("p", "", "sl-soft")
                with widgets.Expandable("Table"):
                    self._table = widgets.DataTable(
                        _COLUMNS, row_key="number", label="Operators", rows_per_page=25
                    )
            with (
                widgets.section("Over time") as self._over_time,
                ui.element("div").classes("sl-charts"),
            ):
                self._rates = widgets.LineChart(
                    title="Rows per second", over_time=True, from_zero=True
                )
                self._memory = widgets.LineChart(
                    title="Memory in use (MiB)", over_time=True, from_zero=True
                )

    def update(self) -> None:
        """Show the current record."""
        lines = self._view.run.lines(self._file)
        self._lines.add(lines[self._taken :])
        self._taken = len(lines)
        self._show()

    def _show(self) -> None:
        chosen = self._pass.value
        number = chosen if isinstance(chosen, int) and chosen != LATEST else None
        shown = self._lines.view(number, now=time.time(), is_live=self._view.run.state == "running")
        self._update_choices(shown.passes)
        self._state.set(_STATES.get(shown.state, shown.state))
        self._title.put(_title(shown))
        self._bottleneck.show(shown.bottleneck)
        self._error.show(shown.error)
        self._show_facts(shown)
        self._graph.set(shown.operators)
        self._more.put(_not_shown(shown))
        self._table.set([_row(operator, shown) for operator in shown.operators])
        self._over_time.visible = (
            max((len(x) for x, _ in shown.rate_curves.values()), default=0) > 1
        )
        self._rates.set(
            [widgets.Line(name=name, x=x, y=y) for name, (x, y) in shown.rate_curves.items()]
        )
        memory = {
            name: (x, [each / 2**20 for each in y]) for name, (x, y) in shown.memory_curves.items()
        }
        self._memory.set(
            [
                widgets.Line(name=name, x=x, y=y, dashed=name == "budget")
                for name, (x, y) in memory.items()
            ]
        )

    def _update_choices(self, passes: tuple[PassLine, ...]) -> None:
        choices = {
            LATEST: "latest pass",
            **{each.number: _pass_label(each) for each in passes[-MAX_CHOICES:][::-1]},
        }
        if choices != self._choices:
            self._choices = choices
            self._pass.set_options(
                choices, value=self._pass.value if self._pass.value in choices else LATEST
            )
        self._pass.visible = len(passes) > 1

    def _show_facts(self, shown: ExecutionView) -> None:
        rows_per_s = None if shown.rows_per_s is None else round(shown.rows_per_s, 1)
        self._facts.set(
            {
                "Rows": widgets.number(shown.rows),
                "Rows/s": widgets.number(rows_per_s),
                "Time": widgets.duration(shown.wall_s),
                "Program wait": widgets.percent(shown.waited_share),
                "Headroom": "" if shown.headroom is None else f"{shown.headroom:.2g}x",
                "Memory in use": widgets.size(shown.held_bytes),
                "Peak memory": widgets.size(shown.peak_bytes),
                "Budget": widgets.size(shown.budget_bytes),
            }
        )


_COLUMNS = [
    widgets.Column(name="number", label="#", number=True),
    widgets.Column(name="name", label="Operator", yielding=True),
    widgets.Column(name="state", label="State", kind="state"),
    widgets.Column(name="rows", label="Rows", number=True),
    widgets.Column(name="rate", label="Rows/s", number=True),
    widgets.Column(name="busy", label="Busy", number=True),
    widgets.Column(name="running", label="Running", number=True, minor=True),
    widgets.Column(name="tasks", label="Tasks done", number=True, minor=True),
    widgets.Column(name="queued", label="Queued rows", number=True, minor=True),
    widgets.Column(name="held", label="Memory", number=True, minor=True),
]


def _row(operator: OperatorView, shown: ExecutionView) -> dict[str, object]:
    part = (
        f" ({widgets.percent(operator.held_bytes / shown.budget_bytes)} of the budget)"
        if shown.budget_bytes and operator.held_bytes
        else ""
    )
    return {
        "number": operator.number + 1,
        "name": f"{operator.name} (bottleneck)" if operator.is_bottleneck else operator.name,
        "state": operator.state,
        "rows": operator.rows,
        "rows:text": widgets.number(operator.rows),
        "rate": operator.rows_per_s,
        "rate:text": widgets.number(operator.rows_per_s),
        "busy": operator.busy_share,
        "busy:text": widgets.percent(operator.busy_share),
        "running": operator.running,
        "tasks": operator.tasks,
        "queued": operator.queued_rows,
        "queued:text": widgets.number(operator.queued_rows),
        "held": operator.held_bytes,
        "held:text": widgets.size(operator.held_bytes) + part,
    }


def _title(shown: ExecutionView) -> str:
    parts = [shown.dataset, shown.process]
    if shown.number is not None and len(shown.passes) > 1:
        parts.append(
            f"pass {shown.number + 1}"
            + (f", epoch {shown.epoch}" if shown.epoch is not None else "")
        )
    if shown.state in ("running", "silent"):
        parts.append(f"as of {widgets.ago(shown.seen)}")
    elif shown.began is not None:
        parts.append(f"started {widgets.moment(shown.began)}")
    return " · ".join(part for part in parts if part)


def _file_label(first: ExecutionView, stem: str) -> str:
    began = f"since {widgets.moment(first.began)}" if first.began is not None else ""
    return widgets.printable(
        ", ".join(part for part in (first.dataset or stem, first.process, began) if part), 200
    )


def _pass_label(each: PassLine) -> str:
    epoch = "" if each.epoch is None else f" (epoch {each.epoch})"
    state = _STATES.get(each.state, each.state)
    rows, wall = widgets.number(each.rows), widgets.duration(each.wall_s)
    return f"{each.number + 1}{epoch}: {rows} rows in {wall}, {state}"


def _not_shown(shown: ExecutionView) -> str:
    boxes = len(shown.operators) - MAX_BOXES
    said = [f"{boxes} more operators are listed in the table below." if boxes > 0 else ""]
    said.append(f"{shown.left_out} earlier operators were not recorded." if shown.left_out else "")
    return " ".join(part for part in said if part)


MAX_BOXES = 60
"""Maximum boxes; further operators appear in the table only."""


class OperatorGraph:
    """Operators of one pass as boxes in the direction of the data flow.

    A box shows the state of its operator and a bar of its time. Inputs are listed if they are not
    simply the box before it.
    """

    def __init__(self) -> None:
        self._shape: tuple[tuple[str, tuple[int, ...]], ...] = ()
        self._boxes: list[_Box] = []
        self.element = ui.element("ol").classes("sl-graph")
        self.element.props["aria-label"] = "Operators in order of execution"
        with ui.element("ul").classes("sl-legend"):
            for kind, label in PARTS:
                with ui.element("li"):
                    _part(kind)
                    widgets.Text("span", label)

    def set(self, operators: Sequence[OperatorView]) -> None:
        """Show these operators."""
        shown = operators[:MAX_BOXES]
        shape = tuple((operator.name, operator.inputs) for operator in shown)
        if shape != self._shape:
            self._shape = shape
            self._build(shown)
        for box, operator in zip(self._boxes, shown, strict=True):
            box.set(operator)

    def _build(self, operators: Sequence[OperatorView]) -> None:
        self.element.clear()
        boxes: dict[int, _Box] = {}
        with self.element:
            for level in sorted({operator.level for operator in operators}):
                with ui.element("li"), ui.element("div").classes("sl-level"):
                    for operator in operators:
                        if operator.level == level:
                            boxes[operator.number] = _Box(operator, operators)
        self._boxes = [boxes[operator.number] for operator in operators]


def _part(kind: PartKind) -> ui.element:
    made = ui.element("span").classes("sl-part")
    made.props["data-kind"] = kind
    return made


class _Box:
    """Box of one operator."""

    def __init__(self, operator: OperatorView, operators: Sequence[OperatorView]) -> None:
        self._shown: OperatorView | None = None
        with ui.element("div").classes("sl-operator") as self._element:
            with ui.element("div").classes("sl-bar"):
                self._state = widgets.StateBadge()
                self._limits = widgets.Text("strong", "bottleneck")
            widgets.Text(
                "div",
                f"{operator.number + 1} · {operator.name.replace('->', ' → ')}",
                "sl-operator-name",
            )
            if read := _inputs_text(operator, operators):
                widgets.Text("div", read, "sl-soft")
            self._bar = ui.element("div").classes("sl-parts")
            self._bar.props["role"] = "img"
            self._lines = [widgets.Text("div") for _ in range(4)]

    def set(self, operator: OperatorView) -> None:
        if operator == self._shown:
            return
        if self._shown is None or operator.parts != self._shown.parts:
            self._draw_bar(operator)
        if operator.is_bottleneck != (self._shown is not None and self._shown.is_bottleneck):
            self._element.props(
                add="data-limits" if operator.is_bottleneck else None,
                remove=None if operator.is_bottleneck else "data-limits",
            )
        self._shown = operator
        self._state.set(operator.state)
        self._limits.visible = operator.is_bottleneck
        for line, said in zip(self._lines, _box_lines(operator), strict=True):
            line.show(said)

    def _draw_bar(self, operator: OperatorView) -> None:
        labels = dict(PARTS)
        words = [f"{labels[part.kind]} {widgets.percent(part.share)}" for part in operator.parts]
        self._bar.visible = bool(words)
        self._bar.props["aria-label"] = f"Time: {', '.join(words)}"
        self._bar.props["title"] = "\n".join(words)
        self._bar.clear()
        with self._bar:
            for part in operator.parts:
                _part(part.kind).style(f"width: {100 * part.share:.2f}%")
        self._bar.update()


def _inputs_text(operator: OperatorView, operators: Sequence[OperatorView]) -> str:
    """Return the inputs of an operator, or "" if they are obvious from the arrow before it."""
    before = [each.number for each in operators if each.level == operator.level - 1]
    beside = [each.number for each in operators if each.level == operator.level]
    if not operator.inputs or (list(operator.inputs) == before and len(beside) == 1):
        return ""
    return f"reads {', '.join(str(number + 1) for number in operator.inputs)}"


def _box_lines(operator: OperatorView) -> tuple[str, str, str, str]:
    """Return the lines below the bar: rows, tasks, queue and memory, skipped rows."""
    rate = (
        ""
        if operator.rows_per_s is None
        else f", {widgets.number(_whole(operator.rows_per_s))} rows/s"
    )
    # `tasks` of a shuffle includes those of its output, so it may exceed `total`.
    total = (
        ""
        if operator.total is None or operator.total < operator.tasks
        else f" of {widgets.number(operator.total)}"
    )
    tasks = (
        f"{widgets.number(operator.tasks)}{total} tasks done, "
        f"{widgets.number(operator.running)} running"
        if operator.parts
        else ""
    )
    waits = [f"{widgets.number(operator.queued_rows)} rows queued"] if operator.queued_rows else []
    waits += [f"{widgets.size(operator.held_bytes)} in memory"] if operator.held_bytes else []
    skipped = (
        f"{widgets.number(operator.skipped_rows)} rows skipped after errors"
        if operator.skipped_rows
        else ""
    )
    return f"{widgets.number(operator.rows)} rows{rate}", tasks, ", ".join(waits), skipped


def _whole(rate: float) -> float | int:
    return round(rate) if rate >= 10 else rate
