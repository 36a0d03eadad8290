"""`FeatureHasher`: fold columns of token counts into a vector of fixed length."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa

from syncline.data.columnar import columns as column_values
from syncline.data.columnar import tensors
from syncline.data.preprocessors.base import ColumnPreprocessor, numbers, parameter, with_columns


def simple_hash(value: object, num_features: int) -> int:
    """Hash the text of a value to 0 to `num_features - 1` with SHA-256: the same in every
    process.
    """
    return int(hashlib.sha256(str(value).encode()).hexdigest(), 16) % num_features


class FeatureHasher(ColumnPreprocessor):
    """Sums the columns whose names have the same hash to one tensor per row. The columns are kept.

    Args:
        columns: Names of columns of numbers, each named after the token that it counts.
        num_features: Length of the tensor.
        output_column: Name of the output column.
    """

    _is_fittable = False

    def __init__(self, columns: list[str], num_features: int, output_column: str) -> None:
        super().__init__(columns)
        self._num_features = num_features
        self._output_columns = [output_column]

    num_features: int = parameter("_num_features")

    @property
    def output_column(self) -> str:
        """Name of the output column."""
        return self._output_columns[0]

    def _transform_arrow(self, table: pa.Table) -> pa.Table:
        self._check_columns(table.column_names)
        counts = [self._counts(name, table.column(name)) for name in self._columns]
        sums = np.zeros((table.num_rows, self._num_features), np.result_type(np.int64, *counts))
        for name, values in zip(self._columns, counts, strict=True):
            sums[:, simple_hash(name, self._num_features)] += values
        return with_columns(table, {self.output_column: tensors.tensor_array(sums)})

    def _counts(self, name: str, column: pa.ChunkedArray) -> np.ndarray:
        if pa.types.is_integer(column.type) and not column.null_count:
            return column_values.to_numpy(column).astype(np.int64, copy=False)
        return column_values.to_numpy(numbers(self, name, column))
