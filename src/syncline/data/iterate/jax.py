"""Batches as JAX arrays, for `iter_jax_batches`. Needs JAX.

The rows of all processes form one array, sharded over all devices along its first axis. Not
covered: other shardings (`jax.device_put`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from syncline.data.collate_fn import batch_format_of
from syncline.data.columnar import block as blocks
from syncline.data.columnar.block import Block

jax: Any = import_module("jax")

Arrays = np.ndarray | Mapping[str, np.ndarray]
JaxBatch: TypeAlias = Any
"""A JAX array, or a dict of them by column."""
PerColumn: TypeAlias = Any
"""A setting for all columns, or a dict by column."""


@dataclass(kw_only=True)
class JaxConversion:
    """Converts blocks to batches: `convert` on the prefetching thread, `receive` on the user's.
    Arguments as in `iter_jax_batches`.

    Collective operations happen in `receive`, in the order in which the user takes batches.

    Raises:
        ValueError: The devices cannot share a batch evenly, or `collate_fn` has no batch format.
    """

    batch_size: int
    dtypes: PerColumn
    collate_fn: Callable[[Any], Any] | None
    synchronize: bool
    paddings: PerColumn

    def __post_init__(self) -> None:
        devices = jax.local_device_count()
        if self.batch_size % devices:
            raise ValueError(
                f"batch_size={self.batch_size} is no multiple of the {devices} devices of this "
                "process."
            )
        collate = self.collate_fn
        self._batch_format = "numpy" if collate is None else batch_format_of(collate)
        if self._batch_format is None:
            raise ValueError(
                f"collate_fn is of type {type(collate).__name__}. Derive it from "
                "ArrowBatchCollateFn, NumpyBatchCollateFn or PandasBatchCollateFn."
            )
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
        self._sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))

    def convert(self, table: Block) -> Arrays:
        """Convert a block to ndarrays, padded if necessary."""
        batch = blocks.to_batch(table, self._batch_format)
        arrays: Arrays = batch if self.collate_fn is None else self.collate_fn(batch)
        return arrays if self.paddings is None else _each(arrays, self._padded)

    def receive(self, arrays: Arrays) -> JaxBatch:
        """Put the batch on the devices."""
        rows = len(arrays) if isinstance(arrays, np.ndarray) else len(next(iter(arrays.values())))
        devices = jax.local_device_count()
        if rows % devices:
            raise ValueError(
                f"A batch has {rows} rows, which {devices} devices cannot share evenly. Set "
                "drop_last=True, or pass paddings for the last batch."
            )
        if self.synchronize:
            _check_same(rows)
        return _each(arrays, self._on_devices)

    def _padded(self, name: str | None, array: np.ndarray) -> np.ndarray:
        missing = self.batch_size - len(array)
        if missing <= 0:
            return array
        value = _of_column(self.paddings, name)
        return np.concatenate(
            [array, np.full((missing, *array.shape[1:]), value, dtype=array.dtype)]
        )

    def _on_devices(self, name: str | None, array: np.ndarray) -> JaxBatch:
        shape = (len(array) * jax.process_count(), *array.shape[1:])
        sharded = jax.make_array_from_process_local_data(self._sharding, array, shape)
        dtype = _of_column(self.dtypes, name)
        return sharded if dtype is None else sharded.astype(dtype)


def _check_same(rows: int) -> None:
    everywhere = np.asarray(
        import_module("jax.experimental.multihost_utils").process_allgather(np.array(rows))
    ).ravel()
    if len(set(everywhere.tolist())) > 1:
        raise ValueError(
            f"The processes have batches of {everywhere.tolist()} rows, which do not form one "
            "array. Split the dataset with equal=True, and set drop_last=True or pass paddings."
        )


def _of_column(value: PerColumn, name: str | None) -> PerColumn:
    """Return the setting for a column."""
    return (
        value
        if not isinstance(value, Mapping)
        else value.get(name)
        if name is not None
        else next(iter(value.values()))
    )


def _each(arrays: Arrays, change: Callable[[str | None, np.ndarray], JaxBatch]) -> JaxBatch:
    if isinstance(arrays, np.ndarray):
        return change(None, arrays)
    return {name: change(name, array) for name, array in arrays.items()}
