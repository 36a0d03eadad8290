"""Which rows, in what order, in which blocks: limit, sample, repartition, shuffle, sort, cache."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

from syncline.data.execute.cache import CacheSlot
from syncline.data.io import filesystem as filesystems
from syncline.data.methods import checks
from syncline.data.methods.functions import resources_of
from syncline.data.methods.handle import Handle
from syncline.data.plan import seeds
from syncline.data.plan.nodes import (
    Cache,
    HashPartition,
    Limit,
    Node,
    RandomizeBlocks,
    RandomSample,
    RandomShuffle,
    Repartition,
    Seed,
    Sort,
)

if TYPE_CHECKING:
    from syncline.data.dataset import Dataset


class OrderingMethods(Handle):
    """Methods that choose rows or change their order, whatever is in them."""

    def limit(self, limit: int) -> Dataset:
        """The first rows. Nothing is computed that they do not need."""
        return self._derive(Limit(input=self._node, limit=checks.count("limit", limit, least=0)))

    def random_sample(self, fraction: float, *, seed: Seed = None) -> Dataset:
        """Each row with the probability `fraction`, from 0 to 1. With an int as `seed` every
        execution draws the same rows.
        """
        return self._derive(
            RandomSample(
                input=self._node,
                fraction=checks.share("fraction", fraction),
                seed=checks.seed(seed),
            )
        )

    def repartition(
        self,
        num_blocks: int | None = None,
        target_num_rows_per_block: int | None = None,
        *,
        strict: bool = False,
        shuffle: bool = False,
        keys: list[str] | None = None,
        sort: bool = False,
    ) -> Dataset:
        """The same rows in other blocks.

        Args:
            num_blocks: So many blocks of about equal size, made when all rows are there.
            target_num_rows_per_block: Blocks of at most so many rows, made as rows come.
            strict: With `target_num_rows_per_block`: of exactly so many, but the last.
            shuffle: With `num_blocks`: put the rows in random order, the same in every execution.
            keys: Rows with equal values in these columns come into one block.
            sort: With `keys`: sort the rows of each block by them.
        """
        if num_blocks is not None and target_num_rows_per_block is not None:
            raise ValueError(
                f"num_blocks={num_blocks} and target_num_rows_per_block={target_num_rows_per_block} contradict each other: give one of them"
            )
        if target_num_rows_per_block is not None:
            if shuffle:
                raise ValueError(
                    "shuffle=True goes with num_blocks, not with target_num_rows_per_block: call random_shuffle() before"
                )
            _warn_ignored("target_num_rows_per_block is given", keys=keys, sort=sort)
            rows = checks.count("target_num_rows_per_block", target_num_rows_per_block, least=1)
            return self._derive(Repartition(input=self._node, target_num_rows=rows, strict=strict))
        _warn_ignored("target_num_rows_per_block is not given", strict=strict)
        if keys is not None:
            return self._derive(self._by_hash(checks.column_names("keys", keys), num_blocks, sort))
        if num_blocks is None:
            raise ValueError(
                "repartition needs num_blocks, target_num_rows_per_block or keys: give one of them"
            )
        _warn_ignored("keys are not given", sort=sort)
        blocks = checks.count("num_blocks", num_blocks, least=1)
        if shuffle:
            return self._derive(RandomShuffle(input=self._node, seed=0, num_blocks=blocks))
        return self._derive(Repartition(input=self._node, num_blocks=blocks))

    def random_shuffle(
        self, *, seed: Seed = None, num_blocks: int | None = None, **ray_remote_args: Any
    ) -> Dataset:
        """The rows in random order. An int as `seed` gives one order for every execution, a
        `RandomSeedConfig` one for each epoch.

        All rows have to be there before the first one leaves;
        `iter_batches(local_shuffle_buffer_size=...)` is cheaper. What does not fit into memory goes
        through the disk.
        """
        resources_of(ray_remote_args)
        blocks = None if num_blocks is None else checks.count("num_blocks", num_blocks, least=1)
        return self._derive(
            RandomShuffle(input=self._node, seed=checks.seed(seed), num_blocks=blocks)
        )

    def randomize_block_order(self, *, seed: Seed = None) -> Dataset:
        """The blocks in random order, each as it is: much cheaper than `random_shuffle`, and much
        less random.
        """
        return self._derive(RandomizeBlocks(input=self._node, seed=checks.seed(seed)))

    def sort(
        self,
        key: str | list[str],
        descending: bool | list[bool] = False,
        boundaries: list[int | float] | None = None,
    ) -> Dataset:
        """The rows in order of one or several columns; nulls come last.

        UnknownColumnError (a KeyError and a ValueError) and TypeError for columns without an order,
        at the call where the schema is known.

        Args:
            key: The column or columns. descending: For all of them, or for each. boundaries: Values
            of the first column at which blocks begin, instead of blocks of about equal size.
        """
        if not isinstance(key, str | list | tuple) or not key:
            raise ValueError(
                f"key={key!r} is nothing to sort by: give the name of a column or a list of names"
            )
        keys = checks.column_names("key", key)
        checks.keys(self._known_schema(), keys, "sort by")
        return self._derive(
            Sort(
                input=self._node,
                keys=keys,
                descending=_directions(keys, descending),
                boundaries=_boundaries(boundaries),
            )
        )

    def cache(self, path: str | os.PathLike[str] | None = None) -> Dataset:
        """The same rows, kept by the first execution that is complete: later ones, such as further
        epochs, read them.

        Executions that stop early, start in the middle or leave out blocks (`max_errored_blocks`)
        keep nothing; rows that a function's `on_error="skip"` leaves out are left out for good.
        What is random before the cache is drawn as in the first epoch, once for all; what comes
        after it differs from epoch to epoch as it would without.

        Args:
            path: A directory, path or URI, in which they outlive the program, for the same plan on
            the same input: other code of a
                function, other arguments, or a changed file are another plan or input, and so are
                other values of what functions close over and of global variables, as far as they
                can be pickled. Code of other modules is not looked at: use another directory when
                that changes. None for memory (and the disk where that is full), as long as the
                program, or the process that the dataset was sent to, uses it.
        """
        return self._derive(
            Cache(
                input=seeds.placed(self._node),
                path=None if path is None else _cache_path(path),
                slot=CacheSlot(),
            )
        )

    def _by_hash(self, keys: tuple[str, ...], num_blocks: int | None, sort: bool) -> Node:
        if not keys:
            raise ValueError("keys=[] names no column: give at least one, or leave keys out")
        checks.keys(self._known_schema(), keys, "partition by")
        blocks = None if num_blocks is None else checks.count("num_blocks", num_blocks, least=1)
        return HashPartition(input=self._node, keys=keys, num_blocks=blocks, sort=sort)


def _cache_path(path: str | os.PathLike[str]) -> str:
    """Absolute where it is this machine's, since executions may begin in other processes."""
    filesystem, (resolved,) = filesystems.resolve(path)
    return resolved if filesystems.is_local(filesystem) else os.fspath(path)


def _directions(keys: tuple[str, ...], descending: Any) -> tuple[bool, ...]:
    directions = [descending] * len(keys) if isinstance(descending, bool) else descending
    if not isinstance(directions, list | tuple) or not all(
        isinstance(each, bool) for each in directions
    ):
        raise TypeError(
            f"descending={descending!r} is no direction: give True, False, or a list with one of them for each key"
        )
    if len(directions) != len(keys):
        raise ValueError(
            f"descending={descending} has {len(directions)} directions for {len(keys)} keys: give one for each, or one for all"
        )
    return tuple(directions)


def _boundaries(boundaries: Any) -> tuple[Any, ...] | None:
    if not boundaries:
        return None
    if not isinstance(boundaries, list | tuple) or not all(
        isinstance(each, int | float) for each in boundaries
    ):
        raise ValueError(
            f"boundaries={boundaries!r} are no list of numbers: give the values of the first key at which blocks begin"
        )
    return tuple(sorted(set(boundaries)))


def _warn_ignored(why: str, **arguments: Any) -> None:
    for name, value in arguments.items():
        if value:
            warnings.warn(f"{name}={value!r} is ignored, since {why}", UserWarning, stacklevel=4)
