"""`Trainable`: the class that a search trains step by step, saves, and restarts.

A trainable also works without a search: `Trainable(config)`, `train()`, `save()`, `restore()`,
`stop()`.

Covered: methods to override, keys that are filled into results, and checkpoints (with
`trainable_state`). Not covered: the process of a trainable (`workers/trial_runner.py`) and
functions (`function_trainable`).
"""

from __future__ import annotations

import copy
import logging
import os
import platform
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from syncline import settings
from syncline.core.engine import Engine
from syncline.core.lifecycle import ensure_engine, is_initialized
from syncline.train import metric_values
from syncline.train.backend import LOOPBACK
from syncline.train.checkpoint import Checkpoint
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.result import (
    CONFIG,
    DATE,
    DONE,
    HOSTNAME,
    NODE_IP,
    PID,
    SHOULD_CHECKPOINT,
    TIME_THIS_ITER_S,
    TIMESTAMP,
    TRAINING_ITERATION,
    TRIAL_ID,
    Config,
    Metrics,
)
from syncline.tune.trainable.trainable_state import (
    Clock,
    Progress,
    TrialInfo,
    read_state,
    write_state,
)

logger = logging.getLogger("syncline")

SLOW_SETUP_S = 10.0
"""Seconds of `setup` after which a hint about `reuse_actors` is logged."""


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """A checkpoint and its result: returned by `Trainable.save`, accepted by `restore`. Usable as a
    path (`os.path.join(result, …)`).
    """

    checkpoint: Checkpoint
    """The files."""
    metrics: Metrics
    """Last result before the save."""

    def __fspath__(self) -> str:
        return self.checkpoint.path


