"""`TrackerCallback`: the base of callbacks for experiment trackers, which send data to servers.

The callbacks work with searches and with trainers: a tracker gets a run per trial, or one run for
the training run. The tracker's library is called in one background thread, in order, so a slow or
failing server neither delays nor ends the search. User errors (a missing library, no API key) are
raised by the constructor or by `setup`, before anything starts.

`TrackerRunFile` stores the key of a training run's tracker run, so that a resumed training run
continues it.

Not covered: a training run inside a trial. A callback given to a trainer inside `Tuner` logs the
trials; see `launch.py`.
"""

from __future__ import annotations

import json
import logging
import posixpath
import re
import secrets
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from syncline.runs.json_values import encode
from syncline.runs.run_directory import TRACKERS_DIRECTORY
from syncline.train.metric_values import flatten
from syncline.train.run_config import RunStart, UserCallback
from syncline.train.storage.context import ArrowFiles, StorageContext
from syncline.tune.logger.background_calls import BackgroundCalls
from syncline.tune.logger.logger import LoggerCallback
from syncline.tune.result import TRAINING_ITERATION, Config, Metrics

if TYPE_CHECKING:
    from syncline.train.checkpoint import Checkpoint
    from syncline.train.result import Result
    from syncline.train.run_config import RunConfig
    from syncline.tune.experiment.trial import Trial

logger = logging.getLogger("syncline")

BACKLOG = 10_000
"""Maximum number of results that wait for a tracker; further results are not sent to it."""
TIMEOUT_S = 1800.0
"""Seconds that the end of a search or training run waits for pending calls."""
INTERRUPTED_TIMEOUT_S = 10.0
"""The same for an interrupted training run, whose user waits or whose machine is about to stop."""

LibraryRun: TypeAlias = Any
"""The library's object for a run; the libraries are optional and untyped."""
Outcome = Literal["finished", "failed", "interrupted"]
"""End of a run; an interrupted run may be resumed."""

_NOT_IN_ARTIFACTS = re.compile(r"[^\w.-]")
_NOT_IN_FILE_NAMES = re.compile(r"[^\w.-]+")


class TrackerRunFile:
    """A file in the run directory with the tracker's key of its run.

    Args:
        files: The run directory.
        who: The tracker and its project.
    """

    def __init__(self, files: ArrowFiles, who: str) -> None:
        self._files = files
        name = _NOT_IN_FILE_NAMES.sub("-", who).strip("-.").lower()
        self._name = f"{TRACKERS_DIRECTORY}/{name}.json"

    def read(self) -> str | None:
        """Return the key; None if the file is missing or damaged."""
        data = self._files.read(self._name)
        try:
            content = json.loads(data) if data is not None else None
        except ValueError:
            return None
        key = content.get("run") if isinstance(content, dict) else None
        return key if isinstance(key, str) else None

    def write(self, key: str) -> None:
        """Store the key. Raises OSError if the file cannot be written."""
        if self.read() != key:
            self._files.write(self._name, encode({"run": key}))


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """A trial at its start, or a training run, for which the tracker has a run."""

    kind: Literal["trial", "run"]
    id: str
    """The trial's id; for a training run, an id made for the tracker."""
    name: str
    experiment: str | None
    """The search's name; None for a training run."""
    experiment_path: str
    """Directory of the search or training run; the tracker may write files there."""
    path: str
    """Directory of the trial or training run."""
    local_path: str | None
    """`path` if it is local."""
    config: Config
    evaluated_params: Config
    """Values chosen from the search space, by flat key; for a training run the whole
    configuration.
    """
    location: str = ""
    """`ip:pid` of a trial's process."""
    is_resumed: bool
    """True if the trial resumes from a checkpoint, or if the tracker already has a run for the
    training run.
    """
    key: str | None = None
    """The tracker's key of the run of a resumed training run."""

    @classmethod
    def of_trial(cls, trial: Trial) -> TrackedRun:
        """Describe the current state of `trial`."""
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
            is_resumed=bool(trial.restored_iteration),
        )

    @classmethod
    def of_run(
        cls, storage: StorageContext, config: Mapping[str, object], key: str | None
    ) -> TrackedRun:
        """Describe the training run in `storage`; `key` is the stored key of its tracker run."""
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
            is_resumed=key is not None,
            key=key,
        )

    @property
    def artifact_name(self) -> str:
        """Name of its checkpoints, restricted to characters that trackers accept."""
        return f"checkpoint_{_NOT_IN_ARTIFACTS.sub('_', self.name)}"


