"""What a training function may call: `report`, `get_checkpoint`, `get_context` and their relatives.

`TrainSession` is the contract between these functions and what stands behind them:
`workers.session` in a training worker, `local` where `num_workers=0`. A process has at most one
session at a time. Processes forked from a worker (data loaders) inherit it and may ask it
questions; only the worker itself may report.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from syncline.train.checkpoint import (
    Checkpoint,
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    ReportedCheckpoint,
)
from syncline.train.config import ValidationTaskConfig
from syncline.train.errors import PreemptionInfo
from syncline.train.readers import Readers
from syncline.train.storage import StorageContext

UploadFunction = Callable[[Checkpoint, str], Checkpoint]
"""`checkpoint_upload_fn(checkpoint, dir_name)`: moves the files into the run directory, returns
where they now are.
"""


class TrainSession(ABC):
    """One rank's view of its run.

    Thread safety: every method may be called from any thread of the worker process.
    """

    world_rank: int
    """This worker's number, 0 <= world_rank < world_size."""
    world_size: int
    """How many workers train together."""
    local_rank: int
    """This worker's number among those on its node."""
    local_world_size: int
    """How many workers are on this node."""
    node_rank: int
    """The number of this worker's node."""
    gpu_ids: tuple[str, ...]
    """The GPUs assigned to this worker, as `CUDA_VISIBLE_DEVICES` spells them; empty without
    GPUs.
    """
    use_gpu: bool
    """What the `ScalingConfig` said."""
    local_mode: bool
    """True where the function runs in the program's own process (`num_workers=0`), with no
    controller behind it.
    """
    experiment_name: str
    """The run's name."""
    communication_meters: list[Callable[[], float]]
    """Each says how many seconds this rank has spent in collective operations of one kind so
    far.
    """
    readers: Readers
    """What this worker reads from, and how far."""
    may_contain_runs: bool = False
    """Whether a trainer may run in this process meanwhile, with a session of its own: so in a
    trial, which is no training worker.
    """

    @property
    @abstractmethod
    def storage(self) -> StorageContext:
        """Where the run keeps its files. RuntimeError in local mode, which keeps none."""

    @abstractmethod
    def report(
        self,
        metrics: Mapping[str, Any],
        checkpoint: Checkpoint | None,
        *,
        dir_name: str | None,
        upload_mode: CheckpointUploadMode,
        delete_local: bool | None,
        upload_fn: UploadFunction | None,
        validation: bool | ValidationTaskConfig,
    ) -> None:
        """As the public `report`."""

    @abstractmethod
    def get_checkpoint(self) -> Checkpoint | None:
        """The last checkpoint that this rank reported, else the one that the attempt started
        from.
        """

    @abstractmethod
    def get_all_reported_checkpoints(
        self, consistency_mode: CheckpointConsistencyMode, timeout_s: float | None
    ) -> list[ReportedCheckpoint]:
        """As the public function of that name."""

    @abstractmethod
    def get_dataset_shard(self, name: str) -> Any:
        """This rank's share of the dataset `name`; KeyError with the names that exist."""

    @abstractmethod
    def get_preemption_info(self) -> PreemptionInfo | None:
        """The announced end of a node of this run, or None."""

    @abstractmethod
    def barrier(self, data: Any) -> Any:
        """Wait until every rank is here, at the same call; every rank gets rank 0's `data`."""


class TrainContext:
    """Facts about the run and this worker's place in it; made by `get_context()`."""

    def __init__(self, session: TrainSession) -> None:
        self._session = session

    def get_experiment_name(self) -> str:
        """The run's name."""
        return self._session.experiment_name

    def get_world_size(self) -> int:
        """How many workers train together."""
        return self._session.world_size

    def get_world_rank(self) -> int:
        """This worker's number, from 0."""
        return self._session.world_rank

    def get_local_rank(self) -> int:
        """This worker's number on its node, from 0."""
        return self._session.local_rank

    def get_local_world_size(self) -> int:
        """How many workers are on this node."""
        return self._session.local_world_size

    def get_node_rank(self) -> int:
        """The number of this node, from 0."""
        return self._session.node_rank

    def get_storage(self) -> StorageContext:
        """Where the run keeps its files."""
        return self._session.storage


