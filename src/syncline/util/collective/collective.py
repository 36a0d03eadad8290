"""Functions of `util.collective`, and the groups of this process.

A group is joined with `init_collective_group` in each member, or declared once for actors with
`create_collective_group`; an actor then joins with its first operation.
Joining waits for all ranks.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from syncline.core import api
from syncline.core.engine import Engine
from syncline.core.lifecycle import ensure_engine, is_program
from syncline.core.remote import ActorHandle
from syncline.optional import load
from syncline.util.collective.types import Backend, ReduceOp

if TYPE_CHECKING:
    from syncline.util.collective.torch_group import TorchGroup


_groups: dict[str, TorchGroup] = {}
_lock = threading.RLock()


def nccl_available() -> bool:
    """Return True if groups of GPUs work here."""
    return is_backend_available(Backend.NCCL)


def gloo_available() -> bool:
    """Return True if groups of CPUs work here."""
    return is_backend_available(Backend.GLOO)


def is_backend_available(backend: str) -> bool:
    """Return True if "gloo" or "nccl" works here."""
    available: bool = _torch_group().is_available(Backend(backend))
    return available


def register_collective_backend(backend: str, group_class: type) -> None:
    """Raise NotImplementedError: groups are process groups of torch."""
    raise NotImplementedError(
        f"The backend {backend!r} cannot be registered: register it with "
        "`torch.distributed.Backend.register_backend`, and use torch's process groups in the tasks."
    )


# -- groups


def is_group_initialized(group_name: str = "default") -> bool:
    """Return True if this process has joined the group."""
    return group_name in _groups


def init_collective_group(
    world_size: int,
    rank: int,
    backend: str = Backend.NCCL,
    group_name: str = "default",
    gloo_timeout: int = 30_000,
) -> None:
    """Join a group in a task or an actor; returns when all ranks have joined.

    Args:
        world_size: Number of ranks.
        rank: This process's rank.
        backend: "gloo" or "nccl".
        group_name: Name, equal on all ranks.
        gloo_timeout: Milliseconds to wait for other ranks, here and in each operation.

    Raises:
        RuntimeError: This is the driver; the process has joined the group already; the backend is
            not available; or the other ranks did not join in time.
        ValueError: Invalid rank, world size or name.
    """
    _check_inside_worker()
    if not group_name:
        raise ValueError("`group_name` is empty: pass a name, or omit it.")
    if world_size < 1 or not 0 <= rank < world_size:
        raise ValueError(
            f"`rank={rank}` with `world_size={world_size}` is impossible: a group has at least one "
            "rank, and ranks are 0 to `world_size - 1`."
        )
    with _lock:
        if group_name in _groups:
            raise RuntimeError(
                f"This process has joined the group {group_name!r} already: call "
                "`destroy_collective_group` first, or use another name."
            )
        _join(group_name, _usable(backend), world_size, rank, gloo_timeout)


def create_collective_group(
    actors: Sequence[ActorHandle],
    world_size: int,
    ranks: Sequence[int],
    backend: str = Backend.NCCL,
    group_name: str = "default",
    gloo_timeout: int = 30_000,
) -> None:
    """Declare a group of actors, for example in the driver; each joins with its first operation.

    Args:
        actors: Handles of the members.
        world_size: Number of ranks.
        ranks: Ranks of the actors, in their order.
        backend, group_name, gloo_timeout: As for `init_collective_group`.

    Raises:
        RuntimeError: The ranks do not fit, or a group of that name is declared.
    """
    if len(ranks) != len(actors) or len(actors) != world_size:
        raise RuntimeError(
            f"{len(actors)} actors and {len(ranks)} ranks do not make a group of {world_size}: "
            "pass one rank per actor."
        )
    if sorted(ranks) != list(range(world_size)):
        raise RuntimeError(
            f"The ranks {list(ranks)} are not those of a group of {world_size}: pass each of 0 to "
            f"{world_size - 1} once."
        )
    actor_ids = [int(actor._actor_id) for actor in actors]
    declare_group(actor_ids, ranks, backend, group_name, gloo_timeout)


def declare_group(
    actor_ids: Sequence[int],
    ranks: Sequence[int],
    backend: str,
    group_name: str,
    gloo_timeout: int = 30_000,
) -> None:
    """Declare a group of actors, given by their ids; see `create_collective_group`."""
    declaration = {
        "backend": Backend(backend),
        "world_size": len(ranks),
        "gloo_timeout": gloo_timeout,
        "ranks": {str(actor_id): rank for actor_id, rank in zip(actor_ids, ranks, strict=True)},
    }
    engine = ensure_engine()
    data = json.dumps(declaration).encode()
    if engine.key_values.put(group_name.encode(), data, _declared(engine), overwrite=False):
        raise RuntimeError(
            f"A group named {group_name!r} is declared already: destroy it in one of its actors, "
            "or use another name."
        )


def destroy_collective_group(group_name: str = "default") -> None:
    """Leave a group, and remove its declaration. Does nothing for an unknown group."""
    _check_inside_worker()
    with _lock:
        group = _groups.pop(group_name, None)
    if group is not None:
        engine = ensure_engine()
        engine.key_values.delete(group_name.encode(), _declared(engine))
        group.destroy()


def get_group_handle(group_name: str = "default") -> TorchGroup:
    """Return the group; join it if it is declared for this actor.

    Raises RuntimeError if this process is not a member.
    """
    _check_inside_worker()
    with _lock:
        if group_name not in _groups:
            _join_declared(group_name)
        return _groups[group_name]


def get_rank(group_name: str = "default") -> int:
    """Return this process's rank; -1 if it has not joined the group."""
    _check_inside_worker()
    group = _groups.get(group_name)
    return -1 if group is None else group.rank


