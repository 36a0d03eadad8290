"""Read Hugging Face datasets: map-style datasets in slices of their Arrow tables, iterable datasets
in one task.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.io.sources.datasource import (
    BlockMetadata,
    Datasource,
    ReadTask,
    digest,
    slice_bounds,
)

if TYPE_CHECKING:
    from syncline.data.context import DataContext


class HuggingFaceDatasource(Datasource):
    """Reads a `datasets.Dataset` or `datasets.IterableDataset`; raises TypeError for any other
    object.
    """

    def __init__(self, dataset: Any, batch_size: int = 4096) -> None:
        if isinstance(dataset, dict):
            split = next(iter(dataset), "train")
            raise TypeError(f"got a dictionary of splits: pass one split, dataset[{split!r}]")
        if not hasattr(dataset, "with_format"):
            raise TypeError(
                "from_huggingface takes a datasets.Dataset or IterableDataset, not "
                f"{type(dataset).__name__}"
            )
        self._dataset = dataset
        self._batch_size = batch_size
        self._rows = len(dataset) if hasattr(dataset, "__len__") else None

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """Return slices of rows, or one task for an iterable dataset."""
        if self._rows is None:
            read = functools.partial(_stream, self._dataset, self._batch_size)
            return [ReadTask(read, BlockMetadata(None, None), None, per_task_row_limit)]
        return [
            ReadTask(
                functools.partial(_slices, self._dataset, start, end, self._batch_size),
                BlockMetadata(end - start, None),
                None,
                per_task_row_limit,
            )
            for start, end in slice_bounds(self._rows, parallelism)
        ]

    def estimate_inmemory_data_size(self) -> int | None:
        """Return the size that the dataset reports."""
        size: int | None = getattr(self._dataset, "dataset_size", None)
        return size

    def num_rows(self) -> int | None:
        """Return the length; None for an iterable dataset."""
        return self._rows

    def identity(self) -> str:
        """Return a digest of the dataset's fingerprint, which changes with its content. Iterable
        datasets are distinguished by their class only.
        """
        return digest(
            "HuggingFace", getattr(self._dataset, "_fingerprint", type(self._dataset)), self._rows
        )


def _slices(dataset: Any, start: int, end: int, batch_size: int) -> Iterator[pa.Table]:
    arrow = dataset.with_format("arrow")
    for first in range(start, end, batch_size):
        yield arrow[first : min(end, first + batch_size)]


def _stream(dataset: Any, batch_size: int) -> Iterator[pa.Table]:
    # Some streams ignore the requested format, so all batches are converted.
    for batch in dataset.with_format("arrow").iter(batch_size=batch_size):
        yield blocks.from_batch(batch)
