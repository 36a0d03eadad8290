"""What the lines of a record say."""

import json

from syncline.data.execute import execution_recorder as lines
from syncline.data.execute.physical_plan import Stage, UnionInputs
from syncline.data.execute.scheduler import Counts, StageCounts
from syncline.data.execute.stats import ExecutionStats, OperatorStats
from syncline.runs.json_values import encode


def stages(count: int) -> list[Stage]:
    return [
        Stage(name=f"Map({number})", inputs=(number - 1,) if number else (), grouping=UnionInputs())
        for number in range(count)
    ]


def counts(count: int, **changes: int) -> Counts:
    stage = StageCounts(
        queued_rows=20,
        held_bytes=40,
        running=2,
        waiting=1,
        total=9,
        output_blocks=5,
        output_rows=50,
        output_bytes=500,
        ended=False,
    )
    whole = {
        "budget_bytes": 1000,
        "held_bytes": 400,
        "expected_bytes": 0,
        "delivered_blocks": 0,
        "errored_tasks": 0,
    }
    return Counts(stages=(stage,) * count, slots=2.0, used_slots=1.5, **{**whole, **changes})


def stats(count: int) -> ExecutionStats:
    operators = tuple(
        OperatorStats(name=f"Map({number})", rows=number, wall_s=1.23456, busy_s=0.5)
        for number in range(count)
    )
    return ExecutionStats(
        operators=operators, wall_s=3.21098, rows=7, blocks=1, size_bytes=70, program_waited_s=2.5
    )


def test_a_pass_begins_with_its_operators_and_what_they_read():
    line = lines.first_line(stages(3), time_s=5.0, dataset="train", number=4, epoch=2)
    assert line == {
        "time": 5.0,
        "dataset": "train",
        "pass": 4,
        "epoch": 2,
        "operators": [
            {"name": "Map(0)", "inputs": []},
            {"name": "Map(1)", "inputs": [0]},
            {"name": "Map(2)", "inputs": [1]},
        ],
    }


def test_a_sample_has_totals_queues_memory_and_times_of_each_operator():
    line = lines.sample_line(stats(2), counts(2), time_s=6.0, number=0, peak_bytes=900)
    operator = line["operators"][1]
    assert (line["rows"], line["wall_s"], line["program_waited_s"]) == (7, 3.211, 2.5)
    assert (line["budget_bytes"], line["held_bytes"], line["peak_bytes"]) == (1000, 400, 900)
    assert (
        operator["rows"],
        operator["wall_s"],
        operator["queued_rows"],
        operator["held_bytes"],
    ) == (1, 1.235, 20, 40)
    assert (operator["running"], operator["total"], operator["ended"]) == (2, 9, False)
    assert json.loads(encode(line)) == line


def test_the_peak_is_at_least_what_is_held_now():
    assert (
        lines.sample_line(stats(1), counts(1), time_s=0.0, number=0, peak_bytes=10)["peak_bytes"]
        == 400
    )


def test_of_a_plan_with_thousands_of_operators_the_last_ones_are_recorded():
    count = 3000
    line = lines.first_line(stages(count), time_s=0.0, dataset="", number=0)
    sample_line = lines.sample_line(stats(count), counts(count), time_s=0.0, number=0, peak_bytes=0)
    assert line["left_out"] == count - lines.MAX_OPERATORS
    assert line["operators"][0] == {"name": f"Map({line['left_out']})", "inputs": []}
    assert line["operators"][1]["inputs"] == [0]
    assert [each["rows"] for each in sample_line["operators"]] == list(
        range(line["left_out"], count)
    )
    assert len(encode(sample_line)) < 100_000


def test_an_error_is_short_and_without_secrets():
    line = lines.last_line(
        {"rows": 1}, "errored", ValueError("no answer of https://me:hunter2@host/ " + "x" * 10_000)
    )
    assert line["ended"] == "errored"
    assert line["error"].startswith("ValueError: no answer of https://me:***@host/")
    assert len(line["error"]) < 3000


def test_names_of_any_length_are_cut():
    stage = Stage(name="Map(" + "f" * 10_000, grouping=UnionInputs())
    assert (
        len(lines.first_line([stage], time_s=0.0, dataset="", number=0)["operators"][0]["name"])
        <= 200
    )
