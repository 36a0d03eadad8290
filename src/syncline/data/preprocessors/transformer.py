"""`PowerTransformer`: make numbers more normally distributed."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import pyarrow as pa

from syncline.data.preprocessors.base import (
    Column,
    ColumnPreprocessor,
    array_of_numbers,
    from_numbers,
    parameter,
)

Method = Literal["yeo-johnson", "box-cox"]


class PowerTransformer(ColumnPreprocessor):
    """Applies a power transform with a given power: Yeo and Johnson (2000) or Box and Cox (1964).

    Args:
        columns: Names of columns of numbers; for "box-cox" positive ones (others become NaN).
        power: The power, usually between -2.5 and 2.5.
        method: "yeo-johnson" or "box-cox".
        output_columns: Names of the output columns; the input columns by default.
    """

    _is_fittable = False

    def __init__(
        self,
        columns: list[str],
        power: float,
        method: Method = "yeo-johnson",
        *,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__(columns, output_columns)
        if method not in get_args(Method):
            choices = ", ".join(map(repr, get_args(Method)))
            raise ValueError(f"method={method!r} is unknown: choose {choices}")
        self._power = power
        self._method = method

    power: float = parameter("_power")
    method: Method = parameter("_method")

    def _transform_column(self, name: str, column: pa.ChunkedArray) -> Column:
        values = array_of_numbers(self, name, column)
        with np.errstate(divide="ignore", invalid="ignore"):
            if self._method == "box-cox":
                return from_numbers(_box_cox(values, self._power), column)
            positive = _box_cox(np.maximum(values, 0) + 1, self._power)
            negative = -_box_cox(1 - np.minimum(values, 0), 2 - self._power)
            return from_numbers(np.where(values >= 0, positive, negative), column)


def _box_cox(values: np.ndarray, power: float) -> np.ndarray:
    result: np.ndarray = np.log(values) if power == 0 else (values**power - 1) / power
    return result
