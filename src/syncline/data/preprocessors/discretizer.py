"""Discretizers: numbers to the bins in which they fall, with pandas' rules for what lies on an
edge.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from syncline.data.columnar import frames
from syncline.data.columnar.aggregate import Max, Min
from syncline.data.preprocessor import StatComputationPlan
from syncline.data.preprocessors.base import ColumnPreprocessor, array_of_numbers

if TYPE_CHECKING:
    import pandas as pd

    Edges: TypeAlias = Iterable[float] | pd.IntervalIndex
    Dtypes: TypeAlias = dict[str, pd.CategoricalDtype | type[np.integer[Any]]]

Bins = TypeVar("Bins")
"""What says where the bins of one column are."""

# Bins of equal width reach this share of the range further, so that the first one holds the least
# value.
_MARGIN = 0.001


class _Discretizer(ColumnPreprocessor, Generic[Bins]):
    """The bin of each number, counted from 0; null for what lies in none. With a categorical dtype,
    the category of that place.
    """

    def __init__(
        self,
        columns: list[str],
        bins: Bins | dict[str, Bins],
        *,
        right: bool = True,
        include_lowest: bool = False,
        duplicates: str = "raise",
        dtypes: Dtypes | None = None,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__(columns, output_columns)
        self._bins = bins
        self._right = right
        self._include_lowest = include_lowest
        self._duplicates = duplicates
        self._dtypes = dtypes
        lacking = [name for name in columns if isinstance(bins, dict) and name not in bins]
        if lacking:
            raise ValueError(
                f"bins has no entry for {', '.join(map(repr, lacking))}: a dict of bins needs one for each of the columns"
            )

    @property
    def bins(self) -> Bins | dict[str, Bins]:
        """The bins as they were given."""
        return self._bins

    @property
    def right(self) -> bool:
        """Whether a bin holds its right edge, and not its left one."""
        return self._right

    @property
    def include_lowest(self) -> bool:
        """Whether the first bin holds its left edge, too."""
        return self._include_lowest

    @property
    def duplicates(self) -> str:
        """What is done with edges that come twice: "raise" or "drop"."""
        return self._duplicates

    @property
    def dtypes(self) -> Dtypes | None:
        """Types of some of the results."""
        return self._dtypes

    def _bins_of(self, name: str) -> Bins:
        return self._bins[name] if isinstance(self._bins, dict) else self._bins

    def _edges(self, name: str) -> Any:
        """The edges of a column's bins, or its intervals."""
        raise NotImplementedError

    def _transform_column(self, name: str, column: pa.ChunkedArray) -> Any:
        pandas = frames.load_pandas()
        values, edges = array_of_numbers(self, name, column), self._edges(name)
        if isinstance(edges, pandas.IntervalIndex):
            codes = edges.get_indexer(values).astype(np.float64)
            codes[codes < 0] = np.nan
        else:
            codes = pandas.cut(
                values,
                edges,
                right=self._right,
                labels=False,
                include_lowest=self._include_lowest,
                duplicates=self._duplicates,
            )
        places = pa.array(codes, from_pandas=True).cast(pa.int64())
        dtype = (self._dtypes or {}).get(name)
        if not isinstance(dtype, pandas.CategoricalDtype):
            return places
        number = (
            len(edges)
            if isinstance(edges, pandas.IntervalIndex)
            else len(np.unique(np.asarray(edges))) - 1
        )
        if len(dtype.categories) != number:
            raise ValueError(
                f"dtypes[{name!r}] has {len(dtype.categories)} categories, but there are {number} bins: it needs one for each"
            )
        return pa.DictionaryArray.from_arrays(
            places.cast(pa.int32()),
            pa.array(dtype.categories.tolist()),
            ordered=bool(dtype.ordered),
        )


class CustomKBinsDiscretizer(_Discretizer["Edges"]):
    """Bins with edges of your own.

    Args:
        columns: Names of columns of numbers. bins: The edges in ascending order, or a
        `pandas.IntervalIndex`; a dict has them column by column. right: Whether a bin holds its
        right edge, and not its left one. include_lowest: Whether the first bin holds its left edge,
        too. duplicates: "raise" or "drop" edges that come twice. dtypes: For some columns, a
        `pandas.CategoricalDtype` with one category for each bin. output_columns: Names of the
        results, by default those of the columns.
    """

    _is_fittable = False

    def _edges(self, name: str) -> Any:
        return self._bins_of(name)


class UniformKBinsDiscretizer(_Discretizer[int]):
    """Bins of equal width over the range that a column has when fitted.

    `stats_`: the edges of each column.

    Args:
        columns: Names of columns of numbers.
        bins: The number of bins; a dict has it column by column.
        right: Whether a bin holds its right edge, and not its left one.
        include_lowest: Whether the first bin holds its left edge, too.
        duplicates: "raise" or "drop" edges that come twice.
        dtypes: For some columns, a `pandas.CategoricalDtype` with one category for each bin.
        output_columns: Names of the results, by default those of the columns.
    """

    def _plan_statistics(self, plan: StatComputationPlan) -> None:
        for name in self._columns:
            if not isinstance(self._bins_of(name), int):
                raise TypeError(
                    f"bins is a number of bins or a dict of such numbers, not {self._bins_of(name)!r} for column {name!r}"
                )
        plan.add_aggregator(aggregator_fn=Min, columns=self._columns)
        plan.add_aggregator(aggregator_fn=Max, columns=self._columns)

    def _learn(self, statistics: dict[str, Any]) -> None:
        for name in self._columns:
            least, greatest = statistics[f"min({name})"], statistics[f"max({name})"]
            if least is None or greatest is None:
                raise ValueError(
                    f"column {name!r} has no values, so it has no range to cut into bins: look at the data that is fitted to"
                )
            if np.isinf([least, greatest]).any():
                raise ValueError(
                    f"column {name!r} ranges from {least} to {greatest}, which cannot be cut into bins: filter infinities out"
                )
            self.stats_[name] = _equal_edges(least, greatest, self._bins_of(name), self._right)

    def _edges(self, name: str) -> Any:
        return self.stats_[name]


def _equal_edges(least: float, greatest: float, bins: int, right: bool) -> np.ndarray:
    """`(bins + 1,)` edges. The open end of the range is moved a little, for a single value both
    ends.
    """
    if least == greatest:
        margin = _MARGIN * (abs(least) or 1)
        return np.linspace(least - margin, greatest + margin, bins + 1)
    edges = np.linspace(least, greatest, bins + 1)
    margin = (greatest - least) * _MARGIN
    if right:
        edges[0] -= margin
    else:
        edges[-1] += margin
    return edges
