"""What a program states about its torch process group, and the backend that acts on it from the
controller's side.

Two exchanges with the workers: rank 0 opens the rendezvous and says where; then every rank joins at
once. The worker's side is in `torch.process_group`, named here by text: a controller that runs in a
process of its own is spared the seconds that torch takes to import.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from syncline.train.backend import (
    Backend,
    BackendConfig,
    Worker,
    WorkerGroup,
    hosts_of,
    is_this_process,
)

InitMethod = Literal["env", "tcp"]

WORKER_SIDE = "syncline.train.torch.process_group"


@dataclass(frozen=True, kw_only=True)
class GroupPlan:
    """What every rank needs in order to join."""

    backend: str
    """As `torch.distributed` spells it."""
    host: str
    """Where rank 0's store listens."""
    port: int
    """Its port."""
    timeout_s: float
    """Seconds for joining, and for one collective operation afterwards."""
    publish_address: bool
    """Whether MASTER_ADDR and MASTER_PORT are set."""
    loopback: bool
    """Whether all ranks are on one node."""
    addresses: tuple[str, ...] = ()
    """The address of each rank's node, where there are several."""


def choose_backend(backend: str | None, *, gpus: bool) -> str:
    """The backend for a group with or without GPUs, where the program names none."""
    return backend or ("nccl" if gpus else "gloo")


def worker_side(function: str) -> Callable[..., Any]:
    """A function of `torch.process_group`, looked up where it is called."""
    return partial(_call, function)


def _call(function: str, *args: Any) -> Any:
    return getattr(importlib.import_module(WORKER_SIDE), function)(*args)


@dataclass(frozen=True)
class TorchConfig(BackendConfig):
    """How the workers of a `TorchTrainer` become one `torch.distributed` process group.

    Raises:
        ValueError, TypeError: for a field that cannot be meant.
    """

    backend: str | None = None
    """The communication backend as `torch.distributed` spells it; None: "nccl" with `use_gpu`, else
    "gloo".
    """
    init_method: InitMethod = "env"
    """ "env" also publishes the rendezvous as MASTER_ADDR and MASTER_PORT, so that `env://` finds
    it; "tcp" does not.
    """
    timeout_s: float = 1800
    """Seconds after which joining the group, or one collective operation, is an error."""

    def __post_init__(self) -> None:
        if self.backend is not None and not isinstance(self.backend, str):
            raise TypeError(
                f"`TorchConfig(backend={self.backend!r})` is not a string: give 'nccl', 'gloo', or None to have it chosen."
            )
        if self.backend == "":
            raise ValueError(
                "`TorchConfig(backend='')` names no backend: give 'nccl', 'gloo', or None to have it chosen."
            )
        if self.init_method not in get_args(InitMethod):
            raise ValueError(
                f"`TorchConfig(init_method={self.init_method!r})` is unknown: give 'env' or 'tcp'."
            )
        if isinstance(self.timeout_s, bool) or not isinstance(self.timeout_s, (int, float)):
            raise TypeError(f"`TorchConfig(timeout_s={self.timeout_s!r})` is no number of seconds.")
        if not self.timeout_s > 0:
            raise ValueError(
                f"`TorchConfig(timeout_s={self.timeout_s!r})` leaves no time to join: give a positive number of seconds."
            )

    @property
    def backend_cls(self) -> type[Backend[Any]]:
        return TorchBackend

    @property
    def worker_modules(self) -> Sequence[str]:
        return (WORKER_SIDE,)

    @property
    def collective_timeout_s(self) -> float:
        return self.timeout_s

    @property
    def train_func_context(self) -> Callable[[], AbstractContextManager[Any]]:
        return partial(
            _call, "training_context", self.backend, self.timeout_s, self.init_method == "env"
        )


class TorchBackend(Backend[TorchConfig]):
    """Makes a worker group one process group, also where it has a single worker."""

    def on_start(self, worker_group: WorkerGroup, backend_config: TorchConfig) -> None:
        """Every rank joins. A worker in this process does not: `training_context` makes its group.

        Raises:
            ValueError: NCCL where several workers share a GPU.
            RuntimeError: from the first rank that could not join.
        """
        workers = worker_group.workers
        if is_this_process(workers[0]):
            return
        backend = choose_backend(backend_config.backend, gpus=bool(workers[0].gpu_ids))
        if "nccl" in backend:
            refuse_shared_gpus(workers)
        one_node = len({worker.node_id for worker in workers}) == 1
        host = hosts_of(workers)[0]
        port = worker_group.execute_single(
            0, worker_side("open_rendezvous"), host, len(workers), backend_config.timeout_s
        )
        plan = GroupPlan(
            backend=backend,
            host=host,
            port=port,
            timeout_s=backend_config.timeout_s,
            publish_address=backend_config.init_method == "env",
            loopback=one_node,
            addresses=() if one_node else tuple(worker.node_ip for worker in workers),
        )
        worker_group.execute(worker_side("join"), plan)

    def on_shutdown(self, worker_group: WorkerGroup, backend_config: TorchConfig) -> None:
        """Every rank leaves; returns after a limit even where one cannot."""
        worker_group.execute(worker_side("leave"))


def refuse_shared_gpus(workers: Sequence[Worker]) -> None:
    """ValueError if two workers have the same first GPU: NCCL would fail at the first collective,
    with a message that helps nobody.
    """
    owners: dict[tuple[str, str], int] = {}
    for worker in workers:
        if not worker.gpu_ids:
            continue
        owner = owners.setdefault((worker.node_id, worker.gpu_ids[0]), worker.rank)
        if owner != worker.rank:
            raise ValueError(
                f"Ranks {owner} and {worker.rank} share GPU {worker.gpu_ids[0]} of node {worker.node_ip}, and NCCL is_communicating only "
                "between different GPUs: give every worker a whole GPU (`resources_per_worker={'GPU': 1}`), or choose "
                "`torch_config=TorchConfig(backend='gloo')`."
            )
