"""`MedianStoppingRule`: stop what is worse than the median of the others at the same age.

Golovin, Solnik, Moitra, Kochanski, Karro, Sculley: Google Vizier, a Service for Black-Box
Optimization, KDD 2017, section 3.2.1: a trial is stopped at step s if its best objective by s is
strictly worse than the median of the running averages up to s of the others.

The rule itself; what it compares with is in `running_averages.py`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from syncline.tune.experiment.trial import Trial
from syncline.tune.schedulers.running_averages import RunningAverages
from syncline.tune.schedulers.trial_scheduler import WORST, MetricScheduler

if TYPE_CHECKING:
    from syncline.tune.schedulers.trial_scheduler import ControllerView


class MedianStoppingRule(MetricScheduler):
    """Stops trials whose best result is worse than the median of the others' average results.

    Args:
        time_attr: The age of a trial: a key of results that does not decrease.
        metric: What trials are compared by; may be given to the search instead.
        mode: `"min"` or `"max"`; may be given to the search instead.
        grace_period: No trial is stopped before this age, and averages begin there.
        min_samples_required: So many other trials are needed for a median.
        min_time_slice: While there are too few of them, a trial runs at least so long before it
            gives way to one that waits.
        hard_stop: Whether trials are stopped; else they are paused, and go on when no other trial
            waits.

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
        """The best score of every trial that has not ended."""
        self._paused_at: dict[str, float] = {}
        """When a trial has given way last, if it has."""
        self._num_stopped = 0
        self._held_back: set[str] = set()
        """Trials that would have been stopped; without `hard_stop`."""
        self._gave_way: dict[str, None] = {}
        """Trials that are paused although nothing is wrong with them, the longest first."""

    def on_trial_add(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Metric and mode must be known by now."""
        self._check_properties()
        self._best.setdefault(trial.trial_id, WORST)

    def on_trial_result(
        self, tune_controller: ControllerView, trial: Trial, result: dict[str, Any]
    ) -> str:
        """Compare its best result with the median of the others."""
        time, score = self._time_and_score(trial, result)
        if time is None or score is None:
            return self.CONTINUE
        self._gave_way.pop(trial.trial_id, None)
        best = self._best[trial.trial_id] = max(self._best.get(trial.trial_id, WORST), score)
        if trial.trial_id in self._held_back or time < self._grace_period:
            return self.CONTINUE
        others = self._averages.of_others(trial.trial_id, time)
        self._averages.add(trial.trial_id, time, score)
        if others.count < self._min_samples_required:
            return self._give_way(tune_controller, trial.trial_id, time)
        if best >= others.median:
            return self.CONTINUE
        self._num_stopped += 1
        if self._hard_stop:
            self._forget(trial.trial_id)
            return self.STOP
        self._held_back.add(trial.trial_id)
        return self.PAUSE

    def on_trial_complete(
        self, tune_controller: ControllerView, trial: Trial, result: dict[str, Any]
    ) -> None:
        """Its averages stay for the others; its last result counts."""
        if self._has(result, self._time_attr) and self._has(result, str(self._metric)):
            time = self._required_time(trial, result)
            if time >= self._grace_period:
                self._averages.add(trial.trial_id, time, self._score(trial, result))
        self._forget(trial.trial_id)

    def on_trial_remove(self, tune_controller: ControllerView, trial: Trial) -> None:
        """It does not come again; its averages stay."""
        self._forget(trial.trial_id)

    def choose_trial_to_run(self, tune_controller: ControllerView) -> Trial | None:
        """Pending trials, then those that gave way, then those that the rule holds back."""
        for pending in tune_controller.pending_trials():
            return pending
        for trial_id in self._gave_way:
            trial = tune_controller.get_trial(trial_id)
            if trial is not None and trial.status == Trial.PAUSED:
                return trial
        for paused in tune_controller.paused_trials():
            return paused
        return None

    def debug_string(self) -> str:
        """How many were stopped."""
        return f"Using MedianStoppingRule: num_stopped={self._num_stopped}."

    def _give_way(self, controller: ControllerView, trial_id: str, time: float) -> str:
        """There are too few others for a judgement; let them have a turn if any waits."""
        if time - self._paused_at.get(trial_id, -math.inf) <= self._min_time_slice:
            return self.CONTINUE
        if not any(True for _ in controller.pending_trials()) and not any(
            True for _ in controller.paused_trials()
        ):
            return self.CONTINUE
        self._paused_at[trial_id] = time
        self._gave_way[trial_id] = None
        return self.PAUSE

    def _forget(self, trial_id: str) -> None:
        self._best.pop(trial_id, None)
        self._paused_at.pop(trial_id, None)
        self._held_back.discard(trial_id)
        self._gave_way.pop(trial_id, None)
