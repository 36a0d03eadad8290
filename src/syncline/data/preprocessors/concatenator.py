"""`Concatenator`: combine columns into one column of vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from syncline.data.columnar import columns as column_values
from syncline.data.columnar import tensors
from syncline.data.columnar.schemas import UnknownColumnError
from syncline.data.preprocessors.base import ColumnPreprocessor, as_lists, numbers, parameter


class Concatenator(ColumnPreprocessor):
    """Concatenates columns to one tensor per row, in the given order, and drops the columns.

    Args:
        columns: Names of columns of numbers.
        output_column_name: Name of the output column.
        dtype: Type of the tensors; by default one that holds the values of all columns.
        raise_if_missing: True to raise ValueError for a missing column, False for KeyError.
        flatten: True to accept lists and tensors, whose elements are added to the vector.
    """

    _is_fittable = False

    def __init__(
        self,
        columns: list[str],
        output_column_name: str = "concat_out",
        dtype: npt.DTypeLike | None = None,
        raise_if_missing: bool = False,
        flatten: bool = False,
    ) -> None:
        super().__init__(columns)
        self._output_columns = [output_column_name]
        self._dtype = dtype
        self._raise_if_missing = raise_if_missing
        self._flatten = flatten

    @property
    def output_column_name(self) -> str:
        """Name of the output column."""
        return self._output_columns[0]

    dtype: npt.DTypeLike | None = parameter("_dtype")
    raise_if_missing: bool = parameter("_raise_if_missing")
    flatten: bool = parameter("_flatten")

    def _check_columns(self, names: Sequence[str]) -> None:
        try:
            super()._check_columns(names)
        except UnknownColumnError as error:
            if self._raise_if_missing:
                raise ValueError(str(error)) from None
            raise

    def _transform_arrow(self, table: pa.Table) -> pa.Table:
        self._check_columns(table.column_names)
        parts = [self._part(name, table.column(name)) for name in self._columns]
        if any(part.dtype == object for part in parts):
            vectors = tensors.ragged_array(
                [self._cast(np.concatenate(row)) for row in zip(*parts, strict=True)]
            )
        else:
            dtype = self._dtype or np.result_type(*parts)
            vectors = tensors.tensor_array(
                np.concatenate(parts, axis=1, dtype=dtype, casting="unsafe")
            )
        used = dict.fromkeys([*self._columns, self.output_column_name])
        rest = table.drop_columns([name for name in used if name in table.column_names])
        return rest.append_column(self.output_column_name, vectors)

    def _part(self, name: str, column: pa.ChunkedArray) -> np.ndarray:
        """Return the elements of a column, `(rows, elements)`; objects `(rows,)` that are arrays if
        the number of elements varies.
        """
        lists = as_lists(column)
        if lists is None:
            plain = pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)
            values = column if plain else numbers(self, name, column)
            return column_values.to_numpy(values).reshape(-1, 1)
        if not self._flatten:
            raise ValueError(
                f"column {name!r} holds {column.type}, not single numbers: use Concatenator(..., "
                "flatten=True)"
            )
        if lists.null_count:
            raise ValueError(
                f"column {name!r} has null instead of a list in {lists.null_count} rows: filter or "
                "fill them first"
            )
        elements = column_values.to_numpy(
            numbers(self, name, pa.chunked_array([pc.list_flatten(lists)]))
        )
        lengths = pc.list_value_length(lists).to_numpy()
        if len(lengths) and (lengths == lengths[0]).all():
            return elements.reshape(len(lengths), -1)
        return tensors.objects_to_ndarray(np.split(elements, np.cumsum(lengths)[:-1]))

    def _cast(self, vector: np.ndarray) -> np.ndarray:
        return vector if self._dtype is None else vector.astype(self._dtype)
