"""When an execution is recorded, with journals that only remember and clocks that the test sets."""

from types import SimpleNamespace

import pytest

from syncline.data.execute.execution_journal import GrowthLimit
from syncline.data.execute.execution_recorder import RECORD_AFTER_S, ExecutionRecorder
from tests.data.execute.test_record_lines import counts, stages, stats


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Remembering:
    """A journal."""

    dataset = "train"

    def __init__(self, clock, *, is_shared, line_bytes=1000):
        self.is_shared = is_shared
        self.growth_limit = GrowthLimit(clock)
        self.lines, self.ends, self.begun = [], [], 0
        self._line_bytes = line_bytes

    def next_number(self):
        self.begun += 1
        return self.begun - 1

    def details(self):
        return {}

    def write(self, line):
        self.growth_limit.add(self._line_bytes)
        self.lines.append(line)

    def end(self, ended, error):
        self.ends.append((ended, error))


class ExecutionView:
    def stats(self):
        return stats(2)

    def counts(self):
        return counts(2)


class Failing:
    def stats(self):
        raise RuntimeError("a defect")

    counts = stats


def recorder(journal, clock, *, is_pass=True):
    plan = SimpleNamespace(stages=stages(2), epoch=3, first_row=0, seed=7, is_pass=is_pass)
    return ExecutionRecorder(plan, journal, clock)


def execute(journal, clock, seconds, *, is_pass=True, ended="finished", error=None):
    """An execution with a tick each second."""
    made = recorder(journal, clock, is_pass=is_pass)
    began = clock.now
    for age in range(1, int(seconds) + 1):
        clock.now = began + age
        made.tick(float(age), 100, ExecutionView())
    clock.now = began + seconds
    made.end(seconds, ended, error, ExecutionView())


def test_a_short_execution_of_a_program_leaves_nothing():
    journal = Remembering(clock := Clock(), is_shared=False)
    execute(journal, clock, RECORD_AFTER_S - 0.1)
    assert (journal.lines, journal.ends, journal.begun) == ([], [], 0)


def test_a_longer_one_begins_goes_on_and_ends():
    journal = Remembering(clock := Clock(), is_shared=False)
    execute(journal, clock, 10)
    first, *samples = journal.lines
    assert (first["time"], first["epoch"], [each["name"] for each in first["operators"]]) == (
        1000.0,
        3,
        ["Map(0)", "Map(1)"],
    )
    assert [line["time"] - 1000 for line in samples] == [2, 4, 6, 8, 10, 10]
    assert ["ended" in line for line in samples] == [False] * 5 + [True]
    assert journal.ends == [("finished", None)]


def test_the_program_takes_nothing_for_long_and_the_end_is_recorded_all_the_same():
    journal = Remembering(clock := Clock(), is_shared=False)
    made = recorder(journal, clock)
    made.end(60.0, "stopped", None, ExecutionView())
    assert [line.get("ended") for line in journal.lines] == [None, "stopped"]


def test_short_passes_of_a_run_are_recorded_but_not_what_looks_something_up():
    journal = Remembering(clock := Clock(), is_shared=True)
    execute(journal, clock, 0.5, is_pass=False)
    assert journal.lines == []
    execute(journal, clock, 0.5)
    assert [line.get("ended") for line in journal.lines] == [None, "finished"]
    assert [line["pass"] for line in journal.lines] == [0, 0]


@pytest.mark.parametrize("pass_s", [0.1, 5.0, 600.0])
def test_a_file_of_any_number_of_passes_is_bounded_and_none_of_them_is_cut(pass_s):
    journal = Remembering(clock := Clock(), is_shared=True, line_bytes=4000)
    for _ in range(2000 if pass_s < 10 else 300):
        execute(journal, clock, pass_s)
    assert len(journal.lines) * 4000 < 1_500_000
    begun = [line["pass"] for line in journal.lines if "dataset" in line]
    ended = [line["pass"] for line in journal.lines if "ended" in line]
    assert begun == ended == list(range(journal.begun))
    assert journal.begun > 10


def test_an_error_is_part_of_the_last_line():
    journal = Remembering(clock := Clock(), is_shared=True)
    error = ValueError("no")
    execute(journal, clock, 0.5, ended="errored", error=error)
    assert journal.lines[-1]["error"] == "ValueError: no"
    assert journal.ends == [("errored", error)]


def test_the_most_that_was_held_at_any_tick_is_kept():
    journal = Remembering(clock := Clock(), is_shared=True)
    made = recorder(journal, clock)
    made.tick(0.5, 5000, ExecutionView())
    made.tick(1.5, 10, ExecutionView())
    made.end(1.6, "finished", None, ExecutionView())
    assert journal.lines[-1]["peak_bytes"] == 5000


def test_a_defect_of_the_record_does_not_reach_the_execution():
    journal = Remembering(clock := Clock(), is_shared=True)
    made = recorder(journal, clock)
    made.tick(5.0, 0, Failing())
    made.end(6.0, "finished", None, Failing())
