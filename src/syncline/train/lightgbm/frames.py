"""`normalize_pandas_for_lightgbm`: LightGBM takes pandas' own columns of numbers, not those that
pandas keeps as Arrow arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

_NULLABLE = {"i": "Int", "u": "UInt", "f": "Float"}


def normalize_pandas_for_lightgbm(df: pd.DataFrame) -> pd.DataFrame:
    """The frame with its Arrow columns of numbers and booleans in pandas' nullable types, missing
    values kept.

    Other columns stay as they are, and are not copied. Half floats become 32 bits wide, as pandas
    has no nullable ones of 16.
    """
    found = {
        name: _nullable(dtype)
        for name, dtype in df.dtypes.items()
        if type(dtype).__name__ == "ArrowDtype"
    }
    wanted = {name: dtype for name, dtype in found.items() if dtype is not None}
    return df.astype(wanted) if wanted else df


def _nullable(dtype: Any) -> str | None:
    """The nullable type for an ArrowDtype; None for one that holds no numbers."""
    if dtype.kind == "b":
        return "boolean"
    if dtype.kind not in _NULLABLE:
        return None
    return f"{_NULLABLE[dtype.kind]}{max(8 * dtype.numpy_dtype.itemsize, 32 if dtype.kind == 'f' else 8)}"
