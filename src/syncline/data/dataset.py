"""`Dataset` and `MaterializedDataset`: the handles that programs hold.

A dataset is a plan and a copy of the settings at the time of its creation. Both are immutable: a
method returns a new dataset, or executes the plan. The methods are documented here; their logic is
in `plan.build` (new nodes), `execute.query` and `execute.dataset_splits` (executions), `io` (files
and other libraries) and `iterator` (loops).
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Literal, NoReturn, ParamSpec, TypeAlias, TypeVar

import cloudpickle
import numpy as np
import pyarrow as pa

from syncline.core.refs import ObjectRef
from syncline.data.columnar import block as blocks
from syncline.data.columnar.aggregate import (
    AggregateFn,
    AggregateFnV2,
    Max,
    Mean,
    Min,
    Std,
    Sum,
    Unique,
)
from syncline.data.columnar.aggregate.summary import DatasetSummary, summarize
from syncline.data.columnar.block import AnyBatch, BatchFormat, Row
from syncline.data.columnar.columns import Scalar
from syncline.data.columnar.datatype import DataType
from syncline.data.columnar.expressions import Expr, UnnestExpr
from syncline.data.columnar.kernels.join import JoinType
from syncline.data.columnar.preview import Preview
from syncline.data.columnar.schemas import Schema
from syncline.data.context import DataContext, ExecutionOptions
from syncline.data.execute import block_store, dataset_splits
from syncline.data.execute.execution_journal import RecordTarget
from syncline.data.execute.headroom import Headroom, check_rate, measure
from syncline.data.execute.query import Query
from syncline.data.grouped_data import GroupedData
from syncline.data.io import conversion, write_job
from syncline.data.io.conversion import Frame
from syncline.data.io.sinks import json as json_sink
from syncline.data.io.sinks import orc as orc_sink
from syncline.data.io.sinks import parquet as parquet_sink
from syncline.data.io.sinks.csv import WRITER_ARGS, CSVDatasink
from syncline.data.io.sinks.datasink import Datasink, SaveMode
from syncline.data.io.sinks.delta import DeltaDatasink, SchemaMode
from syncline.data.io.sinks.iceberg import IcebergDatasink
from syncline.data.io.sinks.images import ImageDatasink
from syncline.data.io.sinks.json import JSONDatasink
from syncline.data.io.sinks.kafka import KafkaDatasink
from syncline.data.io.sinks.lance import LanceDatasink
from syncline.data.io.sinks.mongo import MongoDatasink
from syncline.data.io.sinks.numpy import NumpyDatasink
from syncline.data.io.sinks.orc import ORCDatasink
from syncline.data.io.sinks.parquet import ParquetDatasink
from syncline.data.io.sinks.sql import SQLDatasink
from syncline.data.io.sinks.tfrecords import TFRecordDatasink
from syncline.data.io.sinks.webdataset import WebDatasetDatasink
from syncline.data.io.sources.sql import Connection
from syncline.data.io.sources.webdataset import Codec
from syncline.data.iterate.batch_source import DatasetSource
from syncline.data.iterate.streaming_split import split_sources
from syncline.data.iterator import DataIterator
from syncline.data.options import (
    BLOCK_FILES_WRITE,
    FILES_WRITE,
    REMOTE,
    WRITE,
    BlockFileWriteOptions,
    FileWriteOptions,
    WriteOptions,
    further,
    keywords,
    refuse_catalog,
    short_tracebacks,
    sink_arguments,
)
from syncline.data.plan import build, checks, explain, properties
from syncline.data.plan.build import MixStoppingCondition
from syncline.data.plan.function_options import (
    FUNCTION,
    PROJECT,
    Arguments,
    FunctionOptions,
    Options,
    ProjectOptions,
    RemoteArgs,
    user_function,
)
from syncline.data.plan.nodes import (
    FlatMap,
    Held,
    HeldBlock,
    Limit,
    MapRows,
    Node,
    RandomizeBlocks,
    RandomSample,
    Seed,
    Union,
    Zip,
    walk,
)
from syncline.suggestions import did_you_mean

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Self, Unpack

__all__ = ["Dataset", "MaterializedDataset", "Schema"]

P = ParamSpec("P")
R = TypeVar("R")
Columns: TypeAlias = str | list[str] | None
Result: TypeAlias = Any
"""Value of an aggregator, or values by name."""
ArgumentsFunction: TypeAlias = Callable[[], Arguments] | None
"""Returns arguments of a library's writer; called on the worker, for values that cannot be
pickled.
"""

_STREAMS = "datasets stream by themselves, so"
# Methods of earlier versions of Ray: what programs write instead.
_RETIRED = {
    "window": f"{_STREAMS} leave out the windows and loop over `iter_batches`",
    "repeat": f"{_STREAMS} loop over `iter_batches` once per epoch",
    "lazy": "datasets are lazy: leave it out",
    "fully_executed": "use `materialize()`",
    "is_fully_executed": "use `isinstance(ds, MaterializedDataset)`",
    "experimental_lazy": "datasets are lazy: leave it out",
    "dataset_format": "blocks are Arrow tables",
    "default_batch_format": "batches are dicts of ndarrays: pass `batch_format`",
    "to_random_access_dataset": "materialize the rows and index them by key in an actor",
}


def _of_iterator(
    method: Callable[Concatenate[DataIterator, P], R], *, new: bool = False
) -> Callable[Concatenate[Dataset, P], R]:
    """Return a method of `DataIterator` as one of `Dataset`. All calls share one iterator, so that
    each loop is the next epoch; with `new` each call has its own.
    """

    @wraps(method)
    def call(self: Dataset, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if new:
            return method(self.iterator(), *args, **kwargs)
        if self._iterator is None:
            self._iterator = self.iterator()
        self._query.observations.stats = self._iterator.stats
        return method(self._iterator, *args, **kwargs)

    return call


@short_tracebacks
class Dataset:
    """Rows of named, typed columns, computed lazily, block by block.

    `read_*`, `from_*` and `range` create datasets. A dataset can be passed to tasks and actors,
    where it is the same plan.

    Args:
        node: Root of the plan.
        context: Settings, copied; None for the current ones.
        name: Name in progress and statistics.
    """

    def __init__(
        self, node: Node, context: DataContext | None = None, *, name: str | None = None
    ) -> None:
        self._query = Query(node, (context or DataContext.get_current()).copy(), name=name)
        self._iterator: DataIterator | None = None

    # -- rows and batches

    @keywords(FUNCTION, rest=REMOTE)
    def map(
        self, fn: Callable[..., Mapping[str, object]], **options: Unpack[FunctionOptions]
    ) -> Dataset:
        """Apply a function to each row. `map_batches` is faster for a function that can process
        many rows together.

        Args:
            fn: A function from a dict to a dict, or a class with `__call__`, which is constructed
                once per actor.
            **options: `FunctionOptions`, and any option of `remote`.
        """
        return self._derive(MapRows(input=self._node, function=user_function(fn, options)))

    @keywords(FUNCTION, rest=REMOTE)
    def flat_map(
        self, fn: Callable[..., Iterable[Mapping[str, object]]], **options: Unpack[FunctionOptions]
    ) -> Dataset:
        """Apply a function that returns any number of rows to each row.

        Args:
            fn: A function from a dict to a list or generator of dicts, or a class with `__call__`.
            **options: `FunctionOptions`, and any option of `remote`.
        """
        return self._derive(FlatMap(input=self._node, function=user_function(fn, options)))

    @keywords(FUNCTION, rest=REMOTE)
    def map_batches(
        self,
        fn: Callable[..., Any],
        *,
        batch_size: int | None | Literal["auto"] = None,
        batch_format: BatchFormat = "default",
        zero_copy_batch: bool = True,
        udf_modifying_row_count: bool = True,
        **options: Unpack[FunctionOptions],
    ) -> Dataset:
        """Apply a function to batches of rows: the fastest way to run a function on data.

        Args:
            fn: A function from a batch to a dict of arrays or lists, a DataFrame, a table, or a
                generator of these; or a class with `__call__`.
            batch_size: Rows of a batch; the last batch of a block may have fewer. None for whole
                blocks, "auto" for a size by bytes. `num_gpus` requires an int, since a block may be
                larger than a GPU's memory.
            batch_format: "default" and "numpy" for a dict of arrays `(rows, ...)`, "pandas",
                "pyarrow", or None for the block itself.
            zero_copy_batch: Allow batches that are read-only views of blocks. Set False if `fn`
                writes into its batch.
            udf_modifying_row_count: Set False to promise that `fn` keeps the number of rows, so
                that limits can be applied earlier.
            **options: `FunctionOptions`, and any option of `remote`.
        """
        node = build.map_batches(
            self._query,
            fn,
            options,
            batch_size=batch_size,
            batch_format=batch_format,
            zero_copy=zero_copy_batch,
            keeps_row_count=not udf_modifying_row_count,
        )
        return self._derive(node)

    @keywords(FUNCTION, rest=REMOTE)
    def filter(
        self,
        fn: Callable[..., bool] | Expr | None = None,
        expr: str | Expr | None = None,
        **options: Unpack[FunctionOptions],
    ) -> Dataset:
        """Keep the rows for which a function or an expression is true. An expression is much
        faster, and readers apply it to files.

        Args:
            fn: A function from a row to a bool; an expression here means `expr`.
            expr: A boolean expression such as `col("age") > 18`; rows for which it is null are
                dropped. Expressions as text are deprecated.
            **options: `FunctionOptions`, and any option of `remote`, for `fn`.
        """
        return self._derive(build.filter_rows(self._query, fn, expr, options))

    # -- columns

    @keywords(PROJECT, rest=REMOTE)
    def select_columns(self, cols: str | list[str], **options: Unpack[ProjectOptions]) -> Dataset:
        """Keep the given columns, in the given order.

        Raises:
            UnknownColumnError: The schema is known and lacks a column.
        """
        return self._derive(build.select_columns(self._query, cols, options))

    @keywords(PROJECT, rest=REMOTE)
    def drop_columns(self, cols: list[str], **options: Unpack[ProjectOptions]) -> Dataset:
        """Drop the given columns.

        Raises:
            UnknownColumnError: The schema is known and lacks a column.
        """
        return self._derive(build.drop_columns(self._query, cols, options))

    @keywords(PROJECT, without=("compute",), rest=REMOTE)
    def rename_columns(
        self, names: list[str] | dict[str, str], **options: Unpack[ProjectOptions]
    ) -> Dataset:
        """Rename columns.

        Args:
            names: A dict from old to new names; or a list with a name for each column, which needs
                the schema and may compute the first row to find it.
            **options: `ProjectOptions`, and any option of `remote`.
        """
        return self._derive(build.rename_columns(self._query, names, options))

    @keywords(PROJECT, without=("concurrency",), rest=REMOTE)
    def with_column(
        self, column_name: str, expr: Expr, **options: Unpack[ProjectOptions]
    ) -> Dataset:
        """Add or replace a column that an expression such as `col("a") * 2` computes."""
        return self._derive(build.with_columns(self._query, [{column_name: expr}], options))

    @keywords(PROJECT, without=("concurrency",), rest=REMOTE)
    def with_columns(
        self,
        exprs: Mapping[str, Expr] | UnnestExpr | None = None,
        *more_exprs: Mapping[str, Expr] | UnnestExpr,
        **options: Unpack[ProjectOptions],
    ) -> Dataset:
        """Add or replace several columns, all computed from the columns of this dataset.

        Args:
            exprs: Expressions by column name, or `unnest(...)` for the fields of a struct.
            *more_exprs: More of them.
            **options: `ProjectOptions`, and any option of `remote`.
        """
        return self._derive(build.with_columns(self._query, [exprs, *more_exprs], options))

    @keywords(PROJECT, rest=REMOTE)
    def add_column(
        self,
        col: str,
        fn: Callable[[AnyBatch], object],
        *,
        batch_format: Literal["pandas", "numpy", "pyarrow"] = "pandas",
        **options: Unpack[ProjectOptions],
    ) -> Dataset:
        """Add or replace a column that a function computes from batches. `with_column` with an
        expression is faster.

        Args:
            col: Name of the column.
            fn: A function from a batch to a Series, array or list with one value per row.
            batch_format: "pandas", "numpy" or "pyarrow".
            **options: `ProjectOptions`, and any option of `remote`.
        """
        return self._derive(build.add_column(self._query, col, fn, batch_format, options))

    # -- rows and blocks

    def limit(self, limit: int) -> Dataset:
        """Keep the first `limit` rows; blocks that they do not need are not computed."""
        return self._derive(Limit(input=self._node, limit=checks.count("limit", limit, least=0)))

    def random_sample(self, fraction: float, *, seed: Seed = None) -> Dataset:
        """Keep each row with the probability `fraction`, from 0 to 1. An int `seed` keeps the same
        rows in every execution.
        """
        drawn = checks.fraction("fraction", fraction)
        return self._derive(RandomSample(input=self._node, fraction=drawn, seed=checks.seed(seed)))

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
        """Divide the rows into other blocks.

        Args:
            num_blocks: Number of blocks of about equal size, made after all rows are computed.
            target_num_rows_per_block: Maximum rows of a block; blocks are made as rows arrive.
            strict: With
            `target_num_rows_per_block`: every block except the last has exactly that many rows.
            shuffle: With
            `num_blocks`: shuffle the rows, in the same order in every execution.
            keys: Columns whose equal values share a block.
            sort: With
            `keys`: sort the rows of each block by the keys.

        Raises:
            ValueError: Arguments that exclude each other.
        """
        node = build.repartition(
            self._query,
            num_blocks,
            target_num_rows_per_block,
            strict=strict,
            shuffle=shuffle,
            keys=keys,
            sort=sort,
        )
        return self._derive(node)

    @keywords({}, rest=REMOTE)
    def random_shuffle(
        self, *, seed: Seed = None, num_blocks: int | None = None, **ray_remote_args: object
    ) -> Dataset:
        """Shuffle all rows.

        The shuffle computes all rows before it returns the first one, and spills to disk if they do
        not fit into memory. `iter_batches(local_shuffle_buffer_size=...)` is cheaper.

        Args:
            seed: An int for one order in every execution, a `RandomSeedConfig` for one order per
                epoch, None for a new order in every execution.
            num_blocks: Number of blocks; None lets the executor choose.
            **ray_remote_args: Options of `remote`.
        """
        return self._derive(build.random_shuffle(self._query, seed, num_blocks, ray_remote_args))

    def randomize_block_order(self, *, seed: Seed = None) -> Dataset:
        """Shuffle the blocks and keep the rows within each: much cheaper than `random_shuffle`, and
        much less random.
        """
        return self._derive(RandomizeBlocks(input=self._node, seed=checks.seed(seed)))

    def sort(
        self,
        key: str | list[str],
        descending: bool | list[bool] = False,
        boundaries: list[int | float] | None = None,
    ) -> Dataset:
        """Sort the rows by one or several columns; nulls come last.

        Args:
            key: The column or columns.
            descending: One direction for all columns, or one for each.
            boundaries: Values of the first column at which blocks begin; None for blocks of about
                equal size.

        Raises:
            UnknownColumnError: The schema is known and lacks a column.
            TypeError: The schema is known and the values of a column cannot be compared.
        """
        return self._derive(build.sort(self._query, key, descending, boundaries))

    def cache(self, path: str | os.PathLike[str] | None = None) -> Dataset:
        """Keep the rows of the first complete execution for later ones, such as further epochs.

        An execution that stops early, starts in the middle or drops failed blocks
        (`max_errored_blocks`) keeps nothing. Rows that `on_error="skip"` drops stay dropped.
        Randomness before the cache is drawn once, as in the first epoch; randomness after it
        differs from epoch to epoch as without a cache.

        Args:
            path: A directory, path or URI, that outlives the program. It serves the same plan on
                the same input: other code or arguments of a function, other values that it closes
                over, or a changed file make another plan. Code of other modules is not compared:
                use another directory after it changes. Python objects are stored as pickles: use
                only a directory whose writers are trusted. None keeps the rows in memory, and on
                disk if it is full, as long as the process uses the dataset.
        """
        return self._derive(build.cache(self._query, path))

    # -- several datasets

    def union(self, *other: Dataset) -> Dataset:
        """Append the rows of other datasets."""
        return self._derive(Union(parts=self._nodes(other)))

    def zip(self, *other: Dataset) -> Dataset:
        """Append the columns of other datasets, row by row. A name that exists already gets the
        suffix `_1`, `_2`, ….

        Executions raise ValueError if the datasets have different numbers of rows.
        """
        return self._derive(Zip(parts=self._nodes(other)))

    def mix(
        self,
        *other: Dataset,
        weights: list[float] | None = None,
        stopping_condition: MixStoppingCondition = MixStoppingCondition.STOP_ON_LONGEST_DROP,
    ) -> Dataset:
        """Interleave the blocks of datasets so that rows arrive in proportion to the weights.

        Args:
            *other: The other datasets.
            weights: A positive number for each dataset, this one first; None for equal weights.
                Only their proportions matter.
            stopping_condition: When the mix ends.
        """
        return self._derive(build.mix(self._nodes(other), weights, stopping_condition))

    def join(
        self,
        ds: Dataset,
        join_type: JoinType,
        num_partitions: int,
        on: tuple[str, ...] = ("id",),
        right_on: tuple[str, ...] | None = None,
        left_suffix: str | None = None,
        right_suffix: str | None = None,
        *,
        partition_size_hint: int | None = None,
        aggregator_ray_remote_args: RemoteArgs | None = None,
        validate_schemas: bool = False,
    ) -> Dataset:
        """Join the rows of two datasets whose keys are equal; null keys match nothing. The keys
        appear once, under the left names.

        Unknown keys, types that cannot be compared and equal column names without suffixes raise at
        the call if both schemas are known, and always with `validate_schemas`.

        Args:
            ds: The right dataset.
            join_type: "inner"; "left_outer", "right_outer" and "full_outer", which fill rows
                without a match with nulls; "left_semi" and "right_semi", which keep the rows of one
                side that have a match; "left_anti" and "right_anti", which keep those without a
                match.
            num_partitions: Number of blocks that are joined independently.
            on: Keys of the left side, and of the right side without `right_on`.
            right_on: Keys of the right side.
            left_suffix: Suffix of left columns whose name the right side has too.
            right_suffix: Suffix of such right columns.
            partition_size_hint: Ignored.
            aggregator_ray_remote_args: Options of the tasks that join.
            validate_schemas: Compute the first rows to find schemas that are not known.
        """
        self._nodes((ds,))
        node = build.join(
            self._query,
            ds._query,
            join_type,
            num_partitions,
            on,
            right_on,
            left_suffix=left_suffix,
            right_suffix=right_suffix,
            partition_size_hint=partition_size_hint,
            worker_options=aggregator_ray_remote_args,
            validate_schemas=validate_schemas,
        )
        return self._derive(node)

    # -- groups and aggregates

    def groupby(self, key: Columns, num_partitions: int | None = None) -> GroupedData[Dataset]:
        """Group the rows by equal values.

        Args:
            key: The column or columns; None makes all rows one group.
            num_partitions: Number of blocks of the result; None lets the executor choose.

        Raises:
            UnknownColumnError: The schema is known and lacks a column.
            TypeError: The schema is known and the values of a column cannot be compared.
        """
        build.check_groups(self._query, key, num_partitions)
        return GroupedData(self, key or None, num_partitions=num_partitions)

    def aggregate(self, *aggs: AggregateFn) -> Row:
        """Return the results of aggregators over all rows, by the aggregators' names."""
        return self._query.single_row(build.aggregate(self._query, (), aggs, None))

    def unique(self, column: str, ignore_nulls: bool = False) -> list[Scalar]:
        """Return the distinct values of a column, in order of first appearance."""
        name = checks.column_name("column", column)
        values: list[Scalar] = self._result(Unique(name, ignore_nulls=ignore_nulls))
        return values

    def sum(self, on: Columns = None, ignore_nulls: bool = True) -> Result:
        """Return the sum of one column, or of several by names such as `sum(x)`; None without rows.

        Args:
            on: The column or columns; None for all.
            ignore_nulls: Ignore nulls; otherwise a null makes the result None.
        """
        return self._result_on(on, partial(Sum, ignore_nulls=ignore_nulls))

    def min(self, on: Columns = None, ignore_nulls: bool = True) -> Result:
        """Return the minimum of one or several columns; arguments and result as in `sum`."""
        return self._result_on(on, partial(Min, ignore_nulls=ignore_nulls))

    def max(self, on: Columns = None, ignore_nulls: bool = True) -> Result:
        """Return the maximum of one or several columns; arguments and result as in `sum`."""
        return self._result_on(on, partial(Max, ignore_nulls=ignore_nulls))

    def mean(self, on: Columns = None, ignore_nulls: bool = True) -> Result:
        """Return the mean of one or several columns; arguments and result as in `sum`."""
        return self._result_on(on, partial(Mean, ignore_nulls=ignore_nulls))

    def std(self, on: Columns = None, ddof: int = 1, ignore_nulls: bool = True) -> Result:
        """Return the standard deviation of one or several columns; the divisor is the count minus
        `ddof`. Other arguments and result as in `sum`.
        """
        return self._result_on(on, partial(Std, ddof=ddof, ignore_nulls=ignore_nulls))

    def summary(
        self,
        columns: list[str] | None = None,
        override_dtype_agg_mapping: Mapping[
            DataType, Callable[[str], list[AggregateFnV2[Any, Any]]]
        ]
        | None = None,
    ) -> DatasetSummary:
        """Compute statistics of the columns that fit their types: counts, extremes, means,
        quantiles, missing values, frequent values.

        Args:
            columns: The columns; None for all.
            override_dtype_agg_mapping: By type, a function from the name of a column to its
                aggregators.
        """
        names = None if columns is None else checks.column_names("columns", columns)
        return summarize(
            self._query.schema(), names, override_dtype_agg_mapping or {}, self.aggregate
        )

    # -- parts

    def split(
        self, n: int, *, equal: bool = False, locality_hints: list[object] | None = None
    ) -> list[MaterializedDataset]:
        """Compute the rows and split them into `n` consecutive parts.

        Args:
            n: Number of parts.
            equal: Give each part equally many rows and drop the rest; otherwise each part gets
                about equally many blocks, or rows if there are fewer blocks than parts.
            locality_hints: Accepted, one for each part, without effect.
        """
        return self._parts(
            dataset_splits.evenly(self._query, n, equal=equal, locality_hints=locality_hints)
        )

    def split_at_indices(self, indices: list[int]) -> list[MaterializedDataset]:
        """Compute the rows and split them before each index: one part more than indices."""
        return self._parts(dataset_splits.at_indices(self._query, indices))

    def split_proportionately(self, proportions: list[float]) -> list[MaterializedDataset]:
        """Compute the rows and split them into parts of the given proportions and one with the
        rest.

        Args:
            proportions: Positive numbers whose sum is below 1.
        """
        return self._parts(dataset_splits.by_proportion(self._query, proportions))

    def train_test_split(
        self,
        test_size: int | float,
        *,
        shuffle: bool = False,
        seed: int | None = None,
        stratify: str | None = None,
    ) -> tuple[MaterializedDataset, MaterializedDataset]:
        """Compute the rows and split them into train rows and test rows; the last rows are for
        tests.

        Args:
            test_size: Number of test rows as an int, or their fraction as a float between 0 and 1.
            shuffle: Shuffle the rows first.
            seed: Seed of the shuffle.
            stratify: A column each of whose values contributes the same fraction of test rows; both
                parts keep the order of the rows.
        """
        train, test = self._parts(
            dataset_splits.train_test(
                self._query, test_size, shuffle=shuffle, seed=seed, stratify=stratify
            )
        )
        return train, test

    def streaming_train_test_split(
        self,
        test_size: float,
        *,
        split_type: Literal["hash", "random"] = "random",
        hash_column: str | None = None,
        seed: int | None = None,
        **ray_remote_kwargs: object,
    ) -> tuple[Dataset, Dataset]:
        """Split the rows into lazy train and test datasets.

        Args:
            test_size: Fraction of test rows between 0 and 1, met on average.
            split_type: "random" draws for each row, the same in every execution on equally many
                CPUs, and reads all columns. "hash" uses the hash of a column, so that a row is
                always on the same side.
            hash_column: The column for "hash".
            seed: Seed for "random".
            **ray_remote_kwargs: Accepted; the split needs no workers.
        """
        train, test = dataset_splits.train_test_filters(
            self._query,
            test_size,
            ray_remote_kwargs,
            split_type=split_type,
            hash_column=hash_column,
            seed=seed,
        )
        return self._derive(train), self._derive(test)

    def streaming_split(
        self, n: int, *, equal: bool | str = False, locality_hints: list[str] | None = None
    ) -> list[DataIterator]:
        """Return `n` iterators for as many ranks, which share the rows of every epoch.

        Args:
            n: Number of ranks. All of them must take part in every epoch.
            equal: True or "drop" gives every rank equally many rows and drops the rest; "pad"
                repeats some rows instead.
            locality_hints: Accepted, one for each rank, without effect.
        """
        sources = split_sources(
            self, n, equal=equal, locality_hints=locality_hints, make_dataset=self._of_blocks
        )
        return [DataIterator(source) for source in sources]

    # -- results in the program

    def materialize(self) -> MaterializedDataset:
        """Compute the rows now and keep them in the object store, and on disk if it is full, as
        long as the result is used.
        """
        (result,) = self._parts([self._query.blocks()])
        result.set_name(self.name)
        result._query.observations.stats = self._query.observations.stats
        return result

    def take(self, limit: int = 20) -> list[Row]:
        """Return the first rows as dicts."""
        tables = self._query.first(checks.count("limit", limit, least=0))
        return [row for table in tables for row in blocks.rows(table)]

    def take_batch(
        self, batch_size: int = 20, *, batch_format: BatchFormat = "default"
    ) -> AnyBatch:
        """Return the first rows as one batch.

        Args:
            batch_size: Maximum number of rows.
            batch_format: "default" and "numpy" for a dict of arrays `(rows, ...)`, "pandas",
                "pyarrow", or None for a table.

        Raises:
            ValueError: There are no rows.
        """
        blocks.check_batch_format(batch_format)
        rows = checks.count("batch_size", batch_size, least=1)
        return blocks.to_batch(self._query.first_block(rows), batch_format)

    def take_all(self, limit: int | None = None) -> list[Row]:
        """Return all rows as dicts. Raise ValueError if there are more than `limit`."""
        return self._query.rows(limit)

    def show(self, limit: int = 20) -> None:
        """Print the first rows."""
        for row in self.take(limit):
            print(row)

    def iterator(self) -> DataIterator:
        """Return an iterator that loops over the rows epoch by epoch and can save its position
        (`state_dict`).
        """
        return DataIterator(DatasetSource(self))

    iter_rows = _of_iterator(DataIterator.iter_rows)
    iter_batches = _of_iterator(DataIterator.iter_batches)
    iter_torch_batches = _of_iterator(DataIterator.iter_torch_batches)
    iter_tf_batches = _of_iterator(DataIterator.iter_tf_batches)
    iter_jax_batches = _of_iterator(DataIterator.iter_jax_batches)

    # -- results in other libraries

    to_torch = _of_iterator(DataIterator.to_torch, new=True)
    to_tf = _of_iterator(DataIterator.to_tf, new=True)

    def to_pandas(self, limit: int | None = None) -> pd.DataFrame:
        """Return all rows as one DataFrame.

        Args:
            limit: Maximum number of rows; None for no limit.

        Raises:
            ValueError: There are more rows than `limit`.
        """
        return conversion.to_pandas(self._query, limit)

    def get_internal_block_refs(self) -> list[ObjectRef[pa.Table]]:
        """Compute the rows and return a reference to the table of each block."""
        return [block_store.reference_to(block) for block in self._query.blocks()]

    def to_arrow_refs(self) -> list[ObjectRef[pa.Table]]:
        """Compute the rows and return a reference to the table of each block."""
        return self.get_internal_block_refs()

    def to_pandas_refs(self) -> list[ObjectRef[pd.DataFrame]]:
        """Compute the rows and return a reference to a DataFrame for each block."""
        return conversion.pandas_refs(self.to_arrow_refs())

    def to_numpy_refs(
        self, *, column: str | None = None
    ) -> list[ObjectRef[np.ndarray | Mapping[str, np.ndarray]]]:
        """Compute the rows and return, for each block, a reference to a dict of arrays `(rows, …)`,
        or to the array of one column.

        Args:
            column: The column; None for all.

        Raises:
            UnknownColumnError: The column does not exist; raised by `get` of a reference.
        """
        return conversion.numpy_refs(self.to_arrow_refs(), column)

    def to_dask(self, meta: object = None, verify_meta: bool = True) -> Frame:
        """Return a Dask DataFrame with a partition for each block. The rows stay in the object
        store until Dask reads them.

        The call also sets Dask's scheduler to `ray_dask_get`, as Ray does: partitions then go from
        task to task and not through the program.

        Args:
            meta: An empty DataFrame or Series, or names and dtypes; None takes the schema.
            verify_meta: Let Dask compare each partition with `meta`.

        Raises:
            ImportError: Dask is not installed.
        """
        return conversion.to_dask(
            self.to_arrow_refs(), self._query.known_schema(), meta, verify_meta=verify_meta
        )

    def to_modin(self) -> Frame:
        """Return all rows as one Modin DataFrame. Raise ImportError without Modin."""
        return conversion.to_modin(self._query)

    def to_mars(self) -> Frame:
        """Return all rows as one Mars DataFrame. Raise ImportError without Mars."""
        return conversion.to_mars(self._query)

    def to_daft(self) -> Frame:
        """Return all rows as one Daft DataFrame. Raise ImportError without Daft."""
        return conversion.to_daft(self._query)

    def to_spark(self, spark: Frame) -> Frame:
        """Return all rows as one DataFrame of a `SparkSession`. Raise ImportError without Spark."""
        return conversion.to_spark(self._query, spark)

    # -- files and databases
    #
    # Writers execute the plan and return when the result is visible, completely or not at all. A
    # program that was killed resumes its write when it runs again with the same dataset and target.

    @keywords(BLOCK_FILES_WRITE, rest="arrow_parquet_args", known=parquet_sink.writer_args)
    def write_parquet(
        self,
        path: str,
        *,
        partition_cols: list[str] | None = None,
        catalog: None = None,
        arrow_parquet_args_fn: ArgumentsFunction = None,
        max_rows_per_file: int | None = None,
        min_bytes_per_file: int | None = None,
        **options: Any,
    ) -> None:
        """Write Parquet files.

        Args:
            path: The directory.
            partition_cols: Columns that become `name=value` directories.
            catalog: Not supported.
            arrow_parquet_args_fn: Returns more of the further keywords; called by each write task.
            max_rows_per_file: Maximum rows of every file.
            min_bytes_per_file: Minimum bytes in memory of the rows of every file except the last;
                excludes rows per file.
            options: `BlockFileWriteOptions`; further keywords are those of
                `pyarrow.parquet.write_table` (compression, row_group_size, …).

        Raises:
            ValueError: The target exists and `mode` is create or error; limits that exclude each
                other.
        """
        refuse_catalog(catalog, "the directory of the table's files")
        self._write_tables(
            ParquetDatasink,
            path,
            options,
            arrow_parquet_args_fn,
            partition_cols=partition_cols,
            max_rows_per_file=max_rows_per_file,
            min_bytes_per_file=min_bytes_per_file,
        )

    @keywords(BLOCK_FILES_WRITE, rest="arrow_csv_args", known=WRITER_ARGS)
    def write_csv(
        self, path: str, *, arrow_csv_args_fn: ArgumentsFunction = None, **options: Any
    ) -> None:
        """Write CSV files with a header.

        Args:
            path: The directory.
            arrow_csv_args_fn: Returns more of the further keywords; called for each file.
            options: `BlockFileWriteOptions`; further keywords are those of `pyarrow.csv.write_csv`.

        Raises:
            ValueError: CSV cannot hold a column; the target exists and `mode` is create or error.
        """
        self._write_tables(CSVDatasink, path, options, arrow_csv_args_fn)

    @keywords(BLOCK_FILES_WRITE, rest="pandas_json_args", known=json_sink.writer_args)
    def write_json(
        self, path: str, *, pandas_json_args_fn: ArgumentsFunction = None, **options: Any
    ) -> None:
        """Write JSON files with one object per line.

        Args:
            path: The directory.
            pandas_json_args_fn: Returns more of the further keywords; called for each file.
            options: `BlockFileWriteOptions`; further keywords are those of
                `pandas.DataFrame.to_json`.

        Raises:
            ValueError: The target exists and `mode` is create or error.
        """
        self._write_tables(JSONDatasink, path, options, pandas_json_args_fn)

    @keywords(
        BLOCK_FILES_WRITE,
        without=("num_rows_per_file",),
        rest="arrow_orc_args",
        known=orc_sink.WRITER_ARGS,
    )
    def write_orc(
        self, path: str, *, arrow_orc_args_fn: ArgumentsFunction = None, **options: Any
    ) -> None:
        """Write ORC files.

        Args:
            path: The directory.
            arrow_orc_args_fn: Returns more of the further keywords; called for each file.
            options: `BlockFileWriteOptions`; further keywords are those of
                `pyarrow.orc.write_table`.

        Raises:
            ValueError: ORC cannot hold a column; the target exists and `mode` is create or error.
        """
        self._write_tables(ORCDatasink, path, options, arrow_orc_args_fn)

    @keywords(BLOCK_FILES_WRITE)
    def write_numpy(
        self, path: str, *, column: str, **options: Unpack[BlockFileWriteOptions]
    ) -> None:
        """Write one column as arrays `(rows, …)` in `.npy` files.

        Args:
            path: The directory.
            column: The column.
            options: `BlockFileWriteOptions`.

        Raises:
            ValueError: The column does not exist; the target exists and `mode` is create or error.
        """
        self._write(NumpyDatasink(path, column, **sink_arguments(options)), options)

    @keywords(FILES_WRITE)
    def write_images(
        self, path: str, column: str, file_format: str = "png", **options: Unpack[FileWriteOptions]
    ) -> None:
        """Write one column of arrays `(height, width[, channels])` as one image file per row.

        Args:
            path: The directory.
            column: The column.
            file_format: Format and extension: "png", "jpeg", ….
            options: `FileWriteOptions`.

        Raises:
            ImportError: pillow is not installed.
            ValueError: The column does not exist; the target exists and `mode` is create or error.
        """
        sink = ImageDatasink(path, column, file_format=file_format, **sink_arguments(options))
        self._write(sink, options)

    @keywords(BLOCK_FILES_WRITE)
    def write_tfrecords(
        self, path: str, *, tf_schema: object = None, **options: Unpack[BlockFileWriteOptions]
    ) -> None:
        """Write TFRecord files with one `tf.train.Example` per row; needs no TensorFlow.

        Args:
            path: The directory.
            tf_schema: A `tensorflow_metadata` Schema with the kind of every column; None derives
                the kinds from the columns' types.
            options: `BlockFileWriteOptions`.

        Raises:
            ImportError: protobuf is not installed.
            ValueError: The target exists and `mode` is create or error.
        """
        self._write(TFRecordDatasink(path, tf_schema=tf_schema, **sink_arguments(options)), options)

    @keywords(BLOCK_FILES_WRITE)
    def write_webdataset(
        self, path: str, *, encoder: Codec = True, **options: Unpack[BlockFileWriteOptions]
    ) -> None:
        """Write WebDataset shards: tar files that store the files of one row together.

        Args:
            path: The directory.
            encoder: How values become bytes: True for the rules of the columns' names, a function
                on the row, a list of these, or None for rows of bytes and text.
            options: `BlockFileWriteOptions`.

        Raises:
            ValueError: The target exists and `mode` is create or error.
        """
        self._write(WebDatasetDatasink(path, encoder, **sink_arguments(options)), options)

    def write_sql(
        self,
        sql: str,
        connection_factory: Callable[[], Connection],
        ray_remote_args: RemoteArgs | None = None,
        concurrency: int | None = None,
    ) -> None:
        """Execute one statement for each row. Each write task is one transaction; a job that is
        started again writes its rows again.

        Args:
            sql: The statement, with a parameter for each column in order: `INSERT INTO t VALUES
                (?, ?)`.
            connection_factory: Opens a PEP 249 connection; called by each write task.
            ray_remote_args: Options of `remote` for the write tasks.
            concurrency: Maximum number of concurrent write tasks; None for no limit.
        """
        sink = SQLDatasink(sql, connection_factory)
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency)

    @keywords(WRITE)
    def write_lance(
        self,
        path: str,
        *,
        schema: pa.Schema | None = None,
        mode: SaveMode = SaveMode.CREATE,
        min_rows_per_file: int = 1024 * 1024,
        max_rows_per_file: int = 64 * 1024 * 1024,
        data_storage_version: str | None = None,
        storage_options: Arguments | None = None,
        table_id: list[str] | None = None,
        namespace_impl: str | None = None,
        namespace_properties: dict[str, str] | None = None,
        **options: Unpack[WriteOptions],
    ) -> None:
        """Write to a Lance dataset.

        Args:
            path: Path or URI of the dataset.
            schema: Schema to write; None for that of the first block.
            mode: create (the dataset must not exist), append or overwrite.
            min_rows_per_file: Minimum rows of a write task.
            max_rows_per_file: Maximum rows of every file.
            data_storage_version: Version of the Lance file format; None for the library's default.
            storage_options: Options of the object store.
            table_id: Not supported, nor are the other options of namespaces.
            namespace_impl: Not supported.
            namespace_properties: Not supported.
            options: `WriteOptions`.

        Raises:
            ImportError: Lance is not installed.
            ValueError: The dataset exists and `mode` is create.
        """
        if table_id is not None or namespace_impl is not None or namespace_properties is not None:
            raise ValueError(
                "namespaces of Lance are not supported: pass the path or URI of the dataset"
            )
        sink = LanceDatasink(
            path,
            schema=schema,
            mode=mode,
            min_rows_per_file=min_rows_per_file,
            max_rows_per_file=max_rows_per_file,
            data_storage_version=data_storage_version,
            storage_options=storage_options,
        )
        self._write(sink, options)

    @keywords(WRITE)
    def write_delta(
        self,
        path: str,
        *,
        catalog: None = None,
        mode: SaveMode = SaveMode.APPEND,
        partition_by: list[str] | None = None,
        storage_options: Arguments | None = None,
        schema_mode: SchemaMode = "merge",
        filesystem: object = None,
        name: str | None = None,
        description: str | None = None,
        **options: Unpack[WriteOptions],
    ) -> None:
        """Write to a Delta Lake table, which is created if it does not exist: one new version with
        all rows.

        Args:
            path: Path or URI of the table.
            catalog: Not supported.
            mode: append, overwrite, ignore or create.
            partition_by: Columns that become directories; those of the table if it exists.
            storage_options: Options of the object store, as `deltalake` takes them.
            schema_mode: Columns that the table lacks: "merge" adds them, "error" raises.
            filesystem: A pyarrow filesystem for the files; None for that of `deltalake`.
            name: Name of a new table.
            description: Description of a new table.
            options: `WriteOptions`.

        Raises:
            ImportError: deltalake is not installed.
            ValueError: The rows do not fit the table, or it exists and `mode` is create.
        """
        refuse_catalog(catalog, "the path or URI of the table")
        sink = DeltaDatasink(
            path,
            mode=mode,
            partition_by=partition_by,
            storage_options=storage_options,
            schema_mode=schema_mode,
            filesystem=filesystem,
            name=name,
            description=description,
        )
        self._write(sink, options)

    def write_iceberg(
        self,
        table_identifier: str,
        catalog_kwargs: Arguments | None = None,
        catalog: None = None,
        snapshot_properties: dict[str, str] | None = None,
        mode: SaveMode = SaveMode.APPEND,
        overwrite_filter: Expr | None = None,
        upsert_kwargs: Arguments | None = None,
        overwrite_kwargs: Arguments | None = None,
        ray_remote_args: RemoteArgs | None = None,
        concurrency: int | None = None,
    ) -> None:
        """Write to an Iceberg table, which must exist, in one commit. Columns that it lacks are
        added.

        Args:
            table_identifier: Name with its namespace, such as `db.table`.
            catalog_kwargs: Arguments of `pyiceberg.catalog.load_catalog`: name, type, uri, ….
            catalog: Not supported.
            snapshot_properties: Properties of the new snapshot.
            mode: append, overwrite (all rows, or those of `overwrite_filter`) or upsert (rows with
                equal keys).
            overwrite_filter: The rows to replace, such as `col("day") == "2024-01-01"`.
            upsert_kwargs: `join_cols`, the keys (those of the table if it declares some),
                `case_sensitive` and `branch`.
            overwrite_kwargs: `case_sensitive` and `branch`.
            ray_remote_args: Options of `remote` for the write tasks.
            concurrency: Maximum number of concurrent write tasks; None for no limit.

        Raises:
            ImportError: pyiceberg is not installed.
            ValueError: The table does not exist, or the rows do not fit it.
        """
        refuse_catalog(catalog, "catalog_kwargs")
        sink = IcebergDatasink(
            table_identifier,
            catalog_kwargs=catalog_kwargs,
            snapshot_properties=snapshot_properties,
            mode=mode,
            overwrite_filter=overwrite_filter,
            upsert_kwargs=upsert_kwargs,
            overwrite_kwargs=overwrite_kwargs,
        )
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency)

    def write_mongo(
        self,
        uri: str,
        database: str,
        collection: str,
        ray_remote_args: RemoteArgs | None = None,
        concurrency: int | None = None,
    ) -> None:
        """Insert a document for each row into a MongoDB collection, which must exist. A job that is
        started again inserts its rows again.

        Args:
            uri: Connection string: `mongodb://user:password@host:27017`.
            database: Name of the database.
            collection: Name of the collection.
            ray_remote_args: Options of `remote` for the write tasks.
            concurrency: Maximum number of concurrent write tasks; None for no limit.

        Raises:
            ConnectionError: No server answers.
            ImportError: pymongo is not installed.
            ValueError: The database or the collection does not exist, or the server rejects a row,
                for example because its `_id` exists.
        """
        sink = MongoDatasink(uri, database, collection)
        self.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency)

    @keywords(WRITE)
    def write_kafka(
        self,
        topic: str,
        bootstrap_servers: str,
        key_field: str | None = None,
        key_serializer: str = "string",
        value_serializer: str = "json",
        producer_config: Arguments | None = None,
        **options: Unpack[WriteOptions],
    ) -> None:
        """Send a message for each row to a Kafka topic. Messages are visible immediately; a
        task that runs again sends its rows again.

        Args:
            topic: The topic.
            bootstrap_servers: Addresses `host:port`, separated by commas.
            key_field: Column with the keys; None for no keys.
            key_serializer: How keys become bytes: "string", "json" or "bytes".
            value_serializer: How rows become bytes: the same.
            producer_config: Options of `confluent_kafka.Producer`.
            options: `WriteOptions`.

        Raises:
            ImportError: confluent-kafka is not installed.
            OSError: Messages did not reach the brokers.
            UnknownColumnError: There is no column `key_field`.
        """
        sink = KafkaDatasink(
            topic, bootstrap_servers, key_field, key_serializer, value_serializer, producer_config
        )
        self._write(sink, options)

    def write_datasink(
        self,
        datasink: Datasink[Any],
        *,
        ray_remote_args: RemoteArgs | None = None,
        concurrency: int | None = None,
    ) -> None:
        """Write to a custom sink.

        Args:
            datasink: The sink.
            ray_remote_args: Options of `remote` for the write tasks.
            concurrency: Maximum number of concurrent write tasks; None for no limit.

        Raises:
            TypeError: `datasink` is not a `Datasink`.
        """
        if not isinstance(datasink, Datasink):
            raise TypeError(
                f"write_datasink takes a Datasink, not {type(datasink).__name__}: "
                "subclass syncline.data.Datasink"
            )
        self._write(datasink, {"ray_remote_args": ray_remote_args, "concurrency": concurrency})

    # -- questions

    def schema(self, fetch_if_missing: bool = True) -> Schema | None:
        """Return names and types of the columns; None for a dataset without columns.

        Args:
            fetch_if_missing: Compute the first row if the plan does not tell the schema; otherwise
                return None.
        """
        known = self._query.schema() if fetch_if_missing else self._query.known_schema()
        return None if known is None else Schema(known)

    def columns(self, fetch_if_missing: bool = True) -> list[str] | None:
        """Return the names of the columns; None where `schema` returns None."""
        schema = self.schema(fetch_if_missing)
        return None if schema is None else schema.names

    def count(self) -> int:
        """Return the number of rows, from metadata if possible; otherwise compute all rows."""
        return self._query.count()

    def num_blocks(self) -> int:
        """Raise NotImplementedError: only materialized datasets know their number of blocks."""
        raise NotImplementedError(
            "the number of blocks is not known before an execution: call materialize().num_blocks()"
        )

    def size_bytes(self) -> int:
        """Return the bytes in memory: estimated from metadata if possible; otherwise compute all
        rows.
        """
        return self._query.size_bytes()

    def input_files(self) -> list[str]:
        """Return the paths of the files that the plan reads, without repeats."""
        return properties.input_files(self._node)

    def stats(self) -> str:
        """Return the time that each operator of the last execution took; empty before the first
        execution.
        """
        stats = self._query.observations.stats
        return "" if stats is None else stats()

    def headroom(self, consumer_rate: float, *, duration_s: float = 5.0) -> Headroom:
        """Measure how many times faster the pipeline delivers rows than a program consumes them.

        Runs the pipeline until about `duration_s` seconds after its first block, with a consumer
        that only counts rows. Call it while no training uses the CPUs.

        Args:
            consumer_rate: Rows per second that the program consumes: rows of a batch / seconds of a
                step, times the number of workers.
            duration_s: Seconds to measure.

        Returns:
            The ratio, both rates, and the operator that limits the pipeline.

        Raises:
            TypeError: `consumer_rate` or `duration_s` is not a number.
            ValueError: `consumer_rate` or `duration_s` is not above 0, or the dataset has no rows.
        """
        rate = check_rate(consumer_rate)
        with self._query.execution(self._node) as execution:
            return measure(execution, rate, duration_s)

    def explain(self) -> None:
        """Print the plan as written and as executed."""
        print(explain.text(self._node, self.context))

    # -- the handle

    @property
    def context(self) -> DataContext:
        """Settings of this dataset: a copy of the settings that were current at its creation."""
        return self._query.context

    @property
    def name(self) -> str | None:
        """Name in progress and statistics."""
        return self._query.name

    def set_name(self, name: str | None) -> None:
        """Set the name that progress and statistics show."""
        self._query.name = name

    def has_serializable_lineage(self) -> bool:
        """Return True if all sources of the plan can be read by other programs; blocks in this
        program's object store cannot.
        """
        return not any(
            isinstance(block.value, ObjectRef)
            for node in walk(self._node)
            if isinstance(node, Held)
            for block in node.blocks
        )

    def serialize_lineage(self) -> bytes:
        """Return the plan and the settings for `deserialize_lineage` in any program. Raise
        ValueError without a serializable lineage.
        """
        if not self.has_serializable_lineage():
            raise ValueError(
                "the dataset has blocks in this program's object store, which other programs "
                "cannot read: write it to files"
            )
        serialized: bytes = cloudpickle.dumps(self)
        return serialized

    @staticmethod
    def deserialize_lineage(serialized_ds: bytes) -> Dataset:
        """Return the dataset from the result of `serialize_lineage`."""
        dataset = cloudpickle.loads(serialized_ds)
        if not isinstance(dataset, Dataset):
            raise TypeError(
                f"the bytes hold a {type(dataset).__name__}: pass the result of serialize_lineage"
            )
        return dataset

    def __getattr__(self, name: str) -> NoReturn:
        hint = _RETIRED.get(name)
        text = f"{type(self).__name__!r} has no attribute {name!r}"
        if hint is None and not name.startswith("_"):
            raise AttributeError(text + did_you_mean(name, dir(type(self))), name=name, obj=self)
        raise AttributeError(f"{text}: {hint}" if hint else text, name=name, obj=self)

    def __len__(self) -> NoReturn:
        # Not a TypeError: it is the exception that programs for Ray expect.
        raise AttributeError(
            "a dataset has no len(), since counting may compute all rows: call count()"
        )

    def __bool__(self) -> bool:
        return True  # without this, `if ds:` would call `len`

    def __iter__(self) -> NoReturn:
        raise TypeError(
            "a dataset cannot be iterated directly: loop over iter_rows() or iter_batches(), "
            "or call take_all()"
        )

    def __repr__(self) -> str:
        return self._preview().text()

    def _repr_html_(self) -> str:
        return self._preview().html()

    def _preview(self) -> Preview:
        """Return what is known without an execution."""
        schema = self._query.known_schema()
        head, tail = self._query.rows_at_hand()
        if schema is None and head is not None:
            schema = head.schema
        if isinstance(self._node, Held):
            note = ""
        elif schema is None:
            note = (
                f"({explain.chain(self._node)}: take() or schema() computes rows and tells the "
                "columns)"
            )
        elif head is None:
            note = "(nothing is computed yet: take() computes rows, explain() prints the plan)"
        else:
            note = "(the first rows, as take() returned them; explain() prints the plan)"
        return Preview(
            num_rows=self._query.known_rows(),
            schema=schema,
            head=head,
            tail=tail,
            name=self.name,
            note=note,
        )

    def __getstate__(self) -> Arguments:
        return {"_node": self._node, "_context": self.context, "_name": self.name}

    def __setstate__(self, state: Arguments) -> None:
        self._query = Query(state["_node"], state["_context"], name=state["_name"])
        self._iterator = None

    @property
    def _node(self) -> Node:
        return self._query.node

    def _derive(self, node: Node) -> Dataset:
        """Return a dataset of another plan, with a copy of this one's settings."""
        return Dataset(node, self.context)

    @staticmethod
    def _of_blocks(blocks: Sequence[HeldBlock], context: DataContext) -> MaterializedDataset:
        return MaterializedDataset(Held(blocks=tuple(blocks)), context)

    def _parts(self, parts: Iterable[Sequence[HeldBlock]]) -> list[MaterializedDataset]:
        return [self._of_blocks(part, self.context) for part in parts]

    def _nodes(self, others: Sequence[object]) -> tuple[Node, ...]:
        """Return this dataset's plan and those of others. Raise TypeError for other objects."""
        nodes = [self._node]
        for other in others:
            if not isinstance(other, Dataset):
                raise TypeError(
                    f"{other!r} is of type {type(other).__name__}, not a dataset: "
                    "create one, for example with from_items"
                )
            nodes.append(other._node)
        return tuple(nodes)

    def _with_options(self, options: ExecutionOptions) -> Dataset:
        """Return the same plan under other execution options."""
        changed = self._derive(self._node)
        changed.context.execution_options = copy.deepcopy(options)
        return changed

    def _recorded_in(self, target: RecordTarget) -> Self:
        """Return the same dataset with executions that are recorded in a run directory."""
        changed = copy.copy(self)
        changed._query = self._query.recorded_in(target)
        return changed

    def _result_on(self, on: Columns, aggregator: Callable[[str], AggregateFn]) -> Result:
        names = checks.column_names("on", (self.columns() or []) if on is None else on)
        if not names:
            raise ValueError(f"on={on!r} names no column: pass at least one")
        return self._result(*map(aggregator, names))

    def _result(self, *aggregators: AggregateFn) -> Result:
        """Return the value of one aggregator, or those of several by name."""
        results = self.aggregate(*aggregators)
        return next(iter(results.values())) if len(results) == 1 else results

    def _write_tables(
        self,
        sink: Callable[..., Datasink[Any]],
        path: str,
        options: Options,
        arguments_fn: ArgumentsFunction,
        **arguments: Any,
    ) -> None:
        """Write files of a format whose library takes the options that are not shared."""
        made = sink(
            path,
            writer_args=further(options, BLOCK_FILES_WRITE),
            writer_args_fn=arguments_fn,
            **arguments,
            **sink_arguments(options),
        )
        self._write(made, options)

    def _write(self, sink: Datasink[Any], options: Options) -> None:
        stats = write_job.write(
            build.write(self._query, sink, options), self.context, name=self.name or ""
        )
        if stats is not None:
            self._query.observations.stats = stats.to_string


@short_tracebacks
class MaterializedDataset(Dataset):
    """A dataset whose blocks exist, in memory or in the object store."""

    def num_blocks(self) -> int:
        """Return the number of blocks."""
        assert isinstance(self._node, Held)
        return len(self._node.blocks)
