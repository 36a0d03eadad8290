"""`StepCount`: the step of each report, on which curves are drawn.

Reports are numbered on and on: one that is made again after a restart has a new number. Its step is
the one that it had before, because an attempt counts on from the report whose checkpoint it begins
with. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any


class StepCount:
    """Says which step a report is.

    Args:
        attempts: What is written down of earlier attempts: {"first_report", "first_step"}; those
        that have neither are left out. next_report: The number of the run's next report.
    """

    def __init__(self, attempts: Iterable[Mapping[str, Any]], next_report: int) -> None:
        known = [
            attempt for attempt in attempts if "first_report" in attempt and "first_step" in attempt
        ]
        self._first_reports = [int(attempt["first_report"]) for attempt in known]
        self._first_steps = [int(attempt["first_step"]) for attempt in known]
        ends = [*self._first_reports[1:], next_report] if known else []
        self.next_step = max((self.of(end - 1) + 1 for end in ends if end > 0), default=next_report)
        """One more than the highest step of those attempts."""

    def begin(self, first_report: int, checkpoint_report: int | None) -> int:
        """An attempt begins; the step of its first report.

        Args:
            first_report: The number of that report. checkpoint_report: The number of the report
            that brought the checkpoint from which it begins; None: it begins from nothing.
        """
        first_step = 0 if checkpoint_report is None else self.of(checkpoint_report) + 1
        self._first_reports.append(first_report)
        self._first_steps.append(first_step)
        return first_step

    def of(self, report: int) -> int:
        """The step of the report of that number."""
        position = bisect_right(self._first_reports, report) - 1
        return (
            report
            if position < 0
            else self._first_steps[position] + report - self._first_reports[position]
        )