class Trainable:
    """Base class of trainables. Override `setup`, `step`, `save_checkpoint` and `load_checkpoint`,
    and the other hooks if needed.

    Methods are called by one thread at a time.

    Args:
        config: Parameters of the trial.
        info: The trial; None without a search.
        clock: Source of the time.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        info: TrialInfo | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.config: Config = dict(config or {})
        self._info = info or TrialInfo()
        self._clock = clock or Clock()
        self._progress = Progress()
        self._last_result: Metrics | None = None
        self._own_directory: str | None = None
        self._host = (node_address(), platform.node())
        began = self._clock.steady()
        self.setup(copy.deepcopy(self.config))
        took = self._clock.steady() - began
        if took > SLOW_SETUP_S:
            logger.info(
                "%s.setup took %.0f s. To pay for it once per process instead of once per trial, "
                "override `reset_config` and set `reuse_actors=True`.",
                type(self).__name__,
                took,
            )

    # -- to override

    def setup(self, config: Config) -> None:
        """Prepare for training. Called once with a copy of `self.config`, and with the arguments of
        `tune.with_parameters` by name.
        """

    def step(self) -> Metrics:
        """Train for one iteration and return its result. `done=True` ends the trial,
        `should_checkpoint=True` saves a checkpoint.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no `step`, so it cannot train: define `step(self)` and "
            "return a dictionary."
        )

    def save_checkpoint(self, checkpoint_dir: str) -> str | os.PathLike[str] | Config | None:
        """Write files into the directory and return None, or return a picklable dictionary.

        A path in the directory may be returned, too; `load_checkpoint` then gets that path in the
        current location of the directory.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no `save_checkpoint`, so it cannot be saved: define "
            "`save_checkpoint(self, checkpoint_dir)` and `load_checkpoint(self, checkpoint)`, or "
            "disable checkpoints with `CheckpointConfig(checkpoint_at_end=False)`."
        )

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Restore a checkpoint: the directory, or the value that `save_checkpoint` returned."""
        raise NotImplementedError(
            f"{type(self).__name__} has no `load_checkpoint`, so it cannot be restored: define "
            "`load_checkpoint(self, checkpoint)`."
        )

    def reset_config(self, new_config: Config) -> bool:
        """Prepare for another trial with `new_config` in the same process; return True on success.
        Required by `reuse_actors`.
        """
        return False

    def cleanup(self) -> None:
        """Release the resources of `setup`. Called by `stop`."""

    def log_result(self, result: Metrics) -> None:
        """Handle a complete result. May modify it."""

    @classmethod
    def default_resource_request(cls, config: Config) -> PlacementGroupFactory | None:
        """Return the resources of a trial with this configuration; None for the search's default,
        one CPU.
        """
        return None

    @classmethod
    def resource_help(cls, config: Config) -> str:
        """Return a help text about the resources of this trainable."""
        return ""

    def _export_model(self, export_formats: Sequence[str], export_dir: str) -> dict[str, str]:
        """Write the model in these formats; return their paths."""
        return {}

    # -- called by searches and programs

    def train(self) -> Metrics:
        """Run one iteration and return its result with all filled-in keys.

        Raises:
            TypeError: `step` returned no dictionary.
            Exception: The exception of `step`.
        """
        began = self._clock.steady()
        returned = self.step()
        if not isinstance(returned, Mapping):
            raise TypeError(
                f"{type(self).__name__}.step() returned {_shorten(returned)}, which is no "
                "dictionary: "
                'give the value a name, as in `return {"loss": loss}`.'
            )
        return self._complete(
            metric_values.clean({key: _plain(value) for key, value in returned.items()}), began
        )

    def train_buffered(self, buffer_time_s: float, max_buffer_length: int = 1000) -> list[Metrics]:
        """Call `train()` at least once and return the results. Stops when the time is over, the
        buffer is full, or a result has `done` or `should_checkpoint`.
        """
        results: list[Metrics] = []
        self.train_into(results, buffer_time_s, max_buffer_length)
        return results

    def train_into(
        self, results: list[Metrics], buffer_time_s: float, max_buffer_length: int
    ) -> None:
        """Append what `train_buffered` returns to an empty list, which keeps the results before an
        exception.
        """
        until = self._clock.steady() + buffer_time_s
        while not results or (self._clock.steady() < until and len(results) < max_buffer_length):
            result = self.train()
            results.append(result)
            if result.get(DONE) or result.get(SHOULD_CHECKPOINT):
                break

    def save(self, checkpoint_dir: str | os.PathLike[str] | None = None) -> TrainingResult:
        """Save a checkpoint into a directory, which is created if missing. By default it is a new
        temporary one, which the caller deletes.
        """
        directory = (
            os.path.abspath(checkpoint_dir)
            if checkpoint_dir
            else tempfile.mkdtemp(prefix="syncline-checkpoint-")
        )
        os.makedirs(directory, exist_ok=True)
        write_state(directory, self.save_checkpoint(directory), self._progress.totals())
        return TrainingResult(
            checkpoint=Checkpoint(directory), metrics=dict(self._last_result or {})
        )

    def restore(
        self, checkpoint_path: str | os.PathLike[str] | Checkpoint | TrainingResult
    ) -> None:
        """Restore a checkpoint: the value that `save` returned, or its current path.

        Raises:
            ValueError: The checkpoint does not exist.
        """
        checkpoint = as_checkpoint(checkpoint_path)
        try:
            with checkpoint.as_directory() as directory:
                found = read_state(directory)
                self.load_checkpoint(found.state)
        except FileNotFoundError as error:
            raise ValueError(
                f"{type(self).__name__} cannot be restored from {checkpoint!r}: {error}"
            ) from error
        self.continue_from(
            found.totals
            or (checkpoint_path.metrics if isinstance(checkpoint_path, TrainingResult) else {})
        )

    def continue_from(self, result: Metrics) -> None:
        """Continue the counters from `result`, which belongs to the restored checkpoint. No effect
        if it has no iteration.
        """
        if TRAINING_ITERATION in result:
            self._progress = Progress.after(result)

    def stop(self) -> None:
        """Clean up at the end of the trial."""
        self.cleanup()

    def reset(self, new_config: Mapping[str, object], *, info: TrialInfo | None = None) -> bool:
        """Prepare for another trial with `reset_config` and reset the counters; return True on
        success.
        """
        self.config = dict(new_config)
        self._info = info or TrialInfo()
        if not self.reset_config(self.config):
            return False
        self._progress = Progress()
        self._last_result = None
        return True

    def export_model(
        self, export_formats: Sequence[str] | str, export_dir: str | None = None
    ) -> dict[str, str]:
        """Write the model in other formats; return the paths of the supported ones."""
        formats = [export_formats] if isinstance(export_formats, str) else list(export_formats)
        return self._export_model(formats, export_dir or self.logdir)

    # -- state

    @property
    def iteration(self) -> int:
        """Number of results over all starts."""
        return self._progress.iteration

    @property
    def training_iteration(self) -> int:
        """Same as `iteration`."""
        return self._progress.iteration

    @property
    def time_total_s(self) -> float:
        """Seconds of training over all starts."""
        return self._progress.time_total_s

    @property
    def trial_id(self) -> str:
        """Id of the trial; "default" without a search."""
        return self._info.trial_id

    @property
    def trial_name(self) -> str:
        """Name of the trial; "default" without a search."""
        return self._info.trial_name

    @property
    def experiment_name(self) -> str:
        """Name of the search; "default" without a search."""
        return self._info.experiment_name

    @property
    def trial_resources(self) -> PlacementGroupFactory | None:
        """Reserved resources; None without a search."""
        return self._info.resources

    @property
    def logdir(self) -> str:
        """Directory of the trial on this machine. Without a search it is a temporary one, created
        on first access.
        """
        if self._info.trial_dir is not None:
            return self._info.trial_dir
        if self._own_directory is None:
            self._own_directory = tempfile.mkdtemp(
                prefix=f"{type(self).__name__}-", dir=_results_directory()
            )
        return self._own_directory

    def get_config(self) -> Config:
        """Return the parameters of the trial."""
        return self.config

    def get_current_ip_pid(self) -> tuple[str, int]:
        """Return address and process id of this trainable."""
        return self._host[0], os.getpid()

    def get_auto_filled_metrics(
        self,
        now: datetime | None = None,
        time_this_iter: float | None = None,
        timestamp: int | None = None,
        debug_metrics_only: bool = False,
    ) -> Metrics:
        """Return the keys that are filled into every result; with `debug_metrics_only`, without the
        counters.
        """
        now = now or datetime.fromtimestamp(self._clock.wall())
        filled = {
            TRIAL_ID: self.trial_id,
            DATE: now.strftime("%Y-%m-%d_%H-%M-%S"),
            TIMESTAMP: int(now.timestamp()) if timestamp is None else timestamp,
            PID: os.getpid(),
            HOSTNAME: self._host[1],
            NODE_IP: self._host[0],
            CONFIG: self.config,
        }
        if debug_metrics_only:
            return filled
        return {TIME_THIS_ITER_S: time_this_iter, **self._progress.filled(), **filled}

    def _complete(self, result: Metrics, began: float) -> Metrics:
        self._progress.count(result, self._clock.steady() - began)
        result.setdefault(DONE, False)
        result.update(
            self.get_auto_filled_metrics(
                time_this_iter=result[TIME_THIS_ITER_S], timestamp=result.get(TIMESTAMP)
            )
        )
        self.log_result(result)
        self._last_result = result
        return result


def as_checkpoint(given: str | os.PathLike[str] | Checkpoint | TrainingResult) -> Checkpoint:
    """Return the checkpoint in an argument of `restore`."""
    if isinstance(given, TrainingResult):
        return given.checkpoint
    return given if isinstance(given, Checkpoint) else Checkpoint(given)


def _plain(value: object) -> object:
    """Convert an array or tensor without dimensions to a number."""
    item = getattr(value, "item", None)
    return item() if item is not None and getattr(value, "ndim", None) == 0 else value


_addresses: weakref.WeakKeyDictionary[Engine, str] = weakref.WeakKeyDictionary()


def node_address() -> str:
    """Return the address of this process's node; the engine is asked once."""
    if not is_initialized():
        return LOOPBACK
    engine = ensure_engine()
    address = _addresses.get(engine)
    if address is None:
        address = _addresses[engine] = engine.node_address()
    return address


def _results_directory() -> str:
    """Return the parent of directories of trainables without a search."""
    directory = settings.local_path(settings.storage_path())
    os.makedirs(directory, exist_ok=True)
    return directory


def _shorten(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