def get_collective_group_size(group_name: str = "default") -> int:
    """Return the number of ranks; -1 if this process has not joined the group."""
    _check_inside_worker()
    group = _groups.get(group_name)
    return -1 if group is None else group.world_size


# -- operations


def allreduce(tensor: object, group_name: str = "default", op: ReduceOp = ReduceOp.SUM) -> None:
    """Replace the tensor of each rank by the combination of all, in place."""
    get_group_handle(group_name).allreduce(tensor, op)


def reduce(
    tensor: object, dst_rank: int = 0, group_name: str = "default", op: ReduceOp = ReduceOp.SUM
) -> None:
    """Replace the tensor of `dst_rank` by the combination of all; other ranks keep theirs."""
    get_group_handle(group_name).reduce(tensor, dst_rank, op)


def broadcast(tensor: object, src_rank: int = 0, group_name: str = "default") -> None:
    """Replace the tensor of each rank by that of `src_rank`."""
    get_group_handle(group_name).broadcast(tensor, src_rank)


def allgather(tensor_list: Sequence[object], tensor: object, group_name: str = "default") -> None:
    """Fill `tensor_list`, which has one tensor per rank, with the tensors of all ranks."""
    get_group_handle(group_name).allgather(tensor_list, tensor)


def reducescatter(
    tensor: Any,
    tensor_list: Sequence[object],
    group_name: str = "default",
    op: ReduceOp = ReduceOp.SUM,
) -> None:
    """Fill `tensor` with the combination of `tensor_list[rank]` of all ranks."""
    get_group_handle(group_name).reducescatter(tensor, tensor_list, op)


def send(tensor: object, dst_rank: int, group_name: str = "default") -> None:
    """Send the tensor to one rank, which calls `recv`."""
    get_group_handle(group_name).send(tensor, dst_rank)


def recv(tensor: object, src_rank: int, group_name: str = "default") -> None:
    """Replace the tensor by one that `src_rank` sends."""
    get_group_handle(group_name).recv(tensor, src_rank)


def barrier(group_name: str = "default") -> None:
    """Wait for all ranks."""
    get_group_handle(group_name).barrier()


# -- one process with several GPUs


def allreduce_multigpu(
    tensor_list: Sequence[object], group_name: str = "default", op: ReduceOp = ReduceOp.SUM
) -> None:
    """Call `allreduce` for the only tensor of the list."""
    allreduce(_only(tensor_list), group_name, op)


def reduce_multigpu(
    tensor_list: Sequence[object],
    dst_rank: int = 0,
    dst_tensor: int = 0,
    group_name: str = "default",
    op: ReduceOp = ReduceOp.SUM,
) -> None:
    """Call `reduce` for the only tensor of the list."""
    reduce(_only(tensor_list), dst_rank, group_name, op)


