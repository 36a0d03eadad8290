"""Barrier and broadcast among all ranks, through the controller and without a process group.

A rank that does not arrive within `SYNCLINE_TRAIN_COLLECTIVE_TIMEOUT_S` fails the attempt with an
error that has its Python stack. For small data; use `torch.distributed` for tensors.
"""

from __future__ import annotations

import pickle
import warnings
from typing import TypeVar

import cloudpickle

from syncline.train.session import get_session

T = TypeVar("T")

LARGE_BYTES = 1000
"""Pickled size above which a warning is issued."""


def barrier() -> None:
    """Wait until every rank has made this call.

    Raises:
        RuntimeError: Outside of a training function.
    """
    get_session("collective.barrier").barrier(None)


def broadcast_from_rank_zero(data: T) -> T:
    """Wait until every rank has made this call; return the data of rank 0.

    Raises:
        TypeError: Rank 0's `data` cannot be pickled.
        RuntimeError: Outside of a training function.
    """
    session = get_session("collective.broadcast_from_rank_zero")
    if session.world_rank == 0:
        _check(data)
    received: T = session.barrier(data)
    return received


def _check(data: object) -> None:
    try:
        size = len(cloudpickle.dumps(data))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise TypeError(
            f"`broadcast_from_rank_zero` got a {type(data).__name__} that cannot be pickled: "
            f"{error}"
        ) from error
    if size > LARGE_BYTES:
        warnings.warn(
            f"`broadcast_from_rank_zero` got {size} pickled bytes, which go through the "
            f"controller. It is meant for less than {LARGE_BYTES}: use `torch.distributed` for "
            "tensors, and a checkpoint or a file for large data.",
            stacklevel=3,
        )
