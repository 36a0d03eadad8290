"""Seeds of the nodes that use random numbers, the same in every process and version.

A seed that the program does not fix depends on the index of its node in the original plan.
`with_indices` stores the index before rules move nodes, so that a node that occurs twice (in two
branches of one dataset) gets the same seed twice.
"""

from __future__ import annotations

import dataclasses
import hashlib
import secrets

from syncline.data.context import DataContext
from syncline.data.plan.nodes import (
    IndexedSeed,
    Node,
    RandomizeBlocks,
    RandomSample,
    RandomShuffle,
    Seed,
    rewrite_bottom_up,
    walk,
)

_RANDOM_NODES = (RandomizeBlocks, RandomSample, RandomShuffle)
# Fits numpy's and Arrow's seeds, and JSON.
_SEED_BYTES = 7
_DRAWN_BITS = 31


def of_execution(context: DataContext) -> int:
    """Return the seed of an execution: `context.seed`, or a new random one."""
    return secrets.randbits(_DRAWN_BITS) if context.seed is None else context.seed


def with_indices(node: Node) -> Node:
    """Return the same plan with the index of each random node in its seed; idempotent."""
    random_nodes = (each for each in walk(node) if isinstance(each, _RANDOM_NODES))
    indices = {id(each): index for index, each in enumerate(random_nodes)}

    def add_index(each: Node, original: Node) -> Node:
        if not isinstance(each, _RANDOM_NODES) or isinstance(each.seed, int | IndexedSeed):
            return each
        seed = IndexedSeed(seed=each.seed, index=indices[id(original)])
        return dataclasses.replace(each, seed=seed)

    return rewrite_bottom_up(node, add_index)


def resolve(seed: Seed, *, execution_seed: int, epoch: int) -> int:
    """Return the seed of a node with an indexed seed, in one epoch of one execution.

    An int is used as it is. A `RandomSeedConfig` with a seed gives a seed derived from it and, if
    it reseeds, the epoch; without a seed, also from the execution and the node's index. None is
    the default config.
    """
    if isinstance(seed, int):
        return seed
    config, index = (seed.seed, seed.index) if isinstance(seed, IndexedSeed) else (seed, 0)
    epoch_part = epoch if config is None or config.reseed_after_execution else 0
    if config is not None and config.seed is not None:
        return derive(config.seed, epoch_part)
    return derive(execution_seed, epoch_part, index)


def derive(*numbers: int) -> int:
    """Hash numbers to a seed in [0, 2**56)."""
    return int.from_bytes(hashlib.sha256(repr(numbers).encode()).digest()[:_SEED_BYTES], "big")
