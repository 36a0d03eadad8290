"""`prepare_data_loader`: a rank's share of a DataLoader, with batches on the rank's device, an
order for each epoch, and a position that is resumed after a restart.

The prepared loader is a copy of the program's loader in which only the samplers differ. Datasets of
`syncline.data` do not use it.
"""

from __future__ import annotations

from copy import copy
from typing import Any, TypeVar, cast

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, IterDataPipe

from syncline.train.session import TrainSession, get_session
from syncline.train.torch.device import get_device
from syncline.train.torch.index_order import IndexSampler, order_of
from syncline.train.torch.other_loaders import adopt, is_accelerate, plain_loader, unsharded
from syncline.train.torch.prepared_loader import LoaderReader, PreparedDataLoader
from syncline.train.torch.samplers import LoaderEpoch, ShardedSampler, is_distributed, shard_sampler
from syncline.train.torch.stream_dataset import StreamDataset

T = TypeVar("T")


def prepare_data_loader(
    data_loader: DataLoader[T],
    add_dist_sampler: bool = True,
    move_to_device: bool = True,
    auto_transfer: bool = True,
) -> DataLoader[T]:
    """Return this rank's share of `data_loader`, with batches on this worker's device, resumable
    after a restart.

    With more than one worker, each rank iterates over an equal share of the samples, in batches of
    the loader's batch size. Samples from the beginning are added at the end, so that all ranks take
    the same number of steps. Plain orders use a `DistributedSampler`, which shuffles if the loader
    did. A sampler or batch sampler of the program is kept and its items are sharded. Distributed
    samplers and `IterableDataset`s, which must shard their samples themselves, are left unchanged.

    **Epochs.** Every pass is the next epoch, with a different order.
    `loader.sampler.set_epoch(epoch)` sets another one. Leaving a loop early ends its epoch, except
    after a preemption notice: then the epoch is resumed after the restart.

    **Resume.** Every checkpoint stores the loader's position, counted in batches that the program
    has received. After a restart the first pass resumes there, on the same or another number of
    ranks, without loading the skipped samples. Exceptions: with an `IterableDataset` the skipped
    samples are read again and dropped, unless it has `state_dict` and `load_state_dict`; it
    restarts its epoch on another number of ranks, unless it is one of Hugging Face `datasets` or
    WebDataset; so does a distributed sampler of the program; with `in_order=False` some batches may
    be repeated or left out.

    **Other libraries.** A `StatefulDataLoader` of torchdata and a `WebLoader` are prepared like a
    DataLoader. A loader that `accelerator.prepare` has returned stays Accelerate's, with its
    gradient accumulation and devices; only the loader inside it is replaced. Omit
    `accelerator.skip_first_batches`.

    **Random numbers.** Worker processes seed the generators of torch, random and numpy for every
    batch, from the state of the main process at the start of the pass, the rank, and the number of
    the batch. A batch is therefore the same in any process, also after a restart. Not covered are
    generators inside a dataset. Samplers of the program draw from separate random states.

    Args:
        data_loader: Any `DataLoader`; not changed. A prepared one is returned unchanged.
        add_dist_sampler: False to iterate over all samples on every rank.
        move_to_device: False to leave batches on the CPU. No effect without GPUs.
        auto_transfer: Copy one batch ahead on a separate CUDA stream, during the computation;
            `pin_memory=True` makes the copies asynchronous. If False, or without worker processes,
            each batch is copied on demand.

    Raises:
        TypeError: `data_loader` is not a DataLoader.
        RuntimeError: Called outside a training function.
    """
    session = get_session("torch.prepare_data_loader")
    data_loader = plain_loader(data_loader)
    if not isinstance(data_loader, DataLoader):
        raise TypeError(
            "`prepare_data_loader` takes a `torch.utils.data.DataLoader`, but `data_loader` is a "
            f"{type(data_loader).__name__}: wrap it in `DataLoader(...)` first."
        )
    if isinstance(data_loader, PreparedDataLoader):
        return data_loader
    if is_accelerate(data_loader):
        return cast("DataLoader[T]", _prepare_accelerate(data_loader, session))
    device = get_device() if move_to_device else torch.device("cpu")
    world_size = (
        session.world_size
        if add_dist_sampler and not isinstance(data_loader.dataset, IterableDataset)
        else 1
    )
    return _add(
        _prepared(
            data_loader, session, world_size=world_size, device=device, prefetches=auto_transfer
        )
    )


def prepare_ahead(data_loader: DataLoader[T]) -> DataLoader[T]:
    """Return a loader like `prepare_data_loader(…, add_dist_sampler=False, move_to_device=False)`
    for Lightning, which fetches each batch before the previous one is processed, and ends an epoch
    with its last batch.
    """
    session = get_session("torch.prepare_data_loader")
    return _add(
        _prepared(
            plain_loader(data_loader),
            session,
            world_size=1,
            device=torch.device("cpu"),
            prefetches=False,
            is_ahead=True,
            ends_with_last_batch=True,
        )
    )


