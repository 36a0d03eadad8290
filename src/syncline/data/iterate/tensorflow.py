"""Batches as TensorFlow tensors, for `iter_tf_batches` and `to_tf`. Needs TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar.block import Block
from syncline.data.columnar.schemas import require_columns

tf: Any = import_module("tensorflow")

Columns = str | Sequence[str]
DType: TypeAlias = Any
"""A `tf.DType`."""
TypeSpec: TypeAlias = Any
"""A `tf.TypeSpec`, or a dict of them by column."""
Tensors: TypeAlias = Any
"""A TensorFlow tensor, or a dict of them by column."""


def batch_conversion(dtypes: DType | Mapping[str, DType]) -> Callable[[Block], dict[str, Tensors]]:
    """Return a conversion of blocks to dicts of tensors.

    `dtypes` is the dtype of all columns, or a dict by column.
    """

    def convert(table: Block) -> dict[str, Tensors]:
        arrays = blocks.to_batch(table, "numpy")
        return {
            name: _tensor(array, dtypes.get(name) if isinstance(dtypes, Mapping) else dtypes)
            for name, array in arrays.items()
        }

    return convert


def type_specs(
    groups: Sequence[Columns], given: Sequence[TypeSpec], schema: Callable[[], pa.Schema]
) -> tuple[TypeSpec, ...]:
    """Return the type spec of each group: the given one, or that of the schema's columns.

    Raises:
        UnknownColumnError: A column is missing.
    """
    if all(spec is not None for spec in given):
        return tuple(given)
    known = schema()
    types = dict(zip(known.names, known.types, strict=True))
    return tuple(
        _group_spec(columns, types) if spec is None else spec
        for columns, spec in zip(groups, given, strict=True)
    )


def group_conversion(
    groups: Sequence[Columns], specs: Sequence[TypeSpec]
) -> Callable[[Block], tuple[Tensors, ...]]:
    """Return a conversion of blocks to one tensor, or dict of tensors, per group of columns."""

    def one(arrays: Mapping[str, np.ndarray], columns: Columns, spec: TypeSpec) -> Tensors:
        if isinstance(columns, str):
            return _tensor(arrays[columns], None, spec)
        return {name: _tensor(arrays[name], None, spec[name]) for name in columns}

    def convert(table: Block) -> tuple[Tensors, ...]:
        arrays = blocks.to_batch(table, "numpy")
        return tuple(
            one(arrays, columns, spec) for columns, spec in zip(groups, specs, strict=True)
        )

    return convert


def dataset(batches: Iterable[Tensors], specs: tuple[TypeSpec, ...]) -> Any:
    """Return a `tf.data.Dataset` of batches, which TensorFlow must not shard among workers."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return tf.data.Dataset.from_generator(
        lambda: iter(batches), output_signature=specs
    ).with_options(options)


def _group_spec(columns: Columns, types: Mapping[str, pa.DataType]) -> TypeSpec:
    require_columns([columns] if isinstance(columns, str) else columns, list(types))
    return (
        _spec(columns, types[columns])
        if isinstance(columns, str)
        else {name: _spec(name, types[name]) for name in columns}
    )


def _spec(name: str, kind: pa.DataType) -> TypeSpec:
    if isinstance(kind, pa.FixedShapeTensorType):
        return tf.TensorSpec(
            (None, *kind.shape),
            dtype=tf.dtypes.as_dtype(kind.value_type.to_pandas_dtype()),
            name=name,
        )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return tf.RaggedTensorSpec(
            (None, None), dtype=tf.dtypes.as_dtype(kind.value_type.to_pandas_dtype())
        )
    return tf.TensorSpec((None,), dtype=tf.dtypes.as_dtype(kind.to_pandas_dtype()), name=name)


def _tensor(array: np.ndarray, dtype: DType, spec: TypeSpec = None) -> Tensors:
    dtype = dtype or getattr(spec, "dtype", None)
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.ragged.constant([np.asarray(row).tolist() for row in array], dtype=dtype)
    if array.dtype == object and len(array) and isinstance(array[0], np.ndarray):
        array = np.stack(list(array))
    return tf.convert_to_tensor(array, dtype=dtype)
