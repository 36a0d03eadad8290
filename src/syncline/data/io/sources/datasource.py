"""`Datasource`: the extension point for reading rows into a dataset; `ReadTask`: one part of it.

A source lists its read tasks; the executor runs each of them on any machine, at any time, and again
after a failure. Tasks are deterministic and in a stable order: the same source with the same
`parallelism` gives the same tasks, which resuming relies on. Not covered: files
(`file_based_datasource.py`).
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import cloudpickle
import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.records import dataclass

if TYPE_CHECKING:
    from syncline.data.columnar.expressions import Expr
    from syncline.data.context import DataContext

Source = TypeVar("Source", bound="Datasource")


@dataclass(frozen=True)
class BlockMetadata:
    """Metadata of rows that is known before they are read."""

    num_rows: int | None
    """Exact number of rows; None if unknown."""
    size_bytes: int | None
    """Approximate size in memory."""
    exec_stats: object = None
    """Unused; accepted for compatibility."""
    task_exec_stats: object = None
    """Unused; accepted for compatibility."""
    input_files: Sequence[str] | None = None
    """Files that the rows come from."""

    def __post_init__(self) -> None:
        if self.input_files is not None:
            object.__setattr__(self, "input_files", tuple(self.input_files))


@dataclass(frozen=True, eq=False, repr=False)
class ReadTask:
    """One part of a source. Calling it yields tables."""

    read_fn: Callable[[], Iterable[blocks.Batch]]
    """Returns tables, DataFrames or mappings of columns; called for each read."""
    metadata: BlockMetadata
    """Metadata of all rows together, without the limit."""
    schema: pa.Schema | None = None
    """Schema of the tables, if known."""
    per_task_row_limit: int | None = None
    """Maximum number of rows to yield."""

    @property
    def num_rows(self) -> int | None:
        """Exact number of rows that calling the task yields, or None if unknown."""
        known, limit = self.metadata.num_rows, self.per_task_row_limit
        return known if known is None or limit is None else min(known, limit)

    def __call__(self) -> Iterator[pa.Table]:
        """Yield tables with rows, or one empty table for its schema if there are no rows."""
        left = self.per_task_row_limit
        empty = None
        any_rows = False
        for read in self.read_fn():
            table = blocks.from_batch(read)
            if table.num_rows == 0:
                empty = table if empty is None else empty
                continue
            if left is not None and table.num_rows >= left:
                # Copied, so that a limit of ten rows does not keep a whole file in memory.
                if left > 0:
                    yield table if table.num_rows == left else blocks.compact(table.slice(0, left))
                return
            left = None if left is None else left - table.num_rows
            any_rows = True
            yield table
        if not any_rows and empty is not None:
            yield empty

    def __repr__(self) -> str:
        return f"ReadTask(num_rows={self.num_rows})"


class Datasource:
    """A source of rows. Subclass it and implement `get_read_tasks`; the other methods have
    defaults that are valid for any source.

    Sources are immutable once they are part of a dataset: `apply_projection`, `apply_predicate` and
    `apply_limit` return copies. Sources are pickled with the plan; read tasks are pickled with the
    objects that they refer to.
    """

    _projection: tuple[str, ...] | None = None
    _predicate_expr: Expr | None = None
    _row_limit: int | None = None

    def get_name(self) -> str:
        """Return the class name without `Datasource`, for display."""
        return type(self).__name__.removesuffix("Datasource") or type(self).__name__

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """Return the read tasks in the order of their rows.

        Args:
            parallelism: Requested number of tasks. A source may return fewer or more.
            per_task_row_limit: Maximum number of rows for each task.
            data_context: The dataset's context; the current one if None.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must implement "
            "get_read_tasks(parallelism, per_task_row_limit, data_context)"
        )

    def estimate_inmemory_data_size(self) -> int | None:
        """Return the approximate size of all rows in memory, in bytes, or None if unknown."""
        return None

    def schema(self) -> pa.Schema | None:
        """Return the schema of the rows after the projection, or None if it is unknown without
        reading.
        """
        return None

    def num_rows(self) -> int | None:
        """Return the exact number of rows, or None if it is unknown without reading."""
        return None

    def input_files(self) -> list[str]:
        """Return the paths of the files to read, without duplicates."""
        return []

    def identity(self) -> str:
        """Return a short text that changes with the input; used by caches and for resuming.

        The default covers the class name and all attributes of the object.
        """
        return digest(type(self).__qualname__, cloudpickle.dumps(vars(self)))

    @property
    def supports_distributed_reads(self) -> bool:
        """False if only the driver's machine can read the source."""
        return True

    @property
    def reads_in_threads(self) -> bool:
        """True if read tasks may run on threads of the driver process.

        Default: True for the sources of this package, which release the interpreter lock. Other
        sources run Python code and are read in worker processes.
        """
        return type(self).__module__.startswith(f"{__package__}.")

    @property
    def waits_for_storage(self) -> bool:
        """True if read tasks spend most of their time waiting for requests to remote storage."""
        return False

    def supports_projection_pushdown(self) -> bool:
        """Return True if `apply_projection` makes reading cheaper."""
        return False

    def apply_projection(self: Source, columns: Sequence[str] | Mapping[str, str] | None) -> Source:
        """Return a copy that reads only these columns, in this order; None for all columns. Of a
        mapping the keys are used: columns are never renamed.
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
        """Return the columns to read, each mapped to itself; None for all."""
        return None if self._projection is None else {name: name for name in self._projection}

    def supports_predicate_pushdown(self) -> bool:
        """Return True if the source supports `apply_predicate`: all rows that it reads then satisfy
        the predicate.
        """
        return False

    def apply_predicate(self: Source, predicate_expr: Expr) -> Source:
        """Return a copy that reads only rows for which this and all earlier predicates are true."""
        clone = copy.copy(self)
        clone._predicate_expr = (
            predicate_expr
            if self._predicate_expr is None
            else self._predicate_expr & predicate_expr
        )
        return clone

    def get_current_predicate(self) -> Expr | None:
        """Return the predicate of the rows to read, or None for all rows."""
        return self._predicate_expr

    def supports_limit_pushdown(self) -> bool:
        """Return True if `apply_limit` makes planning cheaper than `limit_tasks` does."""
        return False

    def apply_limit(self: Source, limit: int) -> Source:
        """Return a copy that may stop after the first `limit` rows."""
        clone = copy.copy(self)
        clone._row_limit = limit if self._row_limit is None else min(limit, self._row_limit)
        return clone

    def _projected(self, schema: pa.Schema) -> pa.Schema:
        """Return the fields of a schema after the projection."""
        if self._projection is None:
            return schema
        return pa.schema([schema.field(name) for name in self._projection])


def limit_tasks(tasks: Iterable[ReadTask], limit: int) -> list[ReadTask]:
    """Return the first tasks that the first `limit` rows need, each limited to its share.

    Tasks of unknown size count as empty. If all sizes are exact, the tasks together yield
    min(limit, all) rows.
    """
    kept: list[ReadTask] = []
    left = limit
    for task in tasks:
        if left <= 0:
            break
        bound = left if task.per_task_row_limit is None else min(left, task.per_task_row_limit)
        kept.append(replace(task, per_task_row_limit=bound))
        left -= kept[-1].num_rows or 0
    return kept


def digest(*parts: object) -> str:
    """Hash the parts to a short text."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:24]


def slice_bounds(rows: int, count: int) -> list[tuple[int, int]]:
    """Split rows into at most `count` slices (start, end) of nearly equal length, none empty."""
    count = max(1, min(count, rows))
    bounds = [index * rows // count for index in range(count + 1)]
    return [(start, end) for start, end in zip(bounds, bounds[1:], strict=False) if end > start]
