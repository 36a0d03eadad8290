"""Reading ORC files, stripe by stripe, only the columns that are needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import fs as pyarrow_fs
from pyarrow import orc

from syncline.data.columnar import block as blocks
from syncline.data.io.sources.file_based_datasource import FileBasedDatasource


class ORCDatasource(FileBasedDatasource):
    """Reads ORC files. Arguments as `FileBasedDatasource` takes them; a file that is no ORC fails
    here if it is the first.
    """

    _FILE_EXTENSIONS = ["orc"]

    def __init__(self, paths: Any, **file_based_datasource_kwargs: Any) -> None:
        super().__init__(paths, **file_based_datasource_kwargs)
        first = self._files[0].path
        with self._open_input_source(self._filesystem, first) as file:
            table = self._opened(file, first).schema.empty_table()
        self._schema = self._decorated(table, first).schema

    def supports_projection_pushdown(self) -> bool:
        """Columns that are not needed are not decoded."""
        return True

    def _open_input_source(
        self, filesystem: pyarrow_fs.FileSystem, path: str, **open_args: Any
    ) -> pa.NativeFile:
        return filesystem.open_input_file(path)

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        file = self._opened(f, path)
        columns = (
            None
            if self._projection is None
            else [name for name in self._projection if name in file.schema.names]
        )
        schema = (
            file.schema
            if columns is None
            else pa.schema([file.schema.field(name) for name in columns])
        )
        if not schema.names:
            yield blocks.from_columns({}, file.nrows)
            return
        yield schema.empty_table()
        for stripe in range(file.nstripes):
            yield pa.Table.from_batches([file.read_stripe(stripe, columns=columns)]).select(
                schema.names
            )

    def _decorated(self, table: pa.Table, path: str) -> pa.Table:
        table = super()._decorated(table, path)
        return table if self._projection is None else table.select(list(self._projection))

    def _opened(self, f: pa.NativeFile, path: str) -> orc.ORCFile:
        try:
            return orc.ORCFile(f)
        except (pa.ArrowInvalid, OSError) as error:
            raise ValueError(f"{path} cannot be read as ORC: {error}") from error
