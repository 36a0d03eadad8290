"""`Datasource`: the one way in which rows enter a dataset, and `ReadTask`: one piece of it.

A source lists its pieces; the executor runs each of them anywhere, at any time, again after a
failure. Pieces are deterministic and in a stable order: the same source with the same `parallelism`
gives the same pieces, which is what resuming relies on. Not covered: files (`file_based.py`).
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import cloudpickle
import pyarrow as pa

from syncline.data.columnar import block as blocks

if TYPE_CHECKING:
    from syncline.data.columnar.expressions import Expr
    from syncline.data.context import DataContext

Source = TypeVar("Source", bound="Datasource")


@dataclass(frozen=True)
class BlockMetadata:
    """What is known of rows before they are read."""

    num_rows: int | None
    """Exact number of rows, None if it is not known."""
    size_bytes: int | None
    """About how many bytes they take in memory."""
    exec_stats: Any = None
    """Kept for programs that pass it."""
    task_exec_stats: Any = None
    """Kept for programs that pass it."""
    input_files: Sequence[str] | None = None
    """The files that they come from."""

    def __post_init__(self) -> None:
        if self.input_files is not None:
            object.__setattr__(self, "input_files", tuple(self.input_files))


class ReadTask:
    """One piece of a source: calling it yields tables.

    Args:
        read_fn: Returns tables, DataFrames or mappings of columns; called once for each time that
        the piece is read. metadata: What is known of all its rows together. schema: Schema of the
        tables, where it is known. per_task_row_limit: The most rows to yield. fragment: Name of the
        piece, the same as long as its content is; made from `metadata` if None.
    """

    def __init__(
        self,
        read_fn: Callable[[], Iterable[Any]],
        metadata: BlockMetadata,
        schema: pa.Schema | None = None,
        per_task_row_limit: int | None = None,
        *,
        fragment: str | None = None,
    ) -> None:
        self._read_fn = read_fn
        self._metadata = metadata
        self._schema = schema
        self._per_task_row_limit = per_task_row_limit
        self._fragment = fragment

    @property
    def read_fn(self) -> Callable[[], Iterable[Any]]:
        """What was given to the constructor."""
        return self._read_fn

    @property
    def metadata(self) -> BlockMetadata:
        """What is known of the rows, without the limit."""
        return self._metadata

    @property
    def schema(self) -> pa.Schema | None:
        """The tables' schema, or None if it is not known."""
        return self._schema

    @property
    def per_task_row_limit(self) -> int | None:
        """The most rows that calling the task yields."""
        return self._per_task_row_limit

    @property
    def fragment(self) -> str | None:
        """Name of the piece within its source; None where the source gives none."""
        return self._fragment

    @property
    def num_rows(self) -> int | None:
        """Exact number of rows that calling the task yields, or None if it is not known."""
        known = self._metadata.num_rows
        return (
            known
            if known is None or self._per_task_row_limit is None
            else min(known, self._per_task_row_limit)
        )

    def __call__(self) -> Iterator[pa.Table]:
        """Tables with rows; one without any, for its schema's sake, if there are none."""
        left = self._per_task_row_limit
        empty = None
        any_rows = False
        for read in self._read_fn():
            table = blocks.from_batch(read)
            if table.num_rows == 0:
                empty = table if empty is None else empty
                continue
            if left is not None and table.num_rows >= left:
                # Taken out of what it was cut from, so that a limit of ten rows does not keep a
                # whole file in memory.
                if left > 0:
                    yield table if table.num_rows == left else blocks.compact(table.slice(0, left))
                return
            left = None if left is None else left - table.num_rows
            any_rows = True
            yield table
        if not any_rows and empty is not None:
            yield empty

    def __repr__(self) -> str:
        return f"ReadTask({self._fragment or ''}, num_rows={self.num_rows})"


