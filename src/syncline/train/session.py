"""Functions for training functions: `report`, `get_checkpoint`, `get_context` and others.

`TrainSession` is the contract between these functions and their implementations:
`workers.worker_session` in a training worker, `local_mode` with `num_workers=0`, and trials of a
search. A process has at most one session at a time. Processes forked from a worker (data loaders)
inherit the session and may read from it; only the worker itself may report.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from syncline.diagnosis.collective_calls import CollectiveCall
from syncline.suggestions import did_you_mean
from syncline.train import media
from syncline.train.checkpoint import (
    Checkpoint,
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    ReportedCheckpoint,
)
from syncline.train.config import ValidationTaskConfig
from syncline.train.errors import PreemptionInfo
from syncline.train.media import MediaStore
from syncline.train.metric_values import Metrics
from syncline.train.resume_state import Readers
from syncline.train.snapshots.direct_save import save_now
from syncline.train.snapshots.rank_snapshots import RankSnapshots
from syncline.train.storage.context import StorageContext

UploadFunction = Callable[[Checkpoint, str], Checkpoint]
"""`checkpoint_upload_fn(checkpoint, dir_name)`: moves the files into the run directory and returns
their new location.
"""


class ReportCall(NamedTuple):
    """Arguments of one call of `report`.

    A named tuple, since a frozen dataclass would take longer to create than the rest of a report.
    """

    metrics: Metrics
    checkpoint: Checkpoint | None = None
    dir_name: str | None = None
    upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC
    delete_local: bool | None = None
    upload_fn: UploadFunction | None = None
    validation: bool | ValidationTaskConfig = False

    def check_validation(self) -> None:
        """Check that there is a checkpoint to validate.

        Raises:
            ValueError: There is none, or `validation` is neither a bool nor a config.
        """
        if not isinstance(self.validation, bool | ValidationTaskConfig):
            raise ValueError(
                f"report(validation={self.validation!r}): pass True, or a `ValidationTaskConfig` "
                "with arguments of the validation function."
            )
        if self.validation and self.checkpoint is None:
            raise ValueError(
                "report(validation=…) has no checkpoint to validate: pass `checkpoint=` too."
            )


class TrainSession(ABC):
    """One rank's view of its run.

    Thread safety: every method may be called from any thread of the worker process.
    """

    world_rank: int
    """Rank of this worker, 0 <= world_rank < world_size."""
    world_size: int
    """Number of workers."""
    local_rank: int
    """Rank of this worker among those on its node."""
    local_world_size: int
    """Number of workers on this node."""
    node_rank: int
    """Rank of this worker's node."""
    gpu_ids: tuple[str, ...]
    """GPUs assigned to this worker, in the spelling of `CUDA_VISIBLE_DEVICES`."""
    use_gpu: bool
    """`ScalingConfig.use_gpu`."""
    local_mode: bool
    """True if the function runs in the program's own process (`num_workers=0`), without a
    controller.
    """
    experiment_name: str
    """Name of the run."""
    communication_meters: list[Callable[[], float]]
    """Functions that return the seconds spent so far in one kind of collective operations."""
    readers: Readers
    """Readers of this worker with their positions."""
    snapshots: RankSnapshots | None = None
    """Memory snapshots of this rank; None if the session has none."""
    next_report: int = 0
    """Number of the next report of this rank."""
    may_contain_runs: bool = False
    """True if a trainer may run in this process with its own session, as in a trial."""

    def follow_calls(  # noqa: B027 (optional)
        self, source: Callable[[], Sequence[CollectiveCall]]
    ) -> None:
        """Set the function that returns the recent calls of collective operations, oldest first.

        Sessions without a controller ignore it.
        """

    def follow_inputs(self, has_bad_inputs: Callable[[], bool]) -> None:  # noqa: B027 (optional)
        """Set the function that tells whether a model's last inputs have values that are not
        finite. Called when a report has such a value. Sessions without a controller ignore it.
        """

    @property
    @abstractmethod
    def storage(self) -> StorageContext:
        """Storage of the run. RuntimeError in local mode, which has none."""

    @abstractmethod
    def report(self, call: ReportCall) -> None:
        """Implement the public `report`."""

    def save(self, state: object, file_name: str) -> Checkpoint:
        """Implement the public `save`, here without a separate process."""
        return save_now(state, file_name)

    @abstractmethod
    def get_checkpoint(self) -> Checkpoint | None:
        """Return the last checkpoint of this rank, else the one that the attempt started from."""

    @abstractmethod
    def get_all_reported_checkpoints(
        self, consistency_mode: CheckpointConsistencyMode, timeout_s: float | None
    ) -> list[ReportedCheckpoint]:
        """Implement the public function of that name."""

    @abstractmethod
    def get_dataset_shard(self, name: str) -> Any:
        """Return this rank's shard of the dataset `name`; KeyError with the existing names."""

    @abstractmethod
    def get_preemption_info(self) -> PreemptionInfo | None:
        """Return the announced preemption of nodes of this run, or None."""

    @abstractmethod
    def barrier(self, data: object) -> Any:
        """Wait until every rank makes this call; return the `data` of rank 0."""


