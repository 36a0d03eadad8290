"""`Trial`: configuration, status and results of one trial; `MetricSummary`: running statistics of
one metric.

Only the controller changes a trial; schedulers, callbacks and reporters read it. Trials are
picklable: snapshots of a search contain them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from syncline.core.error_frames import unpack_error
from syncline.train import metric_values
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import CheckpointConfig
from syncline.train.controller.checkpoint_manager import CheckpointManager
from syncline.train.storage.context import StorageContext
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.result import CONFIG, TRAINING_ITERATION, Config, Metrics

RECENT = 10
"""Number of values in a metric's recent average."""
_FEW = 5

SummaryState: TypeAlias = tuple[float, float, float, float, int, tuple[float, ...]]
"""(high, low, average, last, count, recent values)."""
_Summary: TypeAlias = "float | SummaryState | MetricSummary"
"""A single value, the state of an unpickled summary, or a summary."""


class MetricSummary:
    """Extremes and averages of one metric over a trial. NaN counts in `last` and the recent
    averages only.
    """

    __slots__ = ("average", "count", "high", "last", "low", "recent")

    def __init__(self) -> None:
        self.high = self.low = self.average = self.last = float("nan")
        self.count = 0
        self.recent: list[float] = []  # a deque takes 600 bytes, and a trial has many summaries

    def add(self, value: float) -> None:
        """Add the latest value."""
        self.last = value
        self.recent.append(value)
        if len(self.recent) > RECENT:
            del self.recent[0]
        if value != value:
            return
        self.count += 1
        if self.count == 1:
            self.high = self.low = self.average = value
            return
        self.high = value if value > self.high else self.high
        self.low = value if value < self.low else self.low
        self.average += (value - self.average) / self.count

    def as_tuple(self) -> SummaryState:
        """Return the state for `of`."""
        return self.high, self.low, self.average, self.last, self.count, tuple(self.recent)

    @classmethod
    def of(cls, values: float | SummaryState) -> MetricSummary:
        """Return the summary of a single value, or rebuild one from `as_tuple`."""
        summary = cls()
        if not isinstance(values, tuple):
            summary.add(values)
            return summary
        summary.high, summary.low, summary.average, summary.last, summary.count, recent = values
        summary.recent.extend(recent)
        return summary

    def as_dict(self) -> dict[str, float]:
        """Return the statistics under Ray's names."""
        recent = self.recent
        few = recent[-_FEW:]
        return {
            "max": self.high,
            "min": self.low,
            "avg": self.average,
            "last": self.last,
            f"last-{_FEW}-avg": sum(few) / len(few),
            f"last-{RECENT}-avg": sum(recent) / len(recent),
        }


