"""`HyperBandScheduler`: brackets of successive halving, from the one that trusts early results
least to the one that trusts them most.

Li, Jamieson, DeSalvo, Rostamizadeh, Talwalkar: Hyperband, a Novel Bandit-Based Approach to
Hyperparameter Optimization, JMLR 18(185), 2018, https://arxiv.org/abs/1603.06560. Trials fill one
bracket after the other; those that have come to a rung are paused until the whole bracket has. A
bracket that does not get as many trials as it should goes on with those that it has, once no more
come: it never waits for nobody.

Not covered: the bookkeeping of one bracket (`bracket.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from syncline.tune.experiment.trial import Trial
from syncline.tune.schedulers.async_hyperband import check_limits
from syncline.tune.schedulers.bracket import Bracket, bracket_plan, largest_bracket
from syncline.tune.schedulers.trial_scheduler import MetricScheduler

if TYPE_CHECKING:
    from syncline.tune.schedulers.trial_scheduler import ControllerView


class HyperBandScheduler(MetricScheduler):
    """Runs brackets of trials, and lets the best `1/reduction_factor` of a bracket go on at each of
    its rungs.

    Args:
        time_attr: What `max_t` counts: a key of results that does not decrease.
        metric: What trials are compared by; may be given to the search instead.
        mode: `"min"` or `"max"`; may be given to the search instead.
        max_t: How far a trial runs at most, R in the paper.
        reduction_factor: eta in the paper.
        stop_last_trials: Whether trials that have come to `max_t` are stopped.

    Raises:
        ValueError: A number is out of its range.
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
        """Those with trials that have not ended, by number."""
        self._filling: int | None = None
        """The one that new trials come to."""
        self._bracket_of: dict[str, int] = {}
        self._released: dict[str, None] = {}
        """Trials that may go on after a barrier and have not reported since."""

    def _bracket_order(self, largest: int) -> list[int]:
        return list(range(largest + 1))

    def on_trial_add(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Put the trial into the bracket that is being filled, or start the next one."""
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
        self, tune_controller: ControllerView, trial: Trial, result: dict[str, Any]
    ) -> str:
        """Hold it at the milestone until its bracket has come there; then it goes on or stops."""
        trial_id = trial.trial_id
        time, score = self._required_time(trial, result), self._score(trial, result)
        number = self._bracket_of.get(trial_id)
        if number is None:
            return self.CONTINUE
        bracket = self._brackets[number]
        self._released.pop(trial_id, None)
        bracket.record(trial_id, time, score)
        if not bracket.holds(trial_id):
            return self.CONTINUE
        self._on_milestone(result, bracket.milestone)
        self._advance(tune_controller, number, reporting=trial_id)
        if trial_id not in self._bracket_of:
            return self.STOP
        return self.PAUSE if bracket.holds(trial_id) else self.CONTINUE

    def on_trial_complete(
        self, tune_controller: ControllerView, trial: Trial, result: dict[str, Any]
    ) -> None:
        """The others need not wait for it."""
        self._remove(tune_controller, trial.trial_id, comes_again=False)

    def on_trial_remove(self, tune_controller: ControllerView, trial: Trial) -> None:
        """The others need not wait for it."""
        self._remove(tune_controller, trial.trial_id, comes_again=False)

    def on_trial_error(self, tune_controller: ControllerView, trial: Trial) -> None:
        """The others need not wait for it; if it comes again, it starts in the bracket that is
        being filled.
        """
        self._remove(tune_controller, trial.trial_id, comes_again=True)

    def choose_trial_to_run(self, tune_controller: ControllerView) -> Trial | None:
        """Trials that a barrier has released, then pending ones. Without either, what keeps paused
        ones waiting is looked at.
        """
        released = self._first_released(tune_controller)
        if released is not None:
            return released
        for pending in tune_controller.pending_trials():
            return pending
        return self._first_without_others(tune_controller)

    def debug_string(self) -> str:
        """How many trials were stopped, and where the brackets that are not finished stand."""
        lines = [
            f"Using HyperBand: num_stopped={self._num_stopped} total_brackets={self._num_brackets}"
        ]
        for number, bracket in self._brackets.items():
            lines.append(
                f"  Bracket #{number}(size={bracket.plan.size}, started={bracket.started}, live={len(bracket)}, "
                f"milestone={bracket.milestone:g})"
            )
        return "\n".join(lines)

    def state(self) -> dict[str, int]:
        """How many brackets there have been, and how many trials were stopped."""
        return {"num_brackets": self._num_brackets, "num_stopped": self._num_stopped}

    # -- hooks of HyperBandForBOHB

    def _on_milestone(self, result: dict[str, Any], milestone: float) -> None:
        """A trial has come to a milestone of its bracket with `result`."""

    def _on_release(self, controller: ControllerView, trial_id: str) -> None:
        """A paused trial may go on."""

    # -- barriers

    def _advance(
        self, controller: ControllerView, number: int, *, reporting: str | None = None
    ) -> None:
        """Halve a bracket as often as it can be. The trial that is `reporting` learns its fate from
        the decision.
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
            if trial_id != reporting and not bracket.holds(trial_id):
                self._released[trial_id] = None
                self._on_release(controller, trial_id)
        self._forget_if_empty(number)
        for trial in self._known(controller, dropped):
            if trial.trial_id != reporting:
                controller.stop_trial(trial)

    def _remove(self, controller: ControllerView, trial_id: str, *, comes_again: bool) -> None:
        number = self._bracket_of.pop(trial_id, None)
        self._released.pop(trial_id, None)
        if number is None:
            return
        self._brackets[number].remove(trial_id, comes_again=comes_again)
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
        """No trial is released and none is pending: name one that was paused for another reason
        than a barrier, or close the bracket that waits for trials that do not come.
        """
        live = controller.get_live_trials()
        for trial in live:
            if trial.status == Trial.PAUSED and not self._is_held(trial.trial_id):
                return trial
        running = any(trial.status == Trial.RUNNING for trial in live)
        filling = self._brackets.get(self._filling) if self._filling is not None else None
        if filling is None or filling.closed or (running and not controller.searcher_finished):
            return None
        assert self._filling is not None
        filling.close()
        self._advance(controller, self._filling)
        return self._first_released(controller)

    def _is_held(self, trial_id: str) -> bool:
        number = self._bracket_of.get(trial_id)
        return number is None or self._brackets[number].holds(trial_id)

    @staticmethod
    def _known(controller: ControllerView, trial_ids: Iterable[str]) -> list[Trial]:
        return [trial for trial in map(controller.get_trial, trial_ids) if trial is not None]
