"""Read whole files: a row for each file, in the column `bytes`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from syncline.data.io.sources.file_based_datasource import FileBasedDatasource
from syncline.data.io.sources.file_listing import FileInfo

# Binary columns have 32-bit offsets; blocks stay far below that limit.
_BLOCK_BYTES = 64 * 1024**2


class BinaryDatasource(FileBasedDatasource):
    """Reads whole files and decompresses them. Arguments: see `FileBasedDatasource`."""

    _COLUMN_NAME = "bytes"

    def _read_files(self, files: Sequence[FileInfo]) -> Iterator[pa.Table]:
        contents: list[bytes] = []
        start, size = 0, 0
        for index, file in enumerate(files):
            content = self._file_bytes(file)
            if contents and size + len(content) > _BLOCK_BYTES:
                yield self._with_path_columns_by_row(
                    pa.table({"bytes": _column(contents)}), files[start:index]
                )
                start, contents, size = index, [], 0
            contents.append(content)
            size += len(content)
        if contents:
            table = pa.table({"bytes": _column(contents)})
            yield self._with_path_columns_by_row(table, files[start:])

    def _rows_per_file(self) -> int:
        return 1


def _column(contents: list[bytes]) -> pa.Array:
    longest = max(map(len, contents))
    return pa.array(contents, pa.binary() if longest < 2**31 - 1 else pa.large_binary())
