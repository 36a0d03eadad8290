"""Blocks as values of other libraries: pandas, NumPy, Dask, Modin, Mars, Daft, Spark. Functions
behind the `to_*` methods of `Dataset`.

References and Dask leave the rows in the object store, one value for each block; the others bring
all rows into the memory of the calling process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from syncline.core import api
from syncline.core.cgroups import machine_limits
from syncline.core.refs import ObjectRef
from syncline.data.columnar import block as blocks
from syncline.data.columnar import schemas
from syncline.data.execute.query import Query
from syncline.data.plan.nodes import Limit
from syncline.optional import load

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
Frame: TypeAlias = Any
"""A DataFrame of a library that need not be installed."""
Refs: TypeAlias = Sequence[ObjectRef[pa.Table]]


def to_pandas(query: Query, limit: int | None) -> pd.DataFrame:
    """Return all rows. Raise ValueError if there are more than `limit`."""
    if limit is None:
        return _frame(blocks.concat(list(query.tables())))
    rows = query.known_rows()
    if rows is not None and rows > limit:
        raise _too_many(limit, str(rows))
    # One row more than allowed shows that there are too many, however many there are.
    tables = list(query.tables(Limit(input=query.node, limit=limit + 1)))
    if sum(table.num_rows for table in tables) > limit:
        raise _too_many(limit, f"at least {limit + 1}")
    return _frame(blocks.concat(tables))


def pandas_refs(refs: Refs) -> list[ObjectRef[pd.DataFrame]]:
    """Return a DataFrame for each block."""
    return _converted(refs, _frame)


def numpy_refs(
    refs: Refs, column: str | None
) -> list[ObjectRef[np.ndarray | Mapping[str, np.ndarray]]]:
    """Return a dict of arrays `(rows, …)`, or the array of one column, for each block."""
    return _converted(refs, _arrays, column)


def to_dask(refs: Refs, schema: pa.Schema | None, meta: object, *, verify_meta: bool) -> Frame:
    """Return a Dask DataFrame with a partition for each block."""
    dask = load("dask", purpose="to_dask", install="syncline[dask]")
    dataframe = load("dask.dataframe", purpose="to_dask", install="syncline[dask]")
    scheduler = load("syncline.util.dask", purpose="to_dask", install="syncline[dask]")
    dask.config.set(scheduler=scheduler.ray_dask_get)
    known = schema or schemas.unify(api.get(ref).schema for ref in refs)
    empty = _frame(blocks.empty(known))
    if not refs:
        return dataframe.from_pandas(empty, npartitions=1)
    partition = dask.delayed(_partition, pure=True)
    return dataframe.from_delayed(
        [partition(ref) for ref in refs],
        meta=empty if meta is None else meta,
        verify_meta=verify_meta,
    )


def to_modin(query: Query) -> Frame:
    """Return all rows as one Modin DataFrame."""
    modin = load("modin.pandas", purpose="to_modin", install="modin")
    return modin.DataFrame(to_pandas(query, None))


def to_mars(query: Query) -> Frame:
    """Return all rows as one Mars DataFrame."""
    mars = load("mars.dataframe", purpose="to_mars", install="pymars")
    return mars.DataFrame(to_pandas(query, None))


def to_daft(query: Query) -> Frame:
    """Return all rows as one Daft DataFrame."""
    daft = load("daft", purpose="to_daft", install="daft")
    return daft.from_arrow(blocks.concat(list(query.tables())))


def to_spark(query: Query, spark: Frame) -> Frame:
    """Return all rows as one Spark DataFrame of the session `spark`."""
    load("pyspark", purpose="to_spark", install="pyspark")
    return spark.createDataFrame(to_pandas(query, None))


def _too_many(limit: int, rows: str) -> ValueError:
    return ValueError(
        f"the dataset has {rows} rows, more than limit={limit}: "
        "raise the limit, or pass limit=None if the rows fit into memory"
    )


def _converted(refs: Refs, convert: Callable[..., T], *arguments: object) -> list[ObjectRef[T]]:
    """Convert blocks in tasks. The tasks reserve no CPU, since training may hold all of them; a
    window of two tasks per CPU bounds them instead.
    """
    converter = api.remote(num_cpus=0)(convert)
    window = 2 * machine_limits().cpus
    converted: list[ObjectRef[T]] = []
    for number, ref in enumerate(refs):
        if number >= window:
            api.wait([converted[number - window]])
        converted.append(converter.remote(ref, *arguments))
    return converted


def _arrays(table: pa.Table, column: str | None) -> np.ndarray | Mapping[str, np.ndarray]:
    if column is not None and column not in table.column_names:
        raise schemas.UnknownColumnError(column, table.column_names)
    arrays: dict[str, np.ndarray] = blocks.to_batch(
        table if column is None else table.select([column]), "numpy"
    )
    return arrays if column is None else arrays[column]


def _frame(table: pa.Table) -> pd.DataFrame:
    frame: pd.DataFrame = blocks.to_batch(table, "pandas")
    return frame


def _partition(block: ObjectRef[pa.Table] | pa.Table) -> pd.DataFrame:
    """Return a partition. Dask's own schedulers pass the reference; the one of `util.dask` passes
    the table.
    """
    return _frame(api.get(block) if isinstance(block, ObjectRef) else block)
