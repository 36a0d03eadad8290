"""`Recorder`: what the driver of one execution tells at its ticks, and what of it becomes lines of
a journal.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from syncline.data.execute.recording import journals, lines
from syncline.data.execute.recording.journals import Journal

if TYPE_CHECKING:
    from syncline.data.execute.program import Program
    from syncline.data.execute.scheduler import Counts
    from syncline.data.execute.stats import ExecutionStats

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
        self, age_s: float, ended: lines.Ended, error: BaseException | None, watched: Watched
    ) -> None:
        """The execution has ended. It is recorded if it was long, or is a pass of a training run
        and there is room for it.
        """
        if self._number is None and not self._is_worth_it(age_s):
            return
        try:
            self._begin()
            self._journal.write(lines.ending(self._sample(watched), ended, error))
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
            lines.beginning(
                program.stages,
                time_s=self._began,
                dataset=self._journal.dataset,
                number=self._number,
                **facts,
            )
        )

    def _sample(self, watched: Watched) -> dict[str, object]:
        assert self._number is not None, "a pass has begun before it is sampled"
        return lines.sample(
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
    journal = journals.journal_for(program)
    return None if journal is None else Recorder(program, journal)
