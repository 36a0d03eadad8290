"""The worker's side of the process group: open the rendezvous (rank 0), join, leave; and the
context of the training function.

The rendezvous is a `TCPStore` on a port that rank 0 has bound before it is published, so that no
other process can take it. Workers of one node communicate over the loopback interface. On several
nodes, Gloo and NCCL use the interface that has the node's address.

For a training function in the program's own process (local mode, the inline engine),
`training_context` creates and destroys the process group, also if the function fails, and restores
the environment variables of the program.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from syncline import settings
from syncline.core import thread_limits
from syncline.core.host import interface_of
from syncline.diagnosis import torch_flight_recorder
from syncline.train.backend import LOOPBACK, GroupPlan, choose_backend, leave_within
from syncline.train.session import TrainSession, get_session
from syncline.train.torch.device import get_device

LEAVE_LIMIT_S = 10.0
"""Seconds that `leave` waits for torch; the process exits soon afterwards in any case."""


# Rank 0's store serves all ranks until the process ends.
_store: Store | None = None


def open_rendezvous(host: str, world_size: int, timeout_s: float) -> int:
    """Open the store on a free port of `host`, and return the port. Called on rank 0."""
    global _store
    # Given only a host name, torch would listen on every interface, so create the socket here.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family, backlog=max(128, world_size)) as listener:
        port: int = listener.getsockname()[1]
        _store = make_store(host, port, world_size, timeout_s, listener.detach())
    return port


def make_store(
    host: str, port: int, world_size: int, timeout_s: float, listener: int | None = None
) -> Store:
    """Return the store at an address: its server if a listening socket is passed, otherwise a
    client.
    """
    store: Store = dist.TCPStore(
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
    """Set this rank's environment and device, and join the process group.

    Raises:
        RuntimeError: Joining failed.
    """
    session = get_session("torch.process_group.join")
    if "nccl" in plan.backend and not torch.cuda.is_available():
        raise RuntimeError(
            f"Rank {session.world_rank} cannot use NCCL: PyTorch {torch.__version__} finds no CUDA "
            "device on this node. Install a CUDA build of PyTorch and check the driver with "
            "`nvidia-smi`, train on CPUs with `ScalingConfig(use_gpu=False)`, or set "
            "`torch_config=TorchConfig(backend='gloo')`."
        )
    os.environ.update(rank_environment(session, plan))
    interface = None if plan.loopback else interface_of(plan.addresses[session.world_rank])
    for name, value in default_environment(plan, interface).items():
        os.environ.setdefault(name, value)
    limit_threads(session.local_world_size)
    use_assigned_device()
    enter_group(session, plan)
    session.follow_calls(torch_flight_recorder.recent_calls)


def rank_environment(session: TrainSession, plan: GroupPlan) -> dict[str, str]:
    """Return the variables for this rank and its peers, which other libraries read."""
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
            # The store exists already: groups that the program creates from `env://` connect to it
            # as clients, on rank 0 too.
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "0",
        }
    return environment


def accelerate_environment() -> dict[str, str]:
    """Return the variables of Hugging Face's Accelerate. Without ACCELERATE_USE_CPU, it treats a
    worker without GPU as the only process.
    """
    device = get_device()
    return {"ACCELERATE_TORCH_DEVICE": str(device), "ACCELERATE_USE_CPU": str(device.type == "cpu")}


def default_environment(plan: GroupPlan, interface: str | None = None) -> dict[str, str]:
    """Return variables to set unless the program has set them.

    Args:
        plan: Plan of the group.
        interface: Network interface with this node's address, if there is one.
    """
    environment = torch_flight_recorder.environment(plan.backend)
    if "nccl" in plan.backend:
        # If a collective operation fails or times out, raise an error instead of hanging in a
        # kernel.
        environment["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "1"
    if plan.loopback:
        interface = "lo0" if sys.platform == "darwin" else "lo"
    if interface is not None:
        # Without "=", NCCL treats the name as a prefix.
        environment |= {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": f"={interface}"}
    return environment


def limit_threads(local_world_size: int) -> None:
    """Divide the node's cores among its workers, or apply OMP_NUM_THREADS.

    Calls torch explicitly, since a process forked after `import torch` no longer reads the
    variable.
    """
    thread_limits.lift()  # of the actor
    wanted = thread_limits.of_program()
    if wanted is not None and wanted.isdigit():
        torch.set_num_threads(max(1, int(wanted)))
    elif local_world_size > 1:
        torch.set_num_threads(max(1, torch.get_num_threads() // local_world_size))
    # For other libraries: Accelerate would use all cores of the machine.
    thread_limits.limit(torch.get_num_threads())


def enter_group(session: TrainSession, plan: GroupPlan) -> None:
    """Call `init_process_group` on the plan's store."""
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
            f"Rank {session.world_rank} of {session.world_size} could not join the process group "
            f"at {plan.host}:{plan.port} (backend={plan.backend!r}, timeout_s={plan.timeout_s:g}): "
            f"{error}. Check that every node reaches this address, that GLOO_SOCKET_IFNAME or "
            "NCCL_SOCKET_IFNAME, if set, names an existing interface, and that this PyTorch has "
            "the backend. To change backend or time limit, set "
            "`torch_config=TorchConfig(backend=..., timeout_s=...)`."
        ) from error


def leave() -> None:
    """Destroy the process group if there is one. Takes at most `LEAVE_LIMIT_S`."""
    if dist.is_initialized():
        leave_within(LEAVE_LIMIT_S, dist.destroy_process_group, "The process group did not end")


def use_assigned_device() -> None:
    """Make the worker's first GPU the current device of this thread; do nothing without GPUs."""
    device = get_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)


@contextmanager
def training_context(
    backend: str | None, timeout_s: float, publish_address: bool
) -> Iterator[None]:
    """Context of the training function, in its thread: current CUDA device (which is per thread)
    and process group.
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
    """Join the processes that torchrun started, or create a group of one rank."""
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
    """Restore the environment variables after the block."""
    before = settings.inherited_environment()
    try:
        yield
    finally:
        for name in set(settings.inherited_environment()) - set(before):
            del os.environ[name]
        os.environ.update(before)
