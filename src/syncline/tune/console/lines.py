"""`LinesReporter`: plain lines for pipes, files and continuous integration, where nobody watches
and every line is kept.

A quick search says where its results lie and how it has ended. One that takes longer also says how
far it is, after half a minute and then each time that it has run twice as long.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from syncline.train.console.values import duration
from syncline.tune.console.endings import Endings
from syncline.tune.console.reporter import ProgressReporter
from syncline.tune.console.snapshot import View
from syncline.tune.console.summary import best_text, closing_lines, errors_line, status_text
from syncline.tune.experiment.trial import Trial

FIRST_S = 30.0
"""The first line about progress comes so long after the start, the next when twice as much has
passed, and so on.
"""
_LOOKS_S = 0.5


class LinesReporter(ProgressReporter):
    """The default where no person watches.

    Args:
        verbose: 2 also says which trial has ended, and how, every few seconds; 3 says it of every
            trial.
        experiment_path: Where results lie, for people.
        write: Shows a line; prints it to standard error by default.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        *,
        verbose: int = 1,
        experiment_path: str = "",
        write: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._experiment_path = experiment_path
        self._write = write or _print
        self._clock = clock
        self._view = View(found_metrics=3)
        self._endings = Endings(self._view, verbose)
        self._expected: int | float | None = None
        self._start_time = clock()
        self._wait_s = FIRST_S
        self._next_look = 0.0

    def setup(
        self,
        start_time: float | None = None,
        total_samples: int | float | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Say where the results lie."""
        self._start_time = self._clock() if start_time is None else start_time
        self._expected = total_samples
        self._view.metric, self._view.mode = metric, mode
        self._endings.pass_over(kwargs.get("trials", ()))
        if self._experiment_path:
            self._write(f"Tune: results are in {self._experiment_path}")

    def should_report(self, trials: Sequence[Trial], done: bool = False) -> bool:
        """When a line is due, and at the end. Where trials are named, they are looked through twice
        a second at most.
        """
        now = self._clock()
        return (
            done
            or now >= self._start_time + self._wait_s
            or (now >= self._next_look and self._endings.is_due(now))
        )

    def report(self, trials: Sequence[Trial], done: bool, *sys_info: str) -> None:
        """Say what is new."""
        now = self._clock()
        self._next_look = now + _LOOKS_S
        for line in self._endings.lines(trials, now):
            self._write(line)
        if done:
            snapshot = self._view.take(trials, rows=1, errors=None)
            for said in (*closing_lines(snapshot, now - self._start_time), errors_line(snapshot)):
                if said is not None:
                    self._write(said)
        elif now >= self._start_time + self._wait_s:
            while now >= self._start_time + self._wait_s:
                self._wait_s *= 2
            self._write(self._progress(trials, now, sys_info))

    def _progress(self, trials: Sequence[Trial], now: float, sys_info: Sequence[str]) -> str:
        snapshot = self._view.take(trials, rows=1, errors=0)
        said = [
            f"Tune: {status_text(snapshot, self._expected)}, after {duration(now - self._start_time)}",
            *sys_info,
        ]
        if snapshot.best is not None:
            said.append(f"best: {best_text(snapshot.best)}")
        return "; ".join(said)


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
