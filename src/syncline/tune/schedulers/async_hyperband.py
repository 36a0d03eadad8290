"""`AsyncHyperBandScheduler`, also called `ASHAScheduler`: asynchronous successive halving.

Li, Jamieson, Rostamizadeh, Gonina, Hardt, Recht, Talwalkar: A System for Massively Parallel
Hyperparameter Tuning, MLSys 2020, https://arxiv.org/abs/1810.05934. This is the variant that stops
trials instead of promoting them: a trial that reaches a rung continues if it is among the best
1/eta of the trials that reached the rung before it, so no trial waits for others.
"""

from __future__ import annotations

import bisect
import math
import random
from dataclasses import dataclass, field

from syncline.suggestions import suggest_arguments
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import Metrics
from syncline.tune.schedulers.trial_scheduler import WORST, ControllerView, MetricScheduler

_ROUNDING = 1 + 1e-9
"""Tolerance with which powers of eta are compared to `max_t`."""


@suggest_arguments
class AsyncHyperBandScheduler(MetricScheduler):
    """Stop trials that are worse than earlier trials at the same time, without barriers.

    Args:
        time_attr: Unit of `max_t` and `grace_period`: a key of results that does not decrease.
        metric: Metric that trials are compared by; may be given to `TuneConfig` instead.
        mode: `"min"` or `"max"`; may be given to `TuneConfig` instead.
        max_t: Time at which trials are stopped.
        grace_period: Time before which no trial is stopped.
        reduction_factor: eta: the best 1/eta continue at each rung, and the rungs are at
            `grace_period * eta**k`.
        brackets: Number of brackets. Bracket s omits the first s rungs. Trials are assigned at
            random, with a preference for brackets with more rungs.
        stop_last_trials: If True, stop trials that reach `max_t`.

    Raises:
        ValueError: A number is out of range.
    """

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 100,
        grace_period: float = 1,
        reduction_factor: float = 4,
        brackets: int = 1,
        stop_last_trials: bool = True,
    ) -> None:
        check_limits(type(self).__name__, max_t, reduction_factor)
        if not 0 < grace_period <= max_t:
            raise ValueError(
                f"grace_period={grace_period!r} must be more than 0 and at most max_t={max_t!r}: "
                f"trials are stopped only between the two."
            )
        if brackets < 1:
            raise ValueError(
                f"brackets={brackets!r} must be 1 or more, because each trial is in a bracket."
            )
        super().__init__(time_attr=time_attr, metric=metric, mode=mode)
        self._max_t = max_t
        self._stop_last_trials = stop_last_trials
        self._brackets = [
            AsyncBracket.build(grace_period, max_t, reduction_factor, skipped=s)
            for s in range(brackets)
        ]
        most = max(len(bracket.rungs) for bracket in self._brackets)
        self._weights = [math.exp(len(bracket.rungs) - most) for bracket in self._brackets]
        self._progress: dict[str, _TrialProgress] = {}
        self._num_stopped = 0
        self._random = random.Random(random.getrandbits(64))

    def on_trial_add(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Assign a bracket; a retried trial keeps its bracket."""
        self._check_properties()
        if trial.trial_id not in self._progress:
            [bracket] = self._random.choices(self._brackets, self._weights)
            self._progress[trial.trial_id] = _TrialProgress(bracket=bracket)

    def on_trial_result(
        self, tune_controller: ControllerView, trial: Trial, result: Metrics
    ) -> str:
        """Stop the trial at `max_t`, or at a rung where it is not among the best."""
        time, score = self._time_and_score(trial, result)
        if time is None or score is None:
            return self.CONTINUE
        at_end = self._stop_last_trials and time >= self._max_t
        if not at_end and self._progress[trial.trial_id].advance(time, score):
            return self.CONTINUE
        self._num_stopped += 1
        del self._progress[trial.trial_id]
        return self.STOP

    def on_trial_complete(
        self, tune_controller: ControllerView, trial: Trial, result: Metrics
    ) -> None:
        """Record the last result at its rung, for comparison with later trials."""
        progress = self._progress.pop(trial.trial_id, None)
        if progress is not None and self._has_both(result):
            progress.advance(self._required_time(trial, result), self._score(trial, result))

    def on_trial_remove(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Discard the trial."""
        self._progress.pop(trial.trial_id, None)

    def debug_string(self) -> str:
        """Return the number of stopped trials and the cutoff at each rung, the last rung first."""
        lines = [f"Using AsyncHyperBand: num_stopped={self._num_stopped}"]
        for bracket in self._brackets:
            rungs = [
                f"Iter {rung.milestone:.3f}: {rung.cutoff(bracket.quantile)}"
                for rung in reversed(bracket.rungs)
            ]
            lines.append(f"Bracket: {' | '.join(rungs)}")
        return "\n".join(lines)


ASHAScheduler = AsyncHyperBandScheduler


@dataclass
class Rung:
    """Scores of the trials that have reached `milestone`."""

    milestone: float
    scores: list[float] = field(default_factory=list)
    """Ascending scores without NaN."""

    def cutoff(self, quantile: float) -> float | None:
        """Return the `quantile` of the scores, interpolated like numpy's `percentile`; None
        without scores.
        """
        if not self.scores:
            return None
        position = (len(self.scores) - 1) * quantile
        below = math.floor(position)
        share = position - below
        low = self.scores[below]
        if share == 0:
            return low
        high = self.scores[below + 1]
        if math.isinf(high):
            return high
        return high - (high - low) * (1 - share) if share >= 0.5 else low + (high - low) * share

    def add(self, score: float, quantile: float) -> bool:
        """Add a trial; return True if it may continue."""
        cutoff = self.cutoff(quantile)
        may_continue = cutoff is None or score >= cutoff
        if score > WORST:
            bisect.insort(self.scores, score)
        return may_continue


@dataclass
class AsyncBracket:
    """Rungs of one bracket in ascending order."""

    rungs: list[Rung]
    quantile: float
    """Fraction of trials that are stopped, 1 - 1/eta."""
    milestones: list[float]

    @classmethod
    def build(cls, grace_period: float, max_t: float, eta: float, *, skipped: int) -> AsyncBracket:
        """Create rungs at `grace_period * eta**k` up to `max_t`, for k from `skipped`."""
        milestones: list[float] = []
        while grace_period * eta ** (skipped + len(milestones)) <= max_t * _ROUNDING:
            milestones.append(grace_period * eta ** (skipped + len(milestones)))
        return cls(
            rungs=[Rung(milestone) for milestone in milestones],
            quantile=(1 - 1 / eta) * 100 / 100,
            milestones=milestones,
        )


@dataclass
class _TrialProgress:
    """Bracket and next rung of a trial."""

    bracket: AsyncBracket
    next_rung: int = 0

    def advance(self, time: float, score: float) -> bool:
        """Record `score` at the highest new rung reached by `time`; return True if the trial may
        continue.
        """
        reached = bisect.bisect_right(self.bracket.milestones, time)
        if reached <= self.next_rung:
            return True
        self.next_rung = reached
        return self.bracket.rungs[reached - 1].add(score, self.bracket.quantile)


def check_limits(name: str, max_t: float, reduction_factor: float) -> None:
    """Check two arguments of a successive halving scheduler.

    Raises:
        ValueError: A value is out of range.
    """
    if not isinstance(max_t, (int, float)) or not 0 < max_t < math.inf:
        raise ValueError(
            f"max_t={max_t!r} must be a finite number above 0: {name} places its rungs up to "
            f"`max_t`."
        )
    if not reduction_factor > 1:
        raise ValueError(
            f"reduction_factor={reduction_factor!r} must be more than 1: the best "
            f"1/reduction_factor of the trials continue at each rung."
        )
