"""Datasets of what the program holds: items, DataFrames, ndarrays, tables, and references to them
in the object store.

All are materialized at once: rows are Arrow tables when the call returns. Tables stay in the
program's memory, shared where they were Arrow or NumPy already, until an execution needs them
elsewhere.

How many blocks there are without `override_num_blocks`: of items at least two for each CPU, since a
list of few items is often a list of work, and as many as their bytes ask for
(`target_max_block_size`); of DataFrames, ndarrays and tables one for each, or more where one is
larger than that. `override_num_blocks` holds exactly, but no block is empty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from syncline.core import api
from syncline.core.limits import machine_limits
from syncline.core.refs import ObjectRef
from syncline.data.columnar import block as blocks
from syncline.data.context import DataContext
from syncline.data.dataset import MaterializedDataset
from syncline.data.execute.held_blocks import of_table
from syncline.data.io.sources import memory
from syncline.data.options import num_blocks_of
from syncline.data.plan.nodes import Held, HeldBlock

if TYPE_CHECKING:
    import pandas as pd

_BLOCKS_PER_CPU = 2

Facts = tuple[int, int, pa.Schema, bool]
"""Rows, bytes and schema of a table, and whether it is the very value that it was made of."""


def from_items(
    items: Sequence[Any], *, parallelism: int = -1, override_num_blocks: int | None = None
) -> MaterializedDataset:
    """A row for each item: a mapping is a row, anything else the value of the column `item`.

    Args:
        items: The items.
        parallelism: Older name of `override_num_blocks`; -1 is None.
        override_num_blocks: Number of blocks, at most that of the items.

    Raises:
        TypeError: Values of one column that no type holds; the text names the rows.
        ValueError: `override_num_blocks` below 1.
    """
    wanted = num_blocks_of(override_num_blocks, parallelism)
    tables = memory.tables_from_items(list(items), 1)
    size = sum(map(blocks.size_bytes, tables))
    return held(
        memory.split_tables(
            tables, wanted or max(_BLOCKS_PER_CPU * machine_limits().cpus, _least_blocks(size))
        )
        or tables
    )


def from_pandas(
    dfs: pd.DataFrame | list[pd.DataFrame], override_num_blocks: int | None = None
) -> MaterializedDataset:
    """The rows of one or several DataFrames, without their index.

    Args:
        dfs: The DataFrames.
        override_num_blocks: Number of blocks.
    """
    return _of_tables(memory.tables_from_pandas(dfs), override_num_blocks)


def from_numpy(ndarrays: np.ndarray | list[np.ndarray]) -> MaterializedDataset:
    """The rows of one or several arrays `(rows, …)`, in the column `data`.

    Args:
        ndarrays: The arrays.
    """
    return _of_tables(memory.tables_from_numpy(ndarrays), None)


def from_arrow(
    tables: pa.Table | bytes | list[pa.Table | bytes], *, override_num_blocks: int | None = None
) -> MaterializedDataset:
    """The rows of one or several tables.

    Args:
        tables: Tables, or bytes that hold one in Arrow's IPC stream format.
        override_num_blocks: Number of blocks.
    """
    return _of_tables(memory.tables_from_arrow(tables), override_num_blocks)


def from_blocks(blocks: list[pa.Table | pd.DataFrame]) -> MaterializedDataset:  # the name is Ray's
    """The rows of tables and DataFrames, each of them one block.

    Args:
        blocks: The tables and DataFrames.
    """
    return held([memory.tables_from_arrow(block)[0] for block in blocks])


def from_pandas_refs(
    dfs: ObjectRef[pd.DataFrame] | list[ObjectRef[pd.DataFrame]],
) -> MaterializedDataset:
    """The rows of DataFrames in the object store, each of them one block. Waits for them.

    Args:
        dfs: References, for instance what tasks returned.
    """
    return _of_refs("from_pandas_refs", dfs, blocks.from_batch)


def from_numpy_refs(
    ndarrays: ObjectRef[np.ndarray] | list[ObjectRef[np.ndarray]],
) -> MaterializedDataset:
    """The rows of arrays `(rows, …)` in the object store, in the column `data`, each array one
    block. Waits for them.

    Args:
        ndarrays: References.
    """
    return _of_refs("from_numpy_refs", ndarrays, _table_of_array)


def from_arrow_refs(
    tables: ObjectRef[pa.Table | bytes] | list[ObjectRef[pa.Table | bytes]],
) -> MaterializedDataset:
    """The rows of tables in the object store, each of them one block. Waits for them; tables are
    used where they lie.

    Args:
        tables: References to tables, or to bytes that hold one in Arrow's IPC stream format.
    """
    return _of_refs("from_arrow_refs", tables, _table_of_arrow)


def held(tables: Sequence[pa.Table]) -> MaterializedDataset:
    """The dataset whose blocks are these tables."""
    return held_blocks([of_table(table) for table in tables])


def held_blocks(found: Sequence[HeldBlock]) -> MaterializedDataset:
    """The dataset of blocks that exist."""
    return MaterializedDataset(Held(blocks=tuple(found)))


def _of_tables(tables: list[pa.Table], override_num_blocks: int | None) -> MaterializedDataset:
    wanted = num_blocks_of(override_num_blocks)
    if wanted is not None:
        return held(memory.split_tables(tables, wanted) or tables[:1])
    return held(
        [
            part
            for table in tables
            for part in memory.split_tables([table], _least_blocks(blocks.size_bytes(table)))
            or [table]
        ]
    )


def _least_blocks(size_bytes: int) -> int:
    """Blocks that so many bytes need so that none is larger than the context says."""
    return max(
        1, math.ceil(size_bytes / (DataContext.get_current().target_max_block_size or math.inf))
    )


def _of_refs(caller: str, refs: Any, convert: Callable[[Any], pa.Table]) -> MaterializedDataset:
    given = [refs] if isinstance(refs, ObjectRef) else list(refs)
    for ref in given:
        if not isinstance(ref, ObjectRef):
            raise TypeError(
                f"{caller} takes references, but got {type(ref).__name__}: use {caller.removesuffix('_refs')} for values"
            )
    return held_blocks(blocks_of_refs(given, convert))


def blocks_of_refs(
    refs: Sequence[ObjectRef[Any]], convert: Callable[[Any], pa.Table]
) -> list[HeldBlock]:
    """The values behind references as blocks: converted where they lie, a few at once; only their
    facts come to the program.
    """
    converter = api.remote(num_returns=2, num_cpus=0)(_converted)
    room = 2 * machine_limits().cpus
    facts: list[ObjectRef[Facts]] = []
    tables: list[ObjectRef[pa.Table]] = []
    for number, ref in enumerate(refs):
        if (
            number >= room
        ):  # no CPU is asked for, so that workers of a training never stop it; so it bounds itself
            api.wait([facts[number - room]])
        fact, table = converter.remote(ref, convert)
        facts.append(fact)
        tables.append(table)
    return [
        # A table lies in the object store already, and what was given is the reference to it.
        HeldBlock(value=ref if same else table, num_rows=rows, size_bytes=size, schema=schema)
        for ref, table, (rows, size, schema, same) in zip(refs, tables, api.get(facts), strict=True)
    ]


def _converted(value: Any, convert: Callable[[Any], pa.Table]) -> tuple[Facts, pa.Table | None]:
    table = convert(value)
    same = table is value
    return (table.num_rows, blocks.size_bytes(table), table.schema, same), None if same else table


def _table_of_array(array: np.ndarray) -> pa.Table:
    return memory.tables_from_numpy(array)[0]


def _table_of_arrow(value: pa.Table | bytes) -> pa.Table:
    return memory.tables_from_arrow(value)[0]
