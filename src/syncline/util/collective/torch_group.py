"""`TorchGroup`: one collective group of this process, as a process group of torch.

The group has a separate store: rank 0 opens it and publishes its address in the engine's key
values. The default group of `torch.distributed` is neither used nor created. Arrays of numpy share
their memory with the tensors, so all operations work in place.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from syncline.core.key_values import KeyValues
from syncline.util.collective.types import Backend, ReduceOp

CONNECT_S = 3.0
"""Seconds to connect to a published address, which may be one of an earlier group."""
POLL_S = 0.005

_Gloo: Any = getattr(dist, "ProcessGroupGloo", None)
"""The class, some of whose attributes have no type hints; None if torch has no gloo."""
_OPERATIONS: dict[ReduceOp, Any] = {
    ReduceOp.SUM: dist.ReduceOp.SUM,
    ReduceOp.PRODUCT: dist.ReduceOp.PRODUCT,
    ReduceOp.MIN: dist.ReduceOp.MIN,
    ReduceOp.MAX: dist.ReduceOp.MAX,
}


def is_available(backend: str) -> bool:
    """Return True if torch has the backend; NCCL also needs a GPU."""
    if backend == Backend.NCCL:
        return dist.is_nccl_available() and torch.cuda.is_available()
    return dist.is_available() and dist.is_gloo_available()


def synchronize(gpu_id: int) -> None:
    """Wait for the work of a GPU of this process."""
    torch.cuda.synchronize(gpu_id)


class TorchGroup:
    """A group of `world_size` ranks. Blocks until all ranks have joined.

    Args:
        name: Name of the group, equal on all ranks.
        backend: `Backend.GLOO` or `Backend.NCCL`.
        values: Key values of the engine.
        namespace: Namespace of the program in the key values.
        address: Address of this node.
        timeout_s: Seconds to wait for other ranks, here and in each operation.

    Raises:
        RuntimeError: The other ranks did not join or take part in time.
    """

    def __init__(
        self,
        *,
        name: str,
        backend: str,
        rank: int,
        world_size: int,
        values: KeyValues,
        namespace: bytes,
        address: str,
        timeout_s: float,
    ) -> None:
        self.name = name
        self.backend = backend
        self.rank = rank
        self.world_size = world_size
        self._timeout = timedelta(seconds=timeout_s)
        self._values = values
        self._namespace = namespace
        self._key = name.encode()
        self._store = self._open(address) if rank == 0 else self._join()
        store = dist.PrefixStore(backend, self._store)
        self._group: Any
        if backend == Backend.NCCL:
            nccl = dist.ProcessGroupNCCL.Options()
            nccl._timeout = self._timeout
            self._group = dist.ProcessGroupNCCL(store, rank, world_size, nccl)
        else:
            options = _Gloo._Options()
            options._timeout = self._timeout
            options._devices = [_Gloo.create_device(hostname=address)]
            self._group = _Gloo(store, rank, world_size, options)

    # -- operations

    def allreduce(self, tensor: object, op: ReduceOp) -> None:
        """Combine the tensors of all ranks."""
        options = dist.AllreduceOptions()
        options.reduceOp = _OPERATIONS[op]
        with _InPlace(tensor) as dense:
            self._group.allreduce([dense], options).wait()

    def reduce(self, tensor: object, dst_rank: int, op: ReduceOp) -> None:
        """Combine the tensors of all ranks in that of `dst_rank`; the others keep theirs."""
        options = dist.ReduceOptions()
        options.reduceOp, options.rootRank = _OPERATIONS[op], self._checked(dst_rank)
        if self.rank == dst_rank:
            with _InPlace(tensor) as dense:
                self._group.reduce([dense], options).wait()
        else:  # gloo leaves partial results behind
            self._group.reduce([_read(tensor).clone()], options).wait()

    def broadcast(self, tensor: object, src_rank: int) -> None:
        """Copy the tensor of `src_rank` to all ranks."""
        options = dist.BroadcastOptions()
        options.rootRank = self._checked(src_rank)
        if self.rank == src_rank:
            self._group.broadcast([_read(tensor)], options).wait()
        else:
            with _InPlace(tensor) as dense:
                self._group.broadcast([dense], options).wait()

    def allgather(self, tensors: Sequence[object], tensor: object) -> None:
        """Copy the tensor of each rank to `tensors[rank]` of all ranks."""
        self._check_length(tensors)
        sent = _read(tensor)
        found = [torch.empty_like(sent) for _ in tensors]
        self._group.allgather([found], [sent]).wait()
        for target, value in zip(tensors, found, strict=True):
            _write(target, value)

    def reducescatter(self, tensor: object, tensors: Sequence[object], op: ReduceOp) -> None:
        """Combine `tensors[rank]` of all ranks in the tensor of each rank."""
        self._check_length(tensors)
        options = dist.ReduceScatterOptions()
        options.reduceOp = _OPERATIONS[op]
        with _InPlace(tensor) as dense:
            sent = [_read(each).clone() for each in tensors]
            self._group.reduce_scatter([dense], [sent], options).wait()

    def send(self, tensor: object, dst_rank: int) -> None:
        """Send the tensor to another rank."""
        self._check_other(dst_rank)
        self._group.send([_read(tensor)], dst_rank, 0).wait()

    def recv(self, tensor: object, src_rank: int) -> None:
        """Receive a tensor of the same shape and type from another rank."""
        self._check_other(src_rank)
        with _InPlace(tensor) as dense:
            self._group.recv([dense], src_rank, 0).wait()

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._group.barrier(dist.BarrierOptions()).wait()
        if self.backend == Backend.NCCL:
            torch.cuda.synchronize()

    def destroy(self) -> None:
        """Leave the group."""
        if self.rank == 0:
            self._values.delete(self._key, self._namespace)
        self._group.shutdown()

    # -- the store

    def _open(self, address: str) -> dist.Store:
        store = dist.TCPStore(
            address, 0, is_master=True, wait_for_workers=False, timeout=self._timeout
        )
        token = secrets.token_hex(8)
        store.set("token", token)
        self._values.put(self._key, f"{address} {store.port} {token}".encode(), self._namespace)
        return store

    def _join(self) -> dist.Store:
        deadline = time.monotonic() + self._timeout.total_seconds()
        rejected: set[bytes] = set()
        while time.monotonic() < deadline:
            published = self._values.get(self._key, self._namespace)
            if published is not None and published not in rejected:
                store = self._connected(published)
                if store is not None:
                    store.set_timeout(self._timeout)
                    return store
                rejected.add(published)
            time.sleep(POLL_S)
        raise RuntimeError(
            f"Rank {self.rank} of the collective group {self.name!r} found no rank 0 within "
            f"{self._timeout.total_seconds():g} s. Each of the {self.world_size} ranks must join "
            "the group; increase `gloo_timeout` if they start later."
        )

    def _connected(self, published: bytes) -> dist.Store | None:
        """Return the store at an address; None if it is that of an earlier group."""
        host, port, token = published.decode().split()
        try:
            store = dist.TCPStore(
                host, int(port), wait_for_workers=False, timeout=timedelta(seconds=CONNECT_S)
            )
            if store.get("token") != token.encode():
                return None
            # A store whose ranks are complete belongs to a group that was not destroyed.
            return store if store.add("joined", 1) < self.world_size else None
        except RuntimeError:
            return None

    # -- checks

    def _checked(self, rank: int) -> int:
        if not 0 <= rank < self.world_size:
            raise ValueError(
                f"Rank {rank} does not exist in the group {self.name!r}: it has the ranks 0 to "
                f"{self.world_size - 1}."
            )
        return rank

    def _check_other(self, rank: int) -> None:
        if self._checked(rank) == self.rank:
            raise RuntimeError(
                f"Rank {rank} of the group {self.name!r} cannot send to or receive from itself."
            )

    def _check_length(self, tensors: Sequence[object]) -> None:
        if len(tensors) != self.world_size:
            raise RuntimeError(
                f"The list has {len(tensors)} tensors, but the group {self.name!r} has "
                f"{self.world_size} ranks: pass one tensor per rank."
            )

    def __repr__(self) -> str:
        return f"TorchGroup({self.name!r}, {self.backend}, rank {self.rank} of {self.world_size})"


class _InPlace:
    """Gives a dense tensor, and writes it back to the user's tensor or array at the end."""

    def __init__(self, value: object) -> None:
        self._target = _as_tensor(value, writes=True)
        self._dense = self._target.contiguous()

    def __enter__(self) -> torch.Tensor:
        return self._dense

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self._dense is not self._target:
            self._target.copy_(self._dense)


def _read(value: object) -> torch.Tensor:
    return _as_tensor(value, writes=False).contiguous()


def _write(target: object, value: torch.Tensor) -> None:
    _as_tensor(target, writes=True).copy_(value)


def _as_tensor(value: Any, *, writes: bool) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.detach()
    if type(value).__module__ == "numpy" and hasattr(value, "flags"):
        if value.flags.writeable:
            return torch.from_numpy(value)
        if not writes:
            return torch.from_numpy(value.copy())
        raise ValueError(
            "The array is read-only, as arrays from `get` and from arguments are: pass a copy "
            "(`array.copy()`), whose values the operation may change."
        )
    raise RuntimeError(
        f"A collective operation got a {type(value).__name__}: pass a torch tensor or a numpy "
        "array."
    )
