"""What a program tells a search before it starts.

`TuneConfig` and `ResumeConfig` are tune's own; `RunConfig`, `FailureConfig` and `CheckpointConfig`
are those of `syncline.train` with what trials need besides, so that one object serves a trainer and
a search. All are checked as they are made; all but `TuneConfig`, which older programs change
afterwards, are frozen.
"""

from __future__ import annotations

import datetime
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from syncline.train import config as train_config
from syncline.train.callbacks import UserCallback
from syncline.tune.callback import Callback
from syncline.tune.experiment.trial import Trial

if TYPE_CHECKING:
    from syncline.tune.progress_reporter import ProgressReporter
    from syncline.tune.schedulers.trial_scheduler import TrialScheduler

Mode = Literal["min", "max"]


@dataclass
class TuneConfig:
    """How a search goes about it."""

    mode: Mode | Sequence[Mode] | None = None
    """Whether a low or a high metric is good; a list for a searcher with several metrics."""

    metric: str | Sequence[str] | None = None
    """The name of what is to get better (`a/b` for a nested one)."""

    search_alg: Any = None
    """Who proposes configurations: a searcher, its name, or None for random search and grids."""

    scheduler: TrialScheduler | None = None
    """Who stops, pauses and changes trials early; None lets all run to their end."""

    num_samples: int = 1
    """So many draws from the search space, each with every combination of its grids; -1 for no
    end.
    """

    max_concurrent_trials: int | None = None
    """So many trials run at a time; None or 0 for as many as there is room for."""

    time_budget_s: float | datetime.timedelta | None = None
    """The search ends after so many seconds."""

    reuse_actors: bool = False
    """Whether a trial may run in the process of one that has ended, through `reset_config`."""

    trial_name_creator: Callable[[Trial], str] | None = None
    """Gives a trial's name."""

    trial_dirname_creator: Callable[[Trial], str] | None = None
    """Gives the name of a trial's directory."""

    chdir_to_trial_dir: bool | None = None
    """Deprecated and ignored: the working directory stays what it is."""

    def __post_init__(self) -> None:
        modes = [self.mode] if isinstance(self.mode, str) else list(self.mode or ())
        if any(mode not in ("min", "max") for mode in modes):
            raise ValueError(f'`mode={self.mode!r}` must be "min" or "max".')
        if isinstance(self.metric, (list, tuple)) and len(modes) != len(self.metric):
            raise ValueError(
                f"`metric={self.metric!r}` names {len(self.metric)} metrics but `mode={self.mode!r}` has {len(modes)}: give one each."
            )
        if (
            isinstance(self.num_samples, bool)
            or not isinstance(self.num_samples, int)
            or self.num_samples < -1
            or self.num_samples == 0
        ):
            raise ValueError(
                f"`num_samples={self.num_samples!r}` must be a whole number above 0, or -1 for no end."
            )
        limit = self.max_concurrent_trials
        if limit is not None and (
            isinstance(limit, bool) or not isinstance(limit, int) or limit < 0
        ):
            raise ValueError(
                f"`max_concurrent_trials={limit!r}` must be a whole number above 0, or None for no limit."
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
    def budget_s(self) -> float | None:
        """`time_budget_s` in seconds."""
        budget = self.time_budget_s
        return budget.total_seconds() if isinstance(budget, datetime.timedelta) else budget


class ResumeType:
    """What a restored search does with a trial."""

    RESUME: Literal["RESUME"] = "RESUME"
    """Keep it, and go on from its checkpoint."""
    RESTART: Literal["RESTART"] = "RESTART"
    """Reset it, and begin anew."""
    SKIP: Literal["SKIP"] = "SKIP"
    """Leave it ended, or end it."""


@dataclass(frozen=True)
class ResumeConfig:
    """What a restored search does with trials that had ended well, had not ended, and had
    failed.
    """

    ResumeType = ResumeType

    finished: Literal["RESUME", "RESTART", "SKIP"] = "SKIP"
    """Those that had ended."""

    unfinished: Literal["RESUME", "RESTART", "SKIP"] = "RESUME"
    """Those that ran, waited or were paused."""

    errored: Literal["RESUME", "RESTART", "SKIP"] = "SKIP"
    """Those that had failed."""

    def __post_init__(self) -> None:
        for name in ("finished", "unfinished", "errored"):
            if getattr(self, name) not in ("RESUME", "RESTART", "SKIP"):
                raise ValueError(
                    f'`{name}={getattr(self, name)!r}` must be "RESUME", "RESTART" or "SKIP".'
                )


@dataclass(frozen=True)
class FailureConfig(train_config.FailureConfig):
    """How often a trial starts again after a failure, and whether one ends the search."""

    fail_fast: bool | str | None = None
    """True: the first failure ends the search; "raise": and is raised as it is."""

    def __post_init__(self) -> None:
        if self.fail_fast not in (None, True, False, "raise"):
            raise ValueError(f'`fail_fast={self.fail_fast!r}` must be True, False or "raise".')
        if self.fail_fast and self.max_failures != 0:
            raise ValueError(
                f"`fail_fast={self.fail_fast!r}` ends the search at the first failure, but `max_failures={self.max_failures}` would start "
                "the trial again: set one of them."
            )
        _check_without(super(), self, "fail_fast")


@dataclass(frozen=True)
class CheckpointConfig(train_config.CheckpointConfig):
    """Which checkpoints are made and kept."""

    checkpoint_frequency: int = 0
    """A class trainable is saved after every so many iterations; 0: never."""

    checkpoint_at_end: bool | None = None
    """Whether a class trainable is saved at its end; None: it is."""

    def __post_init__(self) -> None:
        super().__post_init__()
        frequency = self.checkpoint_frequency
        if isinstance(frequency, bool) or not isinstance(frequency, int) or frequency < 0:
            raise ValueError(
                f"`checkpoint_frequency={frequency!r}` must be a whole number from 0 up."
            )
        if self.checkpoint_at_end not in (None, True, False):
            raise ValueError(
                f"`checkpoint_at_end={self.checkpoint_at_end!r}` must be True, False or None."
            )


@dataclass(frozen=True)
class RunConfig(train_config.RunConfig):
    """Where a search keeps its record, when trials stop, who watches. Trainers take it, too."""

    callbacks: Sequence[Any] | None = None
    """Who is told of what happens in the search (`Callback`); where a trainer gets this
    configuration, in its run (`UserCallback`).
    """

    verbose: int | None = None
    """0: silent, 1: the table, 2: and results, 3: and details; None: 1."""

    stop: Any = None
    """When a trial stops: `{"loss": 0.1, "training_iteration": 8}` (at or above), a function of id
    and result, or a `Stopper`.
    """

    progress_reporter: ProgressReporter | None = None
    """Who shows the search; the live table if not given."""

    log_to_file: bool | str | tuple[str, str] | None = None
    """Keep what trials print in files of their directories: True for `stdout` and `stderr`, a name
    for both, or two names.
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
                f"`log_to_file={log!r}` must be True, a file name, or two: for output and for errors."
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
                hint = ": give an instance, not the class" if isinstance(callback, type) else ""
                raise ValueError(f"`callbacks` contains {callback!r}, which is no Callback{hint}.")

    @property
    def log_files(self) -> tuple[str, str] | None:
        """Names of the files for what trials print."""
        log = self.log_to_file
        if isinstance(log, str):
            return log, log
        if isinstance(log, (tuple, list)):
            return log[0], log[1]
        return ("stdout", "stderr") if log else None


def _check_without(parent: Any, config: Any, *names: str) -> None:
    """The parent's checks, in which what means something only here is not deprecated."""
    values = {name: getattr(config, name) for name in names}
    for name in names:
        object.__setattr__(config, name, None)
    try:
        parent.__post_init__()
    finally:
        for name, value in values.items():
            object.__setattr__(config, name, value)
