"""Batches as torch tensors on a device.

Covered: columns to tensors (without a copy if numpy's layout is torch's), dtypes, collate
functions, pinned memory, and for CUDA a copy on a separate stream, concurrent with the computation.
Tensors that were not copied share memory with the dataset's block: clone a batch before changing it
in place. Also covered: `(features, label)` for `to_torch`. Not covered: the device of a training
worker (`train`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, TypeGuard, cast

import numpy as np
import torch
from torch.utils.data import IterableDataset

from syncline.data.collate_fn import batch_format_of
from syncline.data.columnar import block as blocks
from syncline.data.columnar.block import BatchFormat, Block
from syncline.data.columnar.schemas import require_columns
from syncline.data.iterate.torch_tensors import DTypes, to_tensor, to_tensors

Device: TypeAlias = str | torch.device | int | Literal["auto"]
Batch: TypeAlias = Any
"""A tensor, a sequence or mapping of tensors, or any result of a collate function."""


class Delivery(NamedTuple):
    """A batch on its way from the prefetching thread to the user's thread."""

    batch: Batch
    stream: torch.cuda.Stream | None
    """Stream of the copy to the device; None if the batch is ready."""


@dataclass(kw_only=True)
class TorchConversion:
    """Converts blocks to batches: `convert` on the prefetching thread, `receive` on the user's."""

    device: torch.device
    """Device of the tensors."""
    collate: Callable[[Any], Batch]
    """Makes a batch of a value in `batch_format`."""
    batch_format: BatchFormat
    """Argument format of `collate`."""
    pin_memory: bool = False
    """Copy tensors through page-locked memory, so that the copy to a GPU is asynchronous."""
    _stream: torch.cuda.Stream | None = field(default=None, init=False)

    def convert(self, table: Block) -> Delivery:
        """Convert a block and start the copy to the device."""
        batch = self.collate(blocks.to_batch(table, self.batch_format))
        if not is_tensor_batch(batch):
            return Delivery(batch, None)
        if self.pin_memory:
            batch = _each(
                batch, lambda tensor: tensor.pin_memory() if tensor.device.type == "cpu" else tensor
            )
        if self.device.type != "cuda":
            return Delivery(_to_device(batch, self.device), None)
        if self._stream is None:
            self._stream = _new_stream(self.device)
        with torch.cuda.stream(self._stream):
            return Delivery(_to_device(batch, self.device), self._stream)

    def receive(self, delivery: Delivery) -> Batch:
        """Return the batch, ready for the current stream."""
        if delivery.stream is not None:
            computation = torch.cuda.current_stream(self.device)
            computation.wait_stream(delivery.stream)
            # The memory belongs to the copy stream, which must not reuse it during the computation.
            _each(delivery.batch, lambda tensor: tensor.record_stream(computation))
        return delivery.batch


def torch_conversion(
    *,
    dtypes: DTypes = None,
    device: Device = "auto",
    collate_fn: Callable[[Any], Batch] | None = None,
    pin_memory: bool = False,
    worker_device: torch.device | None = None,
) -> TorchConversion:
    """Return the conversion of `iter_torch_batches`; arguments as there. The device "auto" is
    `worker_device`, or the CPU without one. Raise ValueError for `collate_fn` with `dtypes`, or one
    that cannot be called.
    """
    if collate_fn is not None and dtypes is not None:
        raise ValueError(
            "collate_fn and dtypes exclude each other. Set the dtypes in collate_fn, which makes "
            "the tensors."
        )
    if collate_fn is not None and not callable(collate_fn):
        raise ValueError(
            f"collate_fn={collate_fn!r} is of type {type(collate_fn).__name__}, which cannot be "
            "called. Use a function or a CollateFn."
        )
    chosen = torch.device((worker_device or "cpu") if device == "auto" else device)
    if chosen == torch.device("cuda") and torch.cuda.is_available():
        # The current GPU is a property of the thread, and batches are made on another thread.
        chosen = torch.device("cuda", torch.cuda.current_device())
    return TorchConversion(
        device=chosen,
        collate=collate_fn or (lambda batch: to_tensors(batch, dtypes)),
        batch_format=batch_format_of(collate_fn) or "numpy",  # other callables take ndarrays
        pin_memory=pin_memory,
    )


def is_tensor_batch(batch: Batch) -> bool:
    """Return True if a batch consists of tensors: a tensor, a sequence or mapping of tensors, or a
    sequence or mapping of sequences of tensors.
    """
    if isinstance(batch, Mapping):
        return all(_is_tensor_or_tensors(value) for value in batch.values())
    return _is_tensor_or_tensors(batch) or (
        _is_sequence(batch) and all(_is_tensors(value) for value in batch)
    )


def _is_tensors(value: object) -> bool:
    return _is_sequence(value) and all(isinstance(item, torch.Tensor) for item in value)


def _is_tensor_or_tensors(value: object) -> bool:
    return isinstance(value, torch.Tensor) or _is_tensors(value)


def _is_sequence(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple)


def _rebuilt(sequence: Batch, items: Iterable[Batch]) -> Batch:
    """Return a sequence of the same type; a named tuple takes its fields one by one."""
    return type(sequence)(*items) if hasattr(sequence, "_fields") else type(sequence)(items)


