"""Loaders of other libraries that `prepare_data_loader` takes: those of torchdata, WebDataset and
Accelerate. The libraries are recognized by their modules and not imported.
"""

from __future__ import annotations

import weakref
from copy import copy
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, Sampler
from torch.utils.data.distributed import DistributedSampler

from syncline.train.torch.samplers import EpochSampler, shard_sampler

_STATEFUL = "torchdata.stateful_dataloader"
_ACCELERATE = "accelerate.data_loader"


def plain_loader(loader: Any) -> Any:
    """Return the DataLoader in place of a `StatefulDataLoader` or a `WebLoader`; other objects are
    returned unchanged.

    Raises:
        TypeError: A `WebLoader` transforms the batches of its loader, whose positions are unknown
            after that.
    """
    kind = type(loader)
    if kind.__name__ == "WebLoader" and kind.__module__.startswith("webdataset."):
        first, *stages = loader.pipeline
        if stages or loader.repetitions != 1 or loader.nsamples > 0:
            raise TypeError(
                f"`prepare_data_loader` got a WebLoader with {len(stages)} stages after its loader "
                "or a length of its own, so the position of a batch in the dataset is unknown. "
                "Move the stages (`shuffle`, `batched`, `with_epoch`) to the WebDataset."
            )
        return first
    if kind.__name__ == "StatefulDataLoader" and kind.__module__.startswith(_STATEFUL):
        return _without_state(loader)
    return loader


def _without_state(loader: Any) -> DataLoader[Any]:
    """Return a plain DataLoader with the options of a `StatefulDataLoader`, whose samplers keep
    states of their own.
    """
    plain: Any = copy(loader)
    sampler, batches = loader.sampler, loader.batch_sampler
    if type(sampler).__module__.startswith(_STATEFUL) and hasattr(sampler, "replacement"):
        sampler = RandomSampler(
            sampler.data_source,
            replacement=sampler.replacement,
            num_samples=sampler.num_samples,
            generator=sampler.generator,
        )
    if type(batches).__module__.startswith(_STATEFUL):
        batches = BatchSampler(sampler, batches.batch_size, batches.drop_last)
    plain.__class__ = DataLoader
    # `__setattr__` forbids this for a loader in use; the copy is not in use.
    vars(plain).update(sampler=sampler, batch_sampler=batches, _iterator=None)
    return plain  # type: ignore[no-any-return]


def is_accelerate(loader: object) -> bool:
    """Return True for a loader that `accelerator.prepare` has returned."""
    return type(loader).__module__ == _ACCELERATE


def unsharded(loader: Any, world_size: int) -> tuple[DataLoader[Any], int]:
    """Return the program's loader in a loader of Accelerate, and the number of ranks among which
    its samples must be shared.

    Raises:
        TypeError: Rank 0 of Accelerate reads the batches of all ranks.
    """
    if type(loader).__name__ != "DataLoaderShard":
        raise TypeError(
            f"`prepare_data_loader` cannot resume a {type(loader).__name__} of Accelerate, in "
            "which one rank reads the batches of all ranks. Create the Accelerator with "
            "`dataloader_config=DataLoaderConfiguration(dispatch_batches=False)`."
        )
    base = plain_loader(loader.base_dataloader)
    batches = base.batch_sampler
    if isinstance(base.dataset, IterableDataset) or batches is None:
        return base, 1
    is_sharded = type(batches).__name__ == "BatchSamplerShard"
    inner = batches.batch_sampler if is_sharded else batches
    plain: Any = copy(base)
    if type(inner) is BatchSampler:
        size = inner.batch_size // (world_size if is_sharded and batches.split_batches else 1)
        sampler = inner.sampler
        if not is_sharded and type(sampler) is RandomSampler:
            # Drawn by epoch alone, as on several ranks: there Accelerate gives the sampler a
            # generator that a single rank does not have.
            sampler = _drawn_by_epoch(sampler)
        inner = BatchSampler(sampler, size, inner.drop_last)
        vars(plain).update(sampler=sampler, batch_size=size, drop_last=inner.drop_last)
    vars(plain).update(batch_sampler=inner)
    return plain, world_size if is_sharded else 1


def _drawn_by_epoch(sampler: RandomSampler) -> Sampler[int]:
    shared = shard_sampler(sampler, rank=0, world_size=1)
    if not isinstance(shared, EpochSampler):
        return sampler
    return DistributedSampler(
        shared.dataset, num_replicas=1, rank=0, shuffle=True, seed=shared.seed
    )


def adopt(loader: Any, prepared: Any, next_epoch: int) -> None:
    """Let a loader of Accelerate read from a prepared loader, from an epoch on."""
    # Accelerate reads these from its own batch sampler.
    if prepared.batch_sampler is not None and prepared._reader.order.ranks > 1:
        vars(prepared.batch_sampler).update(
            num_processes=prepared._reader.order.ranks, split_batches=False
        )
    loader.base_dataloader = prepared
    loader.iteration = next_epoch
    reference = weakref.ref(loader)

    def count_epoch() -> None:
        # Accelerate does not, if a pass has no batches.
        if (adopted := reference()) is not None:
            adopted.iteration += 1

    prepared._reader.on_empty_pass = count_epoch
