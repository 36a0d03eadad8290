"""`Trial`: what the program knows of one trial, and `MetricSummary`, what it keeps of each metric.

A trial is changed by the controller only; schedulers, callbacks and reporters read it. It can be
pickled whole: snapshots of a search hold its trials.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Literal

from syncline.core.error_frames import pack_error, unpack_error
from syncline.train import metrics as metric_values
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import CheckpointConfig
from syncline.train.controller.checkpoints import CheckpointManager
from syncline.train.storage import StorageContext
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.result import CONFIG, DONE, TRAINING_ITERATION

RECENT = 10
"""So many values of a metric are kept for its recent average."""
_FEW = 5


class MetricSummary:
    """Extremes and averages of one metric over a trial; not-a-number counts in none of them but
    `last`.
    """

    __slots__ = ("average", "count", "high", "last", "low", "recent")

    def __init__(self) -> None:
        self.high = self.low = self.average = self.last = float("nan")
        self.count = 0
        self.recent: deque[float] = deque(maxlen=RECENT)

    def add(self, value: float) -> None:
        """Take a further value in."""
        self.last = value
        self.recent.append(value)
        if value != value:
            return
        self.count += 1
        if self.count == 1:
            self.high = self.low = self.average = value
            return
        self.high = value if value > self.high else self.high
        self.low = value if value < self.low else self.low
        self.average += (value - self.average) / self.count

    def as_tuple(self) -> tuple[Any, ...]:
        """What `of` makes one like this of."""
        return self.high, self.low, self.average, self.last, self.count, tuple(self.recent)

    @classmethod
    def of(cls, values: tuple[Any, ...]) -> MetricSummary:
        """The one whose `as_tuple` gave `values`."""
        summary = cls()
        summary.high, summary.low, summary.average, summary.last, summary.count, recent = values
        summary.recent.extend(recent)
        return summary

    def as_dict(self) -> dict[str, float]:
        """Under Ray's names."""
        recent = list(self.recent)
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
    """One trial: its configuration, its state, and what came of it so far.

    Args:
        trial_id: Short and unique in the search.
        index: Its number in the search, from 0.
        trainable_name: The trainable's name.
        config: What the trainable gets, resolved.
        evaluated_params: What the search space gave, by flat key (`a/b`).
        experiment_tag: Number and parameters, `3_lr=0.1,momentum=0.9`.
        placement_group_factory: What it holds while it runs.
        storage: Its place in the experiment directory.
        checkpoint_config: Which of its checkpoints are kept.
        name: What people call it; made from the trainable's name and the id if not given.
    """

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    TERMINATED = "TERMINATED"
    ERROR = "ERROR"

    def __init__(
        self,
        *,
        trial_id: str,
        index: int,
        trainable_name: str,
        config: dict[str, Any],
        evaluated_params: dict[str, Any],
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
        self.status = Trial.PENDING
        self.last_result: dict[str, Any] = {}
        self.exception: BaseException | None = None
        self.error_text = ""
        """The traceback of the last failure, the user's frames last."""
        self.num_failures = 0
        self.stopped_by: Literal["", "scheduler", "search"] = ""
        """Who ended it before its time: the scheduler, or the search, which ended itself."""
        self.start_time: float | None = None
        """When it first ran, in seconds since the epoch."""
        self.location = ""
        """`ip:pid` of its process while it runs."""
        self.restored_iteration = 0
        """The iteration from which its latest start went on; 0 from scratch."""
        self.checkpoints = CheckpointManager(checkpoint_config)
        self.next_checkpoint_index = 0
        self._summaries: dict[str, MetricSummary] = {}

    # -- what others read

    @property
    def name(self) -> str:
        """What people call it."""
        return self.custom_trial_name or f"{self.trainable_name}_{self.trial_id}"

    @property
    def path(self) -> str:
        """The trial's directory, a path on the storage's filesystem."""
        return self.storage.experiment_fs_path

    @property
    def local_path(self) -> str | None:
        """The trial's directory on this machine; None if it lies elsewhere."""
        return self.path if self.storage.local else None

    @property
    def local_dir(self) -> str | None:
        """As `local_path`; older programs say so."""
        return self.local_path

    @property
    def logdir(self) -> str | None:
        """As `local_path`; older programs say so."""
        return self.local_path

    @property
    def relative_logdir(self) -> str:
        """The trial's directory below that of the experiment."""
        return self.storage.experiment_dir_name

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The latest one."""
        latest = self.checkpoints.latest
        return latest.checkpoint if latest is not None else None

    @property
    def metric_analysis(self) -> dict[str, dict[str, float]]:
        """For each number ever reported (`a/b` if nested): max, min, avg, last, last-5-avg,
        last-10-avg.
        """
        return {key: summary.as_dict() for key, summary in self._summaries.items()}

    def summary(self, metric: str) -> dict[str, float] | None:
        """`metric_analysis` of one metric; None if it never was a number."""
        summary = self._summaries.get(metric)
        return summary.as_dict() if summary is not None else None

    def is_finished(self) -> bool:
        """Whether it has ended, well or not."""
        return self.status in (Trial.TERMINATED, Trial.ERROR)

    @property
    def has_reported_at_least_once(self) -> bool:
        """Whether there is a result."""
        return bool(self.last_result)

    # -- what the controller does

    def take_result(self, result: Mapping[str, Any]) -> None:
        """`result` is the latest."""
        self.last_result = dict(result)
        for key, value in result.items():
            if type(value) is float or type(value) is int:
                self._summarize(key, value)
            elif isinstance(value, Mapping) and key != CONFIG:
                for inner, number in metric_values.flatten({key: value}).items():
                    if isinstance(number, (int, float)) and not isinstance(number, bool):
                        self._summarize(inner, number)

    def take_checkpoint(
        self, checkpoint: Checkpoint, metrics: Mapping[str, Any]
    ) -> list[Checkpoint]:
        """`checkpoint` is the latest; returns those that need not be kept any more."""
        index = self.next_checkpoint_index
        self.next_checkpoint_index += 1
        return self.checkpoints.register(index, checkpoint, metrics)

    def begin_at(self, iteration: int) -> None:
        """Its next start goes on from `iteration`."""
        self.restored_iteration = iteration

    def move_to(self, storage: StorageContext, moved: Callable[[Checkpoint], Checkpoint]) -> None:
        """Its directory lies there now, and its checkpoints where `moved` says."""
        self.storage = storage
        self.checkpoints.move(moved)

    @property
    def iteration(self) -> int:
        """Of the latest result."""
        return int(self.last_result.get(TRAINING_ITERATION, 0))

    @property
    def checkpoint_iteration(self) -> int:
        """Of the latest checkpoint; 0 without one."""
        latest = self.checkpoints.latest
        return int(latest.metrics.get(TRAINING_ITERATION, 0)) if latest is not None else 0

    @property
    def reported_done(self) -> bool:
        """Whether its latest result says that it is the last."""
        return bool(self.last_result.get(DONE))

    def __getstate__(self) -> dict[str, Any]:
        # Plain tuples take a tenth of the time of objects, and a search has many of them.
        summaries = {key: summary.as_tuple() for key, summary in self._summaries.items()}
        # Many exceptions can be pickled but not be made again from that, and one would make the
        # whole search unreadable.
        exception = pack_error(self.exception) if self.exception is not None else None
        return {**self.__dict__, "_summaries": summaries, "exception": exception}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._summaries = {
            key: MetricSummary.of(values) for key, values in state["_summaries"].items()
        }
        self.exception = (
            unpack_error(state["exception"]) if state["exception"] is not None else None
        )

    def _summarize(self, key: str, value: float) -> None:
        summary = self._summaries.get(key)
        if summary is None:
            summary = self._summaries[key] = MetricSummary()
        summary.add(value)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Trial({self.name}, {self.status})"
