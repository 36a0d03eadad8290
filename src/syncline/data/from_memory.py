"""`from_*`: datasets from objects of the program (items, DataFrames, ndarrays, tables), from
references to them, and from other libraries (PyTorch, Hugging Face, Dask, TensorFlow, Spark, Modin,
Daft, Mars).

All are materialized at the call, except PyTorch and Hugging Face datasets, which are read lazily,
and in parallel if they can be indexed. Tables stay in the memory of the program, shared with Arrow
or NumPy, until an execution needs them elsewhere. Dask computes its partitions as tasks; the other
libraries pass their rows through the memory of the program.

The number of blocks without `override_num_blocks`: for items at least two per CPU, since a short
list is often a list of work, and as many as `target_max_block_size` requires; for DataFrames,
ndarrays and tables one each, or more for those that are larger. `override_num_blocks` is exact, but
no block is empty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from syncline.core import api
from syncline.core.cgroups import machine_limits
from syncline.core.refs import ObjectRef
from syncline.data.columnar import block as blocks
from syncline.data.columnar.frames import is_frame
from syncline.data.context import DataContext
from syncline.data.dataset import Dataset, MaterializedDataset
from syncline.data.execute.block_store import held_block_of
from syncline.data.io import argument_types
from syncline.data.io.conversion import Frame
from syncline.data.io.sources.datasource import slice_bounds
from syncline.data.io.sources.huggingface import HuggingFaceDatasource
from syncline.data.io.sources.torch_dataset import TorchDatasource
from syncline.data.options import num_blocks_of
from syncline.data.plan.nodes import Held, HeldBlock
from syncline.data.read import read
from syncline.optional import load

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
_BLOCKS_PER_CPU = 2

Metadata = tuple[int, int, pa.Schema, bool]
"""Rows, bytes and schema of a table, and whether it is the object that was converted."""


def from_items(
    items: Sequence[object], *, parallelism: int = -1, override_num_blocks: int | None = None
) -> MaterializedDataset:
    """Create a dataset with a row for each item: a mapping is a row, other items are values of the
    column `item`.

    Args:
        items: The items.
        parallelism: Older name of `override_num_blocks`; -1 means None.
        override_num_blocks: Number of blocks, at most that of the items.

    Raises:
        TypeError: Values of one column do not share a type; the text names the rows.
        ValueError: `override_num_blocks` is below 1.
    """
    argument_types.require("items", items, Iterable, "a list of items")
    wanted = num_blocks_of(override_num_blocks, parallelism)
    rows = [item if isinstance(item, Mapping) else {"item": item} for item in items]
    table = blocks.from_rows(rows)
    least = max(_BLOCKS_PER_CPU * machine_limits().cpus, _least_blocks(blocks.size_bytes(table)))
    return held(_split([table], wanted or least))


def from_pandas(
    dfs: pd.DataFrame | list[pd.DataFrame], override_num_blocks: int | None = None
) -> MaterializedDataset:
    """Create a dataset from the rows of one or several DataFrames, without their index.

    Args:
        dfs: The DataFrames.
        override_num_blocks: Number of blocks.
    """
    return _of_tables(map(_table_of, _listed(dfs)), override_num_blocks)


def from_numpy(ndarrays: np.ndarray | list[np.ndarray]) -> MaterializedDataset:
    """Create a dataset from the rows of one or several arrays `(rows, …)`, in the column `data`."""
    argument_types.require("ndarrays", ndarrays, Iterable, "an array or a list of arrays")
    given = [ndarrays] if isinstance(ndarrays, np.ndarray) else ndarrays
    return _of_tables(map(_table_of_array, given), None)


def from_arrow(
    tables: pa.Table | bytes | list[pa.Table | bytes], *, override_num_blocks: int | None = None
) -> MaterializedDataset:
    """Create a dataset from the rows of one or several tables.

    Args:
        tables: Tables, or bytes of a table in Arrow's IPC stream format.
        override_num_blocks: Number of blocks.
    """
    return _of_tables(map(_table_of, _listed(tables)), override_num_blocks)


def from_blocks(blocks: list[pa.Table | pd.DataFrame]) -> MaterializedDataset:  # the name is Ray's
    """Create a dataset from tables and DataFrames, each of them one block."""
    argument_types.require("blocks", blocks, Iterable, "a list of tables or DataFrames")
    return held(list(map(_table_of, blocks)))


def from_pandas_refs(
    dfs: ObjectRef[pd.DataFrame] | list[ObjectRef[pd.DataFrame]],
) -> MaterializedDataset:
    """Create a dataset from DataFrames in the object store, each of them one block. Wait for them.

    Args:
        dfs: References, for instance to results of tasks.
    """
    return _of_refs("from_pandas_refs", dfs, _table_of)


def from_numpy_refs(
    ndarrays: ObjectRef[np.ndarray] | list[ObjectRef[np.ndarray]],
) -> MaterializedDataset:
    """Create a dataset from arrays `(rows, …)` in the object store, in the column `data`, each
    array one block. Wait for them.
    """
    return _of_refs("from_numpy_refs", ndarrays, _table_of_array)


def from_arrow_refs(
    tables: ObjectRef[pa.Table | bytes] | list[ObjectRef[pa.Table | bytes]],
) -> MaterializedDataset:
    """Create a dataset from tables in the object store, each of them one block. Wait for them;
    tables are not copied.

    Args:
        tables: References to tables, or to bytes of a table in Arrow's IPC stream format.
    """
    return _of_refs("from_arrow_refs", tables, _table_of)


def held(tables: Sequence[pa.Table]) -> MaterializedDataset:
    """Return the dataset whose blocks are these tables."""
    return held_blocks([held_block_of(table) for table in tables])


def held_blocks(found: Sequence[HeldBlock]) -> MaterializedDataset:
    """Return the dataset of these blocks."""
    return MaterializedDataset(Held(blocks=tuple(found)))


def _of_tables(found: Iterable[pa.Table], override_num_blocks: int | None) -> MaterializedDataset:
    tables, wanted = list(found), num_blocks_of(override_num_blocks)
    if wanted is not None:
        return held(_split(tables, wanted) or tables[:1])
    return held(
        [
            part
            for table in tables
            for part in _split([table], _least_blocks(blocks.size_bytes(table))) or [table]
        ]
    )


def _split(tables: Sequence[pa.Table], num_blocks: int) -> list[pa.Table]:
    """Split the rows into at most `num_blocks` tables in the same order, without copying; none
    without rows.
    """
    rows = sum(table.num_rows for table in tables)
    return [
        blocks.concat(list(_between(tables, start, end)))
        for start, end in slice_bounds(rows, num_blocks)
    ]


def _between(tables: Sequence[pa.Table], start: int, end: int) -> Iterator[pa.Table]:
    first = 0
    for table in tables:
        low, high = max(start, first), min(end, first + table.num_rows)
        if low < high:
            yield table.slice(low - first, high - low)
        first += table.num_rows


def _least_blocks(size_bytes: int) -> int:
    """Return the number of blocks that keeps each below the maximum block size."""
    return max(
        1, math.ceil(size_bytes / (DataContext.get_current().target_max_block_size or math.inf))
    )


def _of_refs(
    caller: str, refs: ObjectRef[T] | Sequence[ObjectRef[T]], convert: Callable[[T], pa.Table]
) -> MaterializedDataset:
    argument_types.require("refs", refs, (ObjectRef, Iterable), "references")
    given = [refs] if isinstance(refs, ObjectRef) else list(refs)
    for ref in given:
        if not isinstance(ref, ObjectRef):
            raise TypeError(
                f"{caller} takes references, but got {type(ref).__name__}: use "
                f"{caller.removesuffix('_refs')} for values"
            )
    return held_blocks(blocks_of_refs(given, convert))


def blocks_of_refs(
    refs: Sequence[ObjectRef[T]], convert: Callable[[T], pa.Table]
) -> list[HeldBlock]:
    """Return the values behind references as blocks. Tasks convert them, a few at a time; only
    metadata reaches the program.
    """
    converter = api.remote(num_returns=2, num_cpus=0)(_converted)
    room = 2 * machine_limits().cpus
    facts: list[ObjectRef[Metadata]] = []
    tables: list[ObjectRef[pa.Table]] = []
    for number, ref in enumerate(refs):
        if number >= room:  # tasks reserve no CPU, which training may hold; the window bounds them
            api.wait([facts[number - room]])
        fact, table = converter.remote(ref, convert)
        facts.append(fact)
        tables.append(table)
    return [
        # A table is in the object store already, behind the reference that was passed.
        HeldBlock(value=ref if same else table, num_rows=rows, size_bytes=size, schema=schema)
        for ref, table, (rows, size, schema, same) in zip(refs, tables, api.get(facts), strict=True)
    ]


def _converted(value: T, convert: Callable[[T], pa.Table]) -> tuple[Metadata, pa.Table | None]:
    table = convert(value)
    same = table is value
    return (table.num_rows, blocks.size_bytes(table), table.schema, same), None if same else table


def _table_of(value: Frame | bytes) -> pa.Table:
    """Return a table or DataFrame as a table; bytes are a table in Arrow's IPC stream format."""
    if isinstance(value, bytes):
        return pa.ipc.open_stream(value).read_all()
    return blocks.from_batch(value)


