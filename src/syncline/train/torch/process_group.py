"""The worker's side of the process group: open the rendezvous (rank 0), join, leave; and what
surrounds the training function.

The rendezvous is a `TCPStore` on a port that rank 0 holds before anybody hears of it, so nobody
else can take it in between. Workers of one node meet on the loopback interface; on several nodes,
Gloo and NCCL are told the interface that has the node's address.

A training function that runs in the program's own process (local mode, the inline engine) has its
process group made and removed by `training_context`, which sees the function fail too: the program
goes on afterwards, in the environment that it had.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from syncline import settings
from syncline.core.host import interface_of
from syncline.train.backend import LOOPBACK
from syncline.train.session import TrainSession, get_session
from syncline.train.torch.device import get_device
from syncline.train.torch_backend import GroupPlan, choose_backend

logger = logging.getLogger(__name__)

LEAVE_LIMIT_S = 10.0
"""How long `leave` waits for torch; the process ends soon afterwards in any case."""


# Rank 0's store serves all ranks until the process ends.
_store: Store | None = None


def open_rendezvous(host: str, world_size: int, timeout_s: float) -> int:
    """Open the store on `host`, on a free port, and return the port. For rank 0."""
    global _store
    # Given only a name, torch would listen on every interface; the socket is therefore made here.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family, backlog=max(128, world_size)) as listener:
        port: int = listener.getsockname()[1]
        _store = make_store(host, port, world_size, timeout_s, listener.detach())
    return port


def make_store(
    host: str, port: int, world_size: int, timeout_s: float, listener: int | None = None
) -> Store:
    """The store at an address: the one that serves it if `listener`, a listening socket, is given;
    else a client's.
    """
    store: Store = dist.TCPStore(  # type: ignore[attr-defined]
        host,
        port,
        world_size=world_size,
        is_master=listener is not None,
        timeout=timedelta(seconds=timeout_s),
        wait_for_workers=False,
        master_listen_fd=listener,
    )
    return store


def join(plan: GroupPlan) -> None:
    """Set this rank's environment and device, and enter the process group; returns when torch has
    it.

    Raises:
        RuntimeError: with rank, address and remedy.
    """
    session = get_session("torch.process_group.join")
    if "nccl" in plan.backend and not torch.cuda.is_available():
        raise RuntimeError(
            f"Rank {session.world_rank} was to use NCCL, but PyTorch {torch.__version__} finds no CUDA device on this node: install a "
            "CUDA build of PyTorch and check the driver with `nvidia-smi`, or train on CPUs with `ScalingConfig(use_gpu=False)`, or "
            "choose `torch_config=TorchConfig(backend='gloo')`."
        )
    os.environ.update(rank_environment(session, plan))
    interface = None if plan.loopback else interface_of(plan.addresses[session.world_rank])
    for name, value in default_environment(plan, interface).items():
        os.environ.setdefault(name, value)
    limit_threads(session.local_world_size)
    use_assigned_device()
    enter_group(session, plan)


def rank_environment(session: TrainSession, plan: GroupPlan) -> dict[str, str]:
    """The variables that say where this rank stands; other libraries read them."""
    environment = {
        "RANK": str(session.world_rank),
        "WORLD_SIZE": str(session.world_size),
        "LOCAL_RANK": str(session.local_rank),
        "LOCAL_WORLD_SIZE": str(session.local_world_size),
        "NODE_RANK": str(session.node_rank),
        **accelerate_environment(),
    }
    if plan.publish_address:
        environment |= {
            "MASTER_ADDR": plan.host,
            "MASTER_PORT": str(plan.port),
            # The store runs already: whoever starts a group of his own from `env://` connects to
            # it, on rank 0 too.
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "0",
        }
    return environment


def accelerate_environment() -> dict[str, str]:
    """What Hugging Face's Accelerate reads. Where it is not told to use CPUs, it takes a worker
    without a GPU for the only one.
    """
    device = get_device()
    return {"ACCELERATE_TORCH_DEVICE": str(device), "ACCELERATE_USE_CPU": str(device.type == "cpu")}


def default_environment(plan: GroupPlan, interface: str | None = None) -> dict[str, str]:
    """Variables that hold only where the user has not set them; `interface` has this node's
    address, if one does.
    """
    environment = {}
    if "nccl" in plan.backend:
        # A rank whose collective fails or times out ends with an error instead of waiting in a
        # kernel for ever.
        environment["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "1"
    if plan.loopback:
        interface = "lo0" if sys.platform == "darwin" else "lo"
    if interface is not None:
        # NCCL takes the name for the beginning of one, unless it is told otherwise.
        environment |= {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": f"={interface}"}
    return environment


def limit_threads(local_world_size: int) -> None:
    """Share the node's cores between its workers, or obey OMP_NUM_THREADS.

    MessageReceived to torch explicitly: a process that was forked after `import torch` no longer reads the
    variable.
    """
    wanted = settings.environment("OMP_NUM_THREADS")
    if wanted is not None and wanted.isdigit():
        torch.set_num_threads(max(1, int(wanted)))
    elif local_world_size > 1:
        torch.set_num_threads(max(1, torch.get_num_threads() // local_world_size))
    # For libraries that would choose for themselves: Accelerate counts the machine's cores, whoever
    # else may use them.
    os.environ.setdefault("OMP_NUM_THREADS", str(torch.get_num_threads()))


def enter_group(session: TrainSession, plan: GroupPlan) -> None:
    """`init_process_group` on the plan's store, its errors told so that they help."""
    try:
        store = (
            _store
            if session.world_rank == 0
            else make_store(plan.host, plan.port, session.world_size, plan.timeout_s)
        )
        dist.init_process_group(
            plan.backend,
            store=store,
            rank=session.world_rank,
            world_size=session.world_size,
            timeout=timedelta(seconds=plan.timeout_s),
        )
    except Exception as error:
        raise RuntimeError(
            f"Rank {session.world_rank} of {session.world_size} could not join the process group at {plan.host}:{plan.port} "
            f"(backend={plan.backend!r}, timeout_s={plan.timeout_s:g}): {error}. Check that every node reaches this address, that "
            "GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME, if set, names an interface that exists, and that the backend is built into "
            "this PyTorch; `torch_config=TorchConfig(backend=..., timeout_s=...)` changes both."
        ) from error


