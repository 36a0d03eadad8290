"""`XGBoostConfig`, its backend, and the worker's side of XGBoost's collective operations.

XGBoost's tracker runs in rank 0. XGBoost has one communicator per thread, so each rank joins in the
thread of its training function. A rank that fails leaves with an error, so that the others fail
instead of waiting for it. The tracker listens on the address that it is given. Not covered: the
connections between ranks, for which XGBoost listens on every interface.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

from syncline.optional import load
from syncline.suggestions import suggest_arguments
from syncline.train.backend import Backend, BackendConfig, WorkerGroup, hosts_of, is_this_process
from syncline.train.boosting import share_cores
from syncline.train.session import get_session

Communicator = Literal["rabit"]
TrackerArguments = dict[str, int | str]

# Rank 0's tracker serves all ranks until the process exits.
_tracker: Any = None
_tracker_arguments: TrackerArguments | None = None


@suggest_arguments
@dataclass(frozen=True)
class XGBoostConfig(BackendConfig):
    """Communication of the workers of an `XGBoostTrainer`.

    Raises:
        NotImplementedError: Unknown communicator.
    """

    xgboost_communicator: Communicator = "rabit"
    """XGBoost's collective operations over TCP."""

    def __post_init__(self) -> None:
        if self.xgboost_communicator not in get_args(Communicator):
            raise NotImplementedError(
                f"`XGBoostConfig(xgboost_communicator={self.xgboost_communicator!r})` is unknown: "
                "use 'rabit'."
            )

    @property
    def backend_cls(self) -> type[Backend[Any]]:
        return XGBoostBackend

    @property
    def train_func_context(self) -> Callable[[], AbstractContextManager[object]]:
        return communicator


class XGBoostBackend(Backend[XGBoostConfig]):
    """Starts the tracker and gives every rank its address.

    A worker in this process is alone and needs no tracker.
    """

    def on_start(self, worker_group: WorkerGroup, backend_config: XGBoostConfig) -> None:
        """Import XGBoost on all ranks and start the tracker. ImportError without XGBoost."""
        workers = worker_group.workers
        if is_this_process(workers[0]):
            return
        worker_group.execute(load_library)
        if len(workers) > 1:
            tracker = worker_group.execute_single(
                0, open_tracker, hosts_of(workers)[0], len(workers)
            )
            worker_group.execute(use_tracker, tracker)


# -- on the workers


def load_library() -> None:
    """Limit the threads of this worker, and import XGBoost. ImportError if it is missing."""
    share_cores()
    _library("xgboost")


def open_tracker(host: str, world_size: int) -> TrackerArguments:
    """Start the tracker on a free port of `host`; return the arguments for joining it. Called on
    rank 0.
    """
    global _tracker
    # Sorted by task, XGBoost's ranks follow the task ids, which are our ranks.
    _tracker = _library("xgboost.tracker").RabitTracker(
        n_workers=world_size, host_ip=host, sortby="task"
    )
    _tracker.start()
    arguments: TrackerArguments = _tracker.worker_args()
    return arguments


def use_tracker(arguments: TrackerArguments) -> None:
    """Store the arguments with which the training function joins the tracker."""
    global _tracker_arguments
    _tracker_arguments = arguments


@contextmanager
def communicator() -> Iterator[None]:
    """Context of the training function: the communicator of all ranks, if there are several."""
    if _tracker_arguments is None:
        yield
        return
    rank = get_session("xgboost.backend.communicator").world_rank
    with _library("xgboost.collective").CommunicatorContext(
        **_tracker_arguments, dmlc_task_id=f"{rank:08d}"
    ):
        yield


def _library(module: str) -> Any:
    return load(module, purpose="XGBoostTrainer", install="syncline[xgboost]")
