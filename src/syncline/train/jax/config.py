"""`JaxConfig`, and the backend that connects the workers: JAX's coordinator runs in rank 0, and
every rank is told where.
"""

from __future__ import annotations

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
from syncline.train.jax import processes


@dataclass(frozen=True)
class JaxConfig(BackendConfig):
    """What the workers of a `JaxTrainer` compute on; CPUs if neither. JAX_PLATFORMS in the workers'
    environment beats this.

    Raises:
        ValueError: for both.
    """

    use_tpu: bool = False
    """On TPUs."""
    use_gpu: bool = False
    """On GPUs, through CUDA."""

    def __post_init__(self) -> None:
        if self.use_tpu and self.use_gpu:
            raise ValueError(
                "`JaxConfig(use_tpu=True, use_gpu=True)`: a worker trains on one kind of device; choose one."
            )

    @property
    def backend_cls(self) -> type[Backend[Any]]:
        return JaxBackend

    @property
    def platform(self) -> processes.Platform:
        """As JAX spells it."""
        return "tpu" if self.use_tpu else "cuda" if self.use_gpu else "cpu"


class JaxBackend(Backend[JaxConfig]):
    """Makes a worker group one JAX computation, also where it has a single worker."""

    def on_start(self, worker_group: WorkerGroup, backend_config: JaxConfig) -> None:
        """Every rank joins; ImportError if a worker has no JAX. A worker in this process is alone,
        and JAX is left as it is there.
        """
        workers = worker_group.workers
        if is_this_process(workers[0]):
            return
        coordinator = host_and_port(hosts_of(workers)[0], worker_group.execute_single(0, hold_port))
        worker_group.execute(processes.join, coordinator, backend_config.platform)

    def on_shutdown(self, worker_group: WorkerGroup, backend_config: JaxConfig) -> None:
        """Every rank leaves; returns after a limit even where one cannot."""
        if not is_this_process(worker_group.workers[0]):
            worker_group.execute(processes.leave)
