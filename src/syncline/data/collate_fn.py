"""Base classes of collate functions: the `collate_fn` of `iter_torch_batches`. The base class
determines the format of the input.

Other callables receive a dict of ndarrays. This module does not need torch.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from syncline.data.columnar.block import BatchFormat

if TYPE_CHECKING:
    import pandas as pd

BatchT = TypeVar("BatchT")

__all__ = ["ArrowBatchCollateFn", "CollateFn", "NumpyBatchCollateFn", "PandasBatchCollateFn"]


class CollateFn(abc.ABC, Generic[BatchT]):
    """Converts a batch of the dataset to a batch of the program. Derive from one of the subclasses
    below, which name the input format.

    The prefetching thread calls it, one batch at a time. Tensors in the result (single ones,
    sequences or mappings) are pinned and moved to the device; other objects reach the program
    unchanged.
    """

    @abc.abstractmethod
    def __call__(self, batch: BatchT) -> object:
        """Return the batch of the program."""


class ArrowBatchCollateFn(CollateFn[pa.Table]):
    """Takes a `pyarrow.Table`."""


class NumpyBatchCollateFn(CollateFn[dict[str, np.ndarray]]):
    """Takes a dict of ndarrays, `(rows, ...)` each."""


class PandasBatchCollateFn(CollateFn[Any]):
    """Takes a DataFrame."""

    @abc.abstractmethod
    def __call__(self, batch: pd.DataFrame) -> object:
        """Return the batch of the program."""


_FORMATS: tuple[tuple[type, BatchFormat], ...] = (
    (ArrowBatchCollateFn, "pyarrow"),
    (PandasBatchCollateFn, "pandas"),
    (NumpyBatchCollateFn, "numpy"),
)


def batch_format_of(collate_fn: object) -> BatchFormat:
    """Return the batch format of a collate function's class; None for callables that derive from
    none of these classes.
    """
    return next(
        (batch_format for kind, batch_format in _FORMATS if isinstance(collate_fn, kind)), None
    )
