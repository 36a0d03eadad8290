"""`LightGBMConfig`, and the backend that tells every worker the addresses of all: LightGBM's
workers connect each to each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from syncline.train.backend import (
    Backend,
    BackendConfig,
    WorkerGroup,
    hold_port,
    hosts_of,
    is_this_process,
)
from syncline.train.lightgbm import network


@dataclass(frozen=True)
class LightGBMConfig(BackendConfig):
    """How the workers of a `LightGBMTrainer` communicate; there is nothing to choose."""

    @property
    def backend_cls(self) -> type[Backend[Any]]:
        return LightGBMBackend


class LightGBMBackend(Backend[LightGBMConfig]):
    """Makes the network parameters that a training function gives to LightGBM."""

    def on_start(self, worker_group: WorkerGroup, backend_config: LightGBMConfig) -> None:
        """ImportError if a worker has no LightGBM. A worker in this process is alone, and needs no
        network.
        """
        workers = worker_group.workers
        if is_this_process(workers[0]):
            return
        worker_group.execute(network.load_library)
        machines = list(zip(hosts_of(workers), worker_group.execute(hold_port), strict=True))
        worker_group.execute(network.use_machines, machines)