def _table_of_array(array: np.ndarray) -> pa.Table:
    return blocks.from_batch({"data": np.asarray(array)})


def _listed(values: object) -> list[Frame]:
    return list(values) if isinstance(values, list | tuple) else [values]


# -- other libraries


def from_torch(dataset: Frame, local_read: bool = False) -> Dataset:
    """Create a lazy dataset from the items of a PyTorch dataset, in the column `item`.

    Args:
        dataset: A map-style dataset, which is read in parallel, or an iterable one, which is read
            in one task. Tasks get a copy of it.
        local_read: Read in one task on this machine, for datasets that refer to its files.

    Raises:
        TypeError: The dataset is neither map-style nor iterable.
    """
    return read(TorchDatasource(dataset, local_read), {})


def from_huggingface(
    dataset: Frame,
    parallelism: int = -1,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
) -> Dataset:
    """Create a lazy dataset from the rows of a Hugging Face dataset.

    Args:
        dataset: A `datasets.Dataset`, which is read in parallel, or an `IterableDataset`, which is
            read in one task.
        parallelism: Older name of `override_num_blocks`; -1 means None.
        concurrency: Maximum number of concurrent read tasks; None for no limit.
        override_num_blocks: Number of read tasks; None lets the executor choose.

    Raises:
        TypeError: The object is a dictionary of splits, or of another type.
    """
    options = {
        "parallelism": parallelism,
        "concurrency": concurrency,
        "override_num_blocks": override_num_blocks,
    }
    return read(HuggingFaceDatasource(dataset), options)


