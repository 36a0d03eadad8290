"""Meetings of all ranks of a training, through the controller: no process group is needed.

A rank that does not come within `SYNCLINE_TRAIN_COLLECTIVE_TIMEOUT_S` ends the attempt with an
error that names it and shows its Python stack. Tensors are for `torch.distributed`; this is for
small things.
"""

from __future__ import annotations

import pickle
import warnings
from typing import Any, TypeVar

import cloudpickle

from syncline.train.session import get_session

T = TypeVar("T")

LARGE_BYTES = 1000
"""Pickled data above this size is warned about."""


def barrier() -> None:
    """Wait until every rank has made this call. RuntimeError outside a training function."""
    get_session("collective.barrier").barrier(None)


def broadcast_from_rank_zero(data: T) -> T:
    """Wait until every rank has made this call; every rank gets what rank 0 gave.

    Raises:
        TypeError: Rank 0's `data` cannot be pickled.
        RuntimeError: Outside a training function.
    """
    session = get_session("collective.broadcast_from_rank_zero")
    if session.world_rank == 0:
        _check(data)
    received: T = session.barrier(data)
    return received


def _check(data: Any) -> None:
    try:
        size = len(cloudpickle.dumps(data))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise TypeError(
            f"`broadcast_from_rank_zero` cannot send a {type(data).__name__}, because it cannot be pickled: {error}"
        ) from error
    if size > LARGE_BYTES:
        warnings.warn(
            f"`broadcast_from_rank_zero` got {size} pickled bytes, and is made for less than {LARGE_BYTES}, as it goes through the "
            "controller: use `torch.distributed` for tensors, and a checkpoint or a file for large data.",
            stacklevel=3,
        )
