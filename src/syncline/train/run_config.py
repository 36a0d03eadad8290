"""Configuration of a run (`RunConfig`) and its callbacks (`UserCallback`).

The methods of a callback are called one at a time:

    on_run_start      once, before anything starts
    on_report         for every report of rank 0
    after_report      for every round, when all ranks have reported
    after_exception   after workers have failed; training may restart, and reports continue
    on_run_end        once, at the end of the run (unless the program is killed)

Callbacks observe: they cannot change reports or errors. An exception of a callback is a failure of
the controller and ends the run, except one of `on_run_end`, which is logged. Callbacks run in the
process of the controller: the program that called `fit()`, or on a cluster the run's actor, which
gets a copy of them.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pyarrow import fs as pyarrow_fs

from syncline import settings
from syncline.storage.run_names import checked_run_name
from syncline.suggestions import suggest_arguments
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import (
    CheckpointConfig,
    FailureConfig,
    LoggingConfig,
    SyncConfig,
    warn_deprecated,
)
from syncline.train.result import Result
from syncline.train.snapshots.config import SnapshotConfig


@dataclass(frozen=True, kw_only=True)
class RunStart:
    """Facts about a run that starts."""

    path: str
    """Run directory, a path on the filesystem of the run's storage."""

    config: Mapping[str, Any]
    """`train_loop_config` in plain values; other objects as descriptions, secrets as `***`."""

    next_step: int
    """Step of the next report: 0 in a new run, else the highest reported step plus one."""


