"""`TrainBatch`: a module's batch as tensors: rows, or sequences for modules with a state.

Covered: conversion of columns to tensors, minibatches. Not covered: the choice of columns, which
is up to each learner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree, first_leaf, map_tree, stack_trees

TensorTree = Tree
Batch = dict[str, TensorTree]
"""Columns as tensors, [B, …] or [S, L, …]."""


def as_tensor(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """Return an array as a tensor, without a copy on the CPU; float64 becomes float32."""
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    elif array.dtype in (np.int32, np.int16, np.uint16, np.uint32):
        array = array.astype(np.int64)
    if not array.flags.writeable:  # torch warns about read-only arrays from other processes
        array = array.copy()
    return torch.from_numpy(np.ascontiguousarray(array)).to(device, non_blocking=True)


def as_tensors(columns: dict[str, Tree], device: torch.device) -> Batch:
    """Return columns as tensors."""
    return {
        name: map_tree(lambda leaf: as_tensor(leaf, device), column)
        for name, column in columns.items()
    }


@dataclass(kw_only=True)
class TrainBatch:
    """Columns of a module with the same first dimension."""

    columns: Batch
    num_rows: int
    """Number of steps without padding."""
    is_sequence: bool = False
    """Columns are [S, L, …]; `state_in` is [S, …] and `loss_mask` marks padding."""

    @property
    def size(self) -> int:
        """Size of the first dimension: rows or sequences."""
        return len(first_leaf(self.columns))

    @classmethod
    def join(cls, batches: Sequence[TrainBatch]) -> TrainBatch:
        """Concatenate batches."""
        if len(batches) == 1:
            return batches[0]
        names = set.intersection(*(set(each.columns) for each in batches))
        return cls(
            columns={
                name: stack_trees(
                    lambda parts: torch.cat(tuple(parts)), [each.columns[name] for each in batches]
                )
                for name in batches[0].columns
                if name in names
            },
            num_rows=sum(each.num_rows for each in batches),
            is_sequence=batches[0].is_sequence,
        )

    def select(self, index: torch.Tensor | slice) -> Batch:
        """Select rows or sequences."""
        return {
            name: map_tree(lambda leaf: leaf[index], column)
            for name, column in self.columns.items()
        }

    def num_minibatches(self, minibatch_size: int | None) -> int:
        """Return the number of minibatches with about `minibatch_size` rows."""
        if not minibatch_size:
            return 1
        return max(self.num_rows // minibatch_size, 1)

    def minibatches(self, count: int, permutation: torch.Tensor | None) -> Iterator[Batch]:
        """Yield `count` minibatches that together contain every row once.

        Their sizes differ by at most one. `permutation` is the order of rows or sequences.
        """
        columns = self.columns if permutation is None else self.select(permutation)
        size = self.size
        for number in range(count):
            piece = slice(number * size // count, (number + 1) * size // count)
            if count == 1:
                yield columns
            else:
                yield {
                    name: map_tree(lambda leaf, piece=piece: leaf[piece], column)
                    for name, column in columns.items()
                }


def share_of(batch: Batch, rank: int, count: int) -> tuple[Batch, float]:
    """Return one of `count` shares of a batch and its weight.

    The weighted mean of the means of all shares is the mean of the batch. A batch with fewer
    fewer rows than shares is not divided.
    """
    size = len(first_leaf(batch))
    if size < count:
        return batch, 1.0
    part = slice(rank * size // count, (rank + 1) * size // count)
    share = {name: map_tree(lambda leaf: leaf[part], column) for name, column in batch.items()}
    mask = batch.get(Columns.LOSS_MASK)
    if mask is None:
        return share, (part.stop - part.start) * count / size
    rows = int(mask[part].sum())
    if not rows:  # only padding, whose mean would be NaN
        return batch, 1.0
    return share, rows * count / int(mask.sum())


def masked_mean(values: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return the mean over all rows, without padding."""
    mask = batch.get(Columns.LOSS_MASK)
    if mask is None:
        return values.mean()
    kept: torch.Tensor = torch.where(mask, values, torch.zeros_like(values))
    mean: torch.Tensor = kept.sum() / mask.sum()
    return mean
