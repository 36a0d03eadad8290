"""`TrackerCallback`: the base of callbacks for experiment trackers, whose libraries talk to
servers.

It is a callback of searches and of trainers alike: a tracker gets a run for every trial, or one for
the training run. A library's calls are made in one thread of their own, in order: a server that is
slow or away delays nothing and ends nothing. What a program got wrong (a missing library, no key)
is told by the constructor or by `setup`, before anything starts.

Not covered: a training run inside a trial. A callback that is given with a trainer to `Tuner` logs
the trials; see `launch.py`.
"""

from __future__ import annotations

import logging
import posixpath
import re
import secrets
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from syncline.train.callbacks import RunStart, UserCallback
from syncline.train.metric_values import flatten
from syncline.train.storage.context import StorageContext
from syncline.tune.logger.background import Background
from syncline.tune.logger.kept import KeptRun
from syncline.tune.logger.logger import LoggerCallback
from syncline.tune.result import TRAINING_ITERATION

if TYPE_CHECKING:
    from syncline.train.checkpoint import Checkpoint
    from syncline.train.config import RunConfig
    from syncline.train.result import Result
    from syncline.tune.experiment.trial import Trial

logger = logging.getLogger("syncline")

BACKLOG = 10_000
"""So many results may wait for a tracker; further ones are left out until it has caught up."""
TIMEOUT_S = 1800.0
"""So long the end of a search, or of a training run, waits for what has not been sent."""
INTERRUPTED_TIMEOUT_S = 10.0
"""So long the end of a training run waits that was broken off: somebody waits, or the machine is
about to be taken away.
"""

Outcome = Literal["finished", "failed", "interrupted"]
"""How a run ends: well, with an error, or broken off, to be continued later."""

