"""The worker's side of a distributed JAX computation: choose the platform, join, leave.

Rank 0's coordinator listens on the loopback interface where all ranks are on one node. CPUs
communicate through Gloo, GPUs through NCCL.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from typing import Any, Literal

from syncline import settings
from syncline.optional import load
from syncline.train.backend import LOOPBACK, release_ports
from syncline.train.session import get_session

Platform = Literal["cpu", "cuda", "tpu"]

logger = logging.getLogger("syncline")

LEAVE_LIMIT_S = 10.0
"""How long `leave` waits for JAX; the process ends soon afterwards in any case."""


def join(coordinator: str, platform: Platform) -> None:
    """Import JAX for a platform, and connect to the other ranks at `coordinator`, which rank 0
    opens there.

    Raises:
        ImportError: JAX is not installed.
        RuntimeError: with the address, if JAX cannot connect.
    """
    session = get_session("jax.processes.join")
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
            local_device_ids=local_device_ids(
                session.gpu_ids, settings.environment("CUDA_VISIBLE_DEVICES")
            )
            if session.gpu_ids
            else None,
            coordinator_bind_address=listen_at,
        )
    except Exception as error:
        raise RuntimeError(
            f"Rank {session.world_rank} of {session.world_size} could not join the JAX computation at {coordinator} "
            f"(JAX_PLATFORMS={settings.environment('JAX_PLATFORMS')!r}): {error}. Check that every node reaches this address, and that "
            "no module of the program has used JAX before."
        ) from error


def local_device_ids(gpu_ids: Sequence[str], visible: str | None) -> list[int]:
    """The numbers of a worker's GPUs among those that CUDA_VISIBLE_DEVICES lists (None: not
    set).
    """
    names = visible.split(",") if visible else list(gpu_ids)
    return [names.index(gpu_id) if visible else int(gpu_id) for gpu_id in gpu_ids]


def leave() -> None:
    """Disconnect from the other ranks; never takes longer than the limit."""
    jax: Any = load("jax", purpose="JaxTrainer", install="syncline[jax]")
    # Ranks wait for one another here, and one of them may have failed; the thread is then
    # abandoned, and dies with the process.
    thread = threading.Thread(target=jax.distributed.shutdown, name="jax-shutdown", daemon=True)
    thread.start()
    thread.join(LEAVE_LIMIT_S)
    if thread.is_alive():
        logger.warning(
            "JAX did not disconnect within %g s: a peer has probably failed. It ends with this process.",
            LEAVE_LIMIT_S,
        )
