"""Reading Lance datasets, a task for each run of fragments. Needs the library `pylance`."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from syncline.data.columnar import schemas
from syncline.data.context import DataContext
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sources.datasource import BlockMetadata, Datasource, ReadTask, digest
from syncline.optional import load

if TYPE_CHECKING:
    from syncline.data.columnar.expressions import Expr

_PATTERNS = (r"LanceError\(IO\)",)


class LanceDatasource(Datasource):
    """Reads one or more Lance datasets.

    Args:
        uri: Path or URI, or several.
        version: Number or tag of the version; the newest if None.
        columns: Names of the columns to read; None for all.
        filter: A condition in SQL.
        storage_options: For the object store.
        scanner_options: For Lance's scanner.

    Raises:
        ImportError: Lance is not installed.
        ValueError: There is no such dataset or version.
    """

    def __init__(
        self,
        uri: str | Sequence[str],
        version: int | str | None = None,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        scanner_options: Mapping[str, Any] | None = None,
    ) -> None:
        lance = load("lance", purpose="read_lance", install="pylance")
        self._uris = [uri] if isinstance(uri, str) else list(uri)
        if not self._uris:
            raise ValueError("no uri was given: pass a path or a list with at least one")
        self._storage_options = dict(storage_options or {})
        self._scanner_options = dict(scanner_options or {})
        if filter is not None:
            self._scanner_options["filter"] = filter
        datasets = [
            lance.dataset(name, version=version, storage_options=self._storage_options)
            for name in self._uris
        ]
        # The version that was found is read by every task, whatever is written meanwhile.
        self._versions = [dataset.version for dataset in datasets]
        self._schema = schemas.unify(dataset.schema for dataset in datasets)
        self._rows = [
            [(fragment.fragment_id, fragment.count_rows()) for fragment in dataset.get_fragments()]
            for dataset in datasets
        ]
        self._patterns = (*_PATTERNS, *DataContext.get_current().retried_io_errors)
        if columns is not None:
            self._projection = tuple(columns)

    def schema(self) -> pa.Schema:
        """Of the version that is read."""
        names = self._schema.names if self._projection is None else self._projection
        return pa.schema([self._schema.field(name) for name in names])

    def num_rows(self) -> int | None:
        """Exact without a filter."""
        return (
            None
            if self._is_filtered()
            else sum(rows for fragments in self._rows for _, rows in fragments)
        )

    def input_files(self) -> list[str]:
        """The URIs."""
        return list(self._uris)

    def identity(self) -> str:
        """Of the versions, which never change."""
        return digest(
            "Lance",
            self._uris,
            self._versions,
            self._projection,
            self._predicate_expr,
            self._scanner_options,
        )

    def supports_projection_pushdown(self) -> bool:
        """Other columns are not read."""
        return True

    def supports_predicate_pushdown(self) -> bool:
        """Lance evaluates it."""
        return "filter" not in self._scanner_options

    def apply_predicate(self, predicate_expr: Expr) -> LanceDatasource:
        """A copy that reads only rows for which the predicate is true. ValueError for one that
        Arrow cannot evaluate.
        """
        predicate_expr.to_pyarrow()
        return super().apply_predicate(predicate_expr)

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """Runs of fragments, about equal in number."""
        pieces = [
            (index, fragment, rows)
            for index, fragments in enumerate(self._rows)
            for fragment, rows in fragments
        ]
        size = max(1, -(-len(pieces) // max(1, parallelism)))
        tasks = []
        for start in range(0, len(pieces), size):
            run = pieces[start : start + size]
            rows = None if self._is_filtered() else sum(rows for _, _, rows in run)
            metadata = BlockMetadata(
                rows,
                None,
                input_files=tuple(dict.fromkeys(self._uris[index] for index, _, _ in run)),
            )
            read = functools.partial(self._read, [(index, fragment) for index, fragment, _ in run])
            tasks.append(
                ReadTask(
                    read,
                    metadata,
                    self.schema(),
                    per_task_row_limit,
                    fragment=f"{run[0][:2]}..{run[-1][:2]}",
                )
            )
        return tasks

    def _read(self, run: Sequence[tuple[int, int]]) -> Iterator[pa.Table]:
        for index, fragment in run:
            batches = filesystems.iterate_with_retry(
                functools.partial(self._batches, index, fragment),
                f"reading {self._uris[index]}",
                self._patterns,
            )
            for batch in batches:
                yield schemas.conform(pa.Table.from_batches([batch]), self.schema())

    def _batches(self, index: int, fragment: int) -> Iterator[pa.RecordBatch]:
        lance = load("lance", purpose="read_lance", install="pylance")
        dataset = lance.dataset(
            self._uris[index], version=self._versions[index], storage_options=self._storage_options
        )
        options = dict(self._scanner_options)
        if self._predicate_expr is not None:
            options["filter"] = self._predicate_expr.to_pyarrow()
        columns = [name for name in self.schema().names if name in dataset.schema.names]
        return iter(
            dataset.scanner(
                columns=columns, fragments=[dataset.get_fragment(fragment)], **options
            ).to_batches()
        )

    def _is_filtered(self) -> bool:
        return self._predicate_expr is not None or bool(
            {"filter", "limit", "offset"} & set(self._scanner_options)
        )
