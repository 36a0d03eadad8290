"""Read ORC files, stripe by stripe, only the projected columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import fs as pyarrow_fs
from pyarrow import orc

from syncline.data.columnar import block as blocks
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sources.file_based_datasource import FileBasedDatasource


class ORCDatasource(FileBasedDatasource):
    """Reads ORC files. Arguments: see `FileBasedDatasource`. The first file is opened at
    construction, for the schema.
    """

    _FILE_EXTENSIONS = ["orc"]

    def __init__(self, paths: filesystems.Paths, **options: Any) -> None:
        super().__init__(paths, **options)
        first = self._files[0].path
        with self._open_input_source(self._filesystem, first) as file:
            table = self._orc_file(file, first).schema.empty_table()
        self._schema = self._with_path_columns(table, first).schema

    def supports_projection_pushdown(self) -> bool:
        return True

    def _open_input_source(
        self, filesystem: pyarrow_fs.FileSystem, path: str, **open_args: object
    ) -> pa.NativeFile:
        return filesystem.open_input_file(path)

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        file = self._orc_file(f, path)
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

    def _with_path_columns(self, table: pa.Table, path: str) -> pa.Table:
        table = super()._with_path_columns(table, path)
        return table if self._projection is None else table.select(list(self._projection))

    def _orc_file(self, f: pa.NativeFile, path: str) -> orc.ORCFile:
        try:
            return orc.ORCFile(f)
        except (pa.ArrowInvalid, OSError) as error:
            raise ValueError(f"{path} cannot be read as ORC: {error}") from error