def from_dask(df: Frame) -> MaterializedDataset:
    """Create a dataset from a Dask DataFrame, without its index, each partition one block.

    Parallel tasks compute the partitions and convert them to blocks; no partition passes through
    the program.

    Args:
        df: The DataFrame.

    Raises:
        TypeError: The object is not a Dask DataFrame.
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
    return held_blocks(blocks_of_refs(refs, _table_of))


def _as_block(part: Frame) -> pa.Table:
    """Return a partition as a table. A Series becomes one column with its name."""
    return blocks.from_batch(part if is_frame(part) else part.to_frame())


def from_tf(dataset: Frame) -> MaterializedDataset:
    """Create a dataset from the elements of a `tf.data.Dataset`, all read at the call: dicts are
    rows, other elements are values of the column `item`.

    Args:
        dataset: The dataset; without ragged tensors.
    """
    return from_items(list(_having("from_tf", dataset, "as_numpy_iterator", "a tf.data.Dataset")()))


def from_spark(
    df: Frame, *, parallelism: int | None = None, override_num_blocks: int | None = None
) -> MaterializedDataset:
    """Create a dataset from a Spark DataFrame, collected into the memory of the program.

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


def from_modin(df: Frame) -> MaterializedDataset:
    """Create a dataset from a Modin DataFrame, without its index, collected into the memory of the
    program.
    """
    return from_pandas(_having("from_modin", df, "_to_pandas", "a modin.pandas.DataFrame")())


def from_mars(df: Frame) -> MaterializedDataset:
    """Create a dataset from a Mars DataFrame, without its index, computed and collected into the
    memory of the program.
    """
    return from_pandas(_having("from_mars", df, "to_pandas", "a mars.dataframe.DataFrame")())


def from_daft(df: Frame) -> MaterializedDataset:
    """Create a dataset from a Daft DataFrame, computed and collected into the memory of the
    program.
    """
    return from_arrow(_having("from_daft", df, "to_arrow", "a daft.DataFrame")())


def _having(caller: str, value: object, method: str, wanted: str) -> Any:
    """Return the method that converts a value. Raise TypeError if the value has no such method,
    since it belongs to another library.
    """
    found = getattr(value, method, None)
    if found is None:
        raise TypeError(f"{caller} takes {wanted}, not {type(value).__name__}")
    return found
