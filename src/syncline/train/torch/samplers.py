"""Samplers that give a rank its share: torch's own for the plain orders, a wrapper for everything
that a user wrote; and their epochs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Any, Generic, TypeVar, cast

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from syncline.train.torch.sharding import rank_share, share_length
from syncline.train.torch.streams import drawn_apart

T = TypeVar("T")

READ_AHEAD = 64
"""How many items per rank are drawn at once: keeping the random states apart costs some 50
microseconds a time.
"""


class EpochSampler(DistributedSampler[T]):
    """torch's `DistributedSampler`, which also notices that the program has set an epoch."""

    told = False
    """Whether `set_epoch` was called since this was last set to False."""

    def set_epoch(self, epoch: int) -> None:
        """Draw the order of this epoch from the next pass on."""
        super().set_epoch(epoch)
        self.told = True


class ShardedSampler(Sampler[T], Generic[T]):
    """A rank's share of what another sampler yields: positions, or whole batches of them.

    Every rank draws the full order and keeps its share, so all must draw the same. What the sampler
    takes from the global random generators (torch, random, numpy) is therefore drawn from a stream
    of its own: seeded with `seed` and the epoch, equal on all ranks and, as with torch's
    `DistributedSampler`, the same until another epoch is set. A sampler with a generator of its own
    must seed that equally on every rank.
    """

    def __init__(self, sampler: Iterable[T], *, rank: int, world_size: int, seed: int = 0) -> None:
        self.sampler = sampler
        self.rank = rank
        self.num_replicas = world_size
        self.seed = seed
        self.epoch = 0
        self.told = False
        """Whether `set_epoch` was called since this was last set to False."""

    def set_epoch(self, epoch: int) -> None:
        """Draw the order of this epoch from the next pass on; told to the wrapped sampler too, if
        it wants to know.
        """
        self.epoch = epoch
        self.told = True
        for listener in _inside(self):
            if callable(getattr(listener, "set_epoch", None)):
                listener.set_epoch(epoch)

    def __iter__(self) -> Iterator[T]:
        order = drawn_apart(
            self.sampler, [self.seed, self.epoch], ahead=READ_AHEAD * self.num_replicas
        )
        return rank_share(order, self.rank, self.num_replicas)

    def __len__(self) -> int:
        return share_length(len(cast("Sized", self.sampler)), self.num_replicas)

    def __getattr__(self, name: str) -> Any:
        if (
            name.startswith("__") or name == "sampler"
        ):  # a copy being made asks before there is a `sampler`
            raise AttributeError(name)
        return getattr(self.sampler, name)


def is_distributed(sampler: object) -> bool:
    """Whether a sampler already yields one rank's share: torch's own, or one that follows its
    convention.
    """
    return isinstance(sampler, DistributedSampler) or (
        hasattr(sampler, "num_replicas") and hasattr(sampler, "rank")
    )


def draws_at_once(sampler: object) -> bool:
    """Whether a sampler takes all that it needs from the global generators before its first item:
    known of plain lists and torch's own.
    """
    if type(sampler) is BatchSampler:
        return draws_at_once(sampler.sampler)
    return type(sampler) in {
        list,
        tuple,
        range,
        SequentialSampler,
        RandomSampler,
        SubsetRandomSampler,
        WeightedRandomSampler,
    }


def shard_sampler(sampler: Iterable[Any], *, rank: int, world_size: int) -> Sampler[Any]:
    """A rank's share of `sampler`: a `DistributedSampler` for a plain sequential or shuffled order,
    else a `ShardedSampler`.
    """
    if type(sampler) is SequentialSampler:
        return _distributed(sampler.data_source, rank, world_size, shuffle=False)
    if (
        type(sampler) is RandomSampler
        and not sampler.replacement
        and sampler.num_samples == len(sampler.data_source)
    ):
        return _distributed(sampler.data_source, rank, world_size, shuffle=True)
    if type(sampler) is DistributedSampler:
        return _distributed(
            cast("Sized", sampler.dataset),
            rank,
            world_size,
            shuffle=sampler.shuffle,
            seed=sampler.seed,
        )
    return ShardedSampler(sampler, rank=rank, world_size=world_size)


def _distributed(
    source: Sized, rank: int, world_size: int, *, shuffle: bool, seed: int = 0
) -> EpochSampler[Any]:
    # The sampler's own source, which may be shorter than the loader's dataset; of either, only the
    # length matters here.
    return EpochSampler(
        cast("Any", source), num_replicas=world_size, rank=rank, shuffle=shuffle, seed=seed
    )


class Epochs:
    """Which epoch the samplers of a loader are in: set by the program, or by whoever owns this."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        outer = _unique([loader.sampler, loader.batch_sampler])
        samplers = _unique([each for sampler in outer for each in (sampler, *_inside(sampler))])
        self._samplers = [each for each in samplers if callable(getattr(each, "set_epoch", None))]
        passed_on = [
            id(inner)
            for each in self._samplers
            if isinstance(each, ShardedSampler)
            for inner in _inside(each)
        ]
        self._listeners = [each for each in self._samplers if id(each) not in passed_on]
        self._known = 0

    def told(self) -> int | None:
        """The epoch that the program has set since the last `tell`; None if it has not. A sampler
        that nobody told is in epoch 0.

        Of samplers of others only a change is noticed, of those that have an attribute `epoch`.
        """
        epochs = [
            sampler.epoch for sampler in self._samplers if getattr(sampler, "told", False) is True
        ]
        epochs += [
            epoch
            for sampler in self._samplers
            if (epoch := _epoch(sampler)) not in (None, self._known)
        ]
        return epochs[0] if epochs else None

    def tell(self, epoch: int) -> None:
        """Let all draw the order of `epoch`; those that the program has told so are not told
        again.
        """
        for listener in self._listeners:
            if _epoch(listener) != epoch:
                listener.set_epoch(epoch)
        for sampler in self._samplers:
            if isinstance(sampler, (EpochSampler, ShardedSampler)):
                sampler.told = False
        self._known = epoch


def _inside(sampler: Any) -> list[Any]:
    """The samplers that a sampler draws from, two levels deep: a batch sampler has one, and may
    itself be wrapped.
    """
    inner = getattr(sampler, "sampler", None)
    return [each for each in (inner, getattr(inner, "sampler", None)) if each is not None]


def _unique(samplers: list[Any]) -> list[Any]:
    return list({id(each): each for each in samplers if each is not None}.values())


def _epoch(sampler: Any) -> int | None:
    epoch = getattr(sampler, "epoch", None)
    return epoch if isinstance(epoch, int) else None
