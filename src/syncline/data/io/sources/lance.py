"""Read Lance datasets, with a task for each group of fragments. Needs the library `pylance`."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from syncline.data.columnar import schemas
from syncline.data.context import DataContext
from syncline.data.io import argument_types
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sources.datasource import BlockMetadata, Datasource, ReadTask, digest
from syncline.optional import load

_TRANSIENT_ERRORS = (r"LanceError\(IO\)",)
_LANCE = {"purpose": "read_lance", "install": "pylance"}


class LanceDatasource(Datasource):
    """Reads one or more Lance datasets; arguments as in `read_lance`."""

    def __init__(
        self,
        uri: str | Sequence[str],
        version: int | str | None = None,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        scanner_options: Mapping[str, object] | None = None,
    ) -> None:
        self._uris = argument_types.texts("uri", uri, "a path or a list of paths")
        lance = load("lance", **_LANCE)
        if not self._uris:
            raise ValueError("no uri was given: pass a path or a non-empty list of paths")
        self._storage_options = dict(storage_options or {})
        self._scanner_options = dict(scanner_options or {})
        if filter is not None:
            self._scanner_options["filter"] = filter
        datasets = [
            lance.dataset(name, version=version, storage_options=self._storage_options)
            for name in self._uris
        ]
        # All tasks read these versions, even if newer ones are written meanwhile.
        self._versions = [dataset.version for dataset in datasets]
        self._schema = schemas.unify(dataset.schema for dataset in datasets)
        self._rows: list[list[tuple[int, int]]] = [
            [(fragment.fragment_id, fragment.count_rows()) for fragment in dataset.get_fragments()]
            for dataset in datasets
        ]
        self._patterns = (*_TRANSIENT_ERRORS, *DataContext.get_current().retried_io_errors)
        if columns is not None:
            self._projection = tuple(columns)

    def schema(self) -> pa.Schema:
        """Return the schema of the version that is read, after the projection."""
        return self._projected(self._schema)

    def num_rows(self) -> int | None:
        """Return the exact number without a filter."""
        if self._is_filtered():
            return None
        return sum(rows for fragments in self._rows for _, rows in fragments)

    def input_files(self) -> list[str]:
        return list(self._uris)

    def identity(self) -> str:
        """Return a digest of the URIs, the versions, which are immutable, and the read options."""
        return digest(
            "Lance",
            self._uris,
            self._versions,
            self._projection,
            self._predicate_expr,
            self._scanner_options,
        )

    def supports_projection_pushdown(self) -> bool:
        return True

    def supports_predicate_pushdown(self) -> bool:
        """True unless the scanner has a filter already: Lance evaluates the predicate."""
        return "filter" not in self._scanner_options

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """Return tasks of adjacent fragments, with nearly equal numbers of fragments."""
        fragments = [
            (index, fragment, rows)
            for index, of_dataset in enumerate(self._rows)
            for fragment, rows in of_dataset
        ]
        size = max(1, -(-len(fragments) // max(1, parallelism)))
        tasks = []
        for start in range(0, len(fragments), size):
            group = fragments[start : start + size]
            metadata = BlockMetadata(
                None if self._is_filtered() else sum(rows for _, _, rows in group), None
            )
            read = functools.partial(self._read, [each[:2] for each in group])
            tasks.append(ReadTask(read, metadata, self.schema(), per_task_row_limit))
        return tasks

    def _read(self, group: Sequence[tuple[int, int]]) -> Iterator[pa.Table]:
        for index, fragment in group:
            batches = filesystems.iterate_with_retry(
                functools.partial(self._batches, index, fragment),
                f"reading {self._uris[index]}",
                self._patterns,
            )
            for batch in batches:
                yield schemas.conform(pa.Table.from_batches([batch]), self.schema())

    def _batches(self, index: int, fragment: int) -> Iterator[pa.RecordBatch]:
        lance = load("lance", **_LANCE)
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
