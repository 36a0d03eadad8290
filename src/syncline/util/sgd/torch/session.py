"""The session of operators, which makes `syncline.train.torch` work in them.

Operators do not report through it: they return results from `train_epoch` and `validate`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from syncline.train.backend import Worker
from syncline.train.checkpoint import Checkpoint, CheckpointConsistencyMode, ReportedCheckpoint
from syncline.train.errors import PreemptionInfo
from syncline.train.resume_state import Readers
from syncline.train.session import ReportCall, TrainSession, get_session, in_session, set_session
from syncline.train.storage.context import StorageContext


class OperatorSession(TrainSession):
    """The session of one worker.

    Args:
        worker: Ranks and devices; None for a single worker in the program's own process.
        world_size: Number of workers.
        use_gpu: Setting of the trainer.
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

    def report(self, call: ReportCall) -> None:
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

    def barrier(self, data: object) -> Any:
        _refuse("barrier")


@contextmanager
def inside(session: TrainSession) -> Iterator[None]:
    """Run a block in a session, and restore the previous session."""
    before = get_session() if in_session() else None
    set_session(session)
    try:
        yield
    finally:
        set_session(before)


def _refuse(function: str) -> NoReturn:
    raise RuntimeError(
        f"`{function}` cannot be used in a TrainingOperator: return metrics from `train_batch` or "
        "`train_epoch`, save with `trainer.save(path)`, and register data loaders in `setup`."
    )
