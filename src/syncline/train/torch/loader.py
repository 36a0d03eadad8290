"""`prepare_data_loader`: a rank's share of a DataLoader, its batches on the rank's device.

Everything else about the loader stays as the user made it, because the prepared loader is a copy of it in which only the samplers
are others. Datasets of `syncline.data` have their own way to the workers and do not pass here.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any, TypeVar

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from syncline.train.session import get_session
from syncline.train.torch.device import get_device, move_to, record_stream
from syncline.train.torch.samplers import ShardedSampler, is_distributed, shard_sampler

T = TypeVar("T")


def prepare_data_loader(
    data_loader: DataLoader[T], add_dist_sampler: bool = True, move_to_device: bool = True, auto_transfer: bool = True
) -> DataLoader[T]:
    """This rank's share of `data_loader`, with batches on this worker's device.

    With more than one worker each rank iterates over an equal share of the samples in batches of the loader's own size; the end is
    filled up from the beginning, so that all ranks take equally many steps. Plain orders get a `DistributedSampler`, shuffling if the
    loader did; call `loader.sampler.set_epoch(epoch)` to shuffle anew. A sampler or batch sampler of the user's is kept and shared
    out. Left alone: samplers that are distributed already, and `IterableDataset`s, which must share out their samples themselves.

    Args:
        data_loader: any `DataLoader`; it is not changed.
        add_dist_sampler: False: every rank iterates over all samples.
        move_to_device: False: batches stay where they are. On a CPU this makes no difference.
        auto_transfer: copy one batch ahead on a CUDA stream of its own, beside the computation; `pin_memory=True` makes the copies
            asynchronous. False: copy each batch when it is asked for.

    Raises:
        TypeError: `data_loader` is no DataLoader.
        RuntimeError: outside a training function.
    """
    session = get_session("torch.prepare_data_loader")
    if not isinstance(data_loader, DataLoader):
        raise TypeError(
            f"`prepare_data_loader` takes a `torch.utils.data.DataLoader`, but `data_loader` is a {type(data_loader).__name__}: "
            "wrap it in `DataLoader(...)` first."
        )
    if add_dist_sampler and session.world_size > 1 and not isinstance(data_loader.dataset, IterableDataset):
        data_loader = shard_loader(data_loader, rank=session.world_rank, world_size=session.world_size)
    device = get_device()
    if move_to_device and device.type != "cpu":
        return DeviceDataLoader(data_loader, device, prefetch=auto_transfer and device.type == "cuda")
    return data_loader


def shard_loader(loader: DataLoader[T], *, rank: int, world_size: int) -> DataLoader[T]:
    """A copy of a map-style `loader` that yields one rank's share; `loader` itself if it does so already."""
    if loader.batch_sampler is not None and loader.batch_size is None:
        sampler, batch_sampler = _shard_batches(loader.batch_sampler, rank, world_size)
    elif is_distributed(loader.sampler):
        return loader
    else:
        sampler = shard_sampler(loader.sampler, rank=rank, world_size=world_size)
        batch_sampler = None if loader.batch_size is None else BatchSampler(sampler, loader.batch_size, loader.drop_last)
    return _with_samplers(loader, sampler, batch_sampler)


def _shard_batches(batches: Any, rank: int, world_size: int) -> tuple[Any, Any]:
    """`sampler` and `batch_sampler` for a loader with a batch sampler of the user's; the first is only there for `set_epoch`."""
    if is_distributed(batches):
        return batches, batches
    inner = getattr(batches, "sampler", None)
    if is_distributed(inner):
        return inner, batches
    sharded: ShardedSampler[Any] = ShardedSampler(batches, rank=rank, world_size=world_size)
    return sharded, sharded


def _with_samplers(loader: DataLoader[T], sampler: Any, batch_sampler: Any) -> DataLoader[T]:
    sharded = copy(loader)
    # Past `__setattr__`, which forbids this once a loader is in use; nobody uses the copy yet, and it starts worker processes of its own.
    vars(sharded).update(sampler=sampler, batch_sampler=batch_sampler, _iterator=None)
    return sharded


class DeviceDataLoader(DataLoader[T]):
    """A loader whose batches are on `device`; in everything else it is the loader that it wraps.

    With `prefetch` (CUDA only) the next batch is being copied while the current one is computed on.
    """

    # Not `super().__init__`: there is one set of options, the wrapped loader's.
    def __init__(self, loader: DataLoader[T], device: torch.device, *, prefetch: bool) -> None:
        vars(self).update(_loader=loader, _device=device, _prefetch=prefetch)

    def __iter__(self) -> Iterator[T]:  # type: ignore[override]
        if self._prefetch:
            return self._iterate_ahead()
        return (move_to(batch, self._device) for batch in self._loader)

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_loader":  # a copy being made asks before there is a `_loader`
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._loader, name, value)

    @property
    def multiprocessing_context(self) -> Any:
        """The wrapped loader's."""
        return self._loader.multiprocessing_context

    @multiprocessing_context.setter
    def multiprocessing_context(self, value: Any) -> None:
        self._loader.multiprocessing_context = value

    def _iterate_ahead(self) -> Iterator[T]:
        batches = iter(self._loader)
        copies = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        ahead = self._start_copy(batches, copies)
        while ahead:
            computation = torch.cuda.current_stream(self._device)
            computation.wait_stream(copies)
            (batch,) = ahead
            record_stream(batch, computation)
            ahead = self._start_copy(batches, copies)
            yield batch

    def _start_copy(self, batches: Iterator[T], stream: torch.cuda.Stream) -> tuple[T, ...]:
        """The next batch, being copied on `stream`; nothing at the end."""
        for batch in batches:
            with torch.cuda.stream(stream):
                return (move_to(batch, self._device, non_blocking=True),)
        return ()
