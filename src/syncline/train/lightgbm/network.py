"""The worker's side of LightGBM's network: import the library, know the machines, hand the
parameters to the training function.

LightGBM connects when the function calls its `train`, and binds this rank's port then, on every
interface of the node. The port is held until the function has asked for it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from syncline.optional import load
from syncline.train.backend import release_ports
from syncline.train.boosting import share_cores
from syncline.train.session import get_session, in_session

logger = logging.getLogger("syncline")

_parameters: dict[str, Any] = {}


def get_network_params() -> dict[str, Any]:
    """The parameters with which `lightgbm.train` trains on all workers: `num_machines`,
    `local_listen_port`, `machines`.

    Empty for a worker in the program's own process, which is alone; and, with a warning, outside a
    training function.
    """
    if not in_session():
        logger.warning(
            "get_network_params() was called outside a training function, where there are no other workers: it returns nothing."
        )
        return {}
    release_ports()
    return dict(_parameters)


def load_library() -> None:
    """Import LightGBM, for which the threads of this worker are chosen first. ImportError where it
    is not installed.
    """
    share_cores()
    load("lightgbm", purpose="LightGBMTrainer", install="syncline[lightgbm]")


def use_machines(machines: Sequence[tuple[str, int]]) -> None:
    """Every worker's address and port, by rank."""
    rank = get_session("lightgbm.network.use_machines").world_rank
    _parameters.update(
        num_machines=len(machines),
        local_listen_port=machines[rank][1],
        machines=",".join(f"{host}:{port}" for host, port in machines),
    )