class UserCallback:
    """Override the methods of interest; by default they do nothing.

    The methods run one at a time, so they may keep state. A slow one delays the run.
    """

    def on_run_start(self, run_context: RunConfig, start: RunStart) -> None:
        """Handle the start of a run. An exception ends the run as a `ControllerError`.

        Args:
            run_context: The run's configuration (`.name`, `.storage_path`, …).
            start: Facts about the run.
        """

    def on_report(self, run_context: RunConfig, step: int, metrics: dict[str, Any]) -> None:
        """Handle a report of rank 0, before other ranks report and before a checkpoint is
        committed.

        Args:
            run_context: The run's configuration.
            step: Number from 0; a report repeated after a restart has the same step.
            metrics: Metrics of rank 0.
        """

    def after_report(
        self, run_context: RunConfig, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """Handle a round: reports of every rank.

        Args:
            run_context: The run's configuration.
            metrics: One dictionary per rank, in rank order.
            checkpoint: Committed checkpoint of the round, if any.
        """

    def after_exception(
        self, run_context: RunConfig, worker_exceptions: dict[int, Exception]
    ) -> None:
        """Handle failures of workers, before the group restarts or the run ends.

        Args:
            run_context: The run's configuration.
            worker_exceptions: Exception by failed rank.
        """

    def on_run_end(
        self, run_context: RunConfig, result: Result | None, error: BaseException | None
    ) -> None:
        """Handle the end of the run, after its outcome was recorded.

        Args:
            run_context: The run's configuration.
            result: Result of `fit()` without `return_value`; None if the run did not finish.
            error: Exception of `fit()`: a `TrainingFailedError`, or one that interrupted the run,
                such as KeyboardInterrupt.
        """


@suggest_arguments
@dataclass(frozen=True)
class RunConfig:
    """Storage of a run, and its handling of failures, checkpoints and logs."""

    name: str | None = None
    """Name of the run and of its directory under `storage_path`; by default made from the time.
    Reuse a name to continue that run; see `on_conflict`.
    """

    storage_path: str | os.PathLike[str] | None = None
    """Directory or URI that contains run directories, made absolute. Default: SYNCLINE_STORAGE_PATH
    or `~/syncline_results`.
    """

    storage_filesystem: pyarrow_fs.FileSystem | None = None
    """Filesystem of `storage_path`; by default derived from it."""

    failure_config: FailureConfig | None = None
    """Retries after failures; none by default."""

    checkpoint_config: CheckpointConfig | None = None
    """Retention of checkpoints; all by default."""

    callbacks: Sequence[UserCallback] | None = None
    """Callbacks for reports and failures."""

    worker_runtime_env: dict[str, Any] | None = None
    """Runtime environment of the workers: `env_vars`, `working_dir`, `py_modules`."""

    logging_config: LoggingConfig | None = None
    """Logging of the run."""

    sync_config: SyncConfig | None = None
    """Deprecated and ignored."""

    verbose: int | None = None
    """0: display only warnings and errors, as with a log level above INFO. 1, 2, 3 and None: a
    panel in terminals and notebooks, a few lines elsewhere.
    """

    stop: object = None
    """Deprecated and ignored by trainers: stop in the training function."""

    progress_reporter: object = None
    """Deprecated and ignored."""

    log_to_file: bool | str | tuple[str, str] | None = None
    """Deprecated and ignored: the run directory always has the output of the workers."""

    on_conflict: Literal["error", "takeover", "new"] = "error"
    """Treatment of a name that is taken. Interrupted and failed runs are continued, and a training
    that has finished with the same configuration returns its result, except with "takeover", which
    continues it, too. A run in progress is an error, or stopped with "takeover". With "new", the
    run always gets the next free name: NAME-2, NAME-3, …
    """

    snapshot: SnapshotConfig | None = None
    """Automatic memory snapshots; none by default. See `train.snapshot` for snapshots by calls."""

    flops_per_step: float | None = None
    """Floating-point operations of one step of all workers together, where a step lasts from one
    report of rank 0 to the next. The page of the run then shows the model's FLOP/s.
    """

    peak_flops_per_s: float | None = None
    """Floating-point operations per second that the device of one worker can do. With
    `flops_per_step`, the page of the run then shows the model FLOP/s utilization (MFU).
    """

    def __post_init__(self) -> None:
        for name in ("flops_per_step", "peak_flops_per_s"):
            given = getattr(self, name)
            if given is not None and not (isinstance(given, (int, float)) and given > 0):
                raise ValueError(f"`{name}={given!r}` must be a positive number or None.")
        for name in ("sync_config", "stop", "progress_reporter", "log_to_file"):
            if getattr(self, name) is not None:
                warn_deprecated(f"RunConfig({name}=…) is deprecated and ignored by trainers.")
        for name, kind in (
            ("storage_filesystem", pyarrow_fs.FileSystem),
            ("failure_config", FailureConfig),
            ("checkpoint_config", CheckpointConfig),
            ("worker_runtime_env", dict),
            ("logging_config", LoggingConfig),
            ("snapshot", SnapshotConfig),
        ):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise ValueError(
                    f"`{name}={value!r}` is a {type(value).__name__}, but must be a "
                    f"{kind.__name__} or None."
                )
        if self.on_conflict not in ("error", "takeover", "new"):
            raise ValueError(
                f"`on_conflict={self.on_conflict!r}` must be 'error', 'takeover' or 'new'."
            )
        if self.verbose not in (None, 0, 1, 2, 3):
            raise ValueError(f"`verbose={self.verbose!r}` must be 0, 1, 2 or 3.")
        self._check_callbacks()
        run_name = self.name
        if run_name is None:
            run_name = generate_run_name(time.time(), secrets.token_hex(3))
        checked_run_name(run_name, f"`name={run_name!r}`")
        for field_name, filled in (
            ("failure_config", self.failure_config or FailureConfig()),
            ("checkpoint_config", self.checkpoint_config or CheckpointConfig()),
            ("logging_config", self.logging_config or LoggingConfig()),
            ("storage_path", _absolute_storage_path(self.storage_path, self.storage_filesystem)),
            ("name", run_name),
        ):
            object.__setattr__(self, field_name, filled)

    def _check_callbacks(self) -> None:
        if not isinstance(self.callbacks, (list, tuple, type(None))):
            raise ValueError(
                f"`callbacks={self.callbacks!r}` must be a list of UserCallback objects."
            )
        for callback in self.callbacks or ():
            if not isinstance(callback, UserCallback):
                hint = ": pass an instance, not the class" if isinstance(callback, type) else ""
                raise ValueError(
                    f"`callbacks` contains {callback!r}, which is not a UserCallback{hint}."
                )


def generate_run_name(now_s: float, suffix: str) -> str:
    """Return the default name of a run: local time, and a suffix for starts in the same second."""
    return f"train_run-{time.strftime('%Y-%m-%d_%H-%M-%S', time.localtime(now_s))}-{suffix}"


def _absolute_storage_path(
    path: str | os.PathLike[str] | None, filesystem: pyarrow_fs.FileSystem | None
) -> str:
    if path is not None and not isinstance(path, (str, os.PathLike)):
        raise ValueError(f"`storage_path={path!r}` must be a directory or a URI.")
    text = settings.storage_path() if path is None else os.fspath(path)
    if not text:
        raise ValueError(
            "`storage_path=''` is empty: pass a directory, or None for ~/syncline_results."
        )
    if "://" in text or (
        filesystem is not None and not isinstance(filesystem, pyarrow_fs.LocalFileSystem)
    ):
        return text
    return settings.local_path(text)
