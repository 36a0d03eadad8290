"""`prepare_data_loader`: a rank's share of a DataLoader, its batches on the rank's device, each
epoch in its own order; after a restart the pass goes on where it was.

Everything else about the loader stays as the user made it, because the prepared loader is a copy of
it in which only the samplers are others. Datasets of `syncline.data` have their own way to the
workers and do not pass here.
"""

from __future__ import annotations

from copy import copy
from typing import Any, TypeVar

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from syncline.train.session import TrainSession, get_session
from syncline.train.torch.device import get_device
from syncline.train.torch.orders import Indices, order_of
from syncline.train.torch.prepared_loader import PreparedDataLoader, Reading
from syncline.train.torch.samplers import Epochs, ShardedSampler, is_distributed, shard_sampler

T = TypeVar("T")


def prepare_data_loader(
    data_loader: DataLoader[T],
    add_dist_sampler: bool = True,
    move_to_device: bool = True,
    auto_transfer: bool = True,
) -> DataLoader[T]:
    """This rank's share of `data_loader`, with batches on this worker's device, that goes on where
    it was after a restart.

    With more than one worker each rank iterates over an equal share of the samples in batches of
    the loader's own size; the end is filled up from the beginning, so that all ranks take equally
    many steps. Plain orders get a `DistributedSampler`, shuffling if the loader did. A sampler or
    batch sampler of the user's is kept and shared out. Left alone: samplers that are distributed
    already, and `IterableDataset`s, which must share out their samples themselves.

    **Epochs.** Every pass is the next epoch, with an order of its own.
    `loader.sampler.set_epoch(epoch)` sets another one. A loop that is left early has ended its
    epoch; unless a preemption is announced, when it is taken to go on after the restart.

    **Resume.** With every checkpoint the loader's place is saved, in batches that the program got.
    After a restart the first pass goes on there, on the same or on another number of ranks, and
    loads none of what it skips. Exceptions: with an `IterableDataset` the batches are loaded again
    and dropped, unless it has `state_dict` and `load_state_dict` and `num_workers` is 0; a
    distributed sampler of the user's own begins its epoch anew on another number of ranks; with
    `in_order=False` some batches may come twice or not at all.

    **Random numbers.** Worker processes seed the generators of torch, random and numpy for every
    batch: from the state of the main process as the pass begins, the rank, and the number of the
    batch. So a batch is the same whichever process makes it, also after a restart. A generator that
    a dataset holds itself is its own matter. Samplers of users draw from generators of their own.

    Args:
        data_loader: any `DataLoader`; it is not changed. One that is prepared already is returned
            as it is.
        add_dist_sampler: False: every rank iterates over all samples.
        move_to_device: False: batches stay where they are. On a CPU this makes no difference.
        auto_transfer: copy one batch ahead on a CUDA stream of its own, beside the computation;
            `pin_memory=True` makes the copies asynchronous. False, or without worker processes:
            copy each batch when it is asked for.

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
    if isinstance(data_loader, PreparedDataLoader):
        return data_loader
    device = get_device() if move_to_device else torch.device("cpu")
    shared_among = (
        session.world_size
        if add_dist_sampler and not isinstance(data_loader.dataset, IterableDataset)
        else 1
    )
    prepared = _prepared(
        data_loader, session, shared_among=shared_among, device=device, ahead=auto_transfer
    )
    session.readers.add(prepared._reading.name, prepared._reading)
    return prepared


def shard_loader(loader: DataLoader[T], *, rank: int, world_size: int) -> DataLoader[T]:
    """A copy of a map-style `loader` that yields one rank's share; all of it if that is what
    `loader` does already.
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
    # Past `__setattr__`, which forbids this once a loader is in use; nobody uses the copy yet.
    vars(sharded).update(sampler=sampler, batch_sampler=batch_sampler)
    return sharded


def _shard_batches(batches: Any, rank: int, world_size: int) -> tuple[Any, Any]:
    """`sampler` and `batch_sampler` for a loader with a batch sampler of the user's; the first is
    only there for `set_epoch`.
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
    shared_among: int,
    device: torch.device,
    ahead: bool,
) -> PreparedDataLoader[T]:
    rank = session.world_rank
    prepared: Any = (
        shard_loader(loader, rank=rank, world_size=shared_among)
        if shared_among > 1
        else copy(loader)
    )
    reading = Reading(
        name=f"data loader {session.readers.number('data loader')}",
        session=session,
        order=order_of(loader, rank=rank, world_size=shared_among),
        indices=Indices(
            prepared.sampler if prepared.batch_sampler is None else prepared.batch_sampler
        ),
        epochs=Epochs(prepared),
        device=device,
        ahead=ahead and device.type == "cuda" and loader.num_workers > 0,
        in_order=loader.in_order or not loader.num_workers,
        dataset=loader.dataset if _is_stateful(loader) else None,
        generators=_generators(loader),
    )
    kind = type(loader)
    prepared.__class__ = (
        PreparedDataLoader
        if kind is DataLoader
        else type(f"Prepared{kind.__name__}", (PreparedDataLoader, kind), {})
    )
    vars(prepared).update(_reading=reading, _iterator=None)  # it starts worker processes of its own
    return prepared  # type: ignore[no-any-return]


def _is_stateful(loader: DataLoader[Any]) -> bool:
    """Whether the dataset itself can say where the program is, and go on there."""
    dataset: Any = loader.dataset
    methods = [getattr(dataset, name, None) for name in ("state_dict", "load_state_dict")]
    return (
        isinstance(dataset, IterableDataset)
        and not loader.num_workers
        and all(callable(method) for method in methods)
    )


def _generators(loader: DataLoader[Any]) -> list[torch.Generator]:
    """Those that the user gave to the loader and its samplers, each once."""
    holders = [
        loader,
        loader.sampler,
        loader.batch_sampler,
        getattr(loader.batch_sampler, "sampler", None),
    ]
    found = [getattr(holder, "generator", None) for holder in holders]
    return list({id(each): each for each in found if isinstance(each, torch.Generator)}.values())
