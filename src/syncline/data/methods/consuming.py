"""Rows in the program: kept as a whole (`materialize`), a few of them (`take`), or in a loop
(`iter_rows`, `iter_batches`, …).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TypeVar, cast

import pyarrow as pa

from syncline.core.refs import ObjectRef
from syncline.data.columnar import block as blocks
from syncline.data.columnar.block import BatchFormat
from syncline.data.execute import held_blocks as held
from syncline.data.feeds import WholeFeed
from syncline.data.iterator import DataIterator
from syncline.data.methods import checks
from syncline.data.methods.inspecting import InspectingMethods
from syncline.data.plan import properties
from syncline.data.plan.nodes import Held, HeldBlock, Limit

if TYPE_CHECKING:
    from syncline.data.dataset import Dataset, MaterializedDataset


P = ParamSpec("P")
R = TypeVar("R")


def _looping(
    method: Callable[Concatenate[DataIterator, P], R],
) -> Callable[Concatenate[ConsumingMethods, P], R]:
    """The method of an iterator as one of the dataset; all loops over a dataset are those of one
    iterator, so that each is an epoch.
    """

    @wraps(method)
    def loop(self: ConsumingMethods, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(self._loops(), *args, **kwargs)

    return loop


class ConsumingMethods(InspectingMethods):
    """Methods that execute the plan and hand over rows."""

    def materialize(self) -> MaterializedDataset:
        """A dataset whose rows exist: computed now, kept in the object store (and on disk where
        that is full) as long as it is used.
        """
        result = self._hold(self._blocks())
        result.set_name(self._name)
        result._learned.stats = self._learned.stats
        return result

    def take(self, limit: int = 20) -> list[dict[str, Any]]:
        """The first rows, as dicts."""
        return [
            row
            for table in self._first(checks.count("limit", limit, least=0))
            for row in blocks.rows(table)
        ]

    def take_batch(self, batch_size: int = 20, *, batch_format: BatchFormat = "default") -> Any:
        """The first rows as one batch. ValueError if there are none.

        Args:
            batch_size: So many rows, or all if there are fewer. batch_format: "default" and "numpy"
            for a dict of arrays `(rows, ...)`, "pandas", "pyarrow", None for a table.
        """
        blocks.check_batch_format(batch_format)
        tables = [
            table
            for table in self._first(checks.count("batch_size", batch_size, least=1))
            if table.num_rows
        ]
        if not tables:
            raise ValueError("the dataset has no rows, so there is no batch to take")
        return blocks.to_batch(blocks.concat(tables), batch_format)

    def take_all(self, limit: int | None = None) -> list[dict[str, Any]]:
        """All rows, as dicts. ValueError if there are more than `limit`."""
        rows: list[dict[str, Any]] = []
        for table in self._tables():
            if limit is not None and len(rows) + table.num_rows > limit:
                raise ValueError(
                    f"the dataset has more rows than limit={limit}: take a larger limit, or take({limit}) for the first ones"
                )
            rows.extend(blocks.rows(table))
        return rows

    def show(self, limit: int = 20) -> None:
        """Print the first rows."""
        for row in self.take(limit):
            print(row)

    def iterator(self) -> DataIterator:
        """What loops over the rows, epoch by epoch, and knows at any moment where it is
        (`state_dict`).
        """
        return DataIterator(WholeFeed(cast("Dataset", self)))

    iter_rows = _looping(DataIterator.iter_rows)
    iter_batches = _looping(DataIterator.iter_batches)
    iter_torch_batches = _looping(DataIterator.iter_torch_batches)
    iter_tf_batches = _looping(DataIterator.iter_tf_batches)
    iter_jax_batches = _looping(DataIterator.iter_jax_batches)

    def get_internal_block_refs(self) -> list[ObjectRef[pa.Table]]:
        """References to all blocks, computed now."""
        return [held.reference_to(block) for block in self._blocks()]

    def __len__(self) -> NoReturn:
        raise TypeError("a dataset has no len(), since counting may compute all rows: call count()")

    def __bool__(self) -> bool:
        return True  # without this, `if ds:` would ask for the length

    def __iter__(self) -> NoReturn:
        raise TypeError(
            "a dataset has several ways to go through its rows: loop over iter_rows() or iter_batches(), or call take_all()"
        )

    def _loops(self) -> DataIterator:
        """The iterator of all loops."""
        if self._learned.loops is None:
            self._learned.loops = self.iterator()
        self._learned.stats = self._learned.loops.stats
        return self._learned.loops

    def _first(self, limit: int) -> list[pa.Table]:
        return list(self._tables(Limit(input=self._node, limit=limit))) if limit else []

    def _blocks(self) -> tuple[HeldBlock, ...]:
        """All blocks; those that exist already as they are."""
        if isinstance(self._node, Held):
            return self._node.blocks
        files = tuple(properties.input_files(self._node))
        with self._execution() as execution:
            found = tuple(held.kept(output, files) for output in execution)
        self._learned.num_rows = sum(block.num_rows for block in found)
        self._learned.size_bytes = sum(block.size_bytes for block in found)
        return found