def broadcast_multigpu(
    tensor_list: Sequence[object],
    src_rank: int = 0,
    src_tensor: int = 0,
    group_name: str = "default",
) -> None:
    """Call `broadcast` for the only tensor of the list."""
    broadcast(_only(tensor_list), src_rank, group_name)


def allgather_multigpu(
    output_tensor_lists: Sequence[Sequence[object]],
    input_tensor_list: Sequence[object],
    group_name: str = "default",
) -> None:
    """Call `allgather` for the only tensor of the list."""
    allgather(_only(output_tensor_lists), _only(input_tensor_list), group_name)


def reducescatter_multigpu(
    output_tensor_list: Sequence[object],
    input_tensor_lists: Sequence[Sequence[object]],
    group_name: str = "default",
    op: ReduceOp = ReduceOp.SUM,
) -> None:
    """Call `reducescatter` for the only tensor of the list."""
    reducescatter(_only(output_tensor_list), _only(input_tensor_lists), group_name, op)


def send_multigpu(
    tensor: Any,
    dst_rank: int,
    dst_gpu_index: int = 0,
    group_name: str = "default",
    n_elements: int = 0,
) -> None:
    """Call `send`; the receiver has one GPU."""
    _check_first(dst_gpu_index)
    send(tensor.flatten()[:n_elements] if n_elements else tensor, dst_rank, group_name)


def recv_multigpu(
    tensor: Any,
    src_rank: int,
    src_gpu_index: int = 0,
    group_name: str = "default",
    n_elements: int = 0,
) -> None:
    """Call `recv`; the sender has one GPU."""
    _check_first(src_gpu_index)
    recv(tensor.view(-1)[:n_elements] if n_elements else tensor, src_rank, group_name)


def synchronize(gpu_id: int) -> None:
    """Wait for the work of a GPU of this process."""
    _torch_group().synchronize(gpu_id)


def _only(tensors: Sequence[object]) -> Any:
    if len(tensors) != 1:
        raise NotImplementedError(
            f"{len(tensors)} tensors of one process are not supported: start one process per GPU, "
            "and call the function without `_multigpu` in each."
        )
    return tensors[0]


def _check_first(gpu_index: int) -> None:
    if gpu_index != 0:
        raise NotImplementedError(
            f"GPU {gpu_index} of another process cannot be addressed: start one process per GPU, "
            "each with a rank of its own."
        )


# -- joining


def _join(name: str, backend: str, world_size: int, rank: int, timeout_ms: int) -> None:
    engine = ensure_engine()
    _groups[name] = _torch_group().TorchGroup(
        name=name,
        backend=backend,
        rank=rank,
        world_size=world_size,
        values=engine.key_values,
        namespace=_declared(engine) + b"-stores",
        address=engine.node_address(),
        timeout_s=timeout_ms / 1000,
    )


def _declared(engine: Engine) -> bytes:
    """Return the namespace of the program's declarations: on a cluster, they outlive it."""
    return f"syncline-collective-{engine.runtime_info().job_id}".encode()


def _join_declared(name: str) -> None:
    engine = ensure_engine()
    text = engine.key_values.get(name.encode(), _declared(engine))
    actor = engine.runtime_info().actor
    declared = {} if text is None else json.loads(text)
    rank = None if actor is None else declared.get("ranks", {}).get(str(int(actor.actor_id)))
    if rank is None:
        raise RuntimeError(
            f"This process is not a member of the collective group {name!r}: call "
            "`init_collective_group` here, or `create_collective_group` with this actor."
        )
    _join(
        name, _usable(declared["backend"]), declared["world_size"], rank, declared["gloo_timeout"]
    )


def _usable(backend: str) -> str:
    name: str = Backend(backend)
    if not is_backend_available(name):
        raise RuntimeError(
            f"The backend {name} is not available in this process: NCCL needs torch with CUDA and "
            "a GPU of the task or actor (`num_gpus=1`). Pass `backend='gloo'` for CPUs."
        )
    return name


def _check_inside_worker() -> None:
    context = api.get_runtime_context()
    if is_program() and context.get_task_id() is None and context.get_actor_id() is None:
        raise RuntimeError(
            "Collective functions run in tasks and actors, but this is the driver: call them in a "
            "remote function or a method."
        )


def _torch_group() -> Any:
    return load(
        "syncline.util.collective.torch_group",
        purpose="`util.collective`",
        install="torch",
        library="torch",
    )
