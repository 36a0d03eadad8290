"""Discretizers: map numbers to bins, with the rules of pandas for edges."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from syncline.data.columnar import frames
from syncline.data.columnar.aggregate import Max, Min
from syncline.data.preprocessor import StatComputationPlan
from syncline.data.preprocessors.base import Column, ColumnPreprocessor, array_of_numbers, parameter

if TYPE_CHECKING:
    import pandas as pd

    Edges: TypeAlias = Iterable[float] | pd.IntervalIndex
    Dtypes: TypeAlias = dict[str, pd.CategoricalDtype | type[np.integer[npt.NBitBase]]]

Bins = TypeVar("Bins")
"""Description of the bins of one column."""

# Share of the range by which bins of equal width extend it, so that the first bin holds the
# minimum.
_MARGIN = 0.001


class _Discretizer(ColumnPreprocessor, Generic[Bins]):
    """Maps each number to the index of its bin, or null outside of all bins; with a categorical
    dtype, to the category with that index.
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
        missing = [name for name in columns if isinstance(bins, dict) and name not in bins]
        if missing:
            raise ValueError(
                f"bins has no entry for {', '.join(map(repr, missing))}: a dict of bins needs one "
                "for each of the columns"
            )

    bins: Bins | dict[str, Bins] = parameter("_bins")
    right: bool = parameter("_right")
    include_lowest: bool = parameter("_include_lowest")
    duplicates: str = parameter("_duplicates")
    dtypes: Dtypes | None = parameter("_dtypes")

    def _bins_of(self, name: str) -> Bins:
        return self._bins[name] if isinstance(self._bins, dict) else self._bins

    def _edges(self, name: str) -> Edges | np.ndarray:
        """Return the edges or intervals of a column's bins."""
        raise NotImplementedError

    def _transform_column(self, name: str, column: pa.ChunkedArray) -> Column:
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
        indices = pa.array(codes, from_pandas=True).cast(pa.int64())
        dtype = (self._dtypes or {}).get(name)
        if not isinstance(dtype, pandas.CategoricalDtype):
            return indices
        if isinstance(edges, pandas.IntervalIndex):
            number = len(edges)
        else:
            number = len(np.unique(np.asarray(edges))) - 1
        if len(dtype.categories) != number:
            raise ValueError(
                f"dtypes[{name!r}] has {len(dtype.categories)} categories, but there are {number} "
                "bins: pass one category for each bin"
            )
        return pa.DictionaryArray.from_arrays(
            indices.cast(pa.int32()),
            pa.array(dtype.categories.tolist()),
            ordered=bool(dtype.ordered),
        )


class CustomKBinsDiscretizer(_Discretizer["Edges"]):
    """Bins with custom edges.

    `bins` holds the edges in ascending order, or a `pandas.IntervalIndex`; or a dict of these for
    each column. For the other arguments see `UniformKBinsDiscretizer`.
    """

    _is_fittable = False

    def _edges(self, name: str) -> Edges | np.ndarray:
        return self._bins_of(name)


class UniformKBinsDiscretizer(_Discretizer[int]):
    """Bins of equal width over the range of each column when fitted.

    `stats_`: the edges of each column.

    Args:
        columns: Names of columns of numbers.
        bins: The number of bins, or a dict with the number for each column.
        right: True if a bin includes its right edge, False if it includes its left edge.
        include_lowest: True if the first bin also includes its left edge.
        duplicates: "raise" or "drop" duplicate edges.
        dtypes: For some columns, a `pandas.CategoricalDtype` with one category for each bin.
        output_columns: Names of the output columns; the input columns by default.
    """

    def _plan_statistics(self, plan: StatComputationPlan) -> None:
        for name in self._columns:
            if not isinstance(self._bins_of(name), int):
                raise TypeError(
                    "bins must be a number of bins or a dict of such numbers, not "
                    f"{self._bins_of(name)!r} for column {name!r}"
                )
        plan.add_aggregator(aggregator_fn=Min, columns=self._columns)
        plan.add_aggregator(aggregator_fn=Max, columns=self._columns)

    def _learn(self, statistics: dict[str, Any]) -> None:
        for name in self._columns:
            low, high = statistics[f"min({name})"], statistics[f"max({name})"]
            if low is None or high is None:
                raise ValueError(
                    f"column {name!r} has no values, so it has no range to divide into bins: check "
                    "the dataset"
                )
            if np.isinf([low, high]).any():
                raise ValueError(
                    f"column {name!r} ranges from {low} to {high}, which cannot be divided into "
                    "bins: filter out infinite values"
                )
            self.stats_[name] = _equal_edges(low, high, self._bins_of(name), self._right)

    def _edges(self, name: str) -> Edges | np.ndarray:
        edges: np.ndarray = self.stats_[name]
        return edges


def _equal_edges(low: float, high: float, bins: int, right: bool) -> np.ndarray:
    """Return `(bins + 1,)` edges; the open end of the range is extended, for a single value both
    ends.
    """
    if low == high:
        margin = _MARGIN * (abs(low) or 1)
        return np.linspace(low - margin, high + margin, bins + 1)
    edges = np.linspace(low, high, bins + 1)
    margin = (high - low) * _MARGIN
    if right:
        edges[0] -= margin
    else:
        edges[-1] += margin
    return edges
