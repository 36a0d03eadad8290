"""`Recorder`: what the driver of one execution tells at its ticks, and what of it becomes lines of
a journal.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from syncline import settings
from syncline.core import lifecycle
from syncline.data.execute.execution_journal import (
    Ended,
    Journal,
    OwnRun,
    RunFile,
    error_text,
    shortened,
)
from syncline.data.execute.program import Program, Stage
from syncline.data.execute.scheduler import Counts, StageCounts
from syncline.data.execute.stats import ExecutionStats, OperatorStats

logger = logging.getLogger("syncline")

RECORD_AFTER_S = 2.0
"""Executions that end before that leave no record; passes of a training run do, where the file has
room for them.
"""
_LINES_OF_A_PASS = 3
"""A pass is recorded if there is room for so many lines: how it begins, how it ends, and one in
between.
"""


class Watched(Protocol):
    """An execution."""

    def stats(self) -> ExecutionStats:
        """What was counted so far."""

    def counts(self) -> Counts:
        """Where its stages stand."""


class Recorder:
    """Records one execution; for the driver's thread. Nothing of it raises, or waits for a disk for
    longer than `Journal.end` says.

    Args:
        program: What is executed.
        journal: Where lines go.
        clock: Seconds since the epoch.
    """

    def __init__(
        self, program: Program, journal: Journal, clock: Callable[[], float] = time.time
    ) -> None:
        self._program = program
        self._journal = journal
        self._clock = clock
        self._began = clock()
        self._number: int | None = None  # of the pass; None until its first line
        self._peak_bytes = 0

    def look(self, age_s: float, held_bytes: int, watched: Watched) -> None:
        """A tick. `age_s`: how long the execution has lasted. `held_bytes`: of its blocks, now."""
        self._peak_bytes = max(self._peak_bytes, held_bytes)
        if age_s < RECORD_AFTER_S or not self._may_go_on():
            return
        try:
            self._begin()
            self._journal.write(self._sample(watched))
        except Exception:
            logger.debug("an execution could not be recorded", exc_info=True)

    def end(
        self, age_s: float, ended: Ended, error: BaseException | None, watched: Watched
    ) -> None:
        """The execution has ended. It is recorded if it was long, or is a pass of a training run
        and there is room for it.
        """
        if self._number is None and not self._is_worth_it(age_s):
            return
        try:
            self._begin()
            self._journal.write(ending(self._sample(watched), ended, error))
            self._journal.end(ended, error)
        except Exception:
            logger.debug("an execution could not be recorded", exc_info=True)

    def _is_worth_it(self, age_s: float) -> bool:
        """Whether an execution of which nothing is recorded yet is, at its end."""
        is_long = age_s >= RECORD_AFTER_S
        return (
            (is_long or self._program.is_pass) and self._may_go_on()
            if self._journal.is_shared
            else is_long
        )

    def _may_go_on(self) -> bool:
        pace = self._journal.pace
        return pace.is_untouched or pace.permits(
            1 if self._number is not None else _LINES_OF_A_PASS
        )

    def _begin(self) -> None:
        if self._number is not None:
            return
        program, self._number = self._program, self._journal.next_number()
        facts = {
            "epoch": program.epoch,
            "first_row": program.first_row,
            "seed": program.seed,
            **self._journal.facts(),
        }
        self._journal.write(
            beginning(
                program.stages,
                time_s=self._began,
                dataset=self._journal.dataset,
                number=self._number,
                **facts,
            )
        )

    def _sample(self, watched: Watched) -> dict[str, object]:
        assert self._number is not None, "a pass has begun before it is sampled"
        return sample(
            watched.stats(),
            watched.counts(),
            time_s=self._clock(),
            number=self._number,
            peak_bytes=self._peak_bytes,
        )


def recorder_for(program: Program) -> Recorder | None:
    """What records an execution that begins now; None where nothing is to be recorded."""
    if not program.context.record_executions:
        return None
    journal = journal_for(program)
    return None if journal is None else Recorder(program, journal)


MOST_OPERATORS = 200
"""Of a larger plan the operators nearest to the program are recorded."""
_LONGEST_NAME = 200


def recorded(stages: Sequence[Stage]) -> slice:
    """Which stages of an execution are recorded."""
    return slice(max(0, len(stages) - MOST_OPERATORS), len(stages))


def beginning(
    stages: Sequence[Stage], *, time_s: float, dataset: str, number: int, **facts: Any
) -> dict[str, Any]:
    """The line with which a pass begins.

    Args:
        stages: The operators, inputs before those that read them.
        time_s: When it began, in seconds since the epoch.
        dataset: For people; empty for a dataset without a name.
        number: Of the pass, from 0 on; all its lines carry it.
        **facts: More, for people.
    """
    shown = recorded(stages)
    operators = [
        {
            "name": shortened(stage.name, _LONGEST_NAME),
            "inputs": [each - shown.start for each in stage.inputs if each >= shown.start],
        }
        for stage in stages[shown]
    ]
    line: dict[str, Any] = {
        "time": time_s,
        "dataset": dataset,
        "pass": number,
        **facts,
        "operators": operators,
    }
    return {**line, "left_out": shown.start} if shown.start else line


def sample(
    stats: ExecutionStats, counts: Counts, *, time_s: float, number: int, peak_bytes: int
) -> dict[str, Any]:
    """Where a pass stands. `peak_bytes`: the most that its blocks held at a moment that was looked
    at.
    """
    shown = slice(max(0, len(stats.operators) - MOST_OPERATORS), len(stats.operators))
    return {
        "time": time_s,
        "pass": number,
        "wall_s": _rounded(stats.wall_s),
        "rows": stats.rows,
        "blocks": stats.blocks,
        "size_bytes": stats.size_bytes,
        "program_waited_s": _rounded(stats.program_waited_s),
        "budget_bytes": counts.budget_bytes,
        "held_bytes": counts.held_bytes,
        "peak_bytes": max(peak_bytes, counts.held_bytes),
        "slots": _rounded(counts.slots),
        "used_slots": _rounded(counts.used_slots),
        "operators": [
            _operator(*each)
            for each in zip(stats.operators[shown], counts.stages[shown], strict=True)
        ],
    }


def ending(line: Mapping[str, Any], ended: Ended, error: BaseException | None) -> dict[str, Any]:
    """The last sample of a pass."""
    last = {**line, "ended": ended}
    return last if error is None else {**last, "error": error_text(error)}


def _operator(stats: OperatorStats, counts: StageCounts) -> dict[str, Any]:
    return {
        "tasks": stats.tasks,
        "total": counts.total,
        "running": counts.running,
        "waiting": counts.waiting,
        "ended": counts.ended,
        "blocks": stats.blocks,
        "rows": stats.rows,
        "size_bytes": stats.size_bytes,
        "queued_rows": counts.queued_rows,
        "held_bytes": counts.held_bytes,
        "wall_s": _rounded(stats.wall_s),
        "cpu_s": _rounded(stats.cpu_s),
        "read_s": _rounded(stats.read_s),
        "function_s": _rounded(stats.function_s),
        "waiting_input_s": _rounded(stats.waiting_input_s),
        "waiting_downstream_s": _rounded(stats.waiting_downstream_s),
        "busy_s": _rounded(stats.busy_s),
        "skipped_rows": stats.skipped_rows,
    }


def _rounded(seconds: float) -> float:
    return round(seconds, 3)


def journal_for(program: Program) -> Journal | None:
    """Where an execution that begins now is recorded; None for one that a task or an actor of a
    program runs, and without a disk for it.
    """
    place = program.context._record_place
    if place is not None:
        return RunFile.shared(place)
    storage = settings.storage_path()
    if "://" in storage or not lifecycle.is_program():
        return None
    return OwnRun(program.name, settings.local_path(storage), partial(_config, program))


def _config(program: Program) -> dict[str, Any]:
    """Return the configuration that `run.json` records."""
    try:
        plan = program.plan() if program.plan is not None else ""
    except Exception as error:  # a data source of the user formats its part of the plan
        plan = f"cannot be shown: {error!r}"
    return {
        "plan": plan,
        "seed": program.seed,
        "epoch": program.epoch,
        "cpus": program.limits.cpus,
        "budget_bytes": program.limits.budget_bytes,
    }
