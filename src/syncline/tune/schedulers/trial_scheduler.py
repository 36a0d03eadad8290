"""`TrialScheduler`, which decides whether trials continue, pause or stop; its view of the search;
and the bases `FIFOScheduler` and `MetricScheduler`.

A scheduler is a pure state machine. It has no clock, opens no files and starts no threads, and it
draws random numbers from its own generator. The same calls in the same order give the same
decisions, so that a search can be restored from a snapshot and the later events. A scheduler
identifies trials by id and gets the trials from the controller, so that its state is small and can
be pickled.

Not covered: execution of the decisions (the controller).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, Protocol, get_args

import cloudpickle

from syncline.suggestions import did_you_mean
from syncline.train.metric_values import lookup
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import AUTO_RESULT_KEYS, DEFAULT_METRIC, Metrics

logger = logging.getLogger(__name__)

Mode = Literal["min", "max"]
WORST = -math.inf
"""Score of a trial whose metric is not a number."""


class ControllerView(Protocol):
    """A search as its scheduler sees it.

    Every method may be called from a method of the scheduler and returns immediately. Changes
    happen after the scheduler's method returns.
    """

    @property
    def search_alg(self) -> Any:
        """The searcher in use."""

    @property
    def searcher_finished(self) -> bool:
        """True if no further trials will come."""

    @property
    def total_resources(self) -> Mapping[str, float]:
        """Resources of all nodes together, by name."""

    def get_trials(self) -> Sequence[Trial]:
        """Return all trials in the order of their creation. Do not walk through them at each
        result: there may be thousands.
        """

    def get_live_trials(self) -> Collection[Trial]:
        """Return the trials that have not ended."""

    def pending_trials(self) -> Iterable[Trial]:
        """Return the trials that wait to start: restarts first, then new ones in order."""

    def paused_trials(self) -> Iterable[Trial]:
        """Return the paused trials in the order of pausing."""

    def get_trial(self, trial_id: str) -> Trial | None:
        """Return a trial; None for an unknown id."""

    def stop_trial(self, trial: Trial) -> None:
        """End a trial in any state as terminated, and release its resources."""

    def pause_trial(self, trial: Trial, should_checkpoint: bool = True) -> None:
        """End the process of a trial, after a checkpoint if it is a class. `choose_trial_to_run`
        may return the trial again.
        """

    def save_trial(self, trial: Trial) -> None:
        """Save a checkpoint of a class trainable before its next step. No effect on functions."""

    def exploit(
        self, trial: Trial, donor: Trial, *, config: Mapping[str, Any], tag: str = ""
    ) -> None:
        """Continue `trial` from the latest checkpoint of `donor` with another configuration. The
        checkpoint is copied and the hashes are compared.
        """

    def update_resources(self, trial: Trial, factory: PlacementGroupFactory) -> None:
        """Change the resources of `trial`. If it runs, it is paused and restarts from its
        checkpoint.
        """


class TrialScheduler:
    """Base class of schedulers, also for users' own. The controller calls all methods in one
    thread.

    `on_trial_result` returns one of:

    - CONTINUE: the trial continues.
    - PAUSE: save the trial and release its resources until `choose_trial_to_run` returns it.
    - STOP: end the trial as completed.
    - NOOP: the scheduler has already called the controller (`pause_trial`, `stop_trial`,
      `exploit` or `update_resources`).
    """

    CONTINUE = "CONTINUE"
    PAUSE = "PAUSE"
    STOP = "STOP"
    NOOP = "NOOP"

    _metric: str | None = None
    _supports_buffered_results = True

    @property
    def supports_buffered_results(self) -> bool:
        """True if a trial may run ahead of the decisions on its results."""
        return self._supports_buffered_results

    @property
    def metric(self) -> str | None:
        """Metric that trials are compared by; None if not set yet."""
        return self._metric

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: object) -> bool:
        """Set metric and mode from `TuneConfig`; return False if the scheduler has one already."""
        del mode, spec
        if self._metric and metric:
            return False
        self._metric = metric or self._metric or DEFAULT_METRIC
        return True

    def on_trial_add(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Add a new trial, or a failed one that will be retried. It has not started."""
        raise NotImplementedError

    def on_trial_error(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Handle the failure of a trial. `on_trial_add` follows if it is retried."""
        raise NotImplementedError

    def on_trial_result(
        self, tune_controller: ControllerView, trial: Trial, result: Metrics
    ) -> str:
        """Return the decision on a running trial that has reported `result`, not its last."""
        raise NotImplementedError

    def on_trial_complete(
        self, tune_controller: ControllerView, trial: Trial, result: Metrics
    ) -> None:
        """Handle the regular end of a trial, with its last `result`."""
        raise NotImplementedError

    def on_trial_remove(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Remove a paused or pending trial that will not run again."""
        raise NotImplementedError

    def choose_trial_to_run(self, tune_controller: ControllerView) -> Trial | None:
        """Return the pending or paused trial to run next, or None. Repeated calls without events
        return the same trial.
        """
        raise NotImplementedError

    def debug_string(self) -> str:
        """Return one or more status lines for the console."""
        raise NotImplementedError

    def save(self, checkpoint_path: str) -> None:
        """Write the scheduler's state to a file."""
        with open(checkpoint_path, "wb") as file:
            cloudpickle.dump(self.__dict__, file)

    def restore(self, checkpoint_path: str) -> None:
        """Restore the state that `save` wrote."""
        with open(checkpoint_path, "rb") as file:
            self.__dict__.update(cloudpickle.load(file))


class FIFOScheduler(TrialScheduler):
    """Run trials to completion in the order of their creation."""

    def on_trial_add(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Do nothing."""

    def on_trial_error(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Do nothing."""

    def on_trial_result(
        self, tune_controller: ControllerView, trial: Trial, result: Metrics
    ) -> str:
        """Return CONTINUE."""
        return self.CONTINUE

    def on_trial_complete(
        self, tune_controller: ControllerView, trial: Trial, result: Metrics
    ) -> None:
        """Do nothing."""

    def on_trial_remove(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Do nothing."""

    def choose_trial_to_run(self, tune_controller: ControllerView) -> Trial | None:
        """Return the first pending trial; without one, the first paused trial."""
        return next(waiting_trials(tune_controller), None)

    def debug_string(self) -> str:
        """Return the name of the algorithm."""
        return "Using FIFO scheduling algorithm."


class MetricScheduler(FIFOScheduler):
    """Base of schedulers that compare trials by a metric at a given time.

    Metric and mode come from the scheduler's arguments or from `TuneConfig`, not from both. A
    higher score is better in both modes, and NaN is worse than any number.

    Args:
        time_attr: Key of results for the trial's progress; it must not decrease within a trial.
        metric: Key of results that trials are compared by.
        mode: `"min"` or `"max"`.

    Raises:
        ValueError: `mode` is neither `"min"` nor `"max"`.
    """

    def __init__(self, *, time_attr: str, metric: str | None, mode: str | None) -> None:
        super().__init__()
        self._time_attr = time_attr
        self._metric = metric
        self._mode: str | None = checked_mode(mode)
        self._warned_of_time = False
        self._metric_seen = False

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: object) -> bool:
        """Set metric and mode from `TuneConfig`; return False if the scheduler has one already."""
        if (self._metric and metric) or (self._mode and mode):
            return False
        self._metric = metric or self._metric
        self._mode = checked_mode(mode) or self._mode
        if self._metric is None and self._mode:
            self._metric = DEFAULT_METRIC
        return True

    def _check_properties(self) -> None:
        if not self._metric or not self._mode:
            raise ValueError(
                f"{type(self).__name__} compares trials, but has metric={self._metric!r} and "
                f"mode={self._mode!r}. Pass both to it, or to `TuneConfig(metric=…, mode=…)`."
            )

    def _score(self, trial: Trial, result: Metrics) -> float:
        """Return the metric of `result` as a score, which is higher for better results.

        Raises:
            RuntimeError: The result has no such metric, or it is not a number.
        """
        value = lookup(result, str(self._metric))
        if value is None:
            raise RuntimeError(self._missing(trial, result, "metric", str(self._metric)))
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise RuntimeError(
                f"Trial {trial} reported {self._metric}={value!r}, which is no number, so "
                f"{type(self).__name__} cannot compare it. Report a float, or choose another "
                f"`metric`."
            ) from None
        if math.isnan(number):
            return WORST
        return number if self._mode == "max" else -number

    def _time_and_score(self, trial: Trial, result: Metrics) -> tuple[float | None, float | None]:
        """Return time and score; None for one that the result lacks, for example because the trial
        validates only every few steps. Log the first missing time.

        Raises:
            RuntimeError: No result so far had the metric, so its name must be wrong.
        """
        if lookup(result, self._time_attr) is None:
            if not self._warned_of_time:
                self._warned_of_time = True
                logger.warning("%s", self._missing(trial, result, "time_attr", self._time_attr))
            return None, None
        if self._metric_seen and lookup(result, str(self._metric)) is None:
            return self._required_time(trial, result), None
        score = self._score(trial, result)
        self._metric_seen = True
        return self._required_time(trial, result), score

    def _required_time(self, trial: Trial, result: Metrics) -> float:
        """Return the `time_attr` of `result`.

        Raises:
            RuntimeError: The result has none.
        """
        value: float | None = lookup(result, self._time_attr)
        if value is None:
            raise RuntimeError(self._missing(trial, result, "time_attr", self._time_attr))
        return value

    def _has_both(self, result: Metrics) -> bool:
        """Return True if the result has time and metric."""
        return (
            lookup(result, self._time_attr) is not None
            and lookup(result, str(self._metric)) is not None
        )

    def _missing(self, trial: Trial, result: Metrics, option: str, key: str) -> str:
        reported = sorted(set(result) - set(AUTO_RESULT_KEYS))
        return (
            f"A result of trial {trial} has no {key!r}, the `{option}` of {type(self).__name__}, "
            f"so the scheduler cannot decide on it.{did_you_mean(key, result)} It has "
            f"{', '.join(reported) or 'no metrics of its own'}. Report {key!r} as well, or change "
            f"`{option}`."
        )


def checked_mode(mode: str | None) -> str | None:
    """Return `mode`.

    Raises:
        ValueError: `mode` is neither None, nor `"min"`, nor `"max"`.
    """
    if mode is not None and mode not in get_args(Mode):
        raise ValueError(
            f"mode={mode!r} must be 'min' or 'max': the direction in which the metric improves."
        )
    return mode


def waiting_trials(controller: ControllerView) -> Iterator[Trial]:
    """Iterate over the pending trials, then the paused ones."""
    return chain(controller.pending_trials(), controller.paused_trials())