class TrainContext:
    """Ranks, world size and name of the run; created by `get_context()`."""

    def __init__(self, session: TrainSession) -> None:
        self._session = session

    def get_experiment_name(self) -> str:
        """Return the name of the run."""
        return self._session.experiment_name

    def get_world_size(self) -> int:
        """Return the number of workers."""
        return self._session.world_size

    def get_world_rank(self) -> int:
        """Return the rank of this worker, from 0."""
        return self._session.world_rank

    def get_local_rank(self) -> int:
        """Return the rank of this worker on its node, from 0."""
        return self._session.local_rank

    def get_local_world_size(self) -> int:
        """Return the number of workers on this node."""
        return self._session.local_world_size

    def get_node_rank(self) -> int:
        """Return the rank of this node, from 0."""
        return self._session.node_rank

    def get_storage(self) -> StorageContext:
        """Return the storage of the run."""
        return self._session.storage


_session: TrainSession | None = None


def set_session(session: TrainSession | None) -> None:
    """Set the session of this process; None after the training function has ended."""
    global _session
    _session = session
    media.set_store(functools.partial(_media_store, session))


def _media_store(session: TrainSession | None) -> MediaStore | None:
    if session is None:
        return None
    try:
        return MediaStore(session.storage.files, session.world_rank)
    except RuntimeError:  # local mode, a trial without a search
        return None


def current_session() -> TrainSession | None:
    """Return the session of this process, if any."""
    return _session


def automatic_snapshots(session: TrainSession | None) -> RankSnapshots | None:
    """Return the memory snapshots of a session if they are taken without calls of the program."""
    snapshots = None if session is None else session.snapshots
    return snapshots if snapshots is not None and snapshots.spec.is_automatic else None


def in_session() -> bool:
    """Return True inside a training function and in processes forked from it."""
    return _session is not None


def get_session(function: str = "get_session") -> TrainSession:
    """Return the session of this process.

    Raises:
        RuntimeError: Outside of a training function; the message names `function`.
    """
    if _session is None:
        raise RuntimeError(
            f"`syncline.train.{function}()` cannot be used outside a training function. Call it "
            "in the function that is given to a trainer as `train_loop_per_worker`."
        )
    return _session


def unknown_dataset(name: str, names: Collection[str]) -> KeyError:
    """Return the error for a dataset that the trainer does not have."""
    if not names:
        return KeyError(
            f"There is no dataset {name!r}, since the trainer was given none: pass "
            f"`datasets={{{name!r}: ...}}` to it."
        )
    return KeyError(
        f"There is no dataset {name!r}. Datasets: {', '.join(map(repr, sorted(names)))}."
        f"{did_you_mean(name, names)}"
    )