def leave() -> None:
    """Destroy the process group, if the training function has left one; never takes longer than the
    limit.
    """
    if not dist.is_initialized():
        return
    # With a failed peer torch may wait for collectives that never end; the thread is then
    # abandoned, and dies with the process.
    thread = threading.Thread(
        target=dist.destroy_process_group, name="destroy-process-group", daemon=True
    )
    thread.start()
    thread.join(LEAVE_LIMIT_S)
    if thread.is_alive():
        logger.warning(
            "The process group did not end within %g s: a peer has probably failed. It ends with this process.",
            LEAVE_LIMIT_S,
        )


def use_assigned_device() -> None:
    """Make the worker's first GPU the current device of this thread; nothing without GPUs."""
    device = get_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)


@contextmanager
def training_context(
    backend: str | None, timeout_s: float, publish_address: bool
) -> Iterator[None]:
    """What the training function runs in, in its own thread: the worker's device (CUDA keeps one
    per thread), a process group.
    """
    use_assigned_device()
    if dist.is_initialized():
        yield
        return
    session = get_session("torch.process_group.training_context")
    excepthook = sys.excepthook  # torch replaces it
    with unchanged_environment():
        enter_local_group(
            session,
            choose_backend(backend, gpus=get_device().type == "cuda"),
            timeout_s,
            publish_address,
        )
        try:
            yield
        finally:
            leave()
            sys.excepthook = excepthook


def enter_local_group(
    session: TrainSession, backend: str, timeout_s: float, publish_address: bool
) -> None:
    """Join the processes that torchrun started, or be a group of one."""
    if session.world_size > 1:
        os.environ.update(accelerate_environment())
        dist.init_process_group(backend, init_method="env://", timeout=timedelta(seconds=timeout_s))
        return
    join(
        GroupPlan(
            backend=backend,
            host=LOOPBACK,
            port=open_rendezvous(LOOPBACK, 1, timeout_s),
            timeout_s=timeout_s,
            publish_address=publish_address,
            loopback=True,
        )
    )


@contextmanager
def unchanged_environment() -> Iterator[None]:
    """Undo afterwards what a block, or a training function in it, did to the environment
    variables.
    """
    before = settings.inherited_environment()
    try:
        yield
    finally:
        for name in set(settings.inherited_environment()) - set(before):
            del os.environ[name]
        os.environ.update(before)
