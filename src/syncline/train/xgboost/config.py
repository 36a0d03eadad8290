"""`XGBoostConfig`, and the backend that connects the workers: XGBoost's tracker runs in rank 0, and
every rank is told where.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, get_args

from syncline.train.backend import Backend, BackendConfig, WorkerGroup, hosts_of, is_this_process
from syncline.train.xgboost import collective

Communicator = Literal["rabit"]


@dataclass(frozen=True)
class XGBoostConfig(BackendConfig):
    """How the workers of an `XGBoostTrainer` communicate.

    Raises:
        NotImplementedError: for a communicator that does not exist.
    """

    xgboost_communicator: Communicator = "rabit"
    """XGBoost's own collectives over TCP."""

    def __post_init__(self) -> None:
        if self.xgboost_communicator not in get_args(Communicator):
            raise NotImplementedError(
                f"`XGBoostConfig(xgboost_communicator={self.xgboost_communicator!r})` is unknown: there is 'rabit'."
            )

    @property
    def backend_cls(self) -> type[Backend[Any]]:
        return XGBoostBackend

    @property
    def train_func_context(self) -> Callable[[], AbstractContextManager[Any]]:
        return collective.communicator


class XGBoostBackend(Backend[XGBoostConfig]):
    """Tells every rank of a group where the tracker is; each joins in the thread of its training
    function.
    """

    def on_start(self, worker_group: WorkerGroup, backend_config: XGBoostConfig) -> None:
        """ImportError if a worker has no XGBoost. A worker in this process is alone, and needs no
        tracker.
        """
        workers = worker_group.workers
        if is_this_process(workers[0]):
            return
        worker_group.execute(collective.load_library)
        if len(workers) > 1:
            tracker = worker_group.execute_single(
                0, collective.open_tracker, hosts_of(workers)[0], len(workers)
            )
            worker_group.execute(collective.use_tracker, tracker)
