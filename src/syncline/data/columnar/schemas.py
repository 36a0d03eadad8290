"""Schemas: `Schema`, the public handle, and the promotion of several schemas to one.

Covered: null to any type, int to float and to wider ints, missing columns, tensors of differing
shapes or dtypes, objects. Types that cannot be promoted raise `SchemaMismatchError` with the
difference of each column; unknown columns raise `UnknownColumnError` with the nearest name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from syncline.data.columnar import tensors
from syncline.data.columnar.columns import is_text, to_pylist
from syncline.data.columnar.tensors import PythonObjectType, RaggedTensorType
from syncline.suggestions import did_you_mean


class Schema:
    """Names and types of the columns of a dataset.

    Args:
        base_schema: The Arrow schema.
    """

    def __init__(self, base_schema: pa.Schema) -> None:
        self.base_schema = base_schema

    @property
    def names(self) -> list[str]:
        """Names of the columns, in order."""
        return list(self.base_schema.names)

    @property
    def types(self) -> list[pa.DataType]:
        """Arrow types of the columns, in the same order."""
        return list(self.base_schema.types)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.names == other.names and self.types == other.types

    def __hash__(self) -> int:
        return hash(tuple(self.names))

    def __repr__(self) -> str:
        width = max(map(len, ["Column", *self.names])) + 2
        lines = [("Column", "Type"), ("------", "----"), *zip(self.names, self.types, strict=True)]
        return "\n".join(f"{name:<{width}}{type_}" for name, type_ in lines)


class SchemaMismatchError(ValueError):
    """Raised for tables with columns whose types cannot be promoted to one."""


class UnknownColumnError(KeyError, ValueError):
    """Raised for the name of a column that the data does not have."""

    def __init__(self, name: str, names: Sequence[str]) -> None:
        super().__init__(name, tuple(names))
        self.name = name
        self.names = tuple(names)

    def __str__(self) -> str:
        hint = did_you_mean(self.name, self.names)
        names = ", ".join(map(repr, self.names)) or "no columns"
        return f"there is no column {self.name!r} among {names}{'.' if hint else ''}{hint}"


def require_columns(names: Iterable[str], known: Sequence[str]) -> None:
    """Raise UnknownColumnError for the first of `names` that is not in `known`."""
    for name in names:
        if name not in known:
            raise UnknownColumnError(name, known)


def unify(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return the schema that can hold the rows of all schemas: columns in order of first
    appearance, types promoted.

    Metadata is dropped, since it describes only one of the tables.

    Raises:
        SchemaMismatchError: Types that cannot be promoted; the text lists the columns.
    """
    types: dict[str, pa.DataType] = {}
    conflicts: dict[str, tuple[pa.DataType, pa.DataType]] = {}
    for schema in schemas:
        for field in schema:
            known = types.setdefault(field.name, field.type)
            if known == field.type:
                continue
            joined = joined_type(known, field.type)
            if joined is None:
                conflicts.setdefault(field.name, (known, field.type))
            else:
                types[field.name] = joined
    if conflicts:
        raise SchemaMismatchError(_difference(conflicts))
    return pa.schema(list(types.items()))


def joined_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type that can hold the values of both types, or None."""
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    if isinstance(left, PythonObjectType) or isinstance(right, PythonObjectType):
        return PythonObjectType()
    if tensors.is_tensor(left) and tensors.is_tensor(right):
        return _joined_tensor(left, right)
    if pa.types.is_dictionary(left) or pa.types.is_dictionary(right):
        return joined_type(_decoded(left), _decoded(right))
    if pa.types.is_date(left) and pa.types.is_timestamp(right):
        return right
    if pa.types.is_timestamp(left) and pa.types.is_date(right):
        return left
    if (
        isinstance(left, pa.BaseExtensionType)
        or isinstance(right, pa.BaseExtensionType)
        or is_text(left) != is_text(right)
    ):
        return None
    try:
        fields = [pa.schema([("", type_)]) for type_ in (left, right)]
        return pa.unify_schemas(fields, promote_options="permissive").field(0).type
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return None


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert a table to the columns, order and types of `schema`, a result of `unify`; missing
    columns become null.
    """
    if table.schema.equals(schema):
        return table
    found = {}
    for field in schema:
        index = table.schema.get_field_index(field.name)
        if index < 0:
            found[field.name] = nulls(table.num_rows, field.type)
        else:
            found[field.name] = _cast(field.name, table.column(index), field.type)
    return pa.table(found, schema=schema) if found else table


def nulls(rows: int, type_: pa.DataType) -> pa.ChunkedArray:
    """Return a column of nulls of any type."""
    if isinstance(type_, pa.BaseExtensionType):
        array = pa.ExtensionArray.from_storage(type_, pa.nulls(rows, type_.storage_type))
    else:
        array = pa.nulls(rows, type_)
    return pa.chunked_array([array])


def _decoded(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _joined_tensor(left: Any, right: Any) -> pa.DataType | None:
    value_type = joined_type(left.value_type, right.value_type)
    if value_type is None:
        return None
    fixed = [type_ for type_ in (left, right) if isinstance(type_, pa.FixedShapeTensorType)]
    if (
        len(fixed) == 2
        and left.shape == right.shape
        and left.permutation is None
        and right.permutation is None
    ):
        return pa.fixed_shape_tensor(value_type, left.shape)
    return RaggedTensorType(value_type)


def _cast(name: str, column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    if column.type == type_:
        return column
    if pa.types.is_null(column.type):
        return nulls(len(column), type_)
    try:
        return pa.chunked_array([_cast_chunk(chunk, type_) for chunk in column.chunks], type_)
    except pa.ArrowInvalid as error:
        raise SchemaMismatchError(
            f"column {name!r} is {column.type} in one block and must become {type_} to fit the "
            "others, "
            f"but a value does not fit ({error}): cast the column before"
        ) from error


def _cast_chunk(chunk: pa.Array, type_: pa.DataType) -> pa.Array:
    if isinstance(type_, RaggedTensorType):
        return tensors.as_ragged(chunk, type_.value_type)
    if isinstance(type_, PythonObjectType):
        return tensors.object_array(to_pylist(chunk))
    if isinstance(type_, pa.FixedShapeTensorType):
        return pa.ExtensionArray.from_storage(type_, chunk.storage.cast(type_.storage_type))
    # Integers beyond 2**53 may lose their last digits when they become floats.
    return chunk.cast(type_, safe=not pa.types.is_floating(type_))


def _difference(conflicts: dict[str, tuple[pa.DataType, pa.DataType]]) -> str:
    listed = "; ".join(
        f"column {name!r} is {left} in one and {right} in another"
        for name, (left, right) in sorted(conflicts.items())
    )
    return (
        f"blocks with different schemas cannot be concatenated: {listed}. Make the function or the "
        "files that they come from use one type, or cast the column before"
    )
