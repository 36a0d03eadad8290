"""The worker's side of XGBoost's collectives: import the library, run the tracker (rank 0), join
and leave.

XGBoost has one communicator per thread, so it is made in the thread of the training function. A
rank that fails leaves with an error: the others get one too, instead of waiting for it. Not
covered: where XGBoost listens; the tracker does on the address that it is given, the connections
between ranks on every interface of their nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from syncline.optional import load
from syncline.train.boosting import share_cores
from syncline.train.session import get_session

# Rank 0's tracker serves all ranks until the process ends.
_tracker: Any = None
_tracker_arguments: dict[str, Any] | None = None


def load_library() -> None:
    """Import XGBoost, for which the threads of this worker are chosen first. ImportError where it
    is not installed.
    """
    share_cores()
    _library("xgboost")


def open_tracker(host: str, world_size: int) -> dict[str, Any]:
    """Start the tracker on `host`, on a free port, and return what a rank needs to find it. For
    rank 0.
    """
    global _tracker
    # By task: XGBoost's ranks are then in the order of the task ids, which are ours.
    _tracker = _library("xgboost.tracker").RabitTracker(
        n_workers=world_size, host_ip=host, sortby="task"
    )
    _tracker.start()
    arguments: dict[str, Any] = _tracker.worker_args()
    return arguments


def use_tracker(arguments: dict[str, Any]) -> None:
    """Join the tracker's group when the training function begins."""
    global _tracker_arguments
    _tracker_arguments = arguments


@contextmanager
def communicator() -> Iterator[None]:
    """What the training function runs in: the communicator of all ranks; nothing for a worker that
    is alone.
    """
    if _tracker_arguments is None:
        yield
        return
    rank = get_session("xgboost.collective.communicator").world_rank
    with _library("xgboost.collective").CommunicatorContext(
        **_tracker_arguments, dmlc_task_id=f"{rank:08d}"
    ):
        yield


def _library(module: str) -> Any:
    return load(module, purpose="XGBoostTrainer", install="syncline[xgboost]")
