"""`JaxConfig`, its backend, and the worker's side of a distributed JAX computation: choose the
platform, join, leave.

JAX's coordinator runs in rank 0, on the loopback interface if all ranks are on one node. CPUs
communicate through Gloo, GPUs through NCCL.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

from syncline import settings
from syncline.optional import load
from syncline.suggestions import suggest_arguments
from syncline.train.backend import (
    LOOPBACK,
    Backend,
    BackendConfig,
    WorkerGroup,
    hold_port,
    host_and_port,
    hosts_of,
    is_this_process,
    leave_within,
    release_ports,
    visible_indices,
)
from syncline.train.session import get_session

Platform = Literal["cpu", "cuda", "tpu"]

LEAVE_LIMIT_S = 10.0
"""Seconds that `leave` waits for JAX; the process exits soon afterwards in any case."""


@suggest_arguments
@dataclass(frozen=True)
class JaxConfig(BackendConfig):
    """Devices of the workers of a `JaxTrainer`: CPUs unless a field is set. JAX_PLATFORMS in the
    workers' environment takes precedence.

    Raises:
        ValueError: Both fields are set.
    """

    use_tpu: bool = False
    """Compute on TPUs."""
    use_gpu: bool = False
    """Compute on GPUs, through CUDA."""

    def __post_init__(self) -> None:
        if self.use_tpu and self.use_gpu:
            raise ValueError(
                "`JaxConfig(use_tpu=True, use_gpu=True)`: a worker trains on one kind of device; "
                "set one of them."
            )

    @property
    def backend_cls(self) -> type[Backend[Any]]:
        return JaxBackend

    @property
    def platform(self) -> Platform:
        """JAX's name of the platform."""
        return "tpu" if self.use_tpu else "cuda" if self.use_gpu else "cpu"


class JaxBackend(Backend[JaxConfig]):
    """Connects a worker group to one JAX computation, also if it has a single worker.

    A worker in this process is alone, so JAX is left unchanged there.
    """

    def on_start(self, worker_group: WorkerGroup, backend_config: JaxConfig) -> None:
        """Join all ranks. ImportError if a worker has no JAX."""
        workers = worker_group.workers
        if is_this_process(workers[0]):
            return
        coordinator = host_and_port(hosts_of(workers)[0], worker_group.execute_single(0, hold_port))
        worker_group.execute(join, coordinator, backend_config.platform)

    def on_shutdown(self, worker_group: WorkerGroup, backend_config: JaxConfig) -> None:
        """Disconnect all ranks. Takes at most `LEAVE_LIMIT_S`."""
        if not is_this_process(worker_group.workers[0]):
            worker_group.execute(leave)


# -- on the workers


def join(coordinator: str, platform: Platform) -> None:
    """Import JAX for a platform, and connect to the other ranks.

    Args:
        coordinator: Address of the coordinator, which rank 0 starts.
        platform: Platform, unless JAX_PLATFORMS is set.

    Raises:
        ImportError: JAX is not installed.
        RuntimeError: JAX cannot connect.
    """
    session = get_session("jax.backend.join")
    os.environ.setdefault("JAX_PLATFORMS", platform)  # read when JAX is imported
    jax: Any = load("jax", purpose="JaxTrainer", install="syncline[jax]")
    if platform == "cpu":
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    release_ports()
    # By default the coordinator would listen on every interface.
    listen_at = (
        coordinator if session.world_rank == 0 and coordinator.startswith(LOOPBACK) else None
    )
    try:
        jax.distributed.initialize(
            coordinator_address=coordinator,
            num_processes=session.world_size,
            process_id=session.world_rank,
            local_device_ids=visible_indices(session.gpu_ids) if session.gpu_ids else None,
            coordinator_bind_address=listen_at,
        )
    except Exception as error:
        raise RuntimeError(
            f"Rank {session.world_rank} of {session.world_size} could not join the JAX computation "
            f"at {coordinator} (JAX_PLATFORMS={settings.environment('JAX_PLATFORMS')!r}): {error}. "
            "Check that every node reaches this address, and that no module of the program has "
            "used JAX before."
        ) from error


def leave() -> None:
    """Disconnect from the other ranks. Takes at most `LEAVE_LIMIT_S`."""
    jax: Any = load("jax", purpose="JaxTrainer", install="syncline[jax]")
    leave_within(LEAVE_LIMIT_S, jax.distributed.shutdown, "JAX did not disconnect")
