"""Collate functions: what a program gives to `iter_torch_batches` to make its own batches of. The
base class says what the input is.

Any callable will do, and takes a dict of ndarrays; these classes are for those that want another
input. Torch is not needed here.
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
    """Makes a program's batch of a dataset's. Derive from one of the classes below, which say of
    what.

    It is called on the prefetching thread, one batch at a time. Tensors in what it returns (one,
    sequences or mappings of them) are pinned and moved to the device; anything else reaches the
    program as it is.
    """

    @abc.abstractmethod
    def __call__(self, batch: BatchT) -> Any:
        """The batch as the program wants it."""


class ArrowBatchCollateFn(CollateFn[pa.Table]):
    """Takes a `pyarrow.Table`."""


class NumpyBatchCollateFn(CollateFn[dict[str, np.ndarray]]):
    """Takes a dict of ndarrays, `(rows, ...)` each."""


class PandasBatchCollateFn(CollateFn[Any]):
    """Takes a DataFrame."""

    @abc.abstractmethod
    def __call__(self, batch: pd.DataFrame) -> Any:
        """The batch as the program wants it."""


_FORMATS: tuple[tuple[type, BatchFormat], ...] = (
    (ArrowBatchCollateFn, "pyarrow"),
    (PandasBatchCollateFn, "pandas"),
    (NumpyBatchCollateFn, "numpy"),
)


def batch_format_of(collate_fn: Any) -> BatchFormat:
    """The format of the batches that a collate function takes, as its class says; None where its
    class is derived from none of these.
    """
    return next(
        (batch_format for kind, batch_format in _FORMATS if isinstance(collate_fn, kind)), None
    )