def _prepare_accelerate(loader: Any, session: TrainSession) -> Any:
    """Let a loader of Accelerate read from a prepared one. Accelerate moves the batches to the
    device, and fetches one ahead to find the last one.
    """
    if isinstance(loader.base_dataloader, PreparedDataLoader):
        return loader
    inner, world_size = unsharded(loader, session.world_size)
    prepared = _add(
        _prepared(
            inner,
            session,
            world_size=world_size,
            device=torch.device("cpu"),
            prefetches=False,
            is_ahead=True,
        )
    )
    position = prepared._reader.position
    adopt(loader, prepared, 0 if position is None else position.epoch + position.ended)
    return loader


def _add(prepared: PreparedDataLoader[T]) -> PreparedDataLoader[T]:
    """Add a loader to the readers of the session, which restores its position."""
    reader = prepared._reader
    reader.session.readers.add(reader.name, reader)
    return prepared


def shard_loader(loader: DataLoader[T], *, rank: int, world_size: int) -> DataLoader[T]:
    """Return a copy of a map-style `loader` that yields one rank's share. A loader with a
    distributed sampler keeps it.
    """
    if loader.batch_sampler is not None and loader.batch_size is None:
        sampler, batch_sampler = _shard_batches(loader.batch_sampler, rank, world_size)
    elif is_distributed(loader.sampler):
        return copy(loader)
    else:
        sampler = shard_sampler(loader.sampler, rank=rank, world_size=world_size)
        batch_sampler = (
            None
            if loader.batch_size is None
            else BatchSampler(sampler, loader.batch_size, loader.drop_last)
        )
    sharded = copy(loader)
    # `__setattr__` forbids this for a loader in use; the copy is not in use yet.
    vars(sharded).update(sampler=sampler, batch_sampler=batch_sampler)
    return sharded


def _shard_batches(batches: Any, rank: int, world_size: int) -> tuple[Any, Any]:
    """Return `sampler` and `batch_sampler` for a loader with a batch sampler of the program. The
    first is only used for `set_epoch`.
    """
    if is_distributed(batches):
        return batches, batches
    inner = getattr(batches, "sampler", None)
    if is_distributed(inner):
        return inner, batches
    sharded: ShardedSampler[Any] = ShardedSampler(batches, rank=rank, world_size=world_size)
    return sharded, sharded


def _prepared(
    loader: DataLoader[T],
    session: TrainSession,
    *,
    world_size: int,
    device: torch.device,
    prefetches: bool,
    is_ahead: bool = False,
    ends_with_last_batch: bool = False,
) -> PreparedDataLoader[T]:
    rank = session.world_rank
    stream = (
        StreamDataset(loader.dataset, loader.batch_size or 1)
        if isinstance(loader.dataset, IterableDataset)
        and not isinstance(loader.dataset, IterDataPipe)
        else None
    )
    prepared: Any = (
        shard_loader(loader, rank=rank, world_size=world_size) if world_size > 1 else copy(loader)
    )
    reader = LoaderReader(
        name=f"data loader {session.readers.number('data loader')}",
        session=session,
        order=order_of(
            loader,
            rank=rank,
            world_size=world_size,
            stream="fixed" if stream is None else stream.library.sharing(stream.dataset),
        ),
        indices=IndexSampler(
            prepared.sampler if prepared.batch_sampler is None else prepared.batch_sampler
        ),
        epoch=LoaderEpoch(prepared),
        device=device,
        prefetches=prefetches and device.type == "cuda" and loader.num_workers > 0,
        in_order=loader.in_order or not loader.num_workers or stream is not None,
        stream=stream,
        is_ahead=is_ahead,
        ends_with_last_batch=ends_with_last_batch,
        generators=_generators(loader),
    )
    kind = type(loader)
    prepared.__class__ = (
        PreparedDataLoader
        if kind is DataLoader
        else type(f"Prepared{kind.__name__}", (PreparedDataLoader, kind), {})
    )
    # Without `_iterator`, it starts its own worker processes.
    vars(prepared).update(_reader=reader, _iterator=None)
    return prepared  # type: ignore[no-any-return]


def _generators(loader: DataLoader[object]) -> list[torch.Generator]:
    """Return the generators that the program passed to the loader and its samplers."""
    holders = [
        loader,
        loader.sampler,
        loader.batch_sampler,
        getattr(loader.batch_sampler, "sampler", None),
    ]
    found = [getattr(holder, "generator", None) for holder in holders]
    return list({id(each): each for each in found if isinstance(each, torch.Generator)}.values())
