"""Conversion between pandas DataFrames and tables. pandas is imported on first use."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from syncline.data.columnar import columns, tensors

if TYPE_CHECKING:
    import pandas as pd

    Series: TypeAlias = pd.Series[Any]
    from typing_extensions import TypeIs


def load_pandas() -> ModuleType:
    """Import pandas, which takes several tenths of a second that `import syncline.data` should not
    cost.
    """
    import pandas

    return pandas


def is_frame(value: object) -> TypeIs[pd.DataFrame]:
    """Return True for a DataFrame, without importing pandas."""
    return _is_of("DataFrame", value)


def is_series(value: object) -> TypeIs[Series]:
    """Return True for a Series."""
    return _is_of("Series", value)


def _is_of(kind: str, value: object) -> bool:
    # While another thread imports pandas, the module has no classes yet.
    found = getattr(sys.modules.get("pandas"), kind, None)
    return found is not None and isinstance(value, found)


def from_frame(frame: pd.DataFrame) -> pa.Table:
    """Convert a DataFrame to a table, without its index; NaN and NaT become null, object columns
    may hold tensors or any objects.
    """
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(
            f"the DataFrame has several columns named {', '.join(map(repr, twice))}: "
            "rename them, since column names must be unique"
        )
    return pa.table(
        {
            name: from_series(name, series)
            for name, (_, series) in zip(names, frame.items(), strict=True)
        }
    )


def from_series(name: str, series: Series) -> pa.Array:
    """Convert a Series to a column; NaN and NaT become null."""
    if series.dtype == object:
        return columns.from_values(
            name,
            [None if gone else value for value, gone in zip(series, series.isna(), strict=True)],
        )
    if isinstance(series.dtype, np.dtype) and not tensors.fits_arrow(series.dtype):
        return columns.from_values(name, list(series))
    array = pa.array(series, from_pandas=True)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    # pandas 3 stores strings with 64-bit offsets; other columns here have 32-bit offsets.
    if pa.types.is_large_string(array.type) and array.nbytes < 2**31:
        return array.cast(pa.string())
    return array


def to_frame(table: pa.Table) -> pd.DataFrame:
    """Convert a table to a DataFrame with a fresh index; tensors and objects are one ndarray, or
    one object, per row.
    """
    plain = [
        field.name
        for field in table.schema
        if not isinstance(field.type, pa.BaseExtensionType | pa.StructType)
    ]
    pandas = load_pandas()
    if plain:
        frame = table.select(plain).to_pandas(ignore_metadata=True)
    else:
        frame = pandas.DataFrame(index=pandas.RangeIndex(table.num_rows))
    for position, name in enumerate(table.column_names):
        if name not in plain:
            rows = tensors.objects_to_ndarray(columns.values_of(table.column(name)))
            frame.insert(position, name, pandas.Series(rows, index=frame.index, dtype=object))
    return frame  # type: ignore[no-any-return]
