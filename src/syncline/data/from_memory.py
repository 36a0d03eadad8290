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
from syncline.core.cgroups import machine_limits
from syncline.core.refs import ObjectRef
from syncline.data.columnar import block as blocks
from syncline.data.columnar.frames import is_frame
from syncline.data.context import DataContext
from syncline.data.dataset import Dataset, MaterializedDataset
from syncline.data.execute.block_store import of_table
from syncline.data.io.sources import memory
from syncline.data.io.sources.huggingface import HuggingFaceDatasource
from syncline.data.io.sources.torch_dataset import TorchDatasource
from syncline.data.options import num_blocks_of
from syncline.data.plan.nodes import Held, HeldBlock
from syncline.data.read import read
from syncline.optional import load

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


# -- other libraries


def from_torch(dataset: Any, local_read: bool = False) -> Dataset:
    """The items of a PyTorch dataset, in the column `item`.

    Args:
        dataset: A map-style dataset, which is read in parallel, or an iterable one, which is read
            in one task. Tasks get a copy of it.
        local_read: Read in one task on the program's own machine, for datasets that refer to files
            there.

    Raises:
        TypeError: It is neither map-style nor iterable.
    """
    return read(TorchDatasource(dataset, local_read), {})


def from_huggingface(
    dataset: Any,
    parallelism: int = -1,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
) -> Dataset:
    """The rows of a Hugging Face dataset.

    Args:
        dataset: A `datasets.Dataset`, which is read in parallel, or an `IterableDataset`, which is
            read in one task.
        parallelism: Older name of `override_num_blocks`; -1 is None.
        concurrency: The most read tasks at once; None for as many as there is room for.
        override_num_blocks: Number of read tasks; None lets the executor choose.

    Raises:
        TypeError: A dictionary of splits, or something else.
    """
    options = {
        "parallelism": parallelism,
        "concurrency": concurrency,
        "override_num_blocks": override_num_blocks,
    }
    return read(HuggingFaceDatasource(dataset), options)


def from_dask(df: Any) -> MaterializedDataset:
    """The rows of a Dask DataFrame, without its index, each partition one block.

    Partitions are computed as tasks, in parallel, and become blocks in the same task; none of them
    comes to the program.

    Args:
        df: The DataFrame.

    Raises:
        TypeError: It is no Dask DataFrame.
        ImportError: Dask is not installed.
    """
    if not hasattr(df, "to_delayed") or not hasattr(df, "dask"):
        hint = ": use from_pandas" if is_frame(df) else ""
        raise TypeError(
            f"from_dask takes a dask.dataframe.DataFrame, not {type(df).__name__}{hint}"
        )
    dask = load("dask", purpose="from_dask", install="syncline[dask]")
    scheduler = load("syncline.util.dask", purpose="from_dask", install="syncline[dask]")
    parts = [dask.delayed(_as_block)(part) for part in df.to_delayed()]
    persisted = scheduler.ray_dask_persist(*parts)
    refs = [part.dask[part.key].ref for part in persisted]
    return held_blocks(blocks_of_refs(refs, _identity))


def _as_block(part: Any) -> pa.Table:
    """A partition as a table. A Series is one column, of its name."""
    return blocks.from_batch(part if is_frame(part) else part.to_frame())


def _identity(table: pa.Table) -> pa.Table:
    return table


def from_tf(dataset: Any) -> MaterializedDataset:
    """The elements of a `tf.data.Dataset`: dicts are rows, anything else the value of the column
    `item`. All of them are read at once.

    Args:
        dataset: The dataset; without ragged tensors.
    """
    return from_items(list(_having("from_tf", dataset, "as_numpy_iterator", "a tf.data.Dataset")()))


def from_spark(
    df: Any, *, parallelism: int | None = None, override_num_blocks: int | None = None
) -> MaterializedDataset:
    """The rows of a Spark DataFrame, collected into the program's memory.

    Args:
        df: The DataFrame.
        parallelism: Older name of `override_num_blocks`.
        override_num_blocks: Number of blocks.
    """
    wanted = num_blocks_of(override_num_blocks, parallelism)
    if hasattr(df, "toArrow"):  # since Spark 4
        return from_arrow(df.toArrow(), override_num_blocks=wanted)
    return from_pandas(
        _having("from_spark", df, "toPandas", "a pyspark.sql.DataFrame")(),
        override_num_blocks=wanted,
    )


def from_modin(df: Any) -> MaterializedDataset:
    """The rows of a Modin DataFrame, without its index, collected into the program's memory.

    Args:
        df: The DataFrame.
    """
    return from_pandas(_having("from_modin", df, "_to_pandas", "a modin.pandas.DataFrame")())


def from_mars(df: Any) -> MaterializedDataset:
    """The rows of a Mars DataFrame, without its index, computed and collected into the program's
    memory.

    Args:
        df: The DataFrame.
    """
    return from_pandas(_having("from_mars", df, "to_pandas", "a mars.dataframe.DataFrame")())


def from_daft(df: Any) -> MaterializedDataset:
    """The rows of a Daft DataFrame, computed and collected into the program's memory.

    Args:
        df: The DataFrame.
    """
    return from_arrow(_having("from_daft", df, "to_arrow", "a daft.DataFrame")())


def _having(caller: str, value: Any, method: str, wanted: str) -> Any:
    """The method that makes something else of a value. TypeError where it has none: the value is of
    another library.
    """
    found = getattr(value, method, None)
    if found is None:
        raise TypeError(f"{caller} takes {wanted}, not {type(value).__name__}")
    return found
