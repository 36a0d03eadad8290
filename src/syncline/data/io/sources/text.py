"""Read text files: a row for each line, in the column `text`."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from syncline.data.io import filesystem as filesystems
from syncline.data.io.sources.file_based_datasource import FileBasedDatasource

_CHUNK_BYTES = 16 * 1024**2


class TextDatasource(FileBasedDatasource):
    """Reads lines; arguments as in `read_text`, options as in `FileBasedDatasource`."""

    _COLUMN_NAME = "text"

    def __init__(
        self,
        paths: filesystems.Paths,
        *,
        drop_empty_lines: bool = False,
        encoding: str = "utf-8",
        **options: Any,
    ) -> None:
        codecs.lookup(encoding)  # raises LookupError here and not on a worker
        super().__init__(paths, **options)
        self.drop_empty_lines = drop_empty_lines
        self.encoding = encoding

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        decoder = codecs.getincrementaldecoder(self.encoding)()
        rest = ""
        ended = False
        while not ended:
            chunk = f.read(_CHUNK_BYTES)
            ended = not chunk
            try:
                text = rest + decoder.decode(chunk, final=ended)
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path} is not {self.encoding!r} text ({error}): pass encoding=…, or use "
                    "read_binary_files"
                ) from error
            # Split after the last line feed: the rest may be an incomplete line, or a carriage
            # return whose line feed follows.
            end = len(text) if ended else text.rfind("\n") + 1
            rest = text[end:]
            lines = text[:end].splitlines()
            if self.drop_empty_lines:
                lines = [line for line in lines if line.strip()]
            if lines or ended:
                yield pa.table({"text": pa.array(lines, pa.string())})

    def _options(self) -> object:
        return (self._open_stream_args, self.drop_empty_lines, self.encoding)