class Datasource:
    """Where rows come from. Subclass it and implement `get_read_tasks`; everything else has an
    answer that is true of any source.

    Sources are immutable once they are part of a dataset: `apply_projection`, `apply_predicate` and
    `apply_limit` return copies. They are pickled with the plan, and their tasks with whatever the
    tasks refer to.
    """

    _projection: tuple[str, ...] | None = None
    _predicate_expr: Expr | None = None
    _row_limit: int | None = None

    def get_name(self) -> str:
        """A name for people: the class's without `Datasource`."""
        return type(self).__name__.removesuffix("Datasource") or type(self).__name__

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """The pieces in the order of their rows.

        Args:
            parallelism: How many pieces are wanted. A source may return fewer or more.
            per_task_row_limit: The most rows to read of any piece.
            data_context: The dataset's context; the current one if None.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must implement get_read_tasks(parallelism, per_task_row_limit, data_context)"
        )

    def estimate_inmemory_data_size(self) -> int | None:
        """About how many bytes all rows take in memory, or None."""
        return None

    def schema(self) -> pa.Schema | None:
        """Schema of the rows, after the projection, or None where it is not known without
        reading.
        """
        return None

    def num_rows(self) -> int | None:
        """Exact number of rows, or None where it is not known without reading."""
        return None

    def input_files(self) -> list[str]:
        """Paths of the files that are read, each once."""
        return []

    def identity(self) -> str:
        """A short text that changes when the input changes, for caches and for resuming.

        The base cannot look into a source: it answers for all that the object holds.
        """
        return digest(type(self).__qualname__, cloudpickle.dumps(vars(self)))

    @property
    def supports_distributed_reads(self) -> bool:
        """False if only the machine of the program can read it."""
        return True

    @property
    def reads_in_threads(self) -> bool:
        """Whether its tasks may run on threads of the program, since they let the others run.

        True for what comes with this package, mostly native decoders; Python code of the program's
        reads in worker processes.
        """
        return type(self).__module__.startswith(f"{__package__}.")

    def supports_projection_pushdown(self) -> bool:
        """Whether `apply_projection` makes reading cheaper."""
        return False

    def apply_projection(self: Source, columns: Sequence[str] | Mapping[str, str] | None) -> Source:
        """A copy that reads only these columns, in this order; None for all. Names are never
        changed: of a mapping, its keys count.
        """
        clone = copy.copy(self)
        if columns is not None:
            wanted = tuple(columns)
            clone._projection = (
                wanted
                if self._projection is None
                else tuple(name for name in wanted if name in self._projection)
            )
        return clone

    def get_projection_map(self) -> dict[str, str] | None:
        """The columns that are read, each mapped to itself; None for all."""
        return None if self._projection is None else {name: name for name in self._projection}

    def supports_predicate_pushdown(self) -> bool:
        """Whether `apply_predicate` may be used: what is read then satisfies the predicate, row by
        row.
        """
        return False

    def apply_predicate(self: Source, predicate_expr: Expr) -> Source:
        """A copy that reads only the rows for which this and all earlier predicates are true."""
        clone = copy.copy(self)
        clone._predicate_expr = (
            predicate_expr
            if self._predicate_expr is None
            else self._predicate_expr & predicate_expr
        )
        return clone

    def get_current_predicate(self) -> Expr | None:
        """The predicate of the rows that are read, or None for all rows."""
        return self._predicate_expr

    def supports_limit_pushdown(self) -> bool:
        """Whether `apply_limit` makes planning cheaper than `limit_tasks` does."""
        return False

    def apply_limit(self: Source, limit: int) -> Source:
        """A copy that need not offer more than the first `limit` rows; it may."""
        clone = copy.copy(self)
        clone._row_limit = limit if self._row_limit is None else min(limit, self._row_limit)
        return clone


def limit_tasks(tasks: Iterable[ReadTask], limit: int) -> list[ReadTask]:
    """The first tasks, as many as the first `limit` rows may need, each bounded to what it can
    contribute.

    Tasks of unknown size count as empty. With exact sizes the tasks together yield exactly
    min(limit, all) rows.
    """
    kept: list[ReadTask] = []
    left = limit
    for task in tasks:
        if left <= 0:
            break
        bound = left if task.per_task_row_limit is None else min(left, task.per_task_row_limit)
        kept.append(
            ReadTask(task.read_fn, task.metadata, task.schema, bound, fragment=task.fragment)
        )
        left -= kept[-1].num_rows or 0
    return kept


def digest(*parts: object) -> str:
    """A short text that stands for the parts."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:24]


def slice_bounds(rows: int, count: int) -> list[tuple[int, int]]:
    """(start, end) of at most `count` slices whose lengths differ by one at most; none is empty."""
    count = max(1, min(count, rows))
    bounds = [index * rows // count for index in range(count + 1)]
    return [(start, end) for start, end in zip(bounds, bounds[1:], strict=False) if end > start]
