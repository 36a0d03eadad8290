"""The blocks of an execution by number: tables in this process, references to the object store, or
both.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from syncline.core import api
from syncline.core.refs import ObjectRef
from syncline.data.columnar import block as blocks
from syncline.data.execute.stages import (
    Actors,
    Chained,
    CutEvenly,
    Exchanged,
    First,
    Grouping,
    Interleaved,
    Keeping,
    Passed,
    Shuffled,
    Stage,
    Workers,
    held_blocks,
)

Value: TypeAlias = pa.Table | ObjectRef[Any]


class Stored:
    """One block. Whoever holds this object holds the block's memory."""

    __slots__ = ("made_at", "reference", "rows", "size_bytes", "table")

    def __init__(self, value: Value, rows: int, size_bytes: int) -> None:
        is_reference = isinstance(value, ObjectRef)
        self.table: pa.Table | None = None if is_reference else value
        self.reference: ObjectRef[Any] | None = value if is_reference else None
        self.rows = rows
        self.size_bytes = size_bytes
        self.made_at = time.monotonic()

    @property
    def value(self) -> Value:
        """The cheapest form for this process."""
        return self.table if self.table is not None else self.reference

    def in_store(self) -> ObjectRef[Any]:
        """A reference; a table is put into the object store, once."""
        if self.reference is None:
            self.reference = api.put(blocks.compact(self.table))
        return self.reference


class BlockStore:
    """The blocks that exist. For the driver's thread."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._held = [
            Stored(block.value, block.num_rows, block.size_bytes) for block in held_blocks(stages)
        ]
        self._blocks: dict[int, Stored] = {}
        self._last = 0

    def add(self, value: Value, rows: int, size_bytes: int) -> int:
        """A new block; its number."""
        self._last += 1
        self._blocks[self._last] = Stored(value, rows, size_bytes)
        return self._last

    def __getitem__(self, number: int) -> Stored:
        """A block; negative numbers are those of `Passed` stages."""
        return self._held[number] if number < 0 else self._blocks[number]

    def drop(self, number: int) -> None:
        """Let go of a block."""
        if number >= 0:
            del self._blocks[number]

    def clear(self) -> None:
        """Let go of all."""
        self._blocks.clear()
        self._held.clear()

    def __len__(self) -> int:
        return len(self._blocks)


def stages_to_store(stages: Sequence[Stage]) -> frozenset[int]:
    """Numbers of the stages whose blocks have to lie in the object store.

    They are needed by worker processes; or all of them have to be there before the next operator
    goes on, and what memory does not hold is moved to disk from there.
    """
    wanted: set[int] = set()
    for number in reversed(range(len(stages))):
        stage = stages[number]
        grouping = stage.grouping
        lane = grouping.lane if isinstance(grouping, Exchanged) else stage.lane
        passes_on = isinstance(grouping, First | Keeping | Chained | Interleaved | Shuffled)
        holds = isinstance(grouping, Exchanged | CutEvenly | Shuffled) or _keeps_in_store(grouping)
        if (
            holds
            or (passes_on and number in wanted)
            or (not passes_on and isinstance(lane, Workers | Actors))
        ):
            wanted.update(stage.inputs)
    return frozenset(number for number in wanted if not isinstance(stages[number].grouping, Passed))


def _keeps_in_store(grouping: Grouping) -> bool:
    return (
        isinstance(grouping, Keeping)
        and grouping.keeper is not None
        and grouping.keeper.needs_store
    )
