"""Tensors as regions of memory.

Covered: dense tensors on the CPU, in any order of their dimensions; tensors of CUDA devices, which
are copied to pinned memory on a separate stream first; the local part of a `DTensor`. Not covered:
sparse and quantized tensors, and tensors of the meta device.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, TypeGuard

import torch

from syncline.train.snapshots.slot import Region


class TensorFacts(NamedTuple):
    """Everything about a tensor but its values."""

    dtype: str
    """Name of the data type: "float32"."""
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    is_local: bool
    """True for the part of a `DTensor` that this rank has."""


class LocalTensor(NamedTuple):
    """The part of a `DTensor` that this rank has, in a loaded state."""

    tensor: torch.Tensor


class Streams(Protocol):
    """Functions of `torch.cuda` that `HostCopies` uses."""

    def Stream(self, device: torch.device) -> Any:
        """Create a stream."""

    def current_stream(self, device: torch.device) -> Any:
        """Return the stream that the program uses."""

    def stream(self, stream: Any) -> AbstractContextManager[object]:
        """Use a stream in a block."""


class HostCopies:
    """Copies tensors of devices to pinned memory, which is reused, on one stream per device.

    Later work of the program waits on the device for the copies, so that it does not change a
    tensor while it is copied. The program's thread does not wait.

    Args:
        streams: `torch.cuda`, or a substitute of a test.
        pinned: Use pinned memory.
    """

    def __init__(self, streams: Streams, *, pinned: bool = True) -> None:
        self._streams = streams
        self._pinned = pinned
        self._copies: dict[torch.device, Any] = {}
        self._buffers: dict[object, torch.Tensor] = {}
        self._used: dict[object, int] = {}

    def begin(self) -> None:
        """Reuse the memory of the last snapshot, which has been written."""
        self._used = {}

    def copied(self, tensor: torch.Tensor) -> torch.Tensor:
        """Start the copy of a tensor; return its copy, which is complete after `wait`."""
        kind = (tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()))
        number = self._used[kind] = self._used.get(kind, 0) + 1
        host = self._buffers.get((kind, number))
        if host is None:
            dense = tensor.stride() if is_dense(tensor) else torch.empty(tensor.shape).stride()
            memory = torch.empty(tensor.numel(), dtype=tensor.dtype, pin_memory=self._pinned)
            host = self._buffers[kind, number] = memory.as_strided(tensor.shape, dense)
        device = tensor.device
        copies = self._copies.get(device)
        if copies is None:
            copies = self._copies[device] = self._streams.Stream(device)
        program = self._streams.current_stream(device)
        copies.wait_stream(program)
        with self._streams.stream(copies):
            host.copy_(tensor, non_blocking=True)
        tensor.record_stream(copies) if tensor.is_cuda else None
        program.wait_stream(copies)
        return host

    def wait(self) -> None:
        """Wait until all copies are complete."""
        for copies in self._copies.values():
            copies.synchronize()


host_copies = HostCopies(torch.cuda)
"""Copies of this process."""


def is_tensor(value: object) -> TypeGuard[torch.Tensor]:
    """Return True for tensors."""
    return isinstance(value, torch.Tensor)


def is_sharded(value: object) -> bool:
    """Return True for a `DTensor`. Does not import its module, which takes most of a second."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of a tensor that this rank has, detached from its graph."""
    sharded: Any = tensor
    local = sharded.to_local() if is_sharded(tensor) else tensor
    detached: torch.Tensor = local.detach()
    return detached


def describe(tensor: torch.Tensor) -> tuple[Region, TensorFacts, bool]:
    """Return the memory of a tensor, its facts, and True if `host_copies` is still writing it.

    Raises:
        TypeError: Its layout is not dense, or it has no values.
    """
    local = local_part(tensor)
    if local.layout is not torch.strided or local.is_quantized or local.device.type == "meta":
        kind = "quantized" if local.is_quantized else f"{local.layout} on {local.device}"
        raise TypeError(f"a tensor of this kind ({kind}) has no dense values to copy")
    local = local.resolve_conj().resolve_neg()
    is_copied = on_device(local)
    if is_copied:
        local = host_copies.copied(local)
    if not is_dense(local):
        local = local.contiguous()
    nbytes = local.numel() * local.element_size()
    region = Region(address=local.data_ptr() if nbytes else 0, nbytes=nbytes, owner=local)
    name = str(local.dtype).removeprefix("torch.")
    facts = TensorFacts(name, tuple(local.shape), tuple(local.stride()), is_sharded(tensor))
    return region, facts, is_copied


def on_device(tensor: torch.Tensor) -> bool:
    """Return True if the values are not in the memory of this process."""
    return tensor.device.type != "cpu"


def empty(facts: TensorFacts) -> tuple[torch.Tensor | LocalTensor, memoryview | None]:
    """Return a tensor without values on the CPU, and its memory to fill."""
    dtype: torch.dtype = getattr(torch, facts.dtype)
    tensor = torch.empty_strided(facts.shape, facts.stride, dtype=dtype)
    nbytes = tensor.numel() * tensor.element_size()
    memory = None
    if nbytes:
        memory = memoryview((ctypes.c_ubyte * nbytes).from_address(tensor.data_ptr())).cast("B")
    return (LocalTensor(tensor) if facts.is_local else tensor), memory


def view(facts: TensorFacts, memory: memoryview) -> torch.Tensor | LocalTensor:
    """Return a tensor whose values are in `memory`."""
    dtype: torch.dtype = getattr(torch, facts.dtype)
    if memory.nbytes:
        tensor = torch.frombuffer(memory, dtype=dtype).as_strided(facts.shape, facts.stride)
    else:
        tensor = torch.empty_strided(facts.shape, facts.stride, dtype=dtype)
    return LocalTensor(tensor) if facts.is_local else tensor


def is_dense(tensor: torch.Tensor) -> bool:
    """Return True if the values fill one block of memory, in any order of the dimensions."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True