def get_context() -> TrainContext:
    """Return ranks, world size and name of the run.

    Raises:
        RuntimeError: Outside of a training function.
    """
    return TrainContext(get_session("get_context"))


def report(
    metrics: Metrics,
    checkpoint: Checkpoint | None = None,
    checkpoint_dir_name: str | None = None,
    checkpoint_upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC,
    delete_local_checkpoint_after_upload: bool | None = None,
    checkpoint_upload_fn: UploadFunction | None = None,
    validation: bool | ValidationTaskConfig = False,
) -> None:
    """Report metrics and optionally a checkpoint. Does not wait for other ranks or the controller.

    Every rank makes the same number of calls. A checkpoint is registered when the call of the same
    number has arrived from every rank: the files of all ranks merge into one directory, with the
    metrics of rank 0.

    Args:
        metrics: Numbers, strings, images and histograms (`train.Image`, `train.Histogram`), and
            lists and dictionaries of these; NumPy scalars are converted.
            No tensors, modules or state dicts.
        checkpoint: Directory with this rank's files.
        checkpoint_dir_name: Name of the checkpoint in the run directory; by default made from the
            number of the report. The name of rank 0 is used.
        checkpoint_upload_mode: SYNC copies before returning; ASYNC copies in a thread, in order;
            NO_UPLOAD copies nothing, as the checkpoint is in the run directory already.
        delete_local_checkpoint_after_upload: Delete `checkpoint` after the copy; by default only
            with ASYNC.
        checkpoint_upload_fn: Copies instead of syncline; called as
            `fn(checkpoint, checkpoint_dir_name)`, returns the copy.
        validation: Run the trainer's validation function on the checkpoint; a
            `ValidationTaskConfig` also configures it.

    Raises:
        ValueError: A tensor in `metrics`; a NO_UPLOAD checkpoint or a result of
            `checkpoint_upload_fn` outside of the run directory; `validation` without a checkpoint
            or without the trainer's `validation_config`; a first checkpoint without the metric
            `checkpoint_score_attribute`.
        RuntimeError: Outside of a training function, or after an upload failed.
    """
    session = _session or get_session("report")
    # `ReportCall(…)` would call one more Python function, and every training step may come here.
    call = tuple.__new__(
        ReportCall,
        (
            metrics,
            checkpoint,
            checkpoint_dir_name,
            checkpoint_upload_mode,
            delete_local_checkpoint_after_upload,
            checkpoint_upload_fn,
            validation,
        ),
    )
    session.report(call)


def get_checkpoint() -> Checkpoint | None:
    """Return the last checkpoint of this rank once it is registered; before the first one, the
    checkpoint to continue from.
    """
    return get_session("get_checkpoint").get_checkpoint()


def get_all_reported_checkpoints(
    consistency_mode: CheckpointConsistencyMode = CheckpointConsistencyMode.VALIDATED,
    timeout_s: float | None = None,
) -> list[ReportedCheckpoint]:
    """Return the checkpoints that the run keeps, oldest first, with metrics and status.

    Waits until every rank has made the reports of this rank and their checkpoints are registered,
    and with VALIDATED until their validations have ended. After `timeout_s` seconds, returns the
    list as it is.
    """
    return get_session("get_all_reported_checkpoints").get_all_reported_checkpoints(
        consistency_mode, timeout_s
    )


def get_dataset_shard(dataset_name: str | None = None) -> Any:
    """Return this worker's shard of one of the trainer's `datasets`, by default of "train".

    Raises:
        KeyError: Unknown name.
    """
    return get_session("get_dataset_shard").get_dataset_shard(dataset_name or "train")


def get_preemption_info() -> PreemptionInfo | None:
    """Return deadline and ranks of an announced preemption of nodes of this run, or None."""
    return get_session("get_preemption_info").get_preemption_info()
