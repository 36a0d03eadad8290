"""Splits of a dataset into parts that exist: by number, by index, by proportion, and into train and
test rows. `iterate.streaming_split` splits a dataset for the ranks of a training run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syncline.data.columnar import block as block_functions
from syncline.data.columnar.kernels import group
from syncline.data.execute import block_store
from syncline.data.execute.query import Query
from syncline.data.plan import build, checks
from syncline.data.plan.nodes import Held, HeldBlock, RandomShuffle

Blocks = tuple[HeldBlock, ...]


def evenly(
    query: Query, n: int, *, equal: bool, locality_hints: Sequence[object] | None
) -> list[Blocks]:
    """Return the parts of `Dataset.split`."""
    checks.count("n", n, least=1)
    if locality_hints is not None and len(locality_hints) != n:
        raise ValueError(
            f"{len(locality_hints)} locality_hints do not fit n={n} parts: "
            "pass one for each part, or None"
        )
    blocks = query.blocks()
    rows = _rows(blocks)
    if equal:
        return block_store.cut(blocks, [rows // n * number for number in range(1, n + 1)])[:n]
    if len(blocks) < n:
        return block_store.cut(blocks, [rows * number // n for number in range(1, n)])
    share, rest = divmod(len(blocks), n)
    ends = np.cumsum([share + (number < rest) for number in range(n)]).tolist()
    return [blocks[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def at_indices(query: Query, indices: Sequence[int]) -> list[Blocks]:
    """Return the parts of `Dataset.split_at_indices`."""
    if not isinstance(indices, list | tuple) or not indices:
        raise ValueError(
            f"indices={indices!r} is not a list of row numbers: pass at least one index"
        )
    for index in indices:
        checks.count("indices", index, least=0)
    if sorted(indices) != list(indices):
        raise ValueError(f"indices={indices} are not in order: sort them")
    return block_store.cut(query.blocks(), indices)


def by_proportion(query: Query, proportions: Sequence[float]) -> list[Blocks]:
    """Return the parts of `Dataset.split_proportionately`."""
    if not proportions or not all(part > 0 for part in proportions) or sum(proportions) >= 1:
        raise ValueError(
            f"proportions={proportions} do not leave a rest: "
            "pass positive numbers whose sum is below 1"
        )
    blocks = query.blocks()
    rows = _rows(blocks)
    ends = [int(rows * part) for part in np.cumsum(proportions)]
    return block_store.cut(blocks, _nonempty(ends, proportions))


def train_test(
    query: Query, test_size: int | float, *, shuffle: bool, seed: int | None, stratify: str | None
) -> tuple[Blocks, Blocks]:
    """Return the parts of `Dataset.train_test_split`."""
    if isinstance(test_size, bool) or not isinstance(test_size, int | float):
        raise TypeError(
            f"test_size={test_size!r} is of type {type(test_size).__name__}: "
            "pass a number of rows, or a fraction as a float"
        )
    if shuffle and stratify is not None:
        raise ValueError(
            "shuffle=True and stratify exclude each other: "
            "call random_shuffle() before, or leave one of them out"
        )
    if isinstance(test_size, float) and not 0 < test_size < 1:
        raise ValueError(
            f"test_size={test_size} is not a fraction: "
            "pass a float between 0 and 1, or an int for a number of rows"
        )
    if shuffle:
        shuffled = RandomShuffle(input=query.node, seed=checks.seed(seed))
        query = Query(shuffled, query.context, name=query.name)
    blocks = query.blocks()
    rows = _rows(blocks)
    if isinstance(test_size, int) and not 0 < test_size < rows:
        raise ValueError(
            f"test_size={test_size} of {rows} rows leaves one side empty: "
            f"pass a number from 1 to {rows - 1}"
        )
    if stratify is not None:
        share = test_size if isinstance(test_size, float) else test_size / rows
        return _stratified(Query(Held(blocks=blocks), query.context), stratify, share)
    if isinstance(test_size, float):
        (index,) = _nonempty([int(rows * (1 - test_size))], [1 - test_size])
    else:
        index = rows - test_size
    train, test = block_store.cut(blocks, [index])
    return train, test


def _stratified(query: Query, column: str, share: float) -> tuple[Blocks, Blocks]:
    checks.known_columns(query.known_schema(), [column])
    strata = block_functions.concat(list(query.tables(build.select_columns(query, column, {}))))
    is_test = block_store.of_table(build.mask_of(group.last_of_each(strata, column, share)))
    train, test = (
        Query(side, query.context).blocks() for side in build.sides_of_mask(query.node, is_test)
    )
    return train, test


def _rows(blocks: Sequence[HeldBlock]) -> int:
    return sum(block.num_rows for block in blocks)


def _nonempty(ends: list[int], proportions: Sequence[float]) -> list[int]:
    """Move the ends of parts back where a part would have no rows. Raise ValueError for too few
    rows.
    """
    moved = 0
    for number in reversed(range(len(ends) - 1)):
        ends[number] -= moved
        if ends[number] == ends[number + 1]:
            moved += 1
            ends[number] -= 1
    if any(end <= 0 for end in ends):
        raise ValueError(
            f"there are too few rows for the proportions {list(proportions)}: a part would be empty"
        )
    return ends
