"""Backends: setup of a framework around a training function (process group, environment variables).

A `BackendConfig` contains the settings of the program; its `Backend` acts on the worker group from
the controller's side. `WorkerGroup` is the contract of that group; `workers.group` implements it.

The functions at the end are for backends of frameworks that are given addresses and port numbers. A
framework binds its port later, so the worker holds it until then. Frameworks that take an open
socket (torch) do not need them.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

from syncline import settings
from syncline.core.refs import ObjectRef

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("syncline")

LOOPBACK = "127.0.0.1"

_held: list[socket.socket] = []


@dataclass(frozen=True, kw_only=True)
class Worker:
    """One worker and its ranks."""

    rank: int
    """World rank, 0 <= rank < world_size."""
    node_id: str
    """Node, as named by the engine."""
    node_ip: str
    """Address of the node."""
    hostname: str
    """Name of the node."""
    pid: int
    """Process id."""
    local_rank: int
    """Rank among the workers of its node."""
    local_world_size: int
    """Number of workers on its node."""
    node_rank: int
    """Rank of its node."""
    gpu_ids: list[str]
    """GPUs assigned to it; empty without GPUs."""


@dataclass(frozen=True, kw_only=True)
class GroupPlan:
    """Arguments of every rank for joining a process group of `torch.distributed`."""

    backend: str
    """Backend of `torch.distributed`."""
    host: str
    """Host of rank 0's store."""
    port: int
    """Port of rank 0's store."""
    timeout_s: float
    """Time limit for joining, and for one collective operation."""
    publish_address: bool
    """Set MASTER_ADDR and MASTER_PORT."""
    loopback: bool
    """True if all ranks are on one node."""
    addresses: tuple[str, ...] = ()
    """Address of each rank's node if there are several nodes."""


class WorkerGroup(ABC):
    """Started workers in rank order.

    The `execute` family runs functions on the workers alongside the training function. An error is
    raised as soon as the first worker has it.
    """

    @property
    @abstractmethod
    def workers(self) -> Sequence[Worker]:
        """Workers by rank."""

    def __len__(self) -> int:
        return len(self.workers)

    @abstractmethod
    def execute_single_async(
        self, rank: int, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> ObjectRef[R]:
        """Start `fn` on one rank."""

    @abstractmethod
    def gather(self, refs: Sequence[ObjectRef[R]]) -> list[R]:
        """Return the results behind `refs` in order. Raises the first error immediately, though
        other workers may still wait for the failed one.
        """

    def execute_single(self, rank: int, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `fn` on one rank and return its result."""
        return self.gather([self.execute_single_async(rank, fn, *args, **kwargs)])[0]

    def execute_async(
        self, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> list[ObjectRef[R]]:
        """Start `fn` on every rank; return references by rank."""
        return [self.execute_single_async(rank, fn, *args, **kwargs) for rank in range(len(self))]

    def execute(self, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> list[R]:
        """Run `fn` on every rank in parallel; return results by rank."""
        return self.gather(self.execute_async(fn, *args, **kwargs))


ConfigT = TypeVar("ConfigT", bound="BackendConfig")


class Backend(Generic[ConfigT]):
    """Setup and shutdown of a framework on a worker group. The default methods do nothing."""

    def on_start(self, worker_group: WorkerGroup, backend_config: ConfigT) -> None:
        """Set up the framework. The workers run; their ranks and GPUs are known. An error fails
        the attempt.
        """

    def on_training_start(self, worker_group: WorkerGroup, backend_config: ConfigT) -> None:
        """Prepare the start of the training functions, which follows."""

    def on_shutdown(self, worker_group: WorkerGroup, backend_config: ConfigT) -> None:
        """Shut the framework down after every training function has returned. Not called for a
        group that failed.
        """


class BackendConfig:
    """Configuration of a framework; subclass it together with `Backend`. Instances are pickled."""

    @property
    def backend_cls(self) -> type[Backend[Any]]:
        """Backend for this configuration."""
        return Backend

    @property
    def worker_modules(self) -> Sequence[str]:
        """Names of modules that every worker imports as it starts, all workers in parallel."""
        return ()

    @property
    def collective_timeout_s(self) -> float:
        """Seconds after which the framework itself ends a collective operation."""
        return math.inf

    @property
    def train_func_context(self) -> Callable[[], AbstractContextManager[object]]:
        """Factory of the context around the training function, in its thread on the worker."""
        return nullcontext

    @property
    def local_context(self) -> Callable[[], AbstractContextManager[object]]:
        """The same for `num_workers=0`, in the program's own process and without a backend."""
        return self.train_func_context


def hosts_of(workers: Sequence[Worker]) -> list[str]:
    """Return by rank the address of a worker for the others: loopback if all are on one node."""
    one_node = len({worker.node_id for worker in workers}) == 1
    return [LOOPBACK if one_node else worker.node_ip for worker in workers]


def host_and_port(host: str, port: int) -> str:
    """Return both as text: `10.0.0.1:8476` or `[fd00::1]:8476`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_this_process(worker: Worker) -> bool:
    """Return True if a worker is in the controller's own process, as with the inline engine."""
    return worker.pid == os.getpid() and worker.hostname == socket.gethostname()


def hold_port() -> int:
    """Return a free port and hold it until `release_ports`."""
    holder = socket.socket()
    holder.bind(("", 0))
    _held.append(holder)
    port: int = holder.getsockname()[1]
    return port


def release_ports() -> None:
    """Release the held ports of this process, before the framework binds them."""
    while _held:
        _held.pop().close()


def visible_indices(gpu_ids: Sequence[str]) -> list[int]:
    """Return CUDA's index of each of `gpu_ids` in this process.

    Raises:
        RuntimeError: One of them is not visible.
    """
    visible = settings.visible_gpus()
    if visible is None:
        return [int(gpu_id) for gpu_id in gpu_ids]
    order = [name.strip() for name in visible.split(",")]
    missing = [gpu_id for gpu_id in gpu_ids if gpu_id not in order]
    if missing:
        raise RuntimeError(
            f"This worker was assigned GPU {', '.join(missing)}, but "
            f"CUDA_VISIBLE_DEVICES={visible!r} hides it: do not change CUDA_VISIBLE_DEVICES in the "
            "worker or in `runtime_env`."
        )
    return [order.index(gpu_id) for gpu_id in gpu_ids]


def leave_within(limit_s: float, leave: Callable[[], object], what: str) -> None:
    """Call a function by which this rank leaves the others; log a warning at the limit.

    It may wait forever for a rank that has failed. Its thread is then abandoned and ends with the
    process.
    """
    thread = threading.Thread(target=leave, name="syncline-leave", daemon=True)
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        logger.warning(
            "%s within %g s, probably because a peer has failed. It ends with this process.",
            what,
            limit_s,
        )


def choose_backend(backend: str | None, *, gpus: bool) -> str:
    """Return `backend`, or the default of torch for a group with or without GPUs."""
    return backend or ("nccl" if gpus else "gloo")
