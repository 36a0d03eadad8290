"""`GroupedData`: what `Dataset.groupby` returns. Its methods give a dataset with a row for each
group, or what a function makes of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from syncline.data.columnar.aggregate import AggregateFn, Count, Max, Mean, Min, Std, Sum, steps
from syncline.data.columnar.block import BatchFormat, check_batch_format
from syncline.data.columnar.expressions import Expr
from syncline.data.keywords import keywords
from syncline.data.methods import checks
from syncline.data.methods.functions import FUNCTION, WORKER, FunctionOptions, user_function
from syncline.data.plan.nodes import Aggregate, HashPartition, MapGroups

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from syncline.data.dataset import Dataset

# Of a worker's options, Ray names only these for groups; the others may be given all the same.
_UNNAMED = WORKER.keys() - {"num_cpus", "num_gpus", "memory"}


class GroupedData:
    """The rows of a dataset in groups of equal keys. Nulls are equal to each other, and so are
    NaNs.

    Args:
        dataset: The dataset.
        key: The column or columns; None for one group of all rows.
        num_partitions: Number of blocks that groups are spread over; None lets the executor choose.
    """

    def __init__(
        self, dataset: Dataset, key: str | list[str] | None, *, num_partitions: int | None
    ) -> None:
        self._dataset = dataset
        self._key = key
        self._num_partitions = num_partitions

    def __repr__(self) -> str:
        return f"GroupedData(dataset={self._dataset!r}, key={self._key!r})"

    def aggregate(self, *aggs: AggregateFn) -> Dataset:
        """A row for each group, in order of the keys: the keys, and a column for each aggregator,
        such as `sum(x)`.
        """
        if not aggs:
            raise ValueError("aggregate needs at least one aggregator, such as Count() or Sum('x')")
        for each in aggs:
            if not isinstance(each, AggregateFn):
                raise TypeError(
                    f"{each!r} is of type {type(each).__name__}, not an aggregator: give AggregateFns such as Count() or Sum('x')"
                )
        schema = self._dataset._known_schema()
        if schema is not None:
            steps.check(schema, self._keys, aggs)
        return self._dataset._derive(
            Aggregate(
                input=self._dataset._node,
                keys=self._keys,
                aggregates=aggs,
                num_blocks=self._num_partitions,
            )
        )

    def count(self) -> Dataset:
        """The number of rows of each group, in the column `count()`."""
        return self.aggregate(Count())

    def sum(self, on: str | list[str] | None = None, ignore_nulls: bool = True) -> Dataset:
        """Sums of columns, of all but the keys if `on` is None. Without `ignore_nulls` a null makes
        the result null.
        """
        return self.aggregate(*(Sum(name, ignore_nulls=ignore_nulls) for name in self._targets(on)))

    def min(self, on: str | list[str] | None = None, ignore_nulls: bool = True) -> Dataset:
        """Least values of columns, of all but the keys if `on` is None."""
        return self.aggregate(*(Min(name, ignore_nulls=ignore_nulls) for name in self._targets(on)))

    def max(self, on: str | list[str] | None = None, ignore_nulls: bool = True) -> Dataset:
        """Greatest values of columns, of all but the keys if `on` is None."""
        return self.aggregate(*(Max(name, ignore_nulls=ignore_nulls) for name in self._targets(on)))

    def mean(self, on: str | list[str] | None = None, ignore_nulls: bool = True) -> Dataset:
        """Means of columns, of all but the keys if `on` is None."""
        return self.aggregate(
            *(Mean(name, ignore_nulls=ignore_nulls) for name in self._targets(on))
        )

    def std(
        self, on: str | list[str] | None = None, ddof: int = 1, ignore_nulls: bool = True
    ) -> Dataset:
        """Standard deviations of columns, of all but the keys if `on` is None."""
        return self.aggregate(
            *(Std(name, ddof=ddof, ignore_nulls=ignore_nulls) for name in self._targets(on))
        )

    @keywords(FUNCTION, without=_UNNAMED, rest="ray_remote_args")
    def map_groups(
        self,
        fn: Callable[..., Any],
        *,
        zero_copy_batch: bool = True,
        batch_format: BatchFormat = "default",
        **options: Unpack[FunctionOptions],
    ) -> Dataset:
        """What a function makes of each group, which it gets as one batch. A group has to fit into
        the memory of a worker.

        Args:
            fn: Takes a batch with all rows of one group, returns (or yields) any batches.
            zero_copy_batch: Whether a batch may be a read-only view; False for one that `fn` may
            write into. batch_format: "default" and "numpy" for a dict of arrays `(rows, ...)`,
            "pandas", "pyarrow", None for a table.
            **options: `FunctionOptions`, and any option of `remote`.
        """
        check_batch_format(batch_format)
        return self._dataset._derive(
            MapGroups(
                input=self._dataset._node,
                function=user_function(fn, options),
                keys=self._keys,
                batch_format=batch_format,
                zero_copy=zero_copy_batch,
                num_blocks=self._num_partitions,
            )
        )

    def with_column(self, column_name: str, expr: Expr, **ray_remote_args: Any) -> Dataset:
        """All rows, group by group, with a column more that an expression computes of each row."""
        if not self._keys:
            return self._dataset.with_column(column_name, expr, **ray_remote_args)
        grouped = HashPartition(
            input=self._dataset._node, keys=self._keys, num_blocks=self._num_partitions, sort=True
        )
        return self._dataset._derive(grouped).with_column(column_name, expr, **ray_remote_args)

    @property
    def _keys(self) -> tuple[str, ...]:
        return (
            ()
            if self._key is None
            else (self._key,)
            if isinstance(self._key, str)
            else tuple(self._key)
        )

    def _targets(self, on: Any) -> Sequence[str]:
        names = checks.column_names("on", self._other_columns() if on is None else on)
        if not names:
            raise ValueError(f"on={on!r} names no column besides the keys: give at least one")
        return names

    def _other_columns(self) -> list[str]:
        return [name for name in self._dataset.columns() or [] if name not in self._keys]
