"""Which devices a worker has, and moving batches to them."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from copy import copy
from typing import Any

import torch

from syncline import settings
from syncline.train.session import get_session


def get_device() -> torch.device:
    """The first of `get_devices()`: where this worker's model belongs."""
    return get_devices()[0]


def get_devices() -> list[torch.device]:
    """This worker's devices: one `cuda:i` for each GPU assigned to it, or `[cpu]`.

    Raises:
        RuntimeError: outside a training function; if CUDA_VISIBLE_DEVICES hides an assigned GPU.
    """
    session = get_session("torch.get_devices")
    # Nobody assigns GPUs in local mode: a single process uses the first, the processes of torchrun
    # use one each.
    unassigned = session.local_mode and session.use_gpu
    # CUDA is asked last: the question alone costs a process without GPUs some 100 ms on a machine
    # that has them.
    if not (session.gpu_ids or unassigned) or not torch.cuda.is_available():
        return [torch.device("cpu")]
    if session.gpu_ids:
        return [
            torch.device("cuda", index)
            for index in visible_indices(
                session.gpu_ids, settings.environment("CUDA_VISIBLE_DEVICES")
            )
        ]
    return [torch.device("cuda", session.local_rank)]


def visible_indices(gpu_ids: tuple[str, ...] | list[str], visible: str | None) -> list[int]:
    """The number that CUDA gives to each of `gpu_ids`, where CUDA_VISIBLE_DEVICES is `visible`
    (None: not set).

    RuntimeError for an id that is not visible.
    """
    if visible is None:
        return [int(gpu_id) for gpu_id in gpu_ids]
    order = [name.strip() for name in visible.split(",")]
    missing = [gpu_id for gpu_id in gpu_ids if gpu_id not in order]
    if missing:
        raise RuntimeError(
            f"This worker was assigned GPU {', '.join(missing)}, but CUDA_VISIBLE_DEVICES={visible!r} hides it, so CUDA cannot use it: "
            "do not change CUDA_VISIBLE_DEVICES inside the worker or in `runtime_env`."
        )
    return [order.index(gpu_id) for gpu_id in gpu_ids]


def move_to(batch: Any, device: torch.device, *, non_blocking: bool = False) -> Any:
    """`batch` with its tensors on `device`.

    Goes into mappings, tuples (named ones too) and lists, keeping their types; any other object
    with a `to` method is asked to move itself; everything else stays as it is.
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
        # A copy keeps what the type holds beside its items, such as a defaultdict's factory.
        moved = copy(batch)
        moved.update(items)
        return moved
    return type(batch)(items)  # type: ignore[call-arg]


def record_stream(batch: Any, stream: torch.Stream) -> None:
    """Tell CUDA's allocator that `stream` uses the tensors of `batch`, so that their memory is not
    reused too early.
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
