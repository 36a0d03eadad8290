"""Read PyTorch datasets into the column `item`: map-style datasets in slices, iterable datasets in
one task.

torch is not needed: a dataset is any object with `__getitem__` and `__len__`, or with `__iter__`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.io.sources.datasource import BlockMetadata, Datasource, ReadTask, slice_bounds

if TYPE_CHECKING:
    from syncline.data.context import DataContext

_ROWS_PER_BLOCK = 128


class TorchDatasource(Datasource):
    """Reads a `torch.utils.data.Dataset` or `IterableDataset`, or the rows of a tensor; arguments
    as in `from_torch`.
    """

    def __init__(self, dataset: Any, local_read: bool = False) -> None:
        self._is_map_style = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
        if not self._is_map_style and not hasattr(dataset, "__iter__"):
            raise TypeError(
                "from_torch takes a dataset with __getitem__ and __len__, or with __iter__; "
                f"{type(dataset).__name__} has neither"
            )
        self._dataset = dataset
        self._local_read = local_read

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """Return slices of items, or one task for an iterable dataset."""
        rows = self.num_rows()
        if rows is None:
            read = functools.partial(_iterated, self._dataset)
            return [ReadTask(read, BlockMetadata(None, None), None, per_task_row_limit)]
        return [
            ReadTask(
                functools.partial(_indexed, self._dataset, start, end),
                BlockMetadata(end - start, None),
                None,
                per_task_row_limit,
            )
            for start, end in slice_bounds(rows, 1 if self._local_read else parallelism)
        ]

    def num_rows(self) -> int | None:
        """Return the length of a map-style dataset; None for an iterable one, whose length may be
        expensive to compute.
        """
        return len(self._dataset) if self._is_map_style else None

    @property
    def reads_in_threads(self) -> bool:
        """False: the dataset's Python code creates the items."""
        return False

    @property
    def supports_distributed_reads(self) -> bool:
        """False with `local_read`."""
        return not self._local_read


def _indexed(dataset: Any, start: int, end: int) -> Iterator[pa.Table]:
    for first in range(start, end, _ROWS_PER_BLOCK):
        yield _block([dataset[index] for index in range(first, min(end, first + _ROWS_PER_BLOCK))])


def _iterated(dataset: Any) -> Iterator[pa.Table]:
    items = iter(dataset)
    while batch := list(islice(items, _ROWS_PER_BLOCK)):
        yield _block(batch)


def _block(items: list[Any]) -> pa.Table:
    # Tensors become arrays here; `from_rows` converts other items (tuples, images, dicts).
    arrays = [
        np.asarray(item) if hasattr(item, "__array__") and hasattr(item, "shape") else item
        for item in items
    ]
    return blocks.from_rows([{"item": item} for item in arrays])
