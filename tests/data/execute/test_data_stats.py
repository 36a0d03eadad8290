"""What is counted of an execution, with a clock that the test sets, and the text that people
get.
"""

from syncline.data.execute.physical_plan import SkippedRows
from syncline.data.execute.stats import (
    ExecutionStats,
    OperatorMeter,
    OperatorStats,
    SkippedInTask,
    size_text,
)
from syncline.data.execute.task_run import TaskReport


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_time_without_a_task_waits_for_input_until_the_last_block_was_made():
    clock = Clock()
    meter = OperatorMeter("Map", clock=clock)
    clock.now = 110.0
    meter.begin_attempt(107.0)
    read = meter.read()
    assert (read.waiting_input_s, read.waiting_downstream_s) == (7.0, 3.0)


def test_time_without_a_task_waits_for_room_where_input_was_there():
    clock = Clock()
    meter = OperatorMeter("Map", clock=clock)
    meter.begin_attempt(90.0)
    clock.now = 105.0
    meter.end_block()
    clock.now = 109.0
    meter.begin_block()
    read = meter.read()
    assert (read.waiting_input_s, read.waiting_downstream_s, read.busy_s) == (0.0, 4.0, 5.0)


def test_an_operator_is_busy_while_any_of_its_tasks_runs():
    clock = Clock()
    meter = OperatorMeter("Map", clock=clock)
    meter.begin_block()
    clock.now = 102.0
    meter.begin_block()
    clock.now = 103.0
    meter.end_block()
    clock.now = 107.0
    assert meter.read().busy_s == 7.0
    meter.end_block()
    clock.now = 200.0
    assert meter.read().busy_s == 7.0


def test_turns_are_added_up():
    meter = OperatorMeter("Map", clock=Clock())
    meter.count(
        TaskReport(rows=5, size_bytes=40, wall_s=1.0, cpu_s=0.5, read_s=0.25, function_s=0.5),
        counts_block=True,
    )
    meter.count(TaskReport(rows=7, size_bytes=2, wall_s=1.0), counts_block=True)
    meter.count(TaskReport(rows=7, size_bytes=2, wall_s=1.0), counts_block=False)
    meter.count(TaskReport(is_last=True), counts_block=True)
    read = meter.read()
    assert (read.blocks, read.rows, read.size_bytes) == (2, 12, 42)
    assert (read.wall_s, read.cpu_s, read.read_s, read.function_s) == (3.0, 0.5, 0.25, 0.5)


def operator(**counts) -> OperatorStats:
    return OperatorStats(
        **{
            "name": "ReadParquet->Map(f)",
            "tasks": 4,
            "blocks": 8,
            "rows": 12_345,
            "size_bytes": 5_000_000,
            **counts,
        }
    )


def test_the_text_is_an_aligned_table_with_a_line_for_each_operator():
    stats = ExecutionStats(
        operators=(operator(busy_s=2.0, wall_s=3.5), operator(name="Sort")),
        wall_s=4.0,
        blocks=8,
        rows=12_345,
    )
    titles, first, second, whole = stats.to_string().splitlines()
    assert len(titles) == len(first) == len(second)
    assert titles.split("  ")[0].strip() == "operator"
    assert "ReadParquet->Map(f)" in first
    assert "12,345" in first
    assert "5 MB" in first
    assert "6,172" in first, "rows per second of busy time"
    assert whole.startswith("12,345 rows in 8 blocks")


def test_rows_left_out_are_listed_up_to_ten_places():
    rows = SkippedRows(operator="Map(f)", first_row=3, rows=1, error="ValueError: no")
    skipped = tuple(SkippedInTask(task=task, rows=rows) for task in range(12))
    stats = ExecutionStats(operators=(operator(skipped=skipped),))
    lines = stats.to_string().splitlines()
    assert "12 rows were left out because a function failed (on_error='skip'):" in lines
    assert "  Map(f), task 0, row 3: ValueError: no" in lines
    assert lines[-1] == "  and 2 more places, in `skipped`"
    assert stats.operators[0].skipped_rows == 12


def test_sizes_have_three_digits():
    assert [size_text(size) for size in (0, 999, 1500, 2_000_000, 12_300_000_000, 5e15)] == [
        "0 B", "999 B", "1.5 kB", "2 MB", "12.3 GB", "5e+03 TB",
    ]  # fmt: skip
