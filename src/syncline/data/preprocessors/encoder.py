"""Encoders: convert categories to numbers, vectors and pandas categoricals.

Categories are learned from the whole dataset and sorted. Null is not a category: it is an error for
all encoders but `Categorizer`. Categories that were not in the fitted dataset become null, or zero
vectors.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from syncline.data.columnar import frames, tensors
from syncline.data.columnar.schemas import UnknownColumnError
from syncline.data.preprocessor import StatComputationPlan
from syncline.data.preprocessors import categories
from syncline.data.preprocessors.base import (
    Column,
    ColumnPreprocessor,
    as_lists,
    counts_matrix,
    parameter,
    with_columns,
)
from syncline.data.preprocessors.categories import CategoryCounter, Codes, Counts, counter_of
from syncline.suggestions import did_you_mean

if TYPE_CHECKING:
    import pandas as pd

    from syncline.data.dataset import Dataset


class _CategoryEncoder(ColumnPreprocessor):
    """Learns `unique_values(column)`: a dict from each category to its code."""

    _elements = False
    """True if the elements of lists are the categories, False for whole lists."""

    def _mapping(self, name: str) -> Codes:
        mapping: Codes = self.stats_[f"unique_values({name})"]
        return mapping

    def _limit(self, name: str) -> int | None:
        """Return the maximum number of categories of a column."""
        return None

    def _plan_statistics(self, plan: StatComputationPlan) -> None:
        for name in self.get_input_columns():
            plan.add_aggregator(
                aggregator_fn=lambda name: CategoryCounter(
                    name, f"unique_values({name})", elements=self._elements
                ),
                columns=[name],
                post_process_fn=partial(self._learned, name),
            )

    def _learned(self, name: str, found: Counts | None) -> Codes:
        try:
            return categories.mapping_of(counter_of(found), self._limit(name))
        except ValueError as error:
            raise ValueError(
                f"{type(self).__name__} cannot be fitted to column {name!r}: {error}"
            ) from None

    def _transform_arrow(self, table: pa.Table) -> pa.Table:
        names = self.get_input_columns()
        self._check_columns(table.column_names)
        categories.check_no_nulls(names, [table.column(name) for name in names])
        return super()._transform_arrow(table)


class _LimitedEncoder(_CategoryEncoder):
    """Optionally limited to the most frequent categories."""

    def __init__(
        self,
        columns: list[str],
        *,
        max_categories: dict[str, int] | None = None,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__(columns, output_columns)
        self._max_categories = max_categories or {}

    max_categories: dict[str, int] = parameter("_max_categories")

    def _limit(self, name: str) -> int | None:
        return self._max_categories.get(name)

    def _plan_statistics(self, plan: StatComputationPlan) -> None:
        for name in self._max_categories:
            if name not in self._columns:
                raise ValueError(
                    f"max_categories names {name!r}, which is not one of the columns to encode: "
                    f"{', '.join(self._columns)}.{did_you_mean(name, self._columns)}"
                )
        super()._plan_statistics(plan)


class OrdinalEncoder(_CategoryEncoder):
    """Encodes categories as int64 codes; null for unknown categories.

    Args:
        columns: Names of the columns.
        encode_lists: True to encode the elements of lists, False to encode each list as a whole.
        output_columns: Names of the output columns; the input columns by default.
    """

    def __init__(
        self,
        columns: list[str],
        *,
        encode_lists: bool = True,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__(columns, output_columns)
        self._elements = encode_lists

    encode_lists: bool = parameter("_elements")

    def _transform_column(self, name: str, column: pa.ChunkedArray) -> Column:
        lists = as_lists(column) if self._elements else None
        if lists is not None:
            return categories.lists_of_codes(name, lists, self._mapping(name))
        return categories.codes_of(name, column, self._mapping(name))


class OneHotEncoder(_LimitedEncoder):
    """Encodes each category as a uint8 tensor, 1 at its code and 0 elsewhere. A list is one
    category.

    Args:
        columns: Names of the columns.
        max_categories: For some columns, the maximum number of categories; the most frequent ones
            are kept.
        output_columns: Names of the output columns; the input columns by default.
    """

    def _transform_column(self, name: str, column: pa.ChunkedArray) -> Column:
        mapping = self._mapping(name)
        codes = categories.filled_codes(categories.codes_of(name, column, mapping))
        hot = np.zeros((len(codes), len(mapping)), np.uint8)
        rows = np.flatnonzero(codes >= 0)
        hot[rows, codes[rows]] = 1
        return tensors.tensor_array(hot)


class MultiHotEncoder(_LimitedEncoder):
    """Encodes each list as an int64 tensor with the count of each category.

    Args:
        columns: Names of columns of lists; other values count as one-element lists.
        max_categories: For some columns, the maximum number of categories; the most frequent ones
            are kept.
        output_columns: Names of the output columns; the input columns by default.
    """

    _elements = True

    def _transform_column(self, name: str, column: pa.ChunkedArray) -> Column:
        mapping = self._mapping(name)
        codes, parents = categories.element_codes_of(name, column, mapping)
        return tensors.tensor_array(counts_matrix(codes, parents, len(column), len(mapping)))


class LabelEncoder(_CategoryEncoder):
    """Encodes labels as int64 codes; null for unknown labels.

    Args:
        label_column: Name of the column.
        output_column: Name of the output column; `label_column` by default.
    """

    def __init__(self, label_column: str, *, output_column: str | None = None) -> None:
        super().__init__([label_column], [output_column or label_column])

    @property
    def label_column(self) -> str:
        """Name of the input column."""
        return self._columns[0]

    @property
    def output_column(self) -> str:
        """Name of the output column."""
        return self._output_columns[0]

    def inverse_transform(self, ds: Dataset) -> Dataset:
        """Return the dataset with the labels for `output_column` in `label_column`; null for
        unknown codes.

        Raises:
            PreprocessorNotFittedException: `fit` was not called.
        """
        self._require_fitted("inverse_transform")
        return ds.map_batches(
            self._inverse_transform_arrow, batch_format="pyarrow", **self._get_transform_config()
        )

    def _inverse_transform_arrow(self, table: pa.Table) -> pa.Table:
        if self.output_column not in table.column_names:
            raise UnknownColumnError(self.output_column, table.column_names)
        labels = self._mapping(self.label_column)
        codes = categories.codes_of(
            self.output_column,
            table.column(self.output_column),
            {code: code for code in labels.values()},
        )
        return with_columns(table, {self.label_column: pc.take(pa.array(list(labels)), codes)})

    def _transform_column(self, name: str, column: pa.ChunkedArray) -> Column:
        return categories.codes_of(name, column, self._mapping(name))


class Categorizer(ColumnPreprocessor):
    """Converts columns to pandas' categorical type, in Arrow a dictionary. Null and unknown values
    become null.

    `stats_`: the `pandas.CategoricalDtype` of each column.

    Args:
        columns: Names of the columns.
        dtypes: For some columns, the type with its categories; the others are learned.
        output_columns: Names of the output columns; the input columns by default.
    """

    def __init__(
        self,
        columns: list[str],
        dtypes: dict[str, pd.CategoricalDtype] | None = None,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__(columns, output_columns)
        self._dtypes = dtypes or {}

    dtypes: dict[str, pd.CategoricalDtype] = parameter("_dtypes")

    def _plan_statistics(self, plan: StatComputationPlan) -> None:
        self.stats_ |= {
            name: dtype for name, dtype in self._dtypes.items() if dtype.categories is not None
        }
        for name in self._columns:
            if name not in self.stats_:
                plan.add_aggregator(
                    aggregator_fn=lambda name: CategoryCounter(name, name),
                    columns=[name],
                    post_process_fn=partial(self._learned, name),
                )

    def _learned(self, name: str, found: Counts | None) -> pd.CategoricalDtype:
        ordered = name in self._dtypes and bool(self._dtypes[name].ordered)
        dtype: pd.CategoricalDtype = frames.load_pandas().CategoricalDtype(
            list(categories.without_null(counter_of(found))), ordered
        )
        return dtype

    def _transform_column(self, name: str, column: pa.ChunkedArray) -> Column:
        dtype = self.stats_[name]
        mapping = {value: code for code, value in enumerate(dtype.categories.tolist())}
        codes = categories.codes_of(name, column, mapping).combine_chunks()
        return pa.DictionaryArray.from_arrays(
            codes.cast(pa.int32()), pa.array(list(mapping)), ordered=bool(dtype.ordered)
        )