_NOT_IN_ARTIFACTS = re.compile(r"[^\w.-]")


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """What a tracker has a run of: a trial, as it was when it started, or a training run."""

    kind: Literal["trial", "run"]
    id: str
    """The trial's; for a training run, one that is made for the tracker."""
    name: str
    experiment: str | None
    """The search's name; None of a training run."""
    experiment_path: str
    """Where the tracker may keep files of its own: the search's directory, or the training
    run's.
    """
    path: str
    """The trial's directory, or the training run's."""
    local_path: str | None
    """The same, if it is on this machine."""
    config: dict[str, Any]
    evaluated_params: dict[str, Any]
    """What the search space gave, by flat key; of a training run the whole configuration."""
    location: str = ""
    """`ip:pid` of a trial's process."""
    is_continued: bool
    """Whether it goes on from a checkpoint, or, of a training run, whether the tracker has a run of
    it already.
    """
    key: str | None = None
    """Of a training run that is continued: the tracker's name of its run."""

    @classmethod
    def of_trial(cls, trial: Trial) -> Tracked:
        """The facts of `trial` now."""
        return cls(
            kind="trial",
            id=trial.trial_id,
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

    @classmethod
    def of_run(cls, storage: StorageContext, config: Mapping[str, Any], key: str | None) -> Tracked:
        """The facts of the training run in `storage`; `key` as there is one kept."""
        path = storage.experiment_fs_path
        return cls(
            kind="run",
            id=key or secrets.token_hex(16),
            name=storage.experiment_dir_name,
            experiment=None,
            experiment_path=path,
            path=path,
            local_path=path if storage.local else None,
            config=dict(config),
            evaluated_params=flatten(config),
            is_continued=key is not None,
            key=key,
        )

    @property
    def artifact_name(self) -> str:
        """A name for its checkpoints, of characters that trackers take."""
        return f"checkpoint_{_NOT_IN_ARTIFACTS.sub('_', self.name)}"


class TrackerCallback(LoggerCallback, UserCallback):
    """Keeps a run of the tracker per trial, or one for a training run. Subclasses say what to call;
    their methods are called in the thread.

    A run that could not be begun is left out, with one warning for all. A training run that is
    started again under its name goes on in the tracker's run that it had; steps that its earlier
    program has reported, and that it does again, are not sent again.

    Args:
        tracker: Its name, for messages.
        timeout_s: So long the end waits for what has not been sent.
    """

    step_keys: ClassVar[tuple[str, ...]] = (TRAINING_ITERATION,)
    """Where a trial's result says its step, the first that does."""

    def __init__(self, tracker: str, timeout_s: float = TIMEOUT_S) -> None:
        self._tracker = tracker
        self._timeout_s = timeout_s
        self._background = Background(f"Logging to {tracker}")
        self._runs: dict[str, tuple[Tracked, Any]] = {}
        """Used in the thread only."""
        self._running: dict[str, None] = {}
        """Ids of what has started and not ended, in order; not used in the thread."""
        self._left_out = False
        self._next_step = 0
        """Of the training run; earlier ones have been sent."""

    @property
    def logs_checkpoints(self) -> bool:
        """Whether checkpoints are passed on."""
        return False

    @property
    def place(self) -> str:
        """Where in the tracker the runs belong, such as its project; tells callbacks of one kind
        apart.
        """
        return ""

    @abstractmethod
    def _begin_run(self, tracked: Tracked, run: Any) -> Any:
        """It has started: the tracker's run of it. `run` is the one that it has already if a trial
        is started again, else None.
        """

    def _key_of(self, run: Any, tracked: Tracked) -> str | None:
        """By what another program finds the tracker's run of a training run; None if it cannot."""
        return None

    @abstractmethod
    def _log_result(self, run: Any, tracked: Tracked, result: dict[str, Any], step: int) -> None:
        """It has reported."""

    def _log_checkpoint(self, run: Any, tracked: Tracked, directory: str) -> None:
        """A checkpoint of it has been kept, in a directory of this machine. Only called if
        `logs_checkpoints`.
        """

    @abstractmethod
    def _end_run(self, run: Any, tracked: Tracked, outcome: Outcome) -> None:
        """It has ended."""

    # -- in a search

    def log_trial_start(self, trial: Trial) -> None:
        self._running[trial.trial_id] = None
        self._background.call(self._start, Tracked.of_trial(trial), None)

    def log_trial_result(self, iteration: int, trial: Trial, result: dict[str, Any]) -> None:
        step = next((int(result[key]) for key in self.step_keys if result.get(key)), 0)
        self._send(trial.trial_id, result, step)

    def log_trial_save(self, trial: Trial) -> None:
        if self.logs_checkpoints and trial.checkpoint is not None and trial.local_path is not None:
            self._background.call(
                self._pass_on, trial.trial_id, self._log_checkpoint, trial.checkpoint.path
            )

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        self._running.pop(trial.trial_id, None)
        self._background.call(self._end, trial.trial_id, "failed" if failed else "finished")

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        for trial_id in self._running:
            self._background.call(self._end, trial_id, "interrupted")
        self._running.clear()
        self._background.close(self._timeout_s)

    # -- in a training run

    def on_run_start(self, run_context: RunConfig, start: RunStart) -> None:
        self.setup()
        storage = StorageContext.from_run_config(run_context)
        kept = KeptRun(storage.files, f"{self._tracker} {self.place}")
        tracked = Tracked.of_run(storage, start.config, kept.read())
        self._next_step = start.next_step if tracked.is_continued else 0
        self._running = {tracked.id: None}
        self._background.call(self._start, tracked, kept)

    def on_report(self, run_context: RunConfig, step: int, metrics: dict[str, Any]) -> None:
        (run_id,) = self._running
        if step >= self._next_step:
            self._next_step = step + 1
            self._send(run_id, metrics, step)

    def after_report(
        self, run_context: RunConfig, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        if self.logs_checkpoints and checkpoint is not None:
            (run_id,) = self._running
            self._background.call(self._pass_on, run_id, self._log_checkpoint_of_run, checkpoint)

    def on_run_end(
        self, run_context: RunConfig, result: Result | None, error: BaseException | None
    ) -> None:
        broken_off = error is not None and not isinstance(error, Exception)
        outcome: Outcome = (
            "finished" if error is None else "interrupted" if broken_off else "failed"
        )
        for run_id in self._running:
            self._background.call(self._end, run_id, outcome)
        self._running.clear()
        self._background.close(
            min(self._timeout_s, INTERRUPTED_TIMEOUT_S) if broken_off else self._timeout_s
        )

    def _send(self, tracked_id: str, result: Mapping[str, Any], step: int) -> None:
        if self._background.backlog < BACKLOG:
            self._background.call(self._pass_on, tracked_id, self._log_result, dict(result), step)
        elif not self._left_out:
            self._left_out = True
            logger.warning(
                "%s is %d results behind, so some are left out there. The run's own files have all.",
                self._tracker,
                BACKLOG,
            )

    # -- in the thread

    def _start(self, tracked: Tracked, kept: KeptRun | None) -> None:
        _, earlier = self._runs.get(tracked.id, (None, None))
        run = self._begin_run(tracked, earlier)
        self._runs[tracked.id] = tracked, run
        key = self._key_of(run, tracked) if kept is not None else None
        if kept is not None and key is not None:
            kept.write(key)

    def _pass_on(self, tracked_id: str, method: Callable[..., None], *content: Any) -> None:
        if tracked_id in self._runs:
            tracked, run = self._runs[tracked_id]
            method(run, tracked, *content)

    def _log_checkpoint_of_run(self, run: Any, tracked: Tracked, checkpoint: Checkpoint) -> None:
        with checkpoint.as_directory() as directory:
            self._log_checkpoint(run, tracked, directory)

    def _end(self, tracked_id: str, outcome: Outcome) -> None:
        if tracked_id in self._runs:
            tracked, run = self._runs.pop(tracked_id)
            self._end_run(run, tracked, outcome)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_runs": {}, "_running": {}}


def is_below(key: str, names: tuple[str, ...]) -> bool:
    """Whether a flat key is one of `names`, or that of a value nested in one."""
    return any(key == name or key.startswith(f"{name}/") for name in names)
