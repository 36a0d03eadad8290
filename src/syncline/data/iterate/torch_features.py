"""Batches as (features, label) of torch tensors, for `to_torch`: columns put side by side into one
tensor or several.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch.utils.data import IterableDataset

from syncline.data.columnar import block as blocks
from syncline.data.columnar.block import Block
from syncline.data.columnar.schemas import require_columns
from syncline.data.iterate.torch import to_tensor

Columns = Sequence[str]


class Examples(IterableDataset[Any]):
    """Batches under torch's name for what can be looped over."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)


class FeaturesAndLabel:
    """Makes `(features, label)` of a block; arguments as those of `to_torch`."""

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

    def __call__(self, table: Block) -> tuple[Any, torch.Tensor | None]:
        batch: dict[str, np.ndarray] = blocks.to_batch(table, "numpy")
        if self._label is None:
            return self._features_of(batch), None
        label = _side_by_side(batch, [self._label], self._label_dtype, self._unsqueeze_label)
        return self._features_of(
            {name: array for name, array in batch.items() if name != self._label}
        ), label

    def _features_of(self, batch: Mapping[str, np.ndarray]) -> Any:
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
                f"feature_columns is a dict, but feature_column_dtypes is a {type(dtypes).__name__}: give a dict, or one dtype"
            )
        if set(dtypes) != set(features):
            raise ValueError(
                f"feature_columns has the keys {sorted(features)}, feature_column_dtypes {sorted(dtypes)}: they must be the same"
            )
        return
    if not _is_nested(features):
        raise TypeError(
            f"feature_columns makes one tensor, but feature_column_dtypes is a {type(dtypes).__name__}: give one torch.dtype"
        )
    if not isinstance(dtypes, Sequence):
        raise TypeError(
            f"feature_columns is a list of lists, but feature_column_dtypes is a {type(dtypes).__name__}: give a list, or one"
        )
    if len(dtypes) != len(features):
        raise ValueError(
            f"feature_columns makes {len(features)} tensors, but feature_column_dtypes has {len(dtypes)}: give one for each"
        )
