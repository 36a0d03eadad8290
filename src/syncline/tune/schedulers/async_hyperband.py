"""`AsyncHyperBandScheduler`, also called `ASHAScheduler`: asynchronous successive halving.

Li, Jamieson, Rostamizadeh, Gonina, Hardt, Recht, Talwalkar: A System for Massively Parallel
Hyperparameter Tuning, MLSys 2020, https://arxiv.org/abs/1810.05934. This is the variant that stops
trials instead of promoting them: a trial that comes to a rung goes on if it is in the best 1/eta of
those that came there before it, so nobody waits for anybody.
"""

from __future__ import annotations

import bisect
import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from syncline.tune.schedulers.trial_scheduler import WORST, MetricScheduler

if TYPE_CHECKING:
    from syncline.tune.experiment.trial import Trial
    from syncline.tune.schedulers.trial_scheduler import ControllerView

_ROUNDING = 1 + 1e-9
"""Powers of eta that are equal to `max_t` up to rounding count as equal."""


class AsyncHyperBandScheduler(MetricScheduler):
    """Stops trials that are behind others of the same age, without waiting for any.

    Args:
        time_attr: What `max_t` and `grace_period` count: a key of results that does not decrease.
        metric: What trials are compared by; may be given to the search instead.
        mode: `"min"` or `"max"`; may be given to the search instead.
        max_t: Trials are stopped when they have come so far.
        grace_period: No trial is stopped before.
        reduction_factor: eta: the best 1/eta go on at each rung, and rungs lie at `grace_period *
            eta**k`.
        brackets: So many kinds of trials; bracket s has its first rung s rungs later. Trials are
            dealt out at random, more to the brackets with more rungs.
        stop_last_trials: Whether trials that have come to `max_t` are stopped.

    Raises:
        ValueError: A number is out of its range.
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
                f"grace_period={grace_period!r} must be more than 0 and at most max_t={max_t!r}: a trial may be stopped in between only."
            )
        if brackets < 1:
            raise ValueError(f"brackets={brackets!r} must be 1 or more: every trial is in one.")
        super().__init__(time_attr=time_attr, metric=metric, mode=mode)
        self._max_t = max_t
        self._stop_last_trials = stop_last_trials
        self._brackets = [
            RungLadder.build(grace_period, max_t, reduction_factor, skipped=s)
            for s in range(brackets)
        ]
        most = max(len(bracket.rungs) for bracket in self._brackets)
        self._weights = [math.exp(len(bracket.rungs) - most) for bracket in self._brackets]
        self._climbers: dict[str, _Climber] = {}
        self._num_stopped = 0
        self._random = random.Random(random.getrandbits(64))

    def on_trial_add(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Give the trial a bracket; one that comes again keeps the one that it has."""
        self._check_properties()
        if trial.trial_id not in self._climbers:
            [bracket] = self._random.choices(self._brackets, self._weights)
            self._climbers[trial.trial_id] = _Climber(bracket=bracket)

    def on_trial_result(
        self, tune_controller: ControllerView, trial: Trial, result: dict[str, Any]
    ) -> str:
        """Stop it at `max_t`, or if it is not among the best at a rung that it has come to."""
        time, score = self._time_and_score(trial, result)
        if time is None or score is None:
            return self.CONTINUE
        at_end = self._stop_last_trials and time >= self._max_t
        if not at_end and self._climbers[trial.trial_id].climb(time, score):
            return self.CONTINUE
        self._num_stopped += 1
        del self._climbers[trial.trial_id]
        return self.STOP

    def on_trial_complete(
        self, tune_controller: ControllerView, trial: Trial, result: dict[str, Any]
    ) -> None:
        """Its last result counts for those that come later."""
        climber = self._climbers.pop(trial.trial_id, None)
        if (
            climber is not None
            and self._has(result, str(self._metric))
            and self._has(result, self._time_attr)
        ):
            climber.climb(self._required_time(trial, result), self._score(trial, result))

    def on_trial_remove(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Forget it."""
        self._climbers.pop(trial.trial_id, None)

    def debug_string(self) -> str:
        """How many were stopped, and what a trial has to reach at each rung, the last one first."""
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
    """The trials that have come to `milestone`."""

    milestone: float
    scores: list[float] = field(default_factory=list)
    """Ascending; those that were not a number are left out."""

    def cutoff(self, quantile: float) -> float | None:
        """The score below which the share `quantile` of the trials lies, between two of them if
        need be; None without any.

        The same number as numpy's `percentile`, without sorting.
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

    def take(self, score: float, quantile: float) -> bool:
        """Take a trial in; whether it is good enough to go on."""
        cutoff = self.cutoff(quantile)
        goes_on = cutoff is None or score >= cutoff
        if score > WORST:
            bisect.insort(self.scores, score)
        return goes_on


@dataclass
class RungLadder:
    """The rungs of one bracket, the earliest first."""

    rungs: list[Rung]
    quantile: float
    """The share that does not go on, 1 - 1/eta."""
    milestones: list[float]

    @classmethod
    def build(cls, grace_period: float, max_t: float, eta: float, *, skipped: int) -> RungLadder:
        """Rungs at `grace_period * eta**k` for k from `skipped`, as long as they are not beyond
        `max_t`.
        """
        milestones: list[float] = []
        while grace_period * eta ** (skipped + len(milestones)) <= max_t * _ROUNDING:
            milestones.append(grace_period * eta ** (skipped + len(milestones)))
        return cls(
            rungs=[Rung(milestone) for milestone in milestones],
            quantile=(1 - 1 / eta) * 100 / 100,
            milestones=milestones,
        )


@dataclass
class _Climber:
    """A trial on its way up."""

    bracket: RungLadder
    next_rung: int = 0

    def climb(self, time: float, score: float) -> bool:
        """Take it to the highest rung that it has come to by `time`; whether it may go on."""
        come_to = bisect.bisect_right(self.bracket.milestones, time)
        if come_to <= self.next_rung:
            return True
        self.next_rung = come_to
        return self.bracket.rungs[come_to - 1].take(score, self.bracket.quantile)


def check_limits(name: str, max_t: float, reduction_factor: float) -> None:
    """Whether both numbers of a halving scheduler make sense.

    Raises:
        ValueError: They do not.
    """
    if not isinstance(max_t, (int, float)) or not 0 < max_t < math.inf:
        raise ValueError(
            f"max_t={max_t!r} must be a number above 0: {name} places its rungs between the start and `max_t`."
        )
    if not reduction_factor > 1:
        raise ValueError(
            f"reduction_factor={reduction_factor!r} must be more than 1: the best 1/reduction_factor go on."
        )
