"""`HyperBandScheduler`: brackets of successive halving, which compare trials at different times.

Li, Jamieson, DeSalvo, Rostamizadeh, Talwalkar: Hyperband, a Novel Bandit-Based Approach to
Hyperparameter Optimization, JMLR 18(185), 2018, https://arxiv.org/abs/1603.06560, Algorithm 1.
Trials fill one bracket after the other. Trials that reach a rung are paused until all trials of
the bracket have reached it. A bracket continues with fewer trials than planned when no more trials
come, so it never blocks the search. `Bracket` is pure bookkeeping on trial ids.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from syncline.suggestions import suggest_arguments
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import Metrics
from syncline.tune.schedulers.async_hyperband import check_limits
from syncline.tune.schedulers.trial_scheduler import ControllerView, MetricScheduler

_ROUNDING = 1e-9


@suggest_arguments
class HyperBandScheduler(MetricScheduler):
    """Run trials in brackets; the best `1/reduction_factor` of a bracket continue at each rung.

    Args:
        time_attr: Unit of `max_t`: a key of results that does not decrease.
        metric: Metric that trials are compared by; may be given to `TuneConfig` instead.
        mode: `"min"` or `"max"`; may be given to `TuneConfig` instead.
        max_t: Maximal time of a trial, R in the paper.
        reduction_factor: eta in the paper.
        stop_last_trials: If True, stop trials that reach `max_t`.

    Raises:
        ValueError: A number is out of range.
    """

    _supports_buffered_results = False

    def __init__(
        self,
        time_attr: str = "training_iteration",
        metric: str | None = None,
        mode: str | None = None,
        max_t: float = 81,
        reduction_factor: float = 3,
        stop_last_trials: bool = True,
    ) -> None:
        check_limits(type(self).__name__, max_t, reduction_factor)
        super().__init__(time_attr=time_attr, metric=metric, mode=mode)
        self._max_t = max_t
        self._eta = reduction_factor
        self._stop_last_trials = stop_last_trials
        self._order = self._bracket_order(largest_bracket(max_t, reduction_factor))
        self._num_brackets = 0
        self._num_stopped = 0
        self._brackets: dict[int, Bracket] = {}
        """Brackets with unfinished trials, by number."""
        self._filling: int | None = None
        """Number of the bracket that new trials join."""
        self._bracket_of: dict[str, int] = {}
        self._released: dict[str, None] = {}
        """Trials that may continue after a barrier and have not reported since."""

    def _bracket_order(self, largest: int) -> list[int]:
        return list(range(largest + 1))

    def on_trial_add(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Add the trial to the open bracket, or start the next bracket."""
        self._check_properties()
        if trial.trial_id in self._bracket_of:
            return
        bracket = self._brackets.get(self._filling) if self._filling is not None else None
        if bracket is None or bracket.closed:
            plan = bracket_plan(
                self._order[self._num_brackets % len(self._order)], self._max_t, self._eta
            )
            bracket = Bracket(plan=plan, stops_last=self._stop_last_trials)
            self._filling = self._num_brackets
            self._brackets[self._num_brackets] = bracket
            self._num_brackets += 1
        assert self._filling is not None
        bracket.add(trial.trial_id)
        self._bracket_of[trial.trial_id] = self._filling

    def on_trial_result(
        self, tune_controller: ControllerView, trial: Trial, result: Metrics
    ) -> str:
        """Pause the trial at the milestone; when its bracket is complete, continue or stop it."""
        trial_id = trial.trial_id
        time, score = self._required_time(trial, result), self._score(trial, result)
        number = self._bracket_of.get(trial_id)
        if number is None:
            return self.CONTINUE
        bracket = self._brackets[number]
        self._released.pop(trial_id, None)
        bracket.record(trial_id, time, score)
        if not bracket.must_wait(trial_id):
            return self.CONTINUE
        self._on_milestone(result, bracket.milestone)
        self._advance(tune_controller, number, reporting=trial_id)
        if trial_id not in self._bracket_of:
            return self.STOP
        return self.PAUSE if bracket.must_wait(trial_id) else self.CONTINUE

    def on_trial_complete(
        self, tune_controller: ControllerView, trial: Trial, result: Metrics
    ) -> None:
        """Remove the trial from its bracket."""
        self.on_trial_remove(tune_controller, trial)

    def on_trial_remove(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Remove the trial from its bracket."""
        self._remove(tune_controller, trial.trial_id, may_retry=False)

    def on_trial_error(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Remove the trial from its bracket. A retry joins the open bracket."""
        self._remove(tune_controller, trial.trial_id, may_retry=True)

    def choose_trial_to_run(self, tune_controller: ControllerView) -> Trial | None:
        """Return a released trial, else a pending one, else a paused trial that need not wait."""
        return (
            self._first_released(tune_controller)
            or next(iter(tune_controller.pending_trials()), None)
            or self._first_without_others(tune_controller)
        )

    def debug_string(self) -> str:
        """Return the number of stopped trials and the state of the unfinished brackets."""
        lines = [
            f"Using HyperBand: num_stopped={self._num_stopped} total_brackets={self._num_brackets}"
        ]
        for number, bracket in self._brackets.items():
            lines.append(
                f"  Bracket #{number}(size={bracket.plan.size}, started={bracket.started}, "
                f"live={len(bracket)}, milestone={bracket.milestone:g})"
            )
        return "\n".join(lines)

    def state(self) -> dict[str, int]:
        """Return the number of brackets so far and the number of stopped trials."""
        return {"num_brackets": self._num_brackets, "num_stopped": self._num_stopped}

    # -- hooks of HyperBandForBOHB

    def _on_milestone(self, result: Metrics, milestone: float) -> None:
        """Handle the `result` of a trial at a milestone of its bracket."""

    def _on_release(self, controller: ControllerView, trial_id: str) -> None:
        """Handle the release of a paused trial."""

    # -- barriers

    def _advance(
        self, controller: ControllerView, number: int, *, reporting: str | None = None
    ) -> None:
        """Halve a bracket while it is complete. The controller stops the trial `reporting` because
        of the returned decision, the others here.
        """
        bracket = self._brackets[number]
        if not bracket.is_complete():
            return
        dropped: list[str] = []
        while bracket.is_complete():
            dropped += bracket.halve()
        self._num_stopped += len(dropped)
        for trial_id in dropped:
            del self._bracket_of[trial_id]
            self._released.pop(trial_id, None)
        for trial_id in bracket.live:
            if trial_id != reporting and not bracket.must_wait(trial_id):
                self._released[trial_id] = None
                self._on_release(controller, trial_id)
        self._forget_if_empty(number)
        for trial in self._known(controller, dropped):
            if trial.trial_id != reporting:
                controller.stop_trial(trial)

    def _remove(self, controller: ControllerView, trial_id: str, *, may_retry: bool) -> None:
        number = self._bracket_of.pop(trial_id, None)
        self._released.pop(trial_id, None)
        if number is None:
            return
        self._brackets[number].remove(trial_id, may_retry=may_retry)
        self._forget_if_empty(number)
        if number in self._brackets:
            self._advance(controller, number)

    def _forget_if_empty(self, number: int) -> None:
        bracket = self._brackets[number]
        if bracket.closed and not len(bracket):
            del self._brackets[number]

    def _first_released(self, controller: ControllerView) -> Trial | None:
        for trial in self._known(controller, self._released):
            if trial.status == Trial.PAUSED:
                return trial
        return None

    def _first_without_others(self, controller: ControllerView) -> Trial | None:
        """Return a trial that is paused for another reason than a barrier. If there is none and no
        more trials come, close the open bracket and return a trial that this releases.

        No trial is released or pending.
        """
        live = controller.get_live_trials()
        for trial in live:
            if trial.status == Trial.PAUSED and not self._must_wait(trial.trial_id):
                return trial
        running = any(trial.status == Trial.RUNNING for trial in live)
        filling = self._brackets.get(self._filling) if self._filling is not None else None
        if filling is None or filling.closed or (running and not controller.searcher_finished):
            return None
        assert self._filling is not None
        filling.closed = True
        self._advance(controller, self._filling)
        return self._first_released(controller)

    def _must_wait(self, trial_id: str) -> bool:
        number = self._bracket_of.get(trial_id)
        return number is None or self._brackets[number].must_wait(trial_id)

    @staticmethod
    def _known(controller: ControllerView, trial_ids: Iterable[str]) -> list[Trial]:
        return [trial for trial in map(controller.get_trial, trial_ids) if trial is not None]


@dataclass(frozen=True, kw_only=True)
class BracketPlan:
    """Size and milestones of a bracket."""

    size: int
    """Number of trials that start, n in the paper."""
    milestones: tuple[float, ...]
    """Times of the barriers, r_i in the paper; the last one is `max_t`."""
    eta: float

    def survivors(self, rung: int, started: int) -> int:
        """Return the number of trials that continue after rung `rung - 1` out of `started`: n_i in
        the paper, at least 1.
        """
        return max(1, math.floor(started / self.eta**rung + _ROUNDING))


def largest_bracket(max_t: float, eta: float) -> int:
    """Return s_max of the paper: the number of rungs between time 1 and `max_t`."""
    s = 0
    while eta ** (s + 1) <= max_t * (1 + _ROUNDING):
        s += 1
    return s


def bracket_plan(s: int, max_t: float, eta: float) -> BracketPlan:
    """Return the plan of the bracket that halves `s` times. Milestones of 1 or more are rounded
    down to integers, apart from `max_t`.
    """
    most = largest_bracket(max_t, eta)
    milestones = [max_t / eta ** (s - i) for i in range(s + 1)]
    return BracketPlan(
        size=math.ceil((most + 1) / (s + 1) * eta**s - _ROUNDING),
        milestones=tuple(
            math.floor(milestone + _ROUNDING) if milestone >= 1 else milestone
            for milestone in milestones[:-1]
        )
        + (max_t,),
        eta=eta,
    )


@dataclass
class _Progress:
    time: float = 0
    score: float = -math.inf


@dataclass
class Bracket:
    """Trials that are compared and halved together. A trial that has reached the milestone waits
    until all others have.
    """

    plan: BracketPlan
    stops_last: bool
    """True if trials end at the last milestone; otherwise they continue without a limit."""
    rung: int = 0
    started: int = 0
    """Number of trials added so far, including ended ones."""
    closed: bool = False
    """True if no more trials will be added."""
    _live: dict[str, _Progress] = field(default_factory=dict)
    _num_waiting: int = 0

    @property
    def milestone(self) -> float:
        """Time of the next barrier."""
        return self.plan.milestones[self.rung]

    @property
    def on_last_rung(self) -> bool:
        """True if no more halving follows."""
        return self.rung == len(self.plan.milestones) - 1

    def is_complete(self) -> bool:
        """Return True if all planned trials have been added and wait at the milestone."""
        return self.closed and 0 < len(self._live) == self._num_waiting

    @property
    def live(self) -> list[str]:
        """Ids of the trials that have not ended, in the order in which they were added."""
        return list(self._live)

    def __len__(self) -> int:
        return len(self._live)

    def add(self, trial_id: str) -> None:
        """Add a trial."""
        assert not self.closed, f"trial {trial_id} was added to a closed bracket"
        self._live[trial_id] = _Progress()
        self.started += 1
        self.closed = self.started >= self.plan.size

    def record(self, trial_id: str, time: float, score: float) -> None:
        """Record the time and score of a trial."""
        self._num_waiting -= self.must_wait(trial_id)
        progress = self._live[trial_id]
        progress.time, progress.score = time, score
        self._num_waiting += self.must_wait(trial_id)

    def must_wait(self, trial_id: str) -> bool:
        """Return True if the trial must wait at the milestone for the others."""
        progress = self._live.get(trial_id)
        if progress is None or (self.on_last_rung and not self.stops_last):
            return False
        return progress.time >= self.milestone

    def remove(self, trial_id: str, *, may_retry: bool) -> None:
        """Remove an ended trial. An open bracket accepts another trial in place of a failed one
        that `may_retry`.
        """
        self._num_waiting -= self.must_wait(trial_id)
        if self._live.pop(trial_id, None) is not None and may_retry and not self.closed:
            self.started -= 1

    def halve(self) -> list[str]:
        """Advance to the next rung; return the dropped trials, the worst first. The last rung drops
        all trials.
        """
        assert self.is_complete(), "a bracket was halved before all its trials were waiting"
        if self.on_last_rung:
            dropped = list(self._live)
        else:
            self.rung += 1
            ascending = sorted(self._live, key=lambda trial_id: self._live[trial_id].score)
            dropped = ascending[
                : max(0, len(ascending) - self.plan.survivors(self.rung, self.started))
            ]
        for trial_id in dropped:
            del self._live[trial_id]
        self._num_waiting = sum(self.must_wait(trial_id) for trial_id in self._live)
        return dropped
