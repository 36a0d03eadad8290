"""Base classes of collate functions: the `collate_fn` of `iter_torch_batches`. The base class
determines the format of the input; and the default function, for subclasses that add to it.

Other callables receive a dict of ndarrays. This module does not import torch.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar.block import BatchFormat
from syncline.optional import load

if TYPE_CHECKING:
    import pandas as pd

BatchT = TypeVar("BatchT")
Torch: TypeAlias = Any
"""A dtype or a tensor of torch, which this module does not import."""

__all__ = [
    "ArrowBatchCollateFn",
    "CollateFn",
    "DefaultCollateFn",
    "NumpyBatchCollateFn",
    "PandasBatchCollateFn",
]


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


class DefaultCollateFn(ArrowBatchCollateFn):
    """Converts each column to a tensor `(rows, ...)`, as `iter_torch_batches` does without a
    function.

    Args:
        dtypes: A `torch.dtype` for all columns, or a dict by column; None keeps the columns' own.
        combine_chunks: Accepted without effect: a column is always one tensor.
        num_workers: Accepted without effect: the conversion does not copy.
    """

    def __init__(
        self,
        dtypes: Torch | Mapping[str, Torch] | None = None,
        combine_chunks: bool = False,
        num_workers: int = 0,
    ) -> None:
        self.dtypes = dtypes
        self.combine_chunks = combine_chunks
        self.num_workers = num_workers

    def __call__(self, batch: pa.Table) -> dict[str, Torch]:
        """Return a tensor for each column; errors as in `iter_torch_batches`."""
        framework = load(
            "syncline.data.iterate.torch_tensors",
            purpose="DefaultCollateFn",
            install="torch",
            library="torch",
        )
        tensors: dict[str, Torch] = framework.to_tensors(
            blocks.to_batch(batch, "numpy"), self.dtypes
        )
        return tensors


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
