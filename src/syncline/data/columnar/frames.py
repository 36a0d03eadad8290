"""pandas: DataFrames to tables and back. The only file of the package's middle that loads pandas,
and only when a program uses it.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from syncline.data.columnar import columns, tensors

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import TypeIs


def load_pandas() -> ModuleType:
    """The module pandas, imported now, since it takes several tenths of a second that `import
    syncline.data` should not cost.
    """
    import pandas

    return pandas


def is_frame(value: Any) -> TypeIs[pd.DataFrame]:
    """Whether a value is a DataFrame; does not load pandas, without which no value can be one."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


def is_series(value: Any) -> TypeIs[pd.Series[Any]]:
    """Whether a value is a Series."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.Series)


def from_frame(frame: pd.DataFrame) -> pa.Table:
    """A table with the columns of a DataFrame, without its index; NaN and NaT are null, object
    columns may hold tensors or any objects.
    """
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(
            f"the DataFrame has several columns named {', '.join(map(repr, twice))}: rename them, since columns are told apart by name"
        )
    return pa.table(
        {
            name: from_series(name, series)
            for name, (_, series) in zip(names, frame.items(), strict=True)
        }
    )


def from_series(name: str, series: pd.Series[Any]) -> pa.Array:
    """A column from a Series; NaN and NaT are null."""
    if series.dtype == object:
        return columns.from_values(
            name, [None if missing else value for value, missing in _with_missing(series)]
        )
    if isinstance(series.dtype, np.dtype) and not tensors.fits_arrow(series.dtype):
        return columns.from_values(name, list(series))
    array = pa.array(series, from_pandas=True)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    # pandas 3 keeps its strings with 64-bit offsets; everything else here has 32-bit ones.
    if pa.types.is_large_string(array.type) and array.nbytes < 2**31:
        return array.cast(pa.string())
    return array


def to_frame(table: pa.Table) -> pd.DataFrame:
    """A DataFrame with a fresh index; tensors and objects are one ndarray, or one object, per
    row.
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
            rows = [row for chunk in table.column(name).chunks for row in columns.to_pylist(chunk)]
            frame.insert(
                position,
                name,
                pandas.Series(tensors.objects_to_ndarray(rows), index=frame.index, dtype=object),
            )
    return frame  # type: ignore[no-any-return]


def _with_missing(series: pd.Series[Any]) -> zip[tuple[Any, bool]]:
    """The values of an object Series, each with whether it stands for a missing one (None, NaN,
    NaT, NA).
    """
    return zip(series, series.isna(), strict=True)
