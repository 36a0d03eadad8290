"""The session in which operators run: it knows the worker's place, so that everything of
`syncline.train.torch` works in them.

Nothing is reported through it: results are what `train_epoch` and `validate` return.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from syncline.train.backend import Worker
from syncline.train.checkpoint import (
    Checkpoint,
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    ReportedCheckpoint,
)
from syncline.train.config import ValidationTaskConfig
from syncline.train.errors import PreemptionInfo
from syncline.train.resume_state import Readers
from syncline.train.session import (
    TrainSession,
    UploadFunction,
    get_session,
    in_session,
    set_session,
)
from syncline.train.storage.context import StorageContext


class OperatorSession(TrainSession):
    """One worker's place among the others.

    Args:
        worker: The place; None for the one worker that runs in the program's own process.
        world_size: How many workers there are.
        use_gpu: What the trainer was told.
    """

    experiment_name = "sgd"

    def __init__(self, worker: Worker | None, *, world_size: int, use_gpu: bool) -> None:
        self.world_rank = worker.rank if worker else 0
        self.world_size = world_size
        self.local_rank = worker.local_rank if worker else 0
        self.local_world_size = worker.local_world_size if worker else 1
        self.node_rank = worker.node_rank if worker else 0
        self.gpu_ids = tuple(worker.gpu_ids) if worker else ()
        self.use_gpu = use_gpu
        self.local_mode = worker is None
        self.communication_meters = []
        self.readers = Readers(rank=self.world_rank, world_size=world_size)

    @property
    def storage(self) -> StorageContext:
        _refuse("get_storage")

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
        _refuse("report")

    def get_checkpoint(self) -> Checkpoint | None:
        return None

    def get_all_reported_checkpoints(
        self, consistency_mode: CheckpointConsistencyMode, timeout_s: float | None
    ) -> list[ReportedCheckpoint]:
        return []

    def get_dataset_shard(self, name: str) -> Any:
        _refuse("get_dataset_shard")

    def get_preemption_info(self) -> PreemptionInfo | None:
        return None

    def barrier(self, data: Any) -> Any:
        _refuse("barrier")


@contextmanager
def inside(session: TrainSession) -> Iterator[None]:
    """Run a block in a session, and leave the process in the one that it had."""
    before = get_session() if in_session() else None
    set_session(session)
    try:
        yield
    finally:
        set_session(before)


def _refuse(function: str) -> NoReturn:
    raise RuntimeError(
        f"`{function}` cannot be used in a TrainingOperator: return metrics from `train_batch` or `train_epoch`, save with "
        "`trainer.save(path)`, and register data loaders in `setup`."
    )
