"""`Trainable`: the class that a search trains step by step, checkpoints, and starts again.

A trainable can be used alone, without a search: `Trainable(config)`, `train()`, `save()`,
`restore()`, `stop()`.

Covered: the methods to override, the counters and facts that are filled into results, and what a
checkpoint consists of (with `saved`). Not covered: the process that hosts a trainable
(`workers/runner.py`), and functions (`function_trainable`).
"""

from __future__ import annotations

import copy
import logging
import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from syncline import settings
from syncline.core.lifecycle import ensure_engine, is_initialized
from syncline.train import metrics as metric_values
from syncline.train.addresses import LOOPBACK
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
)
from syncline.tune.trainable import saved
from syncline.tune.trainable.facts import Clock, TrialFacts
from syncline.tune.trainable.progress import Progress

logger = logging.getLogger("syncline")

SLOW_SETUP_S = 10.0
"""A `setup` that takes longer is worth a word about `reuse_actors`."""


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """What `Trainable.save` returns and `restore` takes; also good as a path (`os.path.join(result,
    …)`).
    """

    checkpoint: Checkpoint
    """Where the files lie."""
    metrics: dict[str, Any]
    """The result that they belong to."""

    def __fspath__(self) -> str:
        return self.checkpoint.path


class Trainable:
    """Base of what a search trains. Override `setup`, `step`, `save_checkpoint` and
    `load_checkpoint`; the rest if there is need.

    One thread at a time calls its methods.

    Args:
        config: The trial's parameters.
        facts: The trial that this is; a trainable that is used alone needs none.
        clock: Where the time is read.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        facts: TrialFacts | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.config: dict[str, Any] = dict(config or {})
        self._facts = facts or TrialFacts()
        self._clock = clock or Clock()
        self._progress = Progress()
        self._last_result: dict[str, Any] | None = None
        self._own_directory: str | None = None
        self._host = (_node_address(), platform.node())
        began = self._clock.steady()
        self.setup(copy.deepcopy(self.config))
        took = self._clock.steady() - began
        if took > SLOW_SETUP_S:
            logger.info(
                "%s.setup took %.0f s: where every trial pays for that, override `reset_config` and set `reuse_actors=True`.",
                type(self).__name__,
                took,
            )

    # -- what subclasses override

    def setup(self, config: dict[str, Any]) -> None:
        """Make ready to train; called once, with a copy of `self.config`, and with the arguments of
        `tune.with_parameters` by name.
        """

    def step(self) -> dict[str, Any]:
        """Train for one iteration and return its result. `done=True` in it ends the trial,
        `should_checkpoint=True` saves it now.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no `step`, so it cannot train: define `step(self)`, returning a dictionary."
        )

    def save_checkpoint(
        self, checkpoint_dir: str
    ) -> str | os.PathLike[str] | dict[str, Any] | None:
        """Write what `load_checkpoint` needs into the directory and return None, or return a
        dictionary that can be pickled.

        A path in the directory may be returned too: `load_checkpoint` then gets that path, wherever
        the directory is by then.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no `save_checkpoint`, so it cannot be saved: define `save_checkpoint(self, checkpoint_dir)` and "
            "`load_checkpoint(self, checkpoint)`, or search without checkpoints (`CheckpointConfig(checkpoint_at_end=False)`)."
        )

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Become what was saved: gets the directory, or whatever `save_checkpoint` returned in its
        place.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no `load_checkpoint`, so it cannot go on from one: define `load_checkpoint(self, checkpoint)`."
        )

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Become another trial, with `new_config`, in the same process; return whether that was
        possible. `reuse_actors` needs it.
        """
        return False

    def cleanup(self) -> None:
        """Let go of what `setup` took; called by `stop`."""

    def log_result(self, result: dict[str, Any]) -> None:
        """A result is complete. It may be changed here."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory | None:
        """What a trial with this configuration holds while it runs; None: one CPU, or what the
        search says.
        """
        return None

    @classmethod
    def resource_help(cls, config: dict[str, Any]) -> str:
        """A word to people about the resources of this trainable."""
        return ""

    def _export_model(self, export_formats: Sequence[str], export_dir: str) -> dict[str, str]:
        """Write the model in these formats; return the path of each."""
        return {}

    # -- what searches and programs call

    def train(self) -> dict[str, Any]:
        """One iteration. Returns the result of `step` with the counters and facts filled in.

        Raises:
            TypeError: `step` returned no dictionary.
            Exception: what `step` raises.
        """
        began = self._clock.steady()
        returned = self.step()
        if not isinstance(returned, Mapping):
            raise TypeError(
                f"{type(self).__name__}.step() returned {_shorten(returned)}, and a result is a dictionary: give the value a name, as in "
                'return {"loss": loss}.'
            )
        return self._complete(
            metric_values.clean({key: _plain(value) for key, value in returned.items()}), began
        )

    def train_buffered(
        self, buffer_time_s: float, max_buffer_length: int = 1000
    ) -> list[dict[str, Any]]:
        """`train()` again and again, at least once: until the time is over, the list is full, or a
        result is the last or needs saving.
        """
        until = self._clock.steady() + buffer_time_s
        results: list[dict[str, Any]] = []
        while not results or (self._clock.steady() < until and len(results) < max_buffer_length):
            result = self.train()
            results.append(result)
            if result.get(DONE) or result.get(SHOULD_CHECKPOINT):
                break
        return results

    def save(self, checkpoint_dir: str | os.PathLike[str] | None = None) -> TrainingResult:
        """Save a checkpoint of now into a directory, made if need be; into a new temporary one,
        which the caller deletes, if None.
        """
        directory = (
            os.path.abspath(checkpoint_dir)
            if checkpoint_dir
            else tempfile.mkdtemp(prefix="syncline-checkpoint-")
        )
        os.makedirs(directory, exist_ok=True)
        saved.write(directory, self.save_checkpoint(directory), self._progress.totals())
        return TrainingResult(
            checkpoint=Checkpoint(directory), metrics=dict(self._last_result or {})
        )

    def restore(
        self, checkpoint_path: str | os.PathLike[str] | Checkpoint | TrainingResult
    ) -> None:
        """Go on from a checkpoint: what `save` returned, or where that lies now.

        Raises:
            ValueError: there is no such checkpoint.
        """
        checkpoint = as_checkpoint(checkpoint_path)
        try:
            with checkpoint.as_directory() as directory:
                found = saved.read(directory)
                self.load_checkpoint(found.state)
        except FileNotFoundError as error:
            raise ValueError(
                f"{type(self).__name__} cannot go on from {checkpoint!r}: {error}"
            ) from error
        self.continue_from(
            found.totals
            or (checkpoint_path.metrics if isinstance(checkpoint_path, TrainingResult) else {})
        )

    def continue_from(self, result: Mapping[str, Any]) -> None:
        """Count on from `result`, which belongs to the checkpoint that was restored. Nothing
        changes if it counts nothing.
        """
        if TRAINING_ITERATION in result:
            self._progress = Progress.after(result)

    def stop(self) -> None:
        """The trial is over: clean up."""
        self.cleanup()

    def reset(self, new_config: Mapping[str, Any], *, facts: TrialFacts | None = None) -> bool:
        """Become another trial: True if `reset_config` could do that. The counters begin anew."""
        self.config = dict(new_config)
        self._facts = facts or TrialFacts()
        if not self.reset_config(self.config):
            return False
        self._progress = Progress()
        self._last_result = None
        return True

    def export_model(
        self, export_formats: Sequence[str] | str, export_dir: str | None = None
    ) -> dict[str, str]:
        """Have the model written in other formats; returns the path of each that could be."""
        formats = [export_formats] if isinstance(export_formats, str) else list(export_formats)
        return self._export_model(formats, export_dir or self.logdir)

    # -- facts

    @property
    def iteration(self) -> int:
        """How many results there were, over all starts."""
        return self._progress.iteration

    @property
    def training_iteration(self) -> int:
        """As `iteration`."""
        return self._progress.iteration

    @property
    def time_total_s(self) -> float:
        """How long training took, over all starts."""
        return self._progress.time_total_s

    @property
    def trial_id(self) -> str:
        """The trial's id; "default" without a search."""
        return self._facts.trial_id

    @property
    def trial_name(self) -> str:
        """The trial's name; "default" without a search."""
        return self._facts.trial_name

    @property
    def experiment_name(self) -> str:
        """The search's name; "default" without a search."""
        return self._facts.experiment_name

    @property
    def trial_resources(self) -> PlacementGroupFactory | None:
        """What the trial holds; None without a search."""
        return self._facts.resources

    @property
    def logdir(self) -> str:
        """The trial's directory on this machine; without a search, a temporary one that is made
        when it is first asked for.
        """
        if self._facts.trial_dir is not None:
            return self._facts.trial_dir
        if self._own_directory is None:
            self._own_directory = tempfile.mkdtemp(
                prefix=f"{type(self).__name__}-", dir=_results_directory()
            )
        return self._own_directory

    def get_config(self) -> dict[str, Any]:
        """The trial's parameters."""
        return self.config

    def get_current_ip_pid(self) -> tuple[str, int]:
        """Where this trainable is."""
        return self._host[0], os.getpid()

    def get_auto_filled_metrics(
        self,
        now: datetime | None = None,
        time_this_iter: float | None = None,
        timestamp: int | None = None,
        debug_metrics_only: bool = False,
    ) -> dict[str, Any]:
        """The facts that every result has; `debug_metrics_only` leaves out how far the trial is."""
        now = now or datetime.fromtimestamp(self._clock.wall())
        facts = {
            TRIAL_ID: self.trial_id,
            DATE: now.strftime("%Y-%m-%d_%H-%M-%S"),
            TIMESTAMP: int(now.timestamp()) if timestamp is None else timestamp,
            PID: os.getpid(),
            HOSTNAME: self._host[1],
            NODE_IP: self._host[0],
            CONFIG: self.config,
        }
        if debug_metrics_only:
            return facts
        return {TIME_THIS_ITER_S: time_this_iter, **self._progress.filled(), **facts}

    def _complete(self, result: dict[str, Any], began: float) -> dict[str, Any]:
        """One more result; the counters and facts are filled into it."""
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
    """What `restore` was given, as a checkpoint."""
    if isinstance(given, TrainingResult):
        return given.checkpoint
    return given if isinstance(given, Checkpoint) else Checkpoint(given)


def _plain(value: Any) -> Any:
    """An array or tensor of no dimensions as its number; everything else as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def _node_address() -> str:
    return ensure_engine().node_address() if is_initialized() else LOOPBACK


def _results_directory() -> str:
    """Where trainables that are used alone keep their files."""
    directory = settings.local_path(settings.storage_path())
    os.makedirs(directory, exist_ok=True)
    return directory


def _shorten(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
