"""`ColumnPreprocessor`: base class of the library's preprocessors, which work on named columns of
Arrow tables.

Covered: shared parameters, errors for missing columns, and the conversion of columns to numbers and
matrices. A subclass plans its aggregators without a dataset, so that `Chain` can fit several
preprocessors in one pass.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from syncline.data.columnar import columns as column_values
from syncline.data.columnar import schemas, tensors
from syncline.data.columnar.kernels import keys
from syncline.data.columnar.schemas import UnknownColumnError
from syncline.data.preprocessor import SerializablePreprocessorBase, StatComputationPlan

if TYPE_CHECKING:
    from syncline.data.dataset import Dataset


Column: TypeAlias = pa.Array | pa.ChunkedArray
"""A column of a table."""


def parameter(attribute: str) -> Any:
    """Return a property for a parameter of the constructor, which describes it, by the name of the
    attribute that holds it.
    """
    return property(operator.attrgetter(attribute))


class ColumnPreprocessor(SerializablePreprocessorBase):
    """Transforms columns one by one.

    Args:
        columns: Names of the input columns.
        output_columns: Names of the output columns, one for each in `columns`; the input columns by
            default.
    """

    def __init__(self, columns: list[str], output_columns: list[str] | None = None) -> None:
        super().__init__()
        for argument, value in (("columns", columns), ("output_columns", output_columns)):
            if isinstance(value, str):
                raise TypeError(
                    f"{type(self).__name__}({argument}={value!r}): pass a list of names, "
                    f"[{value!r}]"
                )
        self._columns = columns
        self._output_columns = self._derive_and_validate_output_columns(columns, output_columns)

    columns: list[str] = parameter("_columns")
    output_columns: list[str] = parameter("_output_columns")

    def _plan_statistics(self, plan: StatComputationPlan) -> None:
        """Add the aggregators whose results `_learn` gets."""

    def _transform_column(self, name: str, column: pa.ChunkedArray) -> Column:
        """Return the output column for the input column `name`."""
        raise NotImplementedError

    def _fit(self, ds: Dataset) -> ColumnPreprocessor:
        self._plan_statistics(self.stat_computation_plan)
        return self

    def _transform_arrow(self, table: pa.Table) -> pa.Table:
        self._check_columns(table.column_names)
        # Read all inputs before writing outputs: an output may have the name of a later input.
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


def with_columns(table: pa.Table, written: Mapping[str, Column]) -> pa.Table:
    """Replace columns of a table, or append them."""
    for name, values in written.items():
        index = table.schema.get_field_index(name)
        if index < 0:
            table = table.append_column(name, values)
        else:
            table = table.set_column(index, name, values)
    return table


def numbers(
    owner: object, name: str, column: pa.ChunkedArray, *, keep_float32: bool = True
) -> pa.ChunkedArray:
    """Cast a column to float64; float32 columns are kept. Raises TypeError for other types."""
    type_ = column.type
    if keep_float32 and pa.types.is_float32(type_):
        return column
    numeric = (
        pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)
    )
    if not (numeric or pa.types.is_boolean(type_) or pa.types.is_null(type_)):
        raise TypeError(
            f"{type(owner).__name__} needs numbers, but column {name!r} is of type {type_}: cast "
            "or encode it first"
        )
    if pa.types.is_boolean(type_):
        column = column.cast(pa.uint8())
    return column.cast(pa.float64(), safe=False)


def array_of_numbers(owner: object, name: str, column: pa.ChunkedArray) -> np.ndarray:
    """Return a column as a float array `(rows,)`, with NaN for null."""
    return column_values.to_numpy(numbers(owner, name, column))


def from_numbers(values: np.ndarray, column: pa.ChunkedArray) -> pa.Array:
    """Return results `(rows,)` as a column that is null where the input column is null."""
    return pa.array(values, mask=column.is_null().to_numpy() if column.null_count else None)


def decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decode a dictionary column to plain values."""
    type_ = keys.plain_type(column.type)
    return column if type_ is None or type_ == column.type else column.cast(type_)


def to_common_type(
    column: pa.ChunkedArray, values: pa.Array
) -> tuple[pa.ChunkedArray, pa.Array] | None:
    """Cast a column and other values to one type, that of the column if it holds all values; None
    if there is no such type.
    """
    joined = schemas.joined_type(column.type, values.type)
    if joined is None:
        return None
    if column.type != joined and not pa.types.is_null(column.type):
        # Casting fails if the type does not hold a value, such as 2.5 among integers.
        with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return column, values.cast(column.type)
    return column.cast(joined), values.cast(joined)


def as_lists(column: pa.ChunkedArray) -> pa.Array | None:
    """Return the column as one array of lists if its rows are lists or tensors (flattened), else
    None.
    """
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # older versions of Arrow, for a column without chunks
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    if isinstance(array.type, tensors.RaggedTensorType):
        array = array.storage.field("data")
    elif isinstance(array.type, pa.FixedShapeTensorType):
        array = array.storage
    if pa.types.is_fixed_size_list(array.type):
        return array.cast(pa.list_(array.type.value_type))
    return array if pa.types.is_list(array.type) or pa.types.is_large_list(array.type) else None


def counts_matrix(codes: np.ndarray, parents: np.ndarray, rows: int, width: int) -> np.ndarray:
    """Count the codes from 0 to `width - 1` in each row, as int64 `(rows, width)`; other codes are
    ignored.
    """
    known = (codes >= 0) & (codes < width)
    counts = np.bincount(parents[known] * width + codes[known], minlength=rows * width)
    return counts.reshape(rows, width)
