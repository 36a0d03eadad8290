"""`BlockAccessor`: a block as sinks of Ray's users see it. Code of this library uses `block`
directly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as blocks

if TYPE_CHECKING:
    import pandas as pd


class BlockAccessor:
    """One block in any form. `for_block` makes it from a table, a DataFrame or a mapping of
    columns.
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    @staticmethod
    def for_block(block: Any) -> BlockAccessor:
        """An accessor for anything that a batch may be."""
        return BlockAccessor(blocks.from_batch(block))

    def to_arrow(self) -> pa.Table:
        """The block itself."""
        return self._table

    def to_block(self) -> pa.Table:
        """The block itself."""
        return self._table

    def to_pandas(self) -> pd.DataFrame:
        """A DataFrame."""
        frame: pd.DataFrame = blocks.to_batch(self._table, "pandas")
        return frame

    def to_numpy(
        self, columns: str | Sequence[str] | None = None
    ) -> np.ndarray | dict[str, np.ndarray]:
        """One column as an array `(rows, ...)`, or several (all if None) as a dict of arrays."""
        if isinstance(columns, str):
            array: np.ndarray = blocks.to_batch(self._table.select([columns]), "numpy")[columns]
            return array
        chosen = self._table if columns is None else self._table.select(list(columns))
        arrays: dict[str, np.ndarray] = blocks.to_batch(chosen, "numpy")
        return arrays

    def to_batch_format(self, batch_format: blocks.BatchFormat) -> Any:
        """The batch that a function on batches of this format gets."""
        return blocks.to_batch(self._table, batch_format)

    def iter_rows(self, public_row_format: bool = True) -> Iterator[dict[str, Any]]:
        """The rows as dicts."""
        return blocks.rows(self._table)

    def slice(self, start: int, end: int, copy: bool = False) -> pa.Table:
        """Rows from `start` up to `end`."""
        piece = self._table.slice(start, max(0, end - start))
        return blocks.compact(piece) if copy else piece

    def num_rows(self) -> int:
        """Number of rows."""
        return int(self._table.num_rows)

    def size_bytes(self) -> int:
        """Bytes of the rows."""
        return blocks.size_bytes(self._table)

    def schema(self) -> pa.Schema:
        """Arrow's schema."""
        return self._table.schema

    def column_names(self) -> list[str]:
        """Names of the columns."""
        return list(self._table.column_names)
