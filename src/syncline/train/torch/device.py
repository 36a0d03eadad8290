"""Devices of a worker, and moving batches to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from copy import copy
from typing import Any, TypeVar

import torch

from syncline.train.backend import visible_indices
from syncline.train.session import get_session

T = TypeVar("T")


def get_device() -> torch.device:
    """Return the first of `get_devices()`, the device for this worker's model."""
    return get_devices()[0]


def get_devices() -> list[torch.device]:
    """Return this worker's devices: one `cuda:i` for each GPU assigned to it, or `[cpu]`.

    AMD's GPUs have CUDA's names in torch. The GPU of an Apple processor is `mps`.

    Raises:
        RuntimeError: Called outside a training function, or CUDA_VISIBLE_DEVICES hides an
            assigned GPU.
    """
    session = get_session("torch.get_devices")
    # Local mode assigns no GPUs: a single process uses the first one, the processes of torchrun
    # use one each.
    unassigned = session.local_mode and session.use_gpu
    # Query CUDA last: on a machine with GPUs, the query costs a process without any about 100 ms.
    if not (session.gpu_ids or unassigned) or not torch.cuda.is_available():
        has_mps = (session.gpu_ids or unassigned) and torch.backends.mps.is_available()
        return [torch.device("mps" if has_mps else "cpu")]
    if session.gpu_ids:
        return [torch.device("cuda", index) for index in visible_indices(session.gpu_ids)]
    return [torch.device("cuda", session.local_rank)]


def move_to(batch: Any, device: torch.device, *, non_blocking: bool = False) -> Any:
    """Return `batch` with its tensors on `device`.

    Mappings, tuples (including named ones) and lists are traversed and keep their types. Other
    objects with a method `to` are moved by it. Everything else is returned unchanged.
    """
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=non_blocking)
    if callable(getattr(batch, "to", None)):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return _move_mapping(batch, device, non_blocking)
    if isinstance(batch, (tuple, list)):
        items = [move_to(item, device, non_blocking=non_blocking) for item in batch]
        if hasattr(batch, "_fields"):
            return type(batch)(*items)
        return items if type(batch) is list else type(batch)(items)
    return batch


def _move_mapping(
    batch: Mapping[Any, Any], device: torch.device, non_blocking: bool
) -> Mapping[Any, Any]:
    items = {key: move_to(value, device, non_blocking=non_blocking) for key, value in batch.items()}
    if type(batch) is dict:
        return items
    if isinstance(batch, MutableMapping):
        # A copy keeps other state of the type, such as the factory of a defaultdict.
        moved = copy(batch)
        moved.update(items)
        return moved
    return type(batch)(items)  # type: ignore[call-arg]


def record_stream(batch: Any, stream: torch.Stream) -> None:
    """Tell CUDA's allocator that `stream` uses the tensors of `batch`, so that it does not reuse
    their memory too early.
    """
    if callable(getattr(batch, "record_stream", None)):
        if not isinstance(batch, torch.Tensor) or batch.is_cuda:
            batch.record_stream(stream)
    elif isinstance(batch, Mapping):
        for value in batch.values():
            record_stream(value, stream)
    elif isinstance(batch, (tuple, list)):
        for value in batch:
            record_stream(value, stream)
    elif callable(getattr(batch, "to", None)) and hasattr(batch, "__dict__"):
        for value in vars(batch).values():
            record_stream(value, stream)


def transfer(batches: Iterator[T], device: torch.device) -> Iterator[T]:
    """Yield the batches on `device`, each copied on demand."""
    return (move_to(batch, device) for batch in batches)


def prefetch(batches: Iterator[T], device: torch.device) -> Iterator[T]:
    """Yield the batches on a CUDA `device`.

    The next batch is copied on a separate stream during computations on the current one.
    """
    copies = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    pending = _start_copy(batches, device, copies)
    while pending:
        computation = torch.cuda.current_stream(device)
        computation.wait_stream(copies)
        (batch,) = pending
        record_stream(batch, computation)
        pending = _start_copy(batches, device, copies)
        yield batch


def _start_copy(
    batches: Iterator[T], device: torch.device, stream: torch.cuda.Stream
) -> tuple[T, ...]:
    """Start to copy the next batch on `stream` and return it; () if there is none."""
    for batch in batches:
        with torch.cuda.stream(stream):
            return (move_to(batch, device, non_blocking=True),)
    return ()
