"""Configuration of a search.

`TuneConfig` and `ResumeConfig` are for searches only. `RunConfig`, `FailureConfig` and
`CheckpointConfig` extend those of `syncline.train` with options for trials, so that one object
serves a trainer and a search. All check their values; all but `TuneConfig`, which older programs
modify, are frozen.
"""

from __future__ import annotations

import dataclasses
import datetime
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from syncline.suggestions import suggest_arguments
from syncline.train import config as train_config
from syncline.train.run_config import RunConfig as TrainRunConfig
from syncline.train.run_config import UserCallback
from syncline.tune.callback import Callback
from syncline.tune.experiment.trial import Trial

if TYPE_CHECKING:
    from syncline.tune.progress_reporter import ProgressReporter
    from syncline.tune.schedulers.trial_scheduler import TrialScheduler

_Config = TypeVar("_Config")
Mode = Literal["min", "max"]
Isolation = Literal["process", "worker"]


@suggest_arguments
@dataclass
class TuneConfig:
    """Metric, searcher, scheduler and size of a search."""

    mode: Mode | Sequence[Mode] | None = None
    """Minimize or maximize the metric; a list for a searcher with several metrics."""

    metric: str | Sequence[str] | None = None
    """Metric to optimize (`a/b` if nested)."""

    search_alg: Any = None
    """A searcher or its name; None for random search and grids."""

    scheduler: TrialScheduler | str | None = None
    """Stops, pauses and changes trials early: a scheduler or its name; None to run all trials to
    their end.
    """

    num_samples: int = 1
    """Number of draws from the search space, each with all combinations of the grids; -1 for no
    limit.
    """

    max_concurrent_trials: int | None = None
    """Maximum number of running trials; None or 0 for no limit but the resources."""

    time_budget_s: float | datetime.timedelta | None = None
    """Seconds after which the search ends."""

    reuse_actors: bool = False
    """Run several trials in one process, one after the other, with `reset_config`."""

    isolation: Isolation = "process"
    """`process`: each trial gets a new process. `worker`: a process runs many trials one after the
    other and is restored for each of them; it is replaced if a trial left something behind that
    cannot be undone.
    """

    trial_name_creator: Callable[[Trial], str] | None = None
    """Returns the display name of a trial."""

    trial_dirname_creator: Callable[[Trial], str] | None = None
    """Returns the directory name of a trial."""

    chdir_to_trial_dir: bool | None = None
    """Deprecated and ignored: the working directory does not change."""

    def __post_init__(self) -> None:
        modes = [self.mode] if isinstance(self.mode, str) else list(self.mode or ())
        if any(mode not in ("min", "max") for mode in modes):
            raise ValueError(f'`mode={self.mode!r}` must be "min" or "max".')
        if isinstance(self.metric, (list, tuple)) and len(modes) != len(self.metric):
            raise ValueError(
                f"`metric={self.metric!r}` has {len(self.metric)} metrics, but "
                f"`mode={self.mode!r}` has {len(modes)} modes: pass one mode per metric."
            )
        if (
            isinstance(self.num_samples, bool)
            or not isinstance(self.num_samples, int)
            or self.num_samples < -1
            or self.num_samples == 0
        ):
            raise ValueError(
                f"`num_samples={self.num_samples!r}` must be an integer above 0, or -1 for no "
                "limit."
            )
        if self.isolation not in ("process", "worker"):
            raise ValueError(f'`isolation={self.isolation!r}` must be "process" or "worker".')
        if self.isolation == "worker" and self.reuse_actors:
            raise ValueError(
                '`isolation="worker"` and `reuse_actors=True` exclude each other: the first one '
                "creates the trainable anew for each trial, the second one keeps it and calls "
                "`reset_config`. Omit one of them."
            )
        limit = self.max_concurrent_trials
        if limit is not None and (
            isinstance(limit, bool) or not isinstance(limit, int) or limit < 0
        ):
            raise ValueError(
                f"`max_concurrent_trials={limit!r}` must be an integer from 0 up, or None; 0 and "
                "None mean no limit."
            )
        budget = self.budget_s
        if budget is not None and not budget > 0:
            raise ValueError(
                f"`time_budget_s={self.time_budget_s!r}` must be a number of seconds above 0."
            )
        for name in ("trial_name_creator", "trial_dirname_creator"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise ValueError(f"`{name}={value!r}` must be a function of a trial.")

    @property
    def objective(self) -> tuple[str | None, str | None]:
        """Metric and mode, each None unless it is a single one."""
        metric = self.metric if isinstance(self.metric, str) else None
        return metric, self.mode if isinstance(self.mode, str) else None

    @property
    def budget_s(self) -> float | None:
        """`time_budget_s` in seconds."""
        budget = self.time_budget_s
        return budget.total_seconds() if isinstance(budget, datetime.timedelta) else budget


class ResumeType:
    """Treatment of a trial in a restored search."""

    RESUME: Literal["RESUME"] = "RESUME"
    """Continue from its checkpoint."""
    RESTART: Literal["RESTART"] = "RESTART"
    """Reset it and start from scratch."""
    SKIP: Literal["SKIP"] = "SKIP"
    """End it."""


@suggest_arguments
@dataclass(frozen=True)
class ResumeConfig:
    """Treatment of the trials of a restored search."""

    ResumeType = ResumeType

    finished: Literal["RESUME", "RESTART", "SKIP"] = "SKIP"
    """Terminated trials."""

    unfinished: Literal["RESUME", "RESTART", "SKIP"] = "RESUME"
    """Running, pending and paused trials."""

    errored: Literal["RESUME", "RESTART", "SKIP"] = "SKIP"
    """Failed trials."""

    def __post_init__(self) -> None:
        for name in ("finished", "unfinished", "errored"):
            if getattr(self, name) not in ("RESUME", "RESTART", "SKIP"):
                raise ValueError(
                    f'`{name}={getattr(self, name)!r}` must be "RESUME", "RESTART" or "SKIP".'
                )


@suggest_arguments
@dataclass(frozen=True)
class FailureConfig(train_config.FailureConfig):
    """Restarts after failures, and the end of the search at the first failure."""

    fail_fast: bool | str | None = None
    """True: the first failure ends the search; "raise": its exception is also raised."""

    def __post_init__(self) -> None:
        if self.fail_fast not in (None, True, False, "raise"):
            raise ValueError(f'`fail_fast={self.fail_fast!r}` must be True, False or "raise".')
        if self.fail_fast and self.max_failures != 0:
            raise ValueError(
                f"`fail_fast={self.fail_fast!r}` ends the search at the first failure, but "
                f"`max_failures={self.max_failures}` would restart the trial: set one of them."
            )
        _check_without(super(), self, "fail_fast")


@suggest_arguments
@dataclass(frozen=True)
class CheckpointConfig(train_config.CheckpointConfig):
    """Frequency and retention of checkpoints."""

    checkpoint_frequency: int = 0
    """Iterations between two checkpoints of a class trainable; 0 for none."""

    checkpoint_at_end: bool | None = None
    """Save a class trainable at its end; None for True if it can save."""

    def __post_init__(self) -> None:
        super().__post_init__()
        frequency = self.checkpoint_frequency
        if isinstance(frequency, bool) or not isinstance(frequency, int) or frequency < 0:
            raise ValueError(f"`checkpoint_frequency={frequency!r}` must be an integer from 0 up.")
        if self.checkpoint_at_end not in (None, True, False):
            raise ValueError(
                f"`checkpoint_at_end={self.checkpoint_at_end!r}` must be True, False or None."
            )


@suggest_arguments
@dataclass(frozen=True)
class RunConfig(TrainRunConfig):
    """Storage, stop criteria, callbacks and display of a search. Trainers accept it, too."""

    callbacks: Sequence[Any] | None = None
    """Callbacks of the search (`Callback`), or of a trainer's run (`UserCallback`)."""

    verbose: int | None = None
    """0: silent, 1: table, 2: results, 3: details; None for 1."""

    stop: Any = None
    """Stop criterion of trials: `{"loss": 0.1, "training_iteration": 8}` (at or above), a function
    of id and result, or a `Stopper`.
    """

    progress_reporter: ProgressReporter | None = None
    """Display of the search; None for the default."""

    log_to_file: bool | str | tuple[str, str] | None = None
    """Write output of trials to files in their directories: True for `stdout` and `stderr`, one
    name for both, or two names.
    """

    def __post_init__(self) -> None:
        log = self.log_to_file
        is_pair = (
            isinstance(log, (tuple, list))
            and len(log) == 2
            and all(isinstance(item, str) for item in log)
        )
        if not (log is None or isinstance(log, (bool, str)) or is_pair):
            raise ValueError(
                f"`log_to_file={log!r}` must be True, a file name, or two names: for output and "
                "errors."
            )
        if self.name is None:
            object.__setattr__(
                self,
                "name",
                f"tune_run-{time.strftime('%Y-%m-%d_%H-%M-%S')}-{secrets.token_hex(3)}",
            )
        _check_without(super(), self, "stop", "progress_reporter", "log_to_file")

    def _check_callbacks(self) -> None:
        for callback in self.callbacks or ():
            if not isinstance(callback, (UserCallback, Callback)):
                hint = ": pass an instance, not the class" if isinstance(callback, type) else ""
                raise ValueError(f"`callbacks` contains {callback!r}, which is no Callback{hint}.")

    @property
    def log_files(self) -> tuple[str, str] | None:
        """Names of the files for output and errors of trials."""
        log = self.log_to_file
        if isinstance(log, str):
            return log, log
        if isinstance(log, (tuple, list)):
            return log[0], log[1]
        return ("stdout", "stderr") if log else None


def extended(kind: type[_Config], given: Any) -> _Config:
    """Return the configuration as one of a class with further fields."""
    return kind(**{item.name: getattr(given, item.name) for item in dataclasses.fields(given)})


def _check_without(parent: Any, config: object, *names: str) -> None:
    """Run the checks of `parent` except for `names`, which trainers deprecate."""
    values = {name: getattr(config, name) for name in names}
    for name in names:
        object.__setattr__(config, name, None)
    try:
        parent.__post_init__()
    finally:
        for name, value in values.items():
            object.__setattr__(config, name, value)
