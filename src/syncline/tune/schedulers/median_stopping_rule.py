"""`MedianStoppingRule`: stop trials that are worse than the median of the others at the same time.

Golovin, Solnik, Moitra, Kochanski, Karro, Sculley: Google Vizier, a Service for Black-Box
Optimization, KDD 2017, section 3.2.1: a trial is stopped at step s if its best objective by s is
strictly worse than the median of the running averages up to s of the others.

`RunningAverages` keeps the averages so that the cost of a result does not depend on the number of
trials: each trial stores its average at each age that it passes, and each age keeps its averages
sorted. An age is a time rounded down to 7 binary digits: exact up to 128, less than 2 % off above.
"""

from __future__ import annotations

import bisect
import math
from array import array
from dataclasses import dataclass, field

from syncline.suggestions import suggest_arguments
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import Metrics
from syncline.tune.schedulers.trial_scheduler import (
    WORST,
    ControllerView,
    MetricScheduler,
    waiting_trials,
)

_STEPS = 64
"""Number of ages between a power of two and the next."""
_YOUNGEST = -(2**20)


@suggest_arguments
class MedianStoppingRule(MetricScheduler):
    """Stop trials whose best result is worse than the median of the others' average results.

    Args:
        time_attr: Unit of time: a key of results that does not decrease.
        metric: Metric that trials are compared by; may be given to `TuneConfig` instead.
        mode: `"min"` or `"max"`; may be given to `TuneConfig` instead.
        grace_period: Time before which no trial is stopped; averages start there.
        min_samples_required: Minimal number of other trials for a median.
        min_time_slice: Time that a trial runs before it is paused in favor of waiting trials, while
            there are too few others for a median.
        hard_stop: If True, stop trials; otherwise pause them until no other trial waits.

    Raises:
        ValueError: `mode` is neither `"min"` nor `"max"`.
    """

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        grace_period: float = 60.0,
        min_samples_required: int = 3,
        min_time_slice: float = 0,
        hard_stop: bool = True,
    ) -> None:
        super().__init__(time_attr=time_attr, metric=metric, mode=mode)
        self._grace_period = grace_period
        self._min_samples_required = min_samples_required
        self._min_time_slice = min_time_slice
        self._hard_stop = hard_stop
        self._averages = RunningAverages()
        self._best: dict[str, float] = {}
        """Best score of each unfinished trial."""
        self._paused_at: dict[str, float] = {}
        """Time of the latest pause in favor of other trials."""
        self._num_stopped = 0
        self._soft_stopped: set[str] = set()
        """Trials that were paused by the rule, without `hard_stop`."""
        self._preempted: dict[str, None] = {}
        """Trials that were paused in favor of others, the earliest first."""

    def on_trial_add(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Add the trial. Metric and mode must be set."""
        self._check_properties()
        self._best.setdefault(trial.trial_id, WORST)

    def on_trial_result(
        self, tune_controller: ControllerView, trial: Trial, result: Metrics
    ) -> str:
        """Compare the trial's best score with the median of the others."""
        time, score = self._time_and_score(trial, result)
        if time is None or score is None:
            return self.CONTINUE
        self._preempted.pop(trial.trial_id, None)
        best = self._best[trial.trial_id] = max(self._best.get(trial.trial_id, WORST), score)
        if trial.trial_id in self._soft_stopped or time < self._grace_period:
            return self.CONTINUE
        others = self._averages.of_others(trial.trial_id, time)
        self._averages.add(trial.trial_id, time, score)
        if others.count < self._min_samples_required:
            return self._preempt(tune_controller, trial.trial_id, time)
        if best >= others.median:
            return self.CONTINUE
        self._num_stopped += 1
        if self._hard_stop:
            self._forget(trial.trial_id)
            return self.STOP
        self._soft_stopped.add(trial.trial_id)
        return self.PAUSE

    def on_trial_complete(
        self, tune_controller: ControllerView, trial: Trial, result: Metrics
    ) -> None:
        """Record the last result. The averages of the trial remain for comparisons."""
        if self._has_both(result):
            time = self._required_time(trial, result)
            if time >= self._grace_period:
                self._averages.add(trial.trial_id, time, self._score(trial, result))
        self._forget(trial.trial_id)

    def on_trial_remove(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Remove the trial; its averages remain for comparisons."""
        self._forget(trial.trial_id)

    def choose_trial_to_run(self, tune_controller: ControllerView) -> Trial | None:
        """Return a pending trial, else a preempted one, else one paused by the rule."""
        for pending in tune_controller.pending_trials():
            return pending
        for trial_id in self._preempted:
            trial = tune_controller.get_trial(trial_id)
            if trial is not None and trial.status == Trial.PAUSED:
                return trial
        return next(iter(tune_controller.paused_trials()), None)

    def debug_string(self) -> str:
        """Return the number of stopped trials."""
        return f"Using MedianStoppingRule: num_stopped={self._num_stopped}."

    def _preempt(self, controller: ControllerView, trial_id: str, time: float) -> str:
        """Pause the trial after its time slice if others wait."""
        if time - self._paused_at.get(trial_id, -math.inf) <= self._min_time_slice:
            return self.CONTINUE
        if next(waiting_trials(controller), None) is None:
            return self.CONTINUE
        self._paused_at[trial_id] = time
        self._preempted[trial_id] = None
        return self.PAUSE

    def _forget(self, trial_id: str) -> None:
        self._best.pop(trial_id, None)
        self._paused_at.pop(trial_id, None)
        self._soft_stopped.discard(trial_id)
        self._preempted.pop(trial_id, None)


@dataclass(frozen=True)
class OtherAverages:
    """Summary of other trials' averages at an age."""

    count: int
    median: float
    """Median of their averages; NaN if there are none."""


@dataclass
class _TrialAverages:
    """Running average of one trial at each age at which it has reported, in ascending order."""

    ages: array[int] = field(default_factory=lambda: array("q"))
    averages: array[float] = field(default_factory=lambda: array("d"))
    total: float = 0.0
    count: int = 0

    def at(self, age: int) -> float:
        """Return the average at `age`; NaN before the first report. A non-finite score makes all
        later averages non-finite.
        """
        position = bisect.bisect_right(self.ages, age)
        return self.averages[position - 1] if position else math.nan

    @property
    def age(self) -> int:
        """Latest age."""
        return self.ages[-1] if self.ages else _YOUNGEST - 1


class RunningAverages:
    """Average scores of all trials by age."""

    def __init__(self) -> None:
        self._trials: dict[str, _TrialAverages] = {}
        self._ages: list[int] = []
        """Ages at which any trial has reported, in ascending order."""
        self._averages: dict[int, array[float]] = {}
        """For each of these ages, the finite averages of the trials that reached it, ascending."""

    def of_others(self, trial_id: str, time: float) -> OtherAverages:
        """Summarize the averages at `time` of all other trials that have reached it."""
        age = rounded_age(time)
        averages = self._at(age)
        own = self._trials.get(trial_id)
        value = own.at(age) if own is not None and own.age >= age else math.nan
        skipped = bisect.bisect_left(averages, value) if math.isfinite(value) else len(averages)
        count = len(averages) - math.isfinite(value)
        if not count:
            return OtherAverages(count=0, median=math.nan)
        lower, upper = (
            averages[middle + (middle >= skipped)] for middle in ((count - 1) // 2, count // 2)
        )
        return OtherAverages(count=count, median=(lower + upper) / 2)

    def add(self, trial_id: str, time: float, score: float) -> None:
        """Add a report. Reports before the trial's latest age are ignored: the trial has restarted
        from a checkpoint and has already reported there.
        """
        age = rounded_age(time)
        trial = self._trials.setdefault(trial_id, _TrialAverages())
        if age < trial.age:
            return
        here = self._at(age)
        if age == trial.age:
            _discard(here, trial.averages.pop())
            trial.ages.pop()
        elif trial.ages:
            for passed in self._ages[
                bisect.bisect_right(self._ages, trial.age) : bisect.bisect_left(self._ages, age)
            ]:
                _insert(self._averages[passed], trial.averages[-1])
        trial.total += score
        trial.count += 1
        trial.ages.append(age)
        trial.averages.append(trial.total / trial.count)
        _insert(here, trial.averages[-1])

    def _at(self, age: int) -> array[float]:
        """Return the averages at an age; compute them from all trials if the age is new."""
        if age not in self._averages:
            bisect.insort(self._ages, age)
            reached = (trial.at(age) for trial in self._trials.values() if trial.age >= age)
            self._averages[age] = array(
                "d", sorted(average for average in reached if math.isfinite(average))
            )
        return self._averages[age]


def rounded_age(time: float) -> int:
    """Return the age of `time`, a number that does not decrease with time."""
    if time <= 0:
        return _YOUNGEST
    mantissa, exponent = math.frexp(time)
    return exponent * _STEPS + int((mantissa - 0.5) * 2 * _STEPS)


def _insert(averages: array[float], average: float) -> None:
    if math.isfinite(average):
        bisect.insort(averages, average)


def _discard(averages: array[float], average: float) -> None:
    if math.isfinite(average):
        del averages[bisect.bisect_left(averages, average)]
