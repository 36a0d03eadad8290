"""`TrialScheduler`: who runs, who waits and who stops; `FIFOScheduler`, which lets every trial run
to its end.

A scheduler is a pure state machine. It has no clock, opens no files and starts no threads; random
numbers come from a generator of its own. The same calls in the same order give the same decisions,
so a search can be restored from a snapshot and the events after it. It keeps trials by their id and
asks the controller for the rest, so that its state is small and can be pickled.

Not covered: what a decision does to a trial's process (the controller).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cloudpickle

from syncline.tune.result import DEFAULT_METRIC

if TYPE_CHECKING:
    from syncline.tune.controller.controller_view import ControllerView
    from syncline.tune.experiment.trial import Trial


class TrialScheduler:
    """What the controller asks at each turn. Programs may write their own; one thread calls all
    methods.

    `on_trial_result` returns one of:

    - CONTINUE: the trial goes on.
    - PAUSE: it is saved and gives its resources back, until `choose_trial_to_run` names it again.
    - STOP: it ends, as one that has finished.
    - NOOP: the scheduler has told the controller itself what happens to it (`pause_trial`,
      `stop_trial`, `exploit`, `update_resources`).
    """

    CONTINUE = "CONTINUE"
    PAUSE = "PAUSE"
    STOP = "STOP"
    NOOP = "NOOP"

    _metric: str | None = None
    _supports_buffered_results = True

    @property
    def metric(self) -> str | None:
        """The metric that trials are compared by; None if there is none yet."""
        return self._metric

    @property
    def supports_buffered_results(self) -> bool:
        """Whether a trial may run ahead of the decisions on its results."""
        return self._supports_buffered_results

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Take what the search's configuration says; False if one of the two was given to the
        scheduler already.
        """
        del mode, spec
        if self._metric and metric:
            return False
        self._metric = metric or self._metric or DEFAULT_METRIC
        return True

    def on_trial_add(self, tune_controller: ControllerView, trial: Trial) -> None:
        """A trial is new, or comes again after a failure; it has not started."""
        raise NotImplementedError

    def on_trial_error(self, tune_controller: ControllerView, trial: Trial) -> None:
        """A trial has failed; it comes again through `on_trial_add` if it may."""
        raise NotImplementedError

    def on_trial_result(
        self, tune_controller: ControllerView, trial: Trial, result: dict[str, Any]
    ) -> str:
        """A running trial has reported `result`, which is not its last; what becomes of it?"""
        raise NotImplementedError

    def on_trial_complete(
        self, tune_controller: ControllerView, trial: Trial, result: dict[str, Any]
    ) -> None:
        """A running trial has ended, by itself or by a stopping criterion. `result` is its last."""
        raise NotImplementedError

    def on_trial_remove(self, tune_controller: ControllerView, trial: Trial) -> None:
        """A paused or pending trial is not going to run any more."""
        raise NotImplementedError

    def choose_trial_to_run(self, tune_controller: ControllerView) -> Trial | None:
        """The pending or paused trial that runs next; None if none should now. Asked again, it
        gives the same answer.
        """
        raise NotImplementedError

    def debug_string(self) -> str:
        """A line or more for the console."""
        raise NotImplementedError

    def save(self, checkpoint_path: str) -> None:
        """Write the scheduler's state to a file."""
        with open(checkpoint_path, "wb") as file:
            cloudpickle.dump(self.__dict__, file)

    def restore(self, checkpoint_path: str) -> None:
        """Take over the state that `save` wrote."""
        with open(checkpoint_path, "rb") as file:
            self.__dict__.update(cloudpickle.load(file))


class FIFOScheduler(TrialScheduler):
    """Trials run in the order in which they were made, each to its end."""

    def on_trial_add(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Nothing to note."""

    def on_trial_error(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Nothing to note."""

    def on_trial_result(
        self, tune_controller: ControllerView, trial: Trial, result: dict[str, Any]
    ) -> str:
        """It goes on."""
        return self.CONTINUE

    def on_trial_complete(
        self, tune_controller: ControllerView, trial: Trial, result: dict[str, Any]
    ) -> None:
        """Nothing to note."""

    def on_trial_remove(self, tune_controller: ControllerView, trial: Trial) -> None:
        """Nothing to note."""

    def choose_trial_to_run(self, tune_controller: ControllerView) -> Trial | None:
        """The pending trial that has waited longest; if none is pending, the paused one that
        has.
        """
        for waiting in (tune_controller.pending_trials(), tune_controller.paused_trials()):
            for trial in waiting:
                return trial
        return None

    def debug_string(self) -> str:
        """Its name."""
        return "Using FIFO scheduling algorithm."