class TrackerCallback(LoggerCallback, UserCallback):
    """Keeps a tracker run per trial, or one for a training run.

    Subclasses implement the underscored methods, which run in the background thread. If a run
    cannot be started, it is not logged; one warning is shown for all such runs. A resumed training
    run continues its earlier tracker run, and steps that were reported before are not sent again.

    Args:
        tracker: Name of the tracker for messages.
        timeout_s: Seconds to wait for pending calls at the end.
    """

    step_keys: ClassVar[tuple[str, ...]] = (TRAINING_ITERATION,)
    """Keys of a trial's result to take the step from; the first non-zero value is used."""

    def __init__(self, tracker: str, timeout_s: float = TIMEOUT_S) -> None:
        self._tracker = tracker
        self._timeout_s = timeout_s
        self._background = BackgroundCalls(f"Logging to {tracker}")
        self._runs: dict[str, tuple[TrackedRun, LibraryRun]] = {}
        """Used in the background thread only."""
        self._running: dict[str, None] = {}
        """Ids of running trials in order of start; not used in the background thread."""
        self._dropped = False
        self._next_step = 0
        """First step of the training run that has not been sent."""

    @property
    def logs_checkpoints(self) -> bool:
        """True to call `_log_checkpoint`."""
        return False

    @property
    def destination(self) -> str:
        """The tracker's project or experiment, which distinguishes callbacks of the same class."""
        return ""

    @abstractmethod
    def _begin_run(self, tracked: TrackedRun, run: LibraryRun | None) -> LibraryRun:
        """Start a run and return it. `run` is the existing run of a trial that restarts."""

    def _run_key(self, run: LibraryRun, tracked: TrackedRun) -> str | None:
        """Return a key with which another program finds the run; None if that is impossible."""
        return None

    @abstractmethod
    def _log_result(self, run: LibraryRun, tracked: TrackedRun, result: Metrics, step: int) -> None:
        """Log a result."""

    def _log_checkpoint(self, run: LibraryRun, tracked: TrackedRun, directory: str) -> None:
        """Log a checkpoint in a local directory. Only called if `logs_checkpoints`."""

    @abstractmethod
    def _end_run(self, run: LibraryRun, tracked: TrackedRun, outcome: Outcome) -> None:
        """End the run."""

    # -- in a search

    def log_trial_start(self, trial: Trial) -> None:
        self._running[trial.trial_id] = None
        self._background.call(self._start, TrackedRun.of_trial(trial), None)

    def log_trial_result(self, iteration: int, trial: Trial, result: Metrics) -> None:
        step = next((int(result[key]) for key in self.step_keys if result.get(key)), 0)
        self._send(trial.trial_id, result, step)

    def log_trial_save(self, trial: Trial) -> None:
        if self.logs_checkpoints and trial.checkpoint is not None and trial.local_path is not None:
            self._background.call(
                self._forward, trial.trial_id, self._log_checkpoint, trial.checkpoint.path
            )

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        self._running.pop(trial.trial_id, None)
        self._background.call(self._end, trial.trial_id, "failed" if failed else "finished")

    def on_experiment_end(self, trials: list[Trial], **info: object) -> None:
        for trial_id in self._running:
            self._background.call(self._end, trial_id, "interrupted")
        self._running.clear()
        self._background.close(self._timeout_s)

    # -- in a training run

    def on_run_start(self, run_context: RunConfig, start: RunStart) -> None:
        self.setup()
        storage = StorageContext.from_run_config(run_context)
        kept = TrackerRunFile(storage.files, f"{self._tracker} {self.destination}")
        tracked = TrackedRun.of_run(storage, start.config, kept.read())
        self._next_step = start.next_step if tracked.is_resumed else 0
        self._running = {tracked.id: None}
        self._background.call(self._start, tracked, kept)

    def on_report(self, run_context: RunConfig, step: int, metrics: Metrics) -> None:
        (run_id,) = self._running
        if step >= self._next_step:
            self._next_step = step + 1
            self._send(run_id, metrics, step)

    def after_report(
        self, run_context: RunConfig, metrics: list[Metrics], checkpoint: Checkpoint | None
    ) -> None:
        if self.logs_checkpoints and checkpoint is not None:
            (run_id,) = self._running
            self._background.call(self._forward, run_id, self._log_checkpoint_of_run, checkpoint)

    def on_run_end(
        self, run_context: RunConfig, result: Result | None, error: BaseException | None
    ) -> None:
        # KeyboardInterrupt and the like
        was_interrupted = error is not None and not isinstance(error, Exception)
        outcome: Outcome = (
            "finished" if error is None else "interrupted" if was_interrupted else "failed"
        )
        for run_id in self._running:
            self._background.call(self._end, run_id, outcome)
        self._running.clear()
        self._background.close(
            min(self._timeout_s, INTERRUPTED_TIMEOUT_S) if was_interrupted else self._timeout_s
        )

    def _send(self, tracked_id: str, result: Metrics, step: int) -> None:
        if self._background.backlog < BACKLOG:
            self._background.call(self._forward, tracked_id, self._log_result, dict(result), step)
        elif not self._dropped:
            self._dropped = True
            logger.warning(
                "%s is %d results behind; further results are not sent to it until it catches up. "
                "The files of the run contain all results.",
                self._tracker,
                BACKLOG,
            )

    # -- in the background thread

    def _start(self, tracked: TrackedRun, kept: TrackerRunFile | None) -> None:
        _, earlier = self._runs.get(tracked.id, (None, None))
        run = self._begin_run(tracked, earlier)
        self._runs[tracked.id] = tracked, run
        key = self._run_key(run, tracked) if kept is not None else None
        if kept is not None and key is not None:
            kept.write(key)

    def _forward(self, tracked_id: str, method: Callable[..., None], *content: object) -> None:
        if tracked_id in self._runs:
            tracked, run = self._runs[tracked_id]
            method(run, tracked, *content)

    def _log_checkpoint_of_run(
        self, run: LibraryRun, tracked: TrackedRun, checkpoint: Checkpoint
    ) -> None:
        with checkpoint.as_directory() as directory:
            self._log_checkpoint(run, tracked, directory)

    def _end(self, tracked_id: str, outcome: Outcome) -> None:
        if tracked_id in self._runs:
            tracked, run = self._runs.pop(tracked_id)
            self._end_run(run, tracked, outcome)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_runs": {}, "_running": {}}


def is_key_under(key: str, names: tuple[str, ...]) -> bool:
    """Return True if a flat key equals one of `names` or is nested in one."""
    return any(key == name or key.startswith(f"{name}/") for name in names)
