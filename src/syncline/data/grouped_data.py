"""`GroupedData`: the result of `Dataset.groupby`. Its methods return a dataset with one row for
each group, or with the results of a function on each group.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from syncline.data.columnar.aggregate import AggregateFn, Count, Max, Mean, Min, Std, Sum
from syncline.data.columnar.block import BatchFormat
from syncline.data.columnar.expressions import Expr
from syncline.data.execute.query import Query
from syncline.data.options import REMOTE, keywords
from syncline.data.plan import build, checks
from syncline.data.plan.build import Keys
from syncline.data.plan.function_options import FUNCTION, WORKER, FunctionOptions
from syncline.data.plan.nodes import Node

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["GroupedData"]

DatasetT = TypeVar("DatasetT")
DatasetT_co = TypeVar("DatasetT_co", covariant=True)

# Worker options that the signature does not show, as in Ray; they are accepted all the same.
_HIDDEN = WORKER.keys() - {"num_cpus", "num_gpus", "memory"}


class _Dataset(Protocol[DatasetT_co]):
    """The parts of `Dataset` that groups need."""

    _query: Query

    def _derive(self, node: Node) -> DatasetT_co: ...


class GroupedData(Generic[DatasetT]):
    """The rows of a dataset in groups of equal keys. Nulls are equal to each other, and so are
    NaNs.

    Args:
        dataset: The dataset.
        key: The column or columns; None for one group of all rows.
        num_partitions: Number of blocks of the results; None lets the executor choose.
    """

    def __init__(
        self, dataset: _Dataset[DatasetT], key: Keys, *, num_partitions: int | None
    ) -> None:
        self._dataset = dataset
        self._key = key
        self._num_partitions = num_partitions

    def __repr__(self) -> str:
        return f"GroupedData(dataset={self._dataset!r}, key={self._key!r})"

    def aggregate(self, *aggs: AggregateFn) -> DatasetT:
        """Return a row for each group, in order of the keys: the keys, and a column for each
        aggregator, such as `sum(x)`.
        """
        return self._dataset._derive(
            build.aggregate(self._dataset._query, self._keys, aggs, self._num_partitions)
        )

    def count(self) -> DatasetT:
        """Return the number of rows of each group, in the column `count()`."""
        return self.aggregate(Count())

    def sum(self, on: Keys = None, ignore_nulls: bool = True) -> DatasetT:
        """Return the sums of columns, such as `sum(x)`.

        Args:
            on: The column or columns; None for all except the keys.
            ignore_nulls: Ignore nulls; otherwise a null makes the result null.
        """
        return self._aggregate_on(on, partial(Sum, ignore_nulls=ignore_nulls))

    def min(self, on: Keys = None, ignore_nulls: bool = True) -> DatasetT:
        """Return the minima of columns; arguments as in `sum`."""
        return self._aggregate_on(on, partial(Min, ignore_nulls=ignore_nulls))

    def max(self, on: Keys = None, ignore_nulls: bool = True) -> DatasetT:
        """Return the maxima of columns; arguments as in `sum`."""
        return self._aggregate_on(on, partial(Max, ignore_nulls=ignore_nulls))

    def mean(self, on: Keys = None, ignore_nulls: bool = True) -> DatasetT:
        """Return the means of columns; arguments as in `sum`."""
        return self._aggregate_on(on, partial(Mean, ignore_nulls=ignore_nulls))

    def std(self, on: Keys = None, ddof: int = 1, ignore_nulls: bool = True) -> DatasetT:
        """Return the standard deviations of columns; the divisor is the count minus `ddof`. Other
        arguments as in `sum`.
        """
        return self._aggregate_on(on, partial(Std, ddof=ddof, ignore_nulls=ignore_nulls))

    @keywords(FUNCTION, without=_HIDDEN, rest=REMOTE)
    def map_groups(
        self,
        fn: Callable[..., Any],
        *,
        zero_copy_batch: bool = True,
        batch_format: BatchFormat = "default",
        **options: Unpack[FunctionOptions],
    ) -> DatasetT:
        """Apply a function to each group, passed as one batch. A group must fit into the memory of
        a worker.

        Args:
            fn: A function from a batch with all rows of one group to a batch, or to a generator of
                batches.
            zero_copy_batch: Allow batches that are read-only views. Set False if `fn` writes into
                its batch.
            batch_format: "default" and "numpy" for a dict of arrays `(rows, ...)`, "pandas",
                "pyarrow", or None for a table.
            **options: `FunctionOptions`, and any option of `remote`.
        """
        node = build.map_groups(
            self._dataset._query,
            self._keys,
            fn,
            options,
            batch_format=batch_format,
            zero_copy=zero_copy_batch,
            num_blocks=self._num_partitions,
        )
        return self._dataset._derive(node)

    @keywords({}, rest=REMOTE)
    def with_column(self, column_name: str, expr: Expr, **ray_remote_args: Any) -> DatasetT:
        """Return all rows, group by group, with a column that an expression computes. A user
        function in it gets the values of one group.
        """
        node = build.group_column(
            self._dataset._query,
            self._keys,
            column_name,
            expr,
            ray_remote_args,
            num_blocks=self._num_partitions,
        )
        return self._dataset._derive(node)

    @property
    def _keys(self) -> tuple[str, ...]:
        if self._key is None:
            return ()
        return (self._key,) if isinstance(self._key, str) else tuple(self._key)

    def _aggregate_on(self, on: Keys, aggregator: Callable[[str], AggregateFn]) -> DatasetT:
        names = checks.column_names("on", self._other_columns() if on is None else on)
        if not names:
            raise ValueError(f"on={on!r} names no column besides the keys: pass at least one")
        return self.aggregate(*map(aggregator, names))

    def _other_columns(self) -> list[str]:
        schema = self._dataset._query.schema()
        return [] if schema is None else [name for name in schema.names if name not in self._keys]
