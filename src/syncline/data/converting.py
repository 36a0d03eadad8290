"""Datasets as what other libraries hold: a method of `Dataset` for each. All of them execute the
plan.

References (`to_*_refs`) and Dask leave the rows in the object store, a value for each block; the
others bring all rows into the program's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from syncline.core import api
from syncline.core.limits import machine_limits
from syncline.core.refs import ObjectRef
from syncline.data.columnar import block as blocks
from syncline.data.columnar import schemas
from syncline.data.iterator import DataIterator
from syncline.data.methods.consuming import ConsumingMethods
from syncline.data.plan.nodes import Limit
from syncline.data.plan.properties import known_rows
from syncline.optional import load

if TYPE_CHECKING:
    import pandas as pd

Frame = Any
"""A DataFrame of a library that need not be installed."""


class ConvertingMixin(ConsumingMethods):
    """The `to_*` methods of `Dataset`."""

    @wraps(DataIterator.to_torch)
    def to_torch(self, **options: Any) -> Any:
        return self.iterator().to_torch(**options)

    @wraps(DataIterator.to_tf)
    def to_tf(self, feature_columns: Any, label_columns: Any, **options: Any) -> Any:
        return self.iterator().to_tf(feature_columns, label_columns, **options)

    def to_pandas(self, limit: int | None = None) -> pd.DataFrame:
        """All rows as one DataFrame.

        Args:
            limit: The most rows that may be there; None for any number.

        Raises:
            ValueError: There are more than `limit`.
        """
        rows = known_rows(self._node)
        if limit is not None and rows is not None and rows > limit:
            raise _too_many(limit, str(rows))
        # One row more than allowed shows that there are too many, whatever else there is.
        node = self._node if limit is None else Limit(input=self._node, limit=limit + 1)
        tables = list(self._tables(node))
        if limit is not None and sum(table.num_rows for table in tables) > limit:
            raise _too_many(limit, f"at least {limit + 1}")
        frame: pd.DataFrame = blocks.to_batch(blocks.concat(tables), "pandas")
        return frame

    def to_arrow_refs(self) -> list[ObjectRef[pa.Table]]:
        """References to the rows, a table for each block."""
        return self.get_internal_block_refs()

    def to_pandas_refs(self) -> list[ObjectRef[pd.DataFrame]]:
        """References to the rows, a DataFrame for each block."""
        return _converted(self.to_arrow_refs(), partial(blocks.to_batch, batch_format="pandas"))

    def to_numpy_refs(self, *, column: str | None = None) -> list[ObjectRef[Any]]:
        """References to the rows: for each block a dict of arrays `(rows, …)`, or with `column` one
        array.

        Args:
            column: The column; None for all.

        Raises:
            UnknownColumnError: There is no such column; raised where a reference is resolved.
        """
        return _converted(self.to_arrow_refs(), partial(_arrays, column=column))

    def to_dask(self, meta: Any = None, verify_meta: bool = True) -> Frame:
        """A Dask DataFrame with a partition for each block. Rows stay in the object store until
        Dask asks for them.

        As with Ray, Dask computes with `ray_dask_get` from now on, so that partitions go from task
        to task without coming to the program.

        Args:
            meta: An empty DataFrame or Series, or names and dtypes, as Dask takes them; found from
            the schema if None. verify_meta: Whether Dask compares each partition with `meta`.

        Raises:
            ImportError: Dask is not installed.
        """
        dask = load("dask", purpose="to_dask", install="syncline[dask]")
        dataframe = load("dask.dataframe", purpose="to_dask", install="syncline[dask]")
        scheduler = load("syncline.util.dask", purpose="to_dask", install="syncline[dask]")
        dask.config.set(scheduler=scheduler.ray_dask_get)
        refs = self.to_arrow_refs()
        schema = self._known_schema() or schemas.unify(api.get(ref).schema for ref in refs)
        empty = blocks.to_batch(blocks.empty(schema), "pandas")
        if not refs:
            return dataframe.from_pandas(empty, npartitions=1)
        load_frame = dask.delayed(_frame, pure=True)
        return dataframe.from_delayed(
            [load_frame(ref) for ref in refs],
            meta=empty if meta is None else meta,
            verify_meta=verify_meta,
        )

    def to_modin(self) -> Frame:
        """All rows as one Modin DataFrame. ImportError if Modin is not installed."""
        modin = load("modin.pandas", purpose="to_modin", install="modin")
        return modin.DataFrame(self.to_pandas())

    def to_mars(self) -> Frame:
        """All rows as one Mars DataFrame. ImportError if Mars is not installed."""
        mars = load("mars.dataframe", purpose="to_mars", install="pymars")
        return mars.DataFrame(self.to_pandas())

    def to_daft(self) -> Frame:
        """All rows as one Daft DataFrame. ImportError if Daft is not installed."""
        daft = load("daft", purpose="to_daft", install="daft")
        return daft.from_arrow(blocks.concat(list(self._tables())))

    def to_spark(self, spark: Any) -> Frame:
        """All rows as one Spark DataFrame. ImportError if Spark is not installed.

        Args:
            spark: The `SparkSession` that it belongs to.
        """
        load("pyspark", purpose="to_spark", install="pyspark")
        return spark.createDataFrame(self.to_pandas())


def _too_many(limit: int, rows: str) -> ValueError:
    return ValueError(
        f"the dataset has {rows} rows, and limit={limit}: raise the limit, or pass limit=None if they fit into memory"
    )


def _converted(
    refs: Sequence[ObjectRef[pa.Table]], convert: Callable[[pa.Table], Any]
) -> list[ObjectRef[Any]]:
    """References to what tasks make of blocks. As many at once as there are CPUs, but none is asked
    for: training may hold them all.
    """
    converter = api.remote(num_cpus=0)(_call)
    room = 2 * machine_limits().cpus
    made: list[ObjectRef[Any]] = []
    for number, ref in enumerate(refs):
        if number >= room:
            api.wait([made[number - room]])
        made.append(converter.remote(convert, ref))
    return made


def _call(convert: Callable[[pa.Table], Any], table: pa.Table) -> Any:
    return convert(table)


def _arrays(table: pa.Table, column: str | None) -> np.ndarray | Mapping[str, np.ndarray]:
    if column is not None and column not in table.column_names:
        raise schemas.UnknownColumnError(column, table.column_names)
    arrays: dict[str, np.ndarray] = blocks.to_batch(
        table if column is None else table.select([column]), "numpy"
    )
    return arrays if column is None else arrays[column]


def _frame(block: Any) -> pd.DataFrame:
    """A partition: Dask's own schedulers pass the reference, and that of `util.dask` the table
    behind it.
    """
    table = api.get(block) if isinstance(block, ObjectRef) else block
    frame: pd.DataFrame = blocks.to_batch(table, "pandas")
    return frame