class Trial:
    """One trial of a search.

    Args:
        trial_id: Short id, unique in the search.
        index: Number of the trial in the search, from 0.
        trainable_name: Name of the trainable.
        config: Resolved configuration that the trainable gets.
        evaluated_params: Values drawn from the search space, by flat key (`a/b`).
        experiment_tag: Number and parameters, `3_lr=0.1,momentum=0.9`.
        placement_group_factory: Resources that the trial reserves.
        storage: Directory of the trial.
        checkpoint_config: Retention of checkpoints.
        name: Display name; trainable name and id by default.
    """

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    TERMINATED = "TERMINATED"
    ERROR = "ERROR"

    _exception: BaseException | None
    _error: bytes | None

    def __init__(
        self,
        *,
        trial_id: str,
        index: int,
        trainable_name: str,
        config: Config,
        evaluated_params: Config,
        experiment_tag: str,
        placement_group_factory: PlacementGroupFactory,
        storage: StorageContext,
        checkpoint_config: CheckpointConfig,
        name: str | None = None,
    ) -> None:
        self.trial_id = trial_id
        self.index = index
        self.trainable_name = trainable_name
        self.config = config
        self.evaluated_params = evaluated_params
        self.experiment_tag = experiment_tag
        self.placement_group_factory = placement_group_factory
        self.storage = storage
        self.custom_trial_name = name
        self._clear(checkpoint_config)

    def _clear(self, checkpoint_config: CheckpointConfig) -> None:
        """Set everything that changes while a trial runs to its initial value."""
        self.status = Trial.PENDING
        self.last_result: Metrics = {}
        self.clear_failures()
        self.start_time: float | None = None
        """Time of the first start, in seconds since the epoch."""
        self.location = ""
        """`ip:pid` of the trial's process while it runs."""
        self.restored_iteration = 0
        """Iteration from which the latest start continued; 0 from scratch."""
        self.checkpoints = CheckpointManager(checkpoint_config)
        self.next_checkpoint_index = 0
        # A search has many summaries, and most trials that report once: an object for each of
        # them takes ten times as much memory, and time to pickle.
        self._summaries: dict[str, _Summary] = {}

    # -- read by schedulers, callbacks and reporters

    @property
    def name(self) -> str:
        """Display name."""
        return self.custom_trial_name or f"{self.trainable_name}_{self.trial_id}"

    @property
    def path(self) -> str:
        """Directory of the trial, a path on the storage's filesystem."""
        return self.storage.experiment_fs_path

    @property
    def local_path(self) -> str | None:
        """Directory of the trial on this machine; None if the storage is remote."""
        return self.path if self.storage.local else None

    @property
    def local_dir(self) -> str | None:
        """Older name of `local_path`."""
        return self.local_path

    @property
    def logdir(self) -> str | None:
        """Older name of `local_path`."""
        return self.local_path

    @property
    def relative_logdir(self) -> str:
        """Name of the trial's directory in the experiment directory."""
        return self.storage.experiment_dir_name

    @property
    def checkpoint(self) -> Checkpoint | None:
        """Latest checkpoint."""
        latest = self.checkpoints.latest
        return latest.checkpoint if latest is not None else None

    @property
    def exception(self) -> BaseException | None:
        """Exception that ended the trial. It is kept serialized and rebuilt on the first access,
        because that runs code of the user.
        """
        if self._exception is None and self._error is not None:
            self._exception = unpack_error(self._error)
        return self._exception

    @property
    def metric_analysis(self) -> dict[str, dict[str, float]]:
        """Statistics by metric (`a/b` if nested): max, min, avg, last, last-5-avg, last-10-avg."""
        return {key: _opened(summary).as_dict() for key, summary in self._summaries.items()}

    def summary(self, metric: str) -> dict[str, float] | None:
        """Return `metric_analysis` of one metric; None if no number was reported for it."""
        summary = self._summaries.get(metric)
        return _opened(summary).as_dict() if summary is not None else None

    def is_finished(self) -> bool:
        """Return True if the trial terminated or failed."""
        return self.status in (Trial.TERMINATED, Trial.ERROR)

    @property
    def has_reported_at_least_once(self) -> bool:
        """True if the trial has a result."""
        return bool(self.last_result)

    @property
    def iteration(self) -> int:
        """Iteration of the latest result."""
        return int(self.last_result.get(TRAINING_ITERATION, 0))

    @property
    def checkpoint_iteration(self) -> int:
        """Iteration of the latest checkpoint; 0 without one."""
        latest = self.checkpoints.latest
        return int(latest.metrics.get(TRAINING_ITERATION, 0)) if latest is not None else 0

    # -- called by the controller

    def record_result(self, result: Mapping[str, object]) -> None:
        """Record the latest result."""
        self.last_result = dict(result)
        for key, value in result.items():
            if type(value) is float or type(value) is int:
                self._summarize(key, value)
            elif isinstance(value, Mapping) and key != CONFIG:
                for inner, number in metric_values.flatten({key: value}).items():
                    if isinstance(number, (int, float)) and not isinstance(number, bool):
                        self._summarize(inner, number)

    def record_checkpoint(
        self, checkpoint: Checkpoint, metrics: Mapping[str, object]
    ) -> list[Checkpoint]:
        """Record the latest checkpoint; return the checkpoints that retention discards."""
        index = self.next_checkpoint_index
        self.next_checkpoint_index += 1
        return self.checkpoints.register(index, checkpoint, metrics)

    def set_error(self, error: bytes, text: str) -> None:
        """Record the final failure: the exception, packed by `pack_error`, and its traceback."""
        self._exception, self._error = None, error
        self.error_text = text

    def clear_failures(self) -> None:
        """Discard failures and the reason for an early end."""
        self._exception = self._error = None
        self.error_text = ""
        """Traceback of the last failure, the user's frames last."""
        self.num_failures = 0
        self.stopped_by: Literal["", "scheduler", "search"] = ""
        """Reason for an early end: the scheduler, or the end of the search."""

    def reset(self, checkpoint_config: CheckpointConfig) -> list[Checkpoint]:
        """Discard results, checkpoints and failures; return the checkpoints to delete."""
        checkpoints = [entry.checkpoint for entry in self.checkpoints.registered]
        self._clear(checkpoint_config)
        return checkpoints

    def relocate(self, storage: StorageContext, moved: Callable[[Checkpoint], Checkpoint]) -> None:
        """Set the directory after it was moved; `moved` maps old checkpoints to new ones."""
        self.storage = storage
        self.checkpoints.move(moved)

    def __getstate__(self) -> dict[str, object]:
        # Tuples pickle ten times faster than objects. The exception travels in `_error` only: many
        # exceptions pickle but cannot be rebuilt.
        summaries = {
            key: summary.as_tuple() if type(summary) is MetricSummary else summary
            for key, summary in self._summaries.items()
        }
        return {**self.__dict__, "_summaries": summaries, "_exception": None}

    def _summarize(self, key: str, value: float) -> None:
        known = self._summaries.get(key)
        if known is None:
            self._summaries[key] = value
            return
        summary = self._summaries[key] = _opened(known)
        summary.add(value)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Trial({self.name}, {self.status})"


def _opened(summary: _Summary) -> MetricSummary:
    return summary if isinstance(summary, MetricSummary) else MetricSummary.of(summary)