_session: TrainSession | None = None


def set_session(session: TrainSession | None) -> None:
    """Say which session this process has; None when its training function has ended."""
    global _session
    _session = session


def current_session() -> TrainSession | None:
    """This process's session, if it has one."""
    return _session


def in_session() -> bool:
    """True inside a training function, and in the processes that it forked."""
    return _session is not None


def get_session(function: str = "get_session") -> TrainSession:
    """This process's session; RuntimeError, naming `function`, outside a training function."""
    if _session is None:
        raise RuntimeError(
            f"`syncline.train.{function}()` cannot be used outside a training function: this process is no training worker. "
            "Call it inside the function that is given to a trainer as `train_loop_per_worker`."
        )
    return _session


def get_context() -> TrainContext:
    """The facts about this worker: ranks, world size, the run's name. RuntimeError outside a
    training function.
    """
    return TrainContext(get_session("get_context"))


def report(
    metrics: Mapping[str, Any],
    checkpoint: Checkpoint | None = None,
    checkpoint_dir_name: str | None = None,
    checkpoint_upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC,
    delete_local_checkpoint_after_upload: bool | None = None,
    checkpoint_upload_fn: UploadFunction | None = None,
    validation: bool | ValidationTaskConfig = False,
) -> None:
    """Hand metrics, and with them perhaps a checkpoint, to the run. Never waits for the other ranks
    or for the controller.

    Every rank makes the same number of calls. A checkpoint is registered when the call of the same
    number has arrived from every rank: the files of all ranks merge into one directory, which gets
    rank 0's metrics.

    Args:
        metrics: numbers, strings, and lists and dicts of these; NumPy scalars are converted. No
        tensors, modules or state dicts. checkpoint: a directory with this rank's files.
        checkpoint_dir_name: its name in the run directory; made from the number of the report if
        None. Rank 0's counts. checkpoint_upload_mode: SYNC copies before returning; ASYNC copies in
        a thread, in order; NO_UPLOAD: the checkpoint lies in
            the run directory already.
        delete_local_checkpoint_after_upload: whether `checkpoint` is deleted after the copy; by
        default for ASYNC only. checkpoint_upload_fn: copies instead of syncline; called as
        `fn(checkpoint, checkpoint_dir_name)`, returns the copy. validation: whether to run the
        trainer's validation function on the checkpoint; a `ValidationTaskConfig` also says how.

    Raises:
        ValueError: a tensor in `metrics`; a NO_UPLOAD checkpoint, or a result of
        `checkpoint_upload_fn`, outside the run directory;
            `validation` without a checkpoint or without the trainer's `validation_config`.
        RuntimeError: outside a training function; after an upload failed.
    """
    get_session("report").report(
        metrics,
        checkpoint,
        dir_name=checkpoint_dir_name,
        upload_mode=checkpoint_upload_mode,
        delete_local=delete_local_checkpoint_after_upload,
        upload_fn=checkpoint_upload_fn,
        validation=validation,
    )


def get_checkpoint() -> Checkpoint | None:
    """The last checkpoint that this rank reported, waited for until it is registered; before that,
    the one to continue from.
    """
    return get_session("get_checkpoint").get_checkpoint()


def get_all_reported_checkpoints(
    consistency_mode: CheckpointConsistencyMode = CheckpointConsistencyMode.VALIDATED,
    timeout_s: float | None = None,
) -> list[ReportedCheckpoint]:
    """Every checkpoint of the run that is kept, oldest first, with metrics and status.

    Waits until what this rank has reported is registered, and with VALIDATED until the validations
    that it asked for have ended; after `timeout_s` seconds, returns the list as it is.
    """
    return get_session("get_all_reported_checkpoints").get_all_reported_checkpoints(
        consistency_mode, timeout_s
    )


def get_dataset_shard(dataset_name: str | None = None) -> Any:
    """This worker's share of one of the trainer's `datasets`, by default of "train". KeyError for
    an unknown name.
    """
    return get_session("get_dataset_shard").get_dataset_shard(dataset_name or "train")


def get_preemption_info() -> PreemptionInfo | None:
    """When a node of this run is about to be taken away: until when it runs, and which ranks are on
    it. Else None.
    """
    return get_session("get_preemption_info").get_preemption_info()
