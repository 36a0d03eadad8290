"""`map_groups`: a function on the rows of one group after the other. The blocks are those of
`GroupsHead`: each holds whole groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from syncline.data.columnar import block as block_functions
from syncline.data.columnar.kernels import group
from syncline.data.execute.steps.batches import Batch, BatchStep


@dataclass(frozen=True, kw_only=True, eq=False)
class MapGroupsStep(BatchStep):
    """`map_groups`: one call per group, in order of the keys; without keys all rows are one
    group.
    """

    keys: tuple[str, ...]

    def batches(self, blocks: Iterator[pa.Table]) -> Iterator[Batch]:
        first_row = 0
        for block in blocks:
            if not block.num_rows:
                continue
            groups = group.groups(block, self.keys)
            # Converted once and then cut: groups are often small, and each conversion costs as much
            # as many rows.
            whole = block_functions.to_batch(groups.arrange(block), self.batch_format)
            bounds = groups.offsets.tolist()
            for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
                yield Batch(first_row + start, stop - start, self._part(whole, start, stop))
            first_row += block.num_rows

    def _part(self, whole: Any, start: int, stop: int) -> Any:
        """Some rows of a batch, as a batch of their own."""
        if isinstance(whole, pa.Table):
            return whole.slice(start, stop - start)
        if isinstance(whole, dict):
            return {
                name: array[start:stop] if self.zero_copy else array[start:stop].copy()
                for name, array in whole.items()
            }
        frame = whole.iloc[start:stop].copy()
        frame.index = whole.index[: stop - start]
        return frame
