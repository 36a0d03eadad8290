"""`TensorflowConfig`, and the backend that tells every worker the addresses of all, as TensorFlow
wants to hear it: in TF_CONFIG.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from syncline.train.backend import (
    Backend,
    BackendConfig,
    WorkerGroup,
    hold_port,
    host_and_port,
    hosts_of,
    is_this_process,
)
from syncline.train.tensorflow import cluster


@dataclass(frozen=True)
class TensorflowConfig(BackendConfig):
    """How the workers of a `TensorflowTrainer` communicate; the strategy in the training function
    chooses.
    """

    @property
    def backend_cls(self) -> type[Backend[Any]]:
        return TensorflowBackend

    @property
    def train_func_context(self) -> Callable[[], AbstractContextManager[Any]]:
        return cluster.training_context


class TensorflowBackend(Backend[TensorflowConfig]):
    """Makes the workers one TensorFlow cluster."""

    def on_start(self, worker_group: WorkerGroup, backend_config: TensorflowConfig) -> None:
        """ImportError if a worker lacks a package. A worker in this process is alone, and its
        environment stays as it is.
        """
        workers = worker_group.workers
        if is_this_process(workers[0]):
            return
        ports = worker_group.execute(hold_port)
        addresses = [
            host_and_port(host, port) for host, port in zip(hosts_of(workers), ports, strict=True)
        ]
        worker_group.execute(cluster.join, addresses)
