"""The dataset page without a browser: its elements as a record grows."""

import json
from pathlib import Path

import pytest
from nicegui import Client, ui
from nicegui.elements.mixins.text_element import TextElement
from nicegui.page import page

from syncline import runs
from syncline.dashboard.pages.dataset_page import MAX_BOXES, DatasetPage, ExecutionChoice
from syncline.dashboard.pages.run_view import RunView
from syncline.runs import LocalFiles, RunDirectory

HTML = "Map(<img src=x onerror=alert(1)>)"


def beginning(number=0, names=("ReadParquet", HTML), **more):
    operators = [
        {"name": name, "inputs": [place - 1] if place else []} for place, name in enumerate(names)
    ]
    return {
        "time": 1000.0,
        "dataset": "train",
        "pass": number,
        "epoch": number,
        "operators": operators,
        **more,
    }


def sample(number=0, rows=400, count=2, **more):
    idle = {"rows": rows, "tasks": 4, "busy_s": 0.2, "wall_s": 0.2, "waiting_input_s": 3.0}
    busy = {
        **idle,
        "busy_s": 3.9,
        "wall_s": 3.9,
        "function_s": 3.0,
        "queued_rows": 70,
        "waiting_input_s": 0.0,
    }
    operators = [idle] * (count - 1) + [busy]
    line = {
        "time": 1004.0,
        "pass": number,
        "wall_s": 4.0,
        "rows": rows,
        "program_waited_s": 3.9,
        "operators": operators,
    }
    return {**line, "budget_bytes": 2**30, "held_bytes": 2**20, "peak_bytes": 2**21, **more}


class Shown:
    """Page of a run and its visible elements."""

    def __init__(self, directory: Path, build) -> None:
        self.writer = RunDirectory(LocalFiles(directory))
        self.writer.write_run("run", {"plan": "the plan", "seed": 7}, kind="data", detailed=False)
        self.run = runs.open(directory)
        self.client = Client(page("/dataset-test"), request=None)
        view = RunView(run=self.run, may_act=False, storage=0, directory="run")
        with self.client:
            self.page = build(view)
        self.update()

    def write(self, *lines, file="data/train-1.jsonl"):
        for line in lines:
            self.writer.line(file, line)
        self.update()

    def update(self):
        self.run.refresh()
        with self.client:
            self.page.update()

    def elements(self, kind=ui.element):
        return [
            each
            for each in self.client.elements.values()
            if isinstance(each, kind) and self._is_seen(each)
        ]

    def texts(self):
        return [each.text for each in self.elements(TextElement) if each.text]

    def facts(self):
        texts = self.texts()
        return {
            name: texts[texts.index(name) + 1]
            for name in ("Rows", "Time", "Memory in use", "Peak memory", "Budget")
        }

    def selects(self):
        return {each.props["label"]: each for each in self.elements(ui.select)}

    @staticmethod
    def _is_seen(element):
        while element is not None:
            if not element.visible:
                return False
            element = element.parent_slot.parent if element.parent_slot else None
        return True


@pytest.fixture
def shown(tmp_path):
    return Shown(tmp_path, DatasetPage)


def test_before_the_first_line_it_says_so(shown):
    assert "No execution has been recorded yet." in shown.texts()
    assert "the plan" in shown.texts()


def test_operators_facts_and_what_limits_are_shown_as_the_record_grows(shown):
    shown.write(beginning())
    assert "1 · ReadParquet" in shown.texts()
    shown.write(sample())
    texts = shown.texts()
    assert shown.facts() == {
        "Rows": "400",
        "Time": "4.0 s",
        "Memory in use": "1.0 MiB",
        "Peak memory": "2.0 MiB",
        "Budget": "1.0 GiB",
    }
    assert f"{HTML} is the bottleneck: it is busy 98 % of the time while others wait." in texts
    assert {"400 rows, 100 rows/s", "70 rows queued", "bottleneck"} <= set(texts)
    bars = [
        each.props["aria-label"]
        for each in shown.elements()
        if str(each.props.get("aria-label", "")).startswith("Time: ")
    ]
    assert bars[1] == "Time: user functions 75 %, other work 22 %, waiting for memory or a CPU 3 %"


def test_names_are_shown_as_text_alone(shown):
    shown.write(beginning(), sample())
    assert f"2 · {HTML}" in shown.texts()
    assert not shown.elements(ui.html)
    assert not shown.elements(ui.markdown)


def test_an_error_is_shown(shown):
    shown.write(beginning(), sample(ended="errored", error="ValueError: no such column"))
    shown.writer.write_outcome("errored", "ValueError: no such column")
    shown.update()
    assert shown.texts().count("ValueError: no such column") == 2
    assert "errored" in shown.texts()


def test_one_chooses_among_passes_and_sees_the_latest_until_then(shown):
    shown.write(beginning(0), sample(0, rows=100, ended="finished"))
    assert "Pass" not in shown.selects()
    shown.write(beginning(1), sample(1, rows=200, ended="finished"))
    assert shown.facts()["Rows"] == "200"
    with shown.client:
        shown.selects()["Pass"].value = 0
    assert shown.facts()["Rows"] == "100"
    shown.write(beginning(2), sample(2, rows=300))
    assert shown.facts()["Rows"] == "100"


def test_one_chooses_among_datasets_and_sees_the_latest_of_the_first_until_then(tmp_path):
    shown = Shown(tmp_path, ExecutionChoice)
    assert not shown.page.has_files
    shown.write(beginning(dataset="valid"), sample(rows=5), file="data/valid-1.jsonl")
    shown.write(beginning(), sample(rows=100), file="data/train-1.jsonl")
    assert shown.facts()["Rows"] == "100"
    shown.write(beginning(time=2000.0), sample(rows=200), file="data/train-0.jsonl")
    assert shown.facts()["Rows"] == "200", "that of the second attempt"
    with shown.client:
        shown.selects()["Dataset"].value = "valid-1.jsonl"
    assert shown.facts()["Rows"] == "5"
    shown.write(beginning(time=3000.0), sample(rows=300), file="data/train-2.jsonl")
    assert shown.facts()["Rows"] == "5"


def test_of_a_large_plan_some_have_boxes_and_all_are_in_the_table(shown):
    count = MAX_BOXES + 30
    shown.write(
        beginning(names=[f"Map({number})" for number in range(count)], left_out=12),
        sample(count=count),
    )
    boxes = [each for each in shown.elements() if "sl-operator" in each.classes]
    assert len(boxes) == MAX_BOXES
    assert (
        "30 more operators are listed in the table below. 12 earlier operators were not recorded."
        in shown.texts()
    )
    (table,) = shown.elements(ui.table)
    assert len(table.rows) == count


@pytest.mark.parametrize("seed", range(3))
def test_damaged_records_are_shown_as_far_as_they_go(shown, seed):
    odd = [None, [], {"operators": {"a": 1}}, {"name": {}, "inputs": 3}, float("nan")][seed]
    shown.write(
        {**beginning(), "operators": [odd, {"name": "Sort"}]},
        sample(operators=odd),
        {"pass": [], "dataset": odd},
    )
    assert "2 · Sort" in shown.texts()
    json.dumps([each.props.get("options") for each in shown.elements()], default=str)
