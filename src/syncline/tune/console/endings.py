"""`Endings`: which trials have ended since the last look, in lines of text. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from syncline.train.console.values import counted, duration
from syncline.tune.console import values
from syncline.tune.console.snapshot import View
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import TIME_TOTAL_S

INTERVAL_S = 5.0
"""At most one line in so many seconds, unless every trial is to be named."""


class Endings:
    """Remembers which trials it has told of.

    Args:
        view: Knows which metrics are shown.
        verbose: 1 or less tells nothing, 2 names the latest trial every few seconds, 3 names each.
    """

    def __init__(self, view: View, verbose: int) -> None:
        self._view = view
        self._wanted = verbose > 1
        self._each = verbose > 2
        self._told: set[str] = set()
        self._next = 0.0

    def pass_over(self, trials: Sequence[Trial]) -> None:
        """Of those that have ended by now, nothing is told: a restored search begins with them."""
        self._told.update(trial.trial_id for trial in trials if trial.is_finished())

    def is_due(self, now: float) -> bool:
        """Whether a line may come now."""
        return self._wanted and now >= self._next

    def lines(self, trials: Sequence[Trial], now: float) -> list[str]:
        """What there is to tell; walks through all trials."""
        if not self.is_due(now):
            return []
        ended = [
            trial for trial in trials if trial.is_finished() and trial.trial_id not in self._told
        ]
        self._told.update(trial.trial_id for trial in ended)
        if not ended:
            return []
        if self._each:
            return [self._line(trial) for trial in ended]
        self._next = now + INTERVAL_S
        others = f" (and {counted(len(ended) - 1, 'other')})" if len(ended) > 1 else ""
        return [f"{self._line(ended[-1])}{others}; {len(self._told)} have ended"]

    def _line(self, trial: Trial) -> str:
        """`train_00003 TERMINATED after 10 iterations and 3.2 s: loss=0.12`."""
        took = duration(float(trial.last_result.get(TIME_TOTAL_S) or 0.0))
        text = f"{trial} {trial.status} after {counted(trial.iteration, 'iteration')} and {took}"
        if trial.status == Trial.ERROR:
            return f"{text}: {values.last_line(trial.exception, trial.error_text)}"
        numbers = self._view.numbers(trial)
        return (
            f"{text}: {', '.join(f'{name}={value}' for name, value in numbers.items())}"
            if numbers
            else text
        )
