"""Generate the rows 0, 1, 2, …, as numbers or as tensors filled with the number; and rows of random
numbers.
"""

from __future__ import annotations

import functools
import math
import numbers
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.context import DataContext
from syncline.data.io import argument_types
from syncline.data.io.sources.datasource import (
    BlockMetadata,
    Datasource,
    ReadTask,
    digest,
    slice_bounds,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


class RangeDatasource(Datasource):
    """Yields 0 to n-1 as numbers, or as tensors whose elements are all the row number.

    Args:
        n: Number of rows.
        block_format: "arrow" for numbers, "tensor" for tensors.
        tensor_shape: Shape of each tensor.
        column_name: Name of the column; None for `value`, and `data` for tensors.
    """

    def __init__(
        self,
        n: int,
        block_format: Literal["arrow", "tensor"] = "arrow",
        tensor_shape: Sequence[int] = (1,),
        column_name: str | None = None,
    ) -> None:
        argument_types.require("n", n, numbers.Real, "the number of rows")
        if n < 0:
            raise ValueError(f"range({n}): the number of rows must be at least 0")
        if block_format not in ("arrow", "tensor"):
            raise ValueError(f"block_format={block_format!r} is not known: use 'arrow' or 'tensor'")
        self._n = int(n)
        is_tensor = block_format == "tensor"
        self._shape = tuple(tensor_shape) if is_tensor else ()
        self._name = column_name or ("data" if is_tensor else "value")

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """Return slices of nearly equal lengths."""
        limit = (data_context or DataContext.get_current()).target_max_block_size
        rows = self._n if limit is None else max(1, limit // self._row_bytes)
        return [
            ReadTask(
                functools.partial(_numbers, start, end, rows, self._shape, self._name),
                BlockMetadata(end - start, (end - start) * self._row_bytes),
                self.schema(),
                per_task_row_limit,
            )
            for start, end in slice_bounds(self._n, parallelism)
        ]

    def estimate_inmemory_data_size(self) -> int:
        return self._n * self._row_bytes

    def schema(self) -> pa.Schema:
        return _table(0, 0, self._shape, self._name).schema

    def num_rows(self) -> int:
        return self._n

    def identity(self) -> str:
        return digest("Range", self._n, self._shape, self._name)

    @property
    def _row_bytes(self) -> int:
        return max(1, 8 * math.prod(self._shape))


class RandomIntRowDatasource(Datasource):
    """Yields rows of random int64 numbers in the columns `c_0`, `c_1`, …: an example of a source.

    Args:
        n: Number of rows.
        num_columns: Number of columns.
    """

    def __init__(self, n: int, num_columns: int) -> None:
        self._n = n
        self._num_columns = num_columns
        # Drawn once: a task that runs again yields the same rows.
        self._seed = int.from_bytes(os.urandom(8), "little")

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """Return slices of nearly equal lengths."""
        return [
            ReadTask(
                functools.partial(_random, (self._seed, start), end - start, self._num_columns),
                BlockMetadata(end - start, 8 * (end - start) * self._num_columns),
                self.schema(),
                per_task_row_limit,
            )
            for start, end in slice_bounds(self._n, parallelism)
        ]

    def estimate_inmemory_data_size(self) -> int:
        return 8 * self._n * self._num_columns

    def schema(self) -> pa.Schema:
        return pa.schema([(f"c_{index}", pa.int64()) for index in range(self._num_columns)])

    def num_rows(self) -> int:
        return self._n


def _random(seed: tuple[int, int], rows: int, columns: int) -> Iterator[pa.Table]:
    numbers = np.random.default_rng(seed).integers(2**63 - 1, size=(columns, rows))
    yield blocks.from_batch({f"c_{index}": column for index, column in enumerate(numbers)})


def _numbers(
    start: int, end: int, rows: int, shape: tuple[int, ...], name: str
) -> Iterator[pa.Table]:
    for first in range(start, end, rows):
        yield _table(first, min(end, first + rows), shape, name)


def _table(start: int, end: int, shape: tuple[int, ...], name: str) -> pa.Table:
    numbers = np.arange(start, end, dtype=np.int64)
    if shape:
        numbers = np.ascontiguousarray(
            np.broadcast_to(numbers.reshape(-1, *(1 for _ in shape)), (end - start, *shape))
        )
    return blocks.from_batch({name: numbers})
