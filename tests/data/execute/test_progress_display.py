"""Lines of progress: what they say, where they are shown, and that nothing is written where nobody
looks.
"""

import io
import sys

import pytest
from rich.console import Console

from syncline.core.host import is_interactive
from syncline.data.context import DataContext
from syncline.data.execute import progress_display as progress
from syncline.data.execute.progress_display import Display, ProgressLines, lines
from syncline.data.execute.scheduler import Counts, StageCounts
from syncline.data.execute.stats import ExecutionStats, OperatorStats


def stage(queued_rows: int, held_bytes: int) -> StageCounts:
    return StageCounts(
        queued_rows=queued_rows,
        held_bytes=held_bytes,
        running=1,
        waiting=0,
        total=None,
        output_blocks=1,
        output_rows=1,
        output_bytes=1,
        ended=False,
    )


COUNTS = Counts(
    stages=(stage(0, 3_000_000), stage(1234, 0)),
    slots=2,
    used_slots=1,
    budget_bytes=1,
    held_bytes=0,
    expected_bytes=0,
    delivered_blocks=0,
    errored_tasks=0,
)
LONG = "Map(" + "f" * 60 + ")"
STATS = ExecutionStats(
    operators=(
        OperatorStats(name="ReadParquet", rows=5000, busy_s=2.0),
        OperatorStats(name=LONG, rows=4000),
    ),
    wall_s=4.0,
    rows=4000,
)


def test_there_is_a_line_for_each_operator():
    whole, read, work = lines(STATS, COUNTS, name="train")
    assert whole == "train: 4,000 rows, 1,000 rows/s, 4 s"
    assert " ".join(read.split()) == "ReadParquet 5,000 rows 2,500/s 0 queued 3 MB"
    assert "1,234 queued" in work
    assert f"{LONG[:29]}..." in work
    assert LONG in lines(STATS, COUNTS, truncate=False)[2]


def test_operators_can_be_left_out():
    assert lines(STATS, COUNTS, per_operator=False) == ["dataset: 4,000 rows, 1,000 rows/s, 4 s"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_nobody_looks_at_files_or_closed_streams(monkeypatch: pytest.MonkeyPatch):
    assert is_interactive(Terminal())
    assert not is_interactive(io.StringIO())
    assert not is_interactive(None)
    closed = Terminal()
    closed.close()
    monkeypatch.setattr(Terminal, "isatty", io.StringIO.isatty)
    assert not is_interactive(closed)
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    assert is_interactive(io.StringIO()), "a notebook"
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.delitem(sys.modules, "ipykernel")
    assert ProgressLines.on_terminal(DataContext(), "train") is None


def display() -> tuple[Display, io.StringIO]:
    written = Terminal()
    return Display(Console(file=written, force_terminal=True, width=120)), written


def test_executions_share_a_display_and_leave_their_last_lines(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "SHOW_AFTER_S", 0.0)
    shared, written = display()
    first, second = (
        ProgressLines(shared, DataContext(), "first"),
        ProgressLines(shared, DataContext(), "second"),
    )
    first.show(STATS, COUNTS)
    second.show(STATS, COUNTS)
    first.close(STATS, COUNTS)
    second.close(STATS, COUNTS)
    assert "first: 4,000 rows" in written.getvalue()
    assert "second: 4,000 rows" in written.getvalue()
    length = len(written.getvalue())
    second.close(STATS, COUNTS)
    assert len(written.getvalue()) == length


def test_short_executions_show_nothing():
    shared, written = display()
    short = ProgressLines(shared, DataContext(), "short")
    short.show(STATS, COUNTS)
    short.close(STATS, COUNTS)
    assert written.getvalue() == ""


def test_what_the_program_prints_goes_above_the_lines(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "SHOW_AFTER_S", 0.0)
    shared, written = display()
    monkeypatch.setattr(sys, "stdout", written)
    lines_of_one = ProgressLines(shared, DataContext(), "train")
    lines_of_one.show(STATS, COUNTS)
    print("step 1")
    drawn = written.getvalue()
    assert drawn.rindex("train:") > drawn.index("step 1"), (
        "the lines are drawn again below what was printed"
    )
    lines_of_one.close(STATS, COUNTS)
    assert sys.stdout is written


def test_output_to_a_file_stays_in_the_file(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "SHOW_AFTER_S", 0.0)
    shared, _ = display()
    file = io.StringIO()
    monkeypatch.setattr(sys, "stdout", file)
    lines_of_one = ProgressLines(shared, DataContext(), "train")
    lines_of_one.show(STATS, COUNTS)
    print("step 1")
    lines_of_one.close(STATS, COUNTS)
    assert file.getvalue() == "step 1\n"
