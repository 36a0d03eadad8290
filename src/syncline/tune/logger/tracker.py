"""`TrackerCallback`: the base of callbacks for experiment trackers, whose libraries talk to servers.

A library's calls are made in one thread of their own, in order: a server that is slow or away delays no trial and ends no search. What a
program got wrong (a missing library, no key) is told by the constructor or by `setup`, before anything starts.
"""

from __future__ import annotations

import logging
import posixpath
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from syncline.tune.logger.background import Background
from syncline.tune.logger.logger import LoggerCallback

if TYPE_CHECKING:
    from syncline.tune.experiment.trial import Trial

logger = logging.getLogger("syncline")

BACKLOG = 10_000
"""So many results may wait for a tracker; further ones are left out until it has caught up."""
TIMEOUT_S = 1800.0
"""So long the end of a search waits for what has not been sent."""

Outcome = Literal["finished", "failed", "interrupted"]
"""How a trial's run ends: well, with an error, or with the search, to be continued when that is restored."""


@dataclass(frozen=True, kw_only=True)
class TrackedTrial:
    """What a tracker is told of a trial, as it was when the trial started."""

    trial_id: str
    name: str
    experiment: str
    """The search's name."""
    experiment_path: str
    """The search's directory."""
    path: str
    """The trial's directory."""
    local_path: str | None
    """The same, if it is on this machine."""
    config: dict[str, Any]
    evaluated_params: dict[str, Any]
    """What the search space gave, by flat key."""
    location: str
    """`ip:pid` of its process."""
    is_continued: bool
    """Whether it goes on from a checkpoint."""

    @classmethod
    def of(cls, trial: Trial) -> TrackedTrial:
        """The facts of `trial` now."""
        return cls(
            trial_id=trial.trial_id,
            name=str(trial),
            experiment=posixpath.basename(trial.storage.storage_fs_path),
            experiment_path=trial.storage.storage_fs_path,
            path=trial.path,
            local_path=trial.local_path,
            config={key: value for key, value in trial.config.items() if key != "callbacks"},
            evaluated_params=dict(trial.evaluated_params),
            location=trial.location,
            is_continued=bool(trial.restored_iteration),
        )


class TrackerCallback(LoggerCallback):
    """Keeps a run of the tracker per trial. Subclasses say what to call; their four methods are called in the thread.

    A run that could not be begun is left out, with one warning for all.

    Args:
        tracker: Its name, for messages.
        timeout_s: So long the end of the search waits for what has not been sent.
    """

    def __init__(self, tracker: str, timeout_s: float = TIMEOUT_S) -> None:
        self._tracker = tracker
        self._timeout_s = timeout_s
        self._background = Background(f"Logging to {tracker}")
        self._runs: dict[str, tuple[TrackedTrial, Any]] = {}
        """Used in the thread only."""
        self._running: dict[str, None] = {}
        """Ids of the trials that have started and not ended, in order; not used in the thread."""
        self._left_out = False

    @abstractmethod
    def _begin_run(self, trial: TrackedTrial, run: Any) -> Any:
        """A trial has started: the tracker's run of it. `run` is the one that it has already if it is started again, else None."""

    @abstractmethod
    def _log_result(self, run: Any, trial: TrackedTrial, result: dict[str, Any]) -> None:
        """A trial has reported."""

    def _log_checkpoint(self, run: Any, trial: TrackedTrial, directory: str) -> None:
        """A checkpoint of a trial has been kept in a directory of this machine."""

    @abstractmethod
    def _end_run(self, run: Any, trial: TrackedTrial, outcome: Outcome) -> None:
        """A trial has ended."""

    def log_trial_start(self, trial: Trial) -> None:
        self._running[trial.trial_id] = None
        self._background.call(self._start, TrackedTrial.of(trial))

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        if self._background.backlog < BACKLOG:
            self._background.call(self._pass_on, self._log_result, trial.trial_id, dict(result))
        elif not self._left_out:
            self._left_out = True
            logger.warning(
                "%s is %d results behind, so some are left out there. The trials' own files have all of them.", self._tracker, BACKLOG
            )

    def log_trial_save(self, trial: Trial) -> None:
        if trial.checkpoint is not None and trial.local_path is not None:
            self._background.call(self._pass_on, self._log_checkpoint, trial.trial_id, trial.checkpoint.path)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        self._running.pop(trial.trial_id, None)
        self._background.call(self._end, trial.trial_id, "failed" if failed else "finished")

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        for trial_id in self._running:
            self._background.call(self._end, trial_id, "interrupted")
        self._running.clear()
        self._background.close(self._timeout_s)

    # -- in the thread

    def _start(self, trial: TrackedTrial) -> None:
        _, run = self._runs.get(trial.trial_id, (None, None))
        self._runs[trial.trial_id] = trial, self._begin_run(trial, run)

    def _pass_on(self, method: Any, trial_id: str, content: Any) -> None:
        if trial_id in self._runs:
            trial, run = self._runs[trial_id]
            method(run, trial, content)

    def _end(self, trial_id: str, outcome: Outcome) -> None:
        if trial_id in self._runs:
            trial, run = self._runs.pop(trial_id)
            self._end_run(run, trial, outcome)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_runs": {}, "_running": {}}


def is_below(key: str, names: tuple[str, ...]) -> bool:
    """Whether a flat key is one of `names`, or that of a value nested in one."""
    return any(key == name or key.startswith(f"{name}/") for name in names)
