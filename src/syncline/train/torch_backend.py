"""`TorchConfig`, the configuration of a torch process group, and its backend in the controller.

Rank 0 opens the rendezvous and returns its port; then all ranks join. The worker's side is in
`torch.process_group`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from syncline.suggestions import suggest_arguments
from syncline.train.backend import (
    Backend,
    BackendConfig,
    GroupPlan,
    Worker,
    WorkerGroup,
    choose_backend,
    hosts_of,
    is_this_process,
)

InitMethod = Literal["env", "tcp"]

WORKER_SIDE = "syncline.train.torch.process_group"


def worker_side(function: str) -> Callable[..., Any]:
    """Return a function of `torch.process_group` that is imported where it is called."""
    return partial(_call, function)


def _call(function: str, *args: object) -> Any:
    from syncline.train.torch import process_group  # loads torch: only on the workers

    return getattr(process_group, function)(*args)


@suggest_arguments
@dataclass(frozen=True)
class TorchConfig(BackendConfig):
    """Configuration of the `torch.distributed` process group of a `TorchTrainer`.

    Raises:
        ValueError, TypeError: A field is invalid.
    """

    backend: str | None = None
    """Backend of `torch.distributed`; None for "nccl" with `use_gpu`, else "gloo"."""
    init_method: InitMethod = "env"
    """ "env" also publishes the rendezvous as MASTER_ADDR and MASTER_PORT, so that `env://` finds
    it; "tcp" does not.
    """
    timeout_s: float = 1800
    """Time limit in seconds for joining the group, and for one collective operation."""

    def __post_init__(self) -> None:
        if self.backend is not None and not isinstance(self.backend, str):
            raise TypeError(
                f"`TorchConfig(backend={self.backend!r})` is not a string: pass 'nccl', 'gloo', or "
                "None for the default."
            )
        if self.backend == "":
            raise ValueError(
                "`TorchConfig(backend='')` is empty: pass 'nccl', 'gloo', or None for the default."
            )
        if self.init_method not in get_args(InitMethod):
            raise ValueError(
                f"`TorchConfig(init_method={self.init_method!r})` is unknown: pass 'env' or 'tcp'."
            )
        if isinstance(self.timeout_s, bool) or not isinstance(self.timeout_s, (int, float)):
            raise TypeError(f"`TorchConfig(timeout_s={self.timeout_s!r})` is not a number.")
        if not self.timeout_s > 0:
            raise ValueError(f"`TorchConfig(timeout_s={self.timeout_s!r})` must be positive.")

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
    def train_func_context(self) -> Callable[[], AbstractContextManager[object]]:
        return partial(
            _call, "training_context", self.backend, self.timeout_s, self.init_method == "env"
        )


class TorchBackend(Backend[TorchConfig]):
    """Makes a worker group one process group, even if it has only one worker."""

    def on_start(self, worker_group: WorkerGroup, backend_config: TorchConfig) -> None:
        """Let every rank join. For a worker in this process, `training_context` creates the group.

        Raises:
            ValueError: NCCL, and several workers share a GPU.
            RuntimeError: A rank could not join.
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
        """Let every rank leave; returns after a limit even if one cannot."""
        worker_group.execute(worker_side("leave"))


def refuse_shared_gpus(workers: Sequence[Worker]) -> None:
    """Check that no two workers have the same first GPU, as NCCL would fail with an obscure error.

    Raises:
        ValueError: Two workers share a GPU.
    """
    owners: dict[tuple[str, str], int] = {}
    for worker in workers:
        if not worker.gpu_ids:
            continue
        owner = owners.setdefault((worker.node_id, worker.gpu_ids[0]), worker.rank)
        if owner != worker.rank:
            raise ValueError(
                f"Ranks {owner} and {worker.rank} share GPU {worker.gpu_ids[0]} of node "
                f"{worker.node_ip}, and NCCL needs different GPUs. Assign every worker a whole GPU "
                "(`resources_per_worker={'GPU': 1}`), or set "
                "`torch_config=TorchConfig(backend='gloo')`."
            )
