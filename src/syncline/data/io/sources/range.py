"""Generate the rows 0, 1, 2, …, as numbers or as tensors filled with the number."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.context import DataContext
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
    """Yields 0 to n-1: in the column `id`, or with a shape as tensors in the column `data`, whose
    elements are all the row number.
    """

    def __init__(self, n: int, tensor_shape: Sequence[int] | None = None) -> None:
        if n < 0:
            raise ValueError(f"range({n}): the number of rows must be at least 0")
        self._n = int(n)
        self._shape = tuple(tensor_shape or ())
        self._name = "id" if tensor_shape is None else "data"

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
