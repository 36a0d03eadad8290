"""Splits of a dataset: into parts that exist, by number, index or proportion, and into train and
test rows, which may be lazy. `iterate.streaming_split` splits a dataset for the ranks of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as block_functions
from syncline.data.columnar import expressions
from syncline.data.columnar.expressions import Expr, col, lit, star
from syncline.data.columnar.expressions.generated import DrawBesides, HashShare
from syncline.data.columnar.kernels import group
from syncline.data.execute import block_store
from syncline.data.execute.query import Query
from syncline.data.plan import build, checks
from syncline.data.plan.function_options import Options, resources_of
from syncline.data.plan.nodes import FilterExpr, Held, HeldBlock, Node, Project, RandomShuffle, Zip

Blocks = tuple[HeldBlock, ...]
_IS_TEST = "__is_test"


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
        return block_store.split_before(blocks, [rows // n * number for number in range(1, n + 1)])[
            :n
        ]
    if len(blocks) < n:
        return block_store.split_before(blocks, [rows * number // n for number in range(1, n)])
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
    return block_store.split_before(query.blocks(), indices)


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
    return block_store.split_before(blocks, _nonempty(ends, proportions))


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
    train, test = block_store.split_before(blocks, [index])
    return train, test


def train_test_filters(
    query: Query,
    test_size: float,
    options: Options,
    *,
    split_type: Literal["hash", "random"],
    hash_column: str | None,
    seed: int | None,
) -> tuple[FilterExpr, FilterExpr]:
    """Build both sides of `Dataset.streaming_train_test_split`."""
    resources_of(options)
    if (
        isinstance(test_size, bool)
        or not isinstance(test_size, int | float)
        or not 0 < test_size < 1
    ):
        raise ValueError(
            f"test_size={test_size!r} is not a fraction of the rows: pass a float between 0 and 1"
        )
    if split_type not in ("hash", "random"):
        raise ValueError(f"split_type={split_type!r} is not known: choose 'hash' or 'random'")
    position: Expr
    schema = query.known_schema()
    if split_type == "hash":
        if hash_column is None or seed is not None:
            raise ValueError(
                f"split_type='hash' needs hash_column and no seed, "
                f"but hash_column={hash_column!r} and seed={seed}"
            )
        checks.known_columns(schema, [hash_column])
        position = HashShare(col(hash_column))
    elif hash_column is not None:
        raise ValueError(
            f"hash_column={hash_column!r} goes with split_type='hash': "
            "set it, or leave hash_column out"
        )
    else:
        draw = expressions.random(seed=0 if seed is None else seed, reseed_after_execution=False)
        position = DrawBesides(draw, tuple(map(col, () if schema is None else schema.names)))
    in_train = position < lit(1 - test_size)
    return (
        FilterExpr(input=query.node, predicate=in_train),
        FilterExpr(input=query.node, predicate=~in_train),
    )


def _stratified(query: Query, column: str, share: float) -> tuple[Blocks, Blocks]:
    checks.known_columns(query.known_schema(), [column])
    strata = block_functions.concat(list(query.tables(build.select_columns(query, column, {}))))
    is_test = block_store.held_block_of(
        pa.table({_IS_TEST: group.last_of_each(strata, column, share)})
    )
    train, test = (Query(side, query.context).blocks() for side in _sides(query.node, is_test))
    return train, test


def _sides(node: Node, is_test: HeldBlock) -> tuple[Project, Project]:
    """Build the train rows and the test rows of a plan from a column of booleans."""
    marked = Zip(parts=(node, Held(blocks=(is_test,))))
    train, test = (
        Project(
            input=FilterExpr(input=marked, predicate=side),
            expressions=(star(),),
            dropped=(_IS_TEST,),
        )
        for side in (~col(_IS_TEST), col(_IS_TEST))
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
