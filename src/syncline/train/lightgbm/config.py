"""`LightGBMConfig`, its backend, and the worker's side of LightGBM's network.

LightGBM's workers connect pairwise, so every worker gets the addresses of all. LightGBM connects
when the training function calls its `train`, and binds this rank's port then, on every interface of
the node. The port is held until the function calls `get_network_params`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from syncline.optional import load
from syncline.suggestions import suggest_arguments
from syncline.train.backend import (
    Backend,
    BackendConfig,
    WorkerGroup,
    hold_port,
    hosts_of,
    is_this_process,
    release_ports,
)
from syncline.train.boosting import share_cores
from syncline.train.session import get_session, in_session

logger = logging.getLogger("syncline")

_parameters: dict[str, int | str] = {}


@suggest_arguments
@dataclass(frozen=True)
class LightGBMConfig(BackendConfig):
    """Communication of the workers of a `LightGBMTrainer`. It has no options."""

    @property
    def backend_cls(self) -> type[Backend[Any]]:
        return LightGBMBackend


class LightGBMBackend(Backend[LightGBMConfig]):
    """Creates the network parameters that a training function passes to LightGBM.

    A worker in this process is alone and needs no network.
    """

    def on_start(self, worker_group: WorkerGroup, backend_config: LightGBMConfig) -> None:
        """Import LightGBM and store the parameters on all ranks. ImportError without LightGBM."""
        workers = worker_group.workers
        if is_this_process(workers[0]):
            return
        worker_group.execute(load_library)
        machines = list(zip(hosts_of(workers), worker_group.execute(hold_port), strict=True))
        worker_group.execute(use_machines, machines)


# -- on the workers


def get_network_params() -> dict[str, int | str]:
    """Return the parameters with which `lightgbm.train` trains on all workers: `num_machines`,
    `local_listen_port`, `machines`.

    Empty for a worker in the program's own process, which is alone. Outside a training function it
    is empty as well, with a warning.
    """
    if not in_session():
        logger.warning(
            "get_network_params() was called outside a training function, where there are no other "
            "workers: it returns an empty dict."
        )
        return {}
    release_ports()
    return dict(_parameters)


def load_library() -> None:
    """Limit the threads of this worker, and import LightGBM. ImportError if it is missing."""
    share_cores()
    load("lightgbm", purpose="LightGBMTrainer", install="syncline[lightgbm]")


def use_machines(machines: Sequence[tuple[str, int]]) -> None:
    """Store the address and port of every worker, in rank order."""
    rank = get_session("lightgbm.backend.use_machines").world_rank
    _parameters.update(
        num_machines=len(machines),
        local_listen_port=machines[rank][1],
        machines=",".join(f"{host}:{port}" for host, port in machines),
    )
