"""Records of an execution: the lines that the driver writes to a journal.

An execution of a program gets a separate run directory once it has lasted for a moment. Passes of
a training run go to that run's directory; all passes of one process over a dataset share a file.
The driver's thread decides what to write; a separate thread writes it, so that blocks never wait
for a disk. Nothing here raises: a failure to record is a line in the debug log.

    data/NAME-TOKEN.jsonl  {"time", "dataset", "pass", "epoch", "operators": [{"name", "inputs"}]}
                           at the start of a pass, then every few seconds
                           {"time", "pass", "wall_s", "rows", "operators": [{"rows", "busy_s"}]};
                           the last line of a pass has "ended": "finished", "stopped" or "errored"
                           and in the last case "error"

Not covered: local mode, which stands still in a debugger, and executions that tasks and actors of
the user's program start.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from syncline import settings
from syncline.core import lifecycle
from syncline.data.execute.execution_journal import (
    Journal,
    Outcome,
    RunDirectoryJournal,
    SharedFileJournal,
    error_text,
    shortened,
)
from syncline.data.execute.physical_plan import PhysicalPlan, Stage
from syncline.data.execute.scheduler import Counts, StageCounts
from syncline.data.execute.stats import ExecutionStats, OperatorStats

logger = logging.getLogger("syncline")

RECORD_AFTER_S = 2.0
"""Shorter executions leave no record, except passes of a training run."""
_LINES_OF_A_PASS = 3
"""Lines that must fit before a pass is recorded: its start, one sample and its end."""

Line: TypeAlias = dict[str, Any]
"""A line of a journal: a JSON object."""


class ExecutionView(Protocol):
    """The driver, as the recorder sees it."""

    def stats(self) -> ExecutionStats:
        """Return the statistics so far."""

    def counts(self) -> Counts:
        """Return the counts of the scheduler."""


class ExecutionRecorder:
    """Records one execution. Used by the driver's thread; it never raises.

    It waits for a disk only as long as `Journal.end` does.

    Args:
        plan: The plan of the execution.
        journal: Destination of the lines.
        clock: Seconds since 1970.
    """

    def __init__(
        self, plan: PhysicalPlan, journal: Journal, clock: Callable[[], float] = time.time
    ) -> None:
        self._plan = plan
        self._journal = journal
        self._clock = clock
        self._began = clock()
        self._number: int | None = None  # number of the pass; None until its first line
        self._peak_bytes = 0

    def tick(self, age_s: float, held_bytes: int, execution: ExecutionView) -> None:
        """Record a sample if it is due.

        Args:
            age_s: Seconds since the execution started.
            held_bytes: Bytes of its blocks.
            execution: Source of the statistics.
        """
        self._peak_bytes = max(self._peak_bytes, held_bytes)
        if age_s < RECORD_AFTER_S or not self._has_room():
            return
        try:
            self._begin()
            self._journal.write(self._sample(execution))
        except Exception:
            logger.debug("an execution could not be recorded", exc_info=True)

    def end(
        self, age_s: float, outcome: Outcome, error: BaseException | None, execution: ExecutionView
    ) -> None:
        """Record the end. A short execution is recorded if it is a pass of a training run."""
        if self._number is None and not self._should_record(age_s):
            return
        try:
            self._begin()
            self._journal.write(last_line(self._sample(execution), outcome, error))
            self._journal.end(outcome, error)
        except Exception:
            logger.debug("an execution could not be recorded", exc_info=True)

    def _should_record(self, age_s: float) -> bool:
        """Return True if an execution without a record so far is recorded at its end."""
        is_long = age_s >= RECORD_AFTER_S
        return (
            (is_long or self._plan.is_pass) and self._has_room()
            if self._journal.is_shared
            else is_long
        )

    def _has_room(self) -> bool:
        growth_limit = self._journal.growth_limit
        return growth_limit.is_unused or growth_limit.permits(
            1 if self._number is not None else _LINES_OF_A_PASS
        )

    def _begin(self) -> None:
        if self._number is not None:
            return
        plan, self._number = self._plan, self._journal.next_number()
        details = {
            "epoch": plan.epoch,
            "first_row": plan.first_row,
            "seed": plan.seed,
            **self._journal.details(),
        }
        self._journal.write(
            first_line(
                plan.stages,
                time_s=self._began,
                dataset=self._journal.dataset,
                number=self._number,
                **details,
            )
        )

    def _sample(self, execution: ExecutionView) -> Line:
        assert self._number is not None, "a pass begins before it is sampled"
        return sample_line(
            execution.stats(),
            execution.counts(),
            time_s=self._clock(),
            number=self._number,
            peak_bytes=self._peak_bytes,
        )


def recorder_for(plan: PhysicalPlan) -> ExecutionRecorder | None:
    """Return the recorder of an execution that starts now; None if nothing is recorded."""
    if not plan.context.record_executions:
        return None
    journal = journal_for(plan)
    return None if journal is None else ExecutionRecorder(plan, journal)


def journal_for(plan: PhysicalPlan) -> Journal | None:
    """Return the journal of an execution that starts now.

    None in tasks and actors of a program, and if the storage path is remote.
    """
    target = plan.context._record_target
    if target is not None:
        return SharedFileJournal.shared(target)
    storage = settings.storage_path()
    if "://" in storage or not lifecycle.is_program():
        return None
    return RunDirectoryJournal(plan.name, settings.local_path(storage), partial(_config, plan))


def _config(plan: PhysicalPlan) -> dict[str, str | int]:
    try:
        text = plan.describe() if plan.describe is not None else ""
    except Exception as error:  # a data source of the user formats its part of the plan
        text = f"cannot be shown: {error!r}"
    return {
        "plan": text,
        "seed": plan.seed,
        "epoch": plan.epoch,
        "cpus": plan.limits.cpus,
        "budget_bytes": plan.limits.budget_bytes,
    }


# -- lines

MAX_OPERATORS = 200
"""Operators recorded per execution: those nearest to the output."""
_MAX_NAME_LENGTH = 200


def recorded_stages(stages: Sequence[Stage]) -> slice:
    """Return the range of the stages that are recorded."""
    return slice(max(0, len(stages) - MAX_OPERATORS), len(stages))


def first_line(
    stages: Sequence[Stage], *, time_s: float, dataset: str, number: int, **details: Any
) -> Line:
    """Return the first line of a pass.

    Args:
        stages: Stages, inputs before their readers.
        time_s: Start in seconds since 1970.
        dataset: Display name; empty for an unnamed dataset.
        number: Number of the pass from 0 on, carried by all of its lines.
        **details: Further values to show.
    """
    shown = recorded_stages(stages)
    operators = [
        {
            "name": shortened(stage.name, _MAX_NAME_LENGTH),
            "inputs": [each - shown.start for each in stage.inputs if each >= shown.start],
        }
        for stage in stages[shown]
    ]
    line: Line = {
        "time": time_s,
        "dataset": dataset,
        "pass": number,
        **details,
        "operators": operators,
    }
    return {**line, "left_out": shown.start} if shown.start else line


def sample_line(
    stats: ExecutionStats, counts: Counts, *, time_s: float, number: int, peak_bytes: int
) -> Line:
    """Return a sample of a pass. `peak_bytes` is the highest sampled size of its blocks."""
    shown = slice(max(0, len(stats.operators) - MAX_OPERATORS), len(stats.operators))
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


def last_line(line: Mapping[str, Any], outcome: Outcome, error: BaseException | None) -> Line:
    """Return the last line of a pass: a sample with the outcome."""
    last = {**line, "ended": outcome}
    return last if error is None else {**last, "error": error_text(error)}


def _operator(stats: OperatorStats, counts: StageCounts) -> Line:
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
