"""Write Lance datasets: write tasks write fragments, and one commit makes them visible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from syncline.data.columnar import block as block_functions
from syncline.data.io.sinks.datasink import Datasink, SaveMode, TaskContext, WriteResult
from syncline.optional import load

_LANCE = {"purpose": "write_lance", "install": "pylance"}

Piece = tuple[Any, pa.Schema]
"""A `lance.FragmentMetadata` and the schema of its rows."""


class LanceDatasink(Datasink[list[Piece]]):
    """Writes to a Lance dataset; arguments as in `Dataset.write_lance`."""

    def __init__(
        self,
        uri: str,
        *,
        schema: pa.Schema | None = None,
        mode: SaveMode | str = SaveMode.CREATE,
        min_rows_per_file: int = 1024 * 1024,
        max_rows_per_file: int = 64 * 1024 * 1024,
        data_storage_version: str | None = None,
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        load("lance", **_LANCE)
        self.uri = uri
        self.schema = schema
        self.mode = SaveMode(mode)
        if self.mode not in (SaveMode.CREATE, SaveMode.APPEND, SaveMode.OVERWRITE):
            raise ValueError(
                "write_lance supports the modes 'create', 'append' and 'overwrite', not "
                f"{self.mode.value!r}"
            )
        self._min_rows = min_rows_per_file
        self._max_rows = max_rows_per_file
        self._storage_version = data_storage_version
        self._storage_options = dict(storage_options or {})
        self._read_version: int | None = None

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Look up the current version. Raises ValueError if there is one and the mode is create."""
        lance = load("lance", **_LANCE)
        try:
            present = lance.dataset(self.uri, storage_options=self._storage_options)
        except (ValueError, FileNotFoundError, OSError):
            present = None
        if present is not None and self.mode is SaveMode.CREATE:
            raise ValueError(
                f"there is already a Lance dataset at {self.uri!r}: pass mode='append' or "
                "mode='overwrite'"
            )
        if present is not None and self.mode is SaveMode.APPEND:
            self._read_version = present.version
            self.schema = self.schema or present.schema

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> list[Piece]:
        """Write fragments that belong to no version yet; return each with its schema."""
        table = block_functions.concat(list(blocks))
        if table.num_rows == 0:
            return []
        if self.schema is not None:
            table = table.select(self.schema.names).cast(self.schema)
        fragment = load("lance.fragment", **_LANCE)
        written = fragment.write_fragments(
            table,
            self.uri,
            schema=table.schema,
            max_rows_per_file=self._max_rows,
            data_storage_version=self._storage_version,
            storage_options=self._storage_options,
        )
        return [(piece, table.schema) for piece in written]

    def on_write_complete(self, write_result: WriteResult[list[Piece]]) -> None:
        """Commit all fragments as one version."""
        lance = load("lance", **_LANCE)
        pieces = [piece for returned in write_result.write_returns for piece in returned]
        if not pieces:
            return
        fragments = [fragment for fragment, _ in pieces]
        if self.mode is SaveMode.APPEND and self._read_version is not None:
            operation = lance.LanceOperation.Append(fragments)
        else:
            operation = lance.LanceOperation.Overwrite(pieces[0][1], fragments)
        lance.LanceDataset.commit(
            self.uri,
            operation,
            read_version=self._read_version,
            storage_options=self._storage_options,
        )

    @property
    def min_rows_per_write(self) -> int:
        return self._min_rows
