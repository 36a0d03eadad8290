"""Where the random numbers of a plan come from: a seed for each node that draws, the same in every
process and version.

A seed that the program does not fix depends on the node's place in the plan as the program wrote
it. `placed` notes that place before rules move nodes about, so that a node that comes twice (two
branches of one dataset) draws the same twice.
"""

from __future__ import annotations

import dataclasses
import hashlib
import secrets

from syncline.data.context import DataContext
from syncline.data.plan.nodes import (
    Node,
    PlacedSeed,
    RandomizeBlocks,
    RandomSample,
    RandomShuffle,
    Seed,
    rewritten,
    walk,
)

_DRAWING = (RandomizeBlocks, RandomSample, RandomShuffle)
# Fits numpy's and Arrow's seeds, and JSON.
_SEED_BYTES = 7
_DRAWN_BITS = 31


def of_execution(context: DataContext) -> int:
    """The seed of an execution: the one that the program gives, or else one that is drawn now."""
    return secrets.randbits(_DRAWN_BITS) if context.seed is None else context.seed


def placed(node: Node) -> Node:
    """The same plan, whose seeds know their places. Again on the result: no change."""
    drawing = (each for each in walk(node) if isinstance(each, _DRAWING))
    places = {id(each): place for place, each in enumerate(drawing)}

    def place(each: Node, original: Node) -> Node:
        if not isinstance(each, _DRAWING) or isinstance(each.seed, int | PlacedSeed):
            return each
        return dataclasses.replace(
            each, seed=PlacedSeed(seed=each.seed, place=places[id(original)])
        )

    return rewritten(node, place)


def resolved(seed: Seed, *, execution_seed: int, epoch: int) -> int:
    """The number that a node of a placed plan draws from in one epoch of one execution.

    An int is itself. A `RandomSeedConfig` with a seed depends on it, and on the epoch if it is to
    reseed; without, on the execution and the node's place, too. None is such a config.
    """
    if isinstance(seed, int):
        return seed
    config, place = (seed.seed, seed.place) if isinstance(seed, PlacedSeed) else (seed, 0)
    drawn_in = epoch if config is None or config.reseed_after_execution else 0
    if config is not None and config.seed is not None:
        return derived(config.seed, drawn_in)
    return derived(execution_seed, drawn_in, place)


def derived(*numbers: int) -> int:
    """A number in [0, 2**56) that stands for these numbers."""
    return int.from_bytes(hashlib.sha256(repr(numbers).encode()).digest()[:_SEED_BYTES], "big")
