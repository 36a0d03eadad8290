"""Columns of numpy batches as torch tensors, without a copy if numpy's layout is torch's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import torch

from syncline.suggestions import did_you_mean

DTypes: TypeAlias = torch.dtype | Mapping[str, torch.dtype] | None


def to_tensors(batch: Mapping[str, np.ndarray], dtypes: DTypes = None) -> dict[str, torch.Tensor]:
    """Convert each column of a numpy batch to a tensor `(rows, ...)`; no copy if the dtype stays.

    Raises:
        TypeError: A column does not hold numbers.
        RuntimeError: The rows of a column differ in shape.
        ValueError: `dtypes` names an unknown column.
    """
    if not isinstance(dtypes, Mapping):
        return {name: to_tensor(name, array, dtypes) for name, array in batch.items()}
    unknown = sorted(set(dtypes) - set(batch))
    if unknown:
        raise ValueError(
            f"dtypes names {', '.join(map(repr, unknown))}, but the columns are "
            f"{', '.join(map(repr, batch))}. Correct the names.{did_you_mean(unknown[0], batch)}"
        )
    return {name: to_tensor(name, array, dtypes.get(name)) for name, array in batch.items()}


def to_tensor(name: str, array: np.ndarray, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Convert a column to a tensor, see `to_tensors`."""
    if array.dtype == object:
        array = _stacked(name, array)
    if array.dtype.kind not in "biufc":
        raise TypeError(
            f"column {name!r} has dtype {array.dtype}, which torch has no tensors of. Convert it "
            "to numbers with map_batches, drop it with drop_columns, or handle it in a collate_fn."
        )
    tensor = torch.from_numpy(array if array.flags.writeable else _without_write_protection(array))
    return tensor if dtype is None else tensor.to(dtype)


def _stacked(name: str, array: np.ndarray) -> np.ndarray:
    """Stack the rows of an object column, which are ndarrays or lists of equal shapes, or nulls
    only.
    """
    missing = sum(value is None for value in array)
    if missing == len(array):
        return np.full(missing, np.nan, np.float32)  # nulls of a column without a type
    if missing:
        raise TypeError(
            f"column {name!r} has {missing} missing values in a batch of {len(array)}, which a "
            "tensor cannot hold. Fill or filter them."
        )
    if not all(isinstance(value, np.ndarray | list | tuple) for value in array):
        found = next(value for value in array if not isinstance(value, np.ndarray | list | tuple))
        raise TypeError(
            f"column {name!r} holds values of type {type(found).__name__}, which torch has no "
            "tensors of. Convert it to numbers with map_batches, drop it with drop_columns, or "
            "handle it in a collate_fn."
        )
    rows = [np.asarray(value) for value in array]
    shapes = sorted({row.shape for row in rows})
    if len(shapes) > 1:
        some = ", ".join(map(str, shapes[:4])) + (", ..." if len(shapes) > 4 else "")
        raise RuntimeError(
            f"column {name!r} is ragged: the rows of one batch have the shapes {some}, which one "
            "tensor cannot hold. Pad or resize the rows with map, or handle them in a collate_fn."
        )
    return np.stack(rows)


class _Unprotected:
    """Exposes the memory of an array as writable, and keeps the array alive."""

    def __init__(self, array: np.ndarray) -> None:
        interface = array.__array_interface__
        self.array = array
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def _without_write_protection(array: np.ndarray) -> np.ndarray:
    """Return a writable view: torch warns about read-only arrays, and blocks are read-only."""
    return np.asarray(_Unprotected(array))
