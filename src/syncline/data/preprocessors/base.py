"""`ColumnPreprocessor`: base of the preprocessors that come with the library, which work on named
columns of Arrow tables.

Covered: parameters that all share, errors for columns that are not there, and how columns become
numbers, matrices and back. A subclass plans its aggregators without seeing a dataset, so that a
`Chain` may fit several preprocessors in one pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from syncline.data.columnar import columns as column_values
from syncline.data.columnar import schemas, tensors
from syncline.data.columnar.kernels import keys
from syncline.data.columnar.schemas import UnknownColumnError
from syncline.data.preprocessor import SerializablePreprocessorBase, StatComputationPlan

if TYPE_CHECKING:
    from syncline.data.dataset import Dataset


class ColumnPreprocessor(SerializablePreprocessorBase):
    """Changes columns one by one.

    Args:
        columns: Names of the columns that it reads. output_columns: Names of the columns that it
        writes, one for each in `columns`; by default it writes in place.
    """

    def __init__(self, columns: list[str], output_columns: list[str] | None = None) -> None:
        super().__init__()
        for argument, value in (("columns", columns), ("output_columns", output_columns)):
            if isinstance(value, str):
                raise TypeError(
                    f"{type(self).__name__}({argument}={value!r}): a list of names is needed, [{value!r}]"
                )
        self._columns = columns
        self._output_columns = self._derive_and_validate_output_columns(columns, output_columns)

    @property
    def columns(self) -> list[str]:
        """Names of the columns that it reads."""
        return self._columns

    @property
    def output_columns(self) -> list[str]:
        """Names of the columns that it writes."""
        return self._output_columns

    def _plan_statistics(self, plan: StatComputationPlan) -> None:
        """Adds the aggregators whose results `_learn` gets."""

    def _transform_column(self, name: str, column: pa.ChunkedArray) -> Any:
        """The output column for the input column `name`."""
        raise NotImplementedError

    def _fit(self, ds: Dataset) -> ColumnPreprocessor:
        self._plan_statistics(self.stat_computation_plan)
        return self

    def _transform_arrow(self, table: pa.Table) -> pa.Table:
        self._check_columns(table.column_names)
        # All inputs are read before any output is written, since an output may have the name of a
        # later input.
        written = {
            output: self._transform_column(name, table.column(name))
            for name, output in zip(
                self.get_input_columns(), self.get_output_columns(), strict=True
            )
        }
        return with_columns(table, written)

    def _check_columns(self, names: Sequence[str]) -> None:
        for name in self.get_input_columns():
            if name not in names:
                raise UnknownColumnError(name, [str(known) for known in names])

    def _get_transform_config(self) -> dict[str, Any]:
        return {"udf_modifying_row_count": False}

    def __repr__(self) -> str:
        arguments = inspect.signature(type(self).__init__).parameters
        values = {name: getattr(self, name) for name in arguments if name != "self"}
        shown = (
            f"{name}={value.__name__ if inspect.isfunction(value) else repr(value)}"
            for name, value in values.items()
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def with_columns(table: pa.Table, written: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    """The table with columns replaced in place, or added at the end."""
    for name, values in written.items():
        index = table.schema.get_field_index(name)
        table = (
            table.append_column(name, values)
            if index < 0
            else table.set_column(index, name, values)
        )
    return table


def numbers(
    owner: object, name: str, column: pa.ChunkedArray, *, keep_float32: bool = True
) -> pa.ChunkedArray:
    """The column as float64, or float32 if it is that already. TypeError for what is not a
    number.
    """
    type_ = column.type
    if keep_float32 and pa.types.is_float32(type_):
        return column
    numeric = (
        pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)
    )
    if not (numeric or pa.types.is_boolean(type_) or pa.types.is_null(type_)):
        raise TypeError(
            f"{type(owner).__name__} needs numbers, but column {name!r} is of type {type_}: cast or encode it before"
        )
    if pa.types.is_boolean(type_):
        column = column.cast(pa.uint8())
    return column.cast(pa.float64(), safe=False)


def array_of_numbers(owner: object, name: str, column: pa.ChunkedArray) -> np.ndarray:
    """The column as a float array `(rows,)`, NaN for null."""
    return column_values.to_numpy(numbers(owner, name, column))


def from_numbers(values: np.ndarray, column: pa.ChunkedArray) -> pa.Array:
    """Results `(rows,)` as a column that is null where the column that they were computed from
    is.
    """
    return pa.array(values, mask=column.is_null().to_numpy() if column.null_count else None)


def decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with plain values in place of a dictionary's codes."""
    type_ = keys.plain_type(column.type)
    return column if type_ is None or type_ == column.type else column.cast(type_)


def alike(column: pa.ChunkedArray, values: pa.Array) -> tuple[pa.ChunkedArray, pa.Array] | None:
    """A column and other values in one type, the column's if that holds them all; None if there is
    none.
    """
    joined = schemas.joined_type(column.type, values.type)
    if joined is None:
        return None
    if column.type != joined and not pa.types.is_null(column.type):
        try:
            return column, values.cast(column.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # say 2.5 among integers
            return column.cast(joined), values.cast(joined)
    return column.cast(joined), values.cast(joined)


def as_lists(column: pa.ChunkedArray) -> pa.Array | None:
    """The column as one array of lists if its rows are lists or tensors (these flat), else None."""
    array = column.combine_chunks()
    if isinstance(
        array, pa.ChunkedArray
    ):  # which older versions of Arrow give where there are no chunks
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    if isinstance(array.type, tensors.RaggedTensorType):
        array = array.storage.field("data")
    elif isinstance(array.type, pa.FixedShapeTensorType):
        array = array.storage
    if pa.types.is_fixed_size_list(array.type):
        return array.cast(pa.list_(array.type.value_type))
    return array if pa.types.is_list(array.type) or pa.types.is_large_list(array.type) else None


def counts_matrix(codes: np.ndarray, parents: np.ndarray, rows: int, width: int) -> np.ndarray:
    """int64 `(rows, width)`: how often each code, from 0 to `width - 1`, comes in each row; other
    codes are passed by.
    """
    known = (codes >= 0) & (codes < width)
    counts = np.bincount(parents[known] * width + codes[known], minlength=rows * width)
    return counts.reshape(rows, width)