def _each(batch: Batch, change: Callable[[torch.Tensor], Batch]) -> Batch:
    """Apply a function to each tensor of a batch."""
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        return {name: _each(value, change) for name, value in batch.items()}
    return _rebuilt(batch, [_each(value, change) for value in batch])


def _new_stream(device: torch.device) -> torch.cuda.Stream:
    try:
        return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        if torch.cuda.is_available():
            raise
        message = (
            f"device={str(device)!r}, but torch finds no GPU in this process. Use device='cpu', or "
            "leave it out."
        )
        raise RuntimeError(message) from error


def _to_device(batch: Batch, device: torch.device) -> Batch:
    """Move a batch to the device. Nested sequences are chunks of one tensor and are joined."""
    if isinstance(batch, torch.Tensor):
        return _joined(batch, device)
    if isinstance(batch, Mapping):
        return {name: _joined(value, device) for name, value in batch.items()}
    return _rebuilt(batch, [_joined(value, device) for value in batch])


def _joined(value: Batch, device: torch.device) -> torch.Tensor:
    # A non-blocking copy needs a stream to wait for, which only CUDA has.
    non_blocking = device.type == "cuda"
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=non_blocking)
    chunks = [chunk.to(device, non_blocking=non_blocking) for chunk in value]
    return chunks[0] if len(chunks) == 1 else torch.cat(chunks)


Columns = Sequence[str]


class Examples(IterableDataset[Batch]):
    """Batches as a torch `IterableDataset`."""

    def __init__(self, batches: Iterable[Batch]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)


class FeaturesAndLabel:
    """Converts blocks to `(features, label)`; arguments as those of `to_torch`."""

    def __init__(
        self,
        *,
        label: str | None,
        features: Columns | Sequence[Columns] | Mapping[str, Columns] | None,
        label_dtype: torch.dtype | None,
        feature_dtypes: Any,
        unsqueeze_label: bool,
        unsqueeze_features: bool,
    ) -> None:
        self._label, self._label_dtype, self._unsqueeze_label = label, label_dtype, unsqueeze_label
        self._features = features or None
        self._dtypes = feature_dtypes
        self._unsqueeze = unsqueeze_features
        _check_dtypes(self._features, feature_dtypes)

    def __call__(self, table: Block) -> tuple[Batch, torch.Tensor | None]:
        batch: dict[str, np.ndarray] = blocks.to_batch(table, "numpy")
        if self._label is None:
            return self._features_of(batch), None
        label = _side_by_side(batch, [self._label], self._label_dtype, self._unsqueeze_label)
        return self._features_of(
            {name: array for name, array in batch.items() if name != self._label}
        ), label

    def _features_of(self, batch: Mapping[str, np.ndarray]) -> Batch:
        features, dtypes = self._features, self._dtypes
        if isinstance(features, Mapping):
            each = {
                name: dtypes[name] if isinstance(dtypes, Mapping) else dtypes for name in features
            }
            return {
                name: _side_by_side(batch, columns, each[name], self._unsqueeze)
                for name, columns in features.items()
            }
        if features is not None and _is_nested(features):
            several = dtypes if isinstance(dtypes, Sequence) else [dtypes] * len(features)
            return [
                _side_by_side(batch, columns, dtype, self._unsqueeze)
                for columns, dtype in zip(features, several, strict=True)
            ]
        return _side_by_side(
            batch,
            list(batch) if features is None else cast("Columns", features),
            dtypes,
            self._unsqueeze,
        )


def _side_by_side(
    batch: Mapping[str, np.ndarray], columns: Columns, dtype: torch.dtype | None, unsqueeze: bool
) -> torch.Tensor:
    require_columns(columns, list(batch))
    tensors = [to_tensor(name, batch[name], dtype) for name in columns]
    if unsqueeze:
        tensors = [tensor.unsqueeze(1) for tensor in tensors]
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors, dim=1)


def _is_nested(features: Any) -> bool:
    return isinstance(features, Sequence) and not isinstance(features[0], str)


def _check_dtypes(features: Any, dtypes: Any) -> None:
    if dtypes is None or isinstance(dtypes, torch.dtype):
        return
    if isinstance(features, Mapping):
        if not isinstance(dtypes, Mapping):
            raise TypeError(
                "feature_columns is a dict, but feature_column_dtypes is a "
                f"{type(dtypes).__name__}. Use a dict, or one dtype."
            )
        if set(dtypes) != set(features):
            raise ValueError(
                f"feature_columns has the keys {sorted(features)}, but feature_column_dtypes has "
                f"{sorted(dtypes)}. Use the same keys."
            )
        return
    if not _is_nested(features):
        raise TypeError(
            "feature_columns makes one tensor, but feature_column_dtypes is a "
            f"{type(dtypes).__name__}. Use one torch.dtype."
        )
    if not isinstance(dtypes, Sequence):
        raise TypeError(
            "feature_columns is a list of lists, but feature_column_dtypes is a "
            f"{type(dtypes).__name__}. Use a list, or one dtype."
        )
    if len(dtypes) != len(features):
        raise ValueError(
            f"feature_columns makes {len(features)} tensors, but feature_column_dtypes has "
            f"{len(dtypes)} entries. Use one each."
        )
