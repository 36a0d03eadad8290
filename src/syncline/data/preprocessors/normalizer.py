"""`Normalizer`: scale rows to unit length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import pyarrow as pa

from syncline.data.preprocessors.base import (
    ColumnPreprocessor,
    array_of_numbers,
    from_numbers,
    parameter,
    with_columns,
)

Norm = Literal["l1", "l2", "max"]

# Functions from the columns of a batch, float `(columns, rows)`, to the length of each row. Missing
# values are ignored.
_NORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "l1": lambda values: np.nansum(np.abs(values), axis=0),
    "l2": lambda values: np.sqrt(np.nansum(values**2, axis=0)),
    "max": lambda values: np.fmax.reduce(np.abs(values), axis=0),
}


class Normalizer(ColumnPreprocessor):
    """Divides the columns of each row by the norm of the row; a row of zeros becomes NaN.

    Args:
        columns: Names of the columns of numbers that form a row.
        norm: "l1" (sum of absolute values), "l2" (root of the sum of squares) or "max" (maximum
            absolute value).
        output_columns: Names of the output columns; the input columns by default.
    """

    _is_fittable = False

    def __init__(
        self, columns: list[str], norm: Norm = "l2", *, output_columns: list[str] | None = None
    ) -> None:
        super().__init__(columns, output_columns)
        if norm not in _NORMS:
            raise ValueError(f"norm={norm!r} is unknown: choose {', '.join(map(repr, _NORMS))}")
        self._norm = norm

    norm: Norm = parameter("_norm")

    def _transform_arrow(self, table: pa.Table) -> pa.Table:
        self._check_columns(table.column_names)
        columns = [table.column(name) for name in self._columns]
        values = np.stack(
            [
                array_of_numbers(self, name, column)
                for name, column in zip(self._columns, columns, strict=True)
            ]
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled = values / _NORMS[self._norm](values)
        results = (from_numbers(row, column) for row, column in zip(scaled, columns, strict=True))
        return with_columns(table, dict(zip(self._output_columns, results, strict=True)))
