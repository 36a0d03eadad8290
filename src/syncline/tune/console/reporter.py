"""`ProgressReporter`: the contract between the controller of a search and its display; and
`LineReporter`: plain lines for pipes, files and continuous integration.

A short search prints the directory of its results and a summary. A longer one also prints its
progress after 30 seconds, and again whenever its duration has doubled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from syncline.core.live_region import print_line
from syncline.train.console.formatting import counted, duration
from syncline.tune.console.snapshot import (
    View,
    best_text,
    closing_lines,
    errors_line,
    failure_cause,
    status_text,
)
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import TIME_TOTAL_S

FIRST_PROGRESS_S = 30.0
"""Seconds until the first line about progress; the interval doubles with each line."""
ENDED_TRIALS_INTERVAL_S = 5.0
"""Seconds between two lines about ended trials, unless each trial has a line."""
_CHECK_INTERVAL_S = 0.5


class ProgressReporter:
    """Displays the progress of a search. The controller calls all methods from one thread.

    `should_report` is called after every event and must be cheap: it must not iterate over all
    trials each time. If it returns True, `report` is called. `trials` is the controller's own list,
    in order of creation; do not modify or copy it.
    """

    def setup(
        self,
        start_time: float | None = None,
        total_samples: int | float | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: object,
    ) -> None:
        """Called once before all other methods; does nothing by default.

        Args:
            start_time: Start of the search in seconds since the epoch.
            total_samples: Expected number of trials; `math.inf` without a limit, None if unknown.
            metric: Metric to optimize.
            mode: "min" or "max".
            kwargs: `trials`, the restored trials; later versions may add arguments.
        """

    def should_report(self, trials: Sequence[Trial], done: bool = False) -> bool:
        """Return True to get a call of `report`. `done` is True in the last call."""
        raise NotImplementedError(
            f"{type(self).__name__} must implement `should_report(trials, done)`: "
            "return True when a report is due."
        )

    def report(self, trials: Sequence[Trial], done: bool, *sys_info: str) -> None:
        """Display the trials. `sys_info`: lines about the machines, such as resources in use."""
        raise NotImplementedError(
            f"{type(self).__name__} must display the trials in `report(trials, done, *sys_info)`."
        )

    def close(self) -> None:
        """Release the screen after the end of the search, also after a failure.

        May be called twice; does nothing by default.
        """


class EndedTrials:
    """Makes lines about trials that ended since the last call.

    Args:
        view: Determines the metrics in the lines.
        verbose: 0 or 1 for no lines, 2 for the latest ended trial every few seconds, 3 for each.
    """

    def __init__(self, view: View, verbose: int) -> None:
        self._view = view
        self._is_enabled = verbose > 1
        self._all_trials = verbose > 2
        self._reported: set[str] = set()
        self._next = 0.0

    def skip(self, trials: object) -> None:
        """Report none of the restored `trials` that have ended."""
        if isinstance(trials, Sequence):
            self._reported.update(trial.trial_id for trial in trials if trial.is_finished())

    def is_due(self, now: float) -> bool:
        """Return True if `lines` may return lines now."""
        return self._is_enabled and now >= self._next

    def lines(self, trials: Sequence[Trial], now: float) -> list[str]:
        """Return new lines; iterates over all trials."""
        if not self.is_due(now):
            return []
        ended = [
            trial
            for trial in trials
            if trial.is_finished() and trial.trial_id not in self._reported
        ]
        self._reported.update(trial.trial_id for trial in ended)
        if not ended:
            return []
        if self._all_trials:
            return [self._line(trial) for trial in ended]
        self._next = now + ENDED_TRIALS_INTERVAL_S
        others = f" (and {counted(len(ended) - 1, 'other')})" if len(ended) > 1 else ""
        return [f"{self._line(ended[-1])}{others}; {len(self._reported)} have ended"]

    def _line(self, trial: Trial) -> str:
        """Return `train_00003 TERMINATED after 10 iterations and 3.2 s: loss=0.12`."""
        took = duration(float(trial.last_result.get(TIME_TOTAL_S) or 0.0))
        text = f"{trial} {trial.status} after {counted(trial.iteration, 'iteration')} and {took}"
        if trial.status == Trial.ERROR:
            return f"{text}: {failure_cause(trial.exception, trial.error_text)}"
        numbers = ", ".join(f"{name}={value}" for name, value in self._view.numbers(trial).items())
        return f"{text}: {numbers}" if numbers else text


class DefaultReporter(ProgressReporter):
    """Base of the default reporters.

    Args:
        view: Display options.
        verbose: See `EndedTrials`.
        experiment_path: Displayed directory of the results.
        clock: Returns seconds since the epoch.
    """

    def __init__(
        self, view: View, verbose: int, experiment_path: str, clock: Callable[[], float]
    ) -> None:
        self._view = view
        self._ended_trials = EndedTrials(view, verbose)
        self._experiment_path = experiment_path
        self._clock = clock
        self._start_time = clock()
        self._expected: int | float | None = None

    def setup(
        self,
        start_time: float | None = None,
        total_samples: int | float | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: object,
    ) -> None:
        """See `ProgressReporter`."""
        self._start_time = self._clock() if start_time is None else start_time
        self._expected = total_samples
        self._view.metric, self._view.mode = metric, mode
        self._ended_trials.skip(kwargs.get("trials"))


class LineReporter(DefaultReporter):
    """The default reporter if standard error is neither a terminal nor a notebook.

    Args:
        verbose: See `EndedTrials`.
        experiment_path: Displayed directory of the results.
        write: Writes a line; to standard error by default.
        clock: Returns seconds since the epoch.
    """

    def __init__(
        self,
        *,
        verbose: int = 1,
        experiment_path: str = "",
        write: Callable[[str], None] = print_line,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(View(found_metrics=3), verbose, experiment_path, clock)
        self._write = write
        self._progress_after_s = FIRST_PROGRESS_S
        self._next_check = 0.0

    def setup(self, *args: Any, **kwargs: Any) -> None:
        """Print the directory of the results."""
        super().setup(*args, **kwargs)
        if self._experiment_path:
            self._write(f"Tune: results are in {self._experiment_path}")

    def should_report(self, trials: Sequence[Trial], done: bool = False) -> bool:
        """Return True if a line is due and at the end; ended trials are checked twice a second."""
        now = self._clock()
        return (
            done
            or now >= self._start_time + self._progress_after_s
            or (now >= self._next_check and self._ended_trials.is_due(now))
        )

    def report(self, trials: Sequence[Trial], done: bool, *sys_info: str) -> None:
        """Print the lines that are due."""
        now = self._clock()
        self._next_check = now + _CHECK_INTERVAL_S
        for line in self._ended_trials.lines(trials, now):
            self._write(line)
        if done:
            snapshot = self._view.take(trials, rows=1, errors=None)
            error = errors_line(snapshot)
            lines = closing_lines(snapshot, now - self._start_time)
            for line in [*lines, error] if error is not None else lines:
                self._write(line)
        elif now >= self._start_time + self._progress_after_s:
            while now >= self._start_time + self._progress_after_s:
                self._progress_after_s *= 2
            self._write(self._progress(trials, now, sys_info))

    def _progress(self, trials: Sequence[Trial], now: float, sys_info: Sequence[str]) -> str:
        snapshot = self._view.take(trials, rows=1, errors=0)
        status = status_text(snapshot, self._expected)
        parts = [f"Tune: {status}, after {duration(now - self._start_time)}", *sys_info]
        if snapshot.best is not None:
            parts.append(f"best: {best_text(snapshot.best)}")
        return "; ".join(parts)
