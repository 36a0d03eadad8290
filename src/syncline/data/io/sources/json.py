"""Read JSON files: one object per line (streamed), or one document with a list of objects or a
single object.
"""

from __future__ import annotations

import json as python_json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import json

from syncline.data.columnar import block as blocks
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sources.file_based_datasource import FileBasedDatasource

_CHUNK_BYTES = 16 * 1024**2
# Arrow rejects blocks of 2 GiB and more.
_LARGEST_CHUNK_BYTES = 2**31 - 2


class JSONDatasource(FileBasedDatasource):
    """Reads JSON files; arguments as in `read_json`, options as in `FileBasedDatasource`."""

    _FILE_EXTENSIONS = [
        f"{name}{compression}"
        for compression in ("", ".gz", ".br", ".zst", ".lz4")
        for name in ("json", "jsonl")
    ]

    def __init__(
        self,
        paths: filesystems.Paths,
        *,
        lines: bool = False,
        read_options: json.ReadOptions | None = None,
        parse_options: json.ParseOptions | None = None,
        **options: Any,
    ) -> None:
        self.lines = lines
        self.parse_options = parse_options
        super().__init__(paths, **options)

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        head = f.read(_CHUNK_BYTES)
        if not self.lines and head.lstrip()[:1] == b"[":
            yield self._document(head + f.read(), path)
            return
        try:
            yield from self._parsed_lines(head, f)
        except _NotLines as error:
            if self.lines:
                raise _unreadable(path, error) from error
            yield self._document(error.text + f.read(), path)

    def _parsed_lines(self, head: bytes, f: pa.NativeFile) -> Iterator[pa.Table]:
        """Yield tables of whole lines. Raises `_NotLines` if the first lines are no objects."""
        rest, chunk, first = b"", head, True
        while chunk or rest:
            following = f.read(_CHUNK_BYTES) if chunk else b""
            text = rest + chunk
            end = text.rfind(b"\n") + 1 if following else len(text)
            if end == 0 and len(text) > _LARGEST_CHUNK_BYTES:
                raise pa.ArrowInvalid(f"a line is longer than {_LARGEST_CHUNK_BYTES} bytes")
            lines, rest = text[:end], text[end:]
            if lines.strip():
                try:
                    yield self._parse(lines)
                except pa.ArrowInvalid as error:
                    if not first:
                        raise
                    raise _NotLines(text + following, str(error)) from error
                first = False
            chunk = following

    def _parse(self, lines: bytes) -> pa.Table:
        # One Arrow block, so that no object crosses a block boundary.
        options = json.ReadOptions(use_threads=True, block_size=max(len(lines), 1))
        return json.read_json(
            pa.BufferReader(lines), read_options=options, parse_options=self.parse_options
        )

    def _document(self, text: bytes, path: str) -> pa.Table:
        try:
            document = python_json.loads(text)
        except ValueError as error:
            raise _unreadable(path, error) from error
        rows = [document] if isinstance(document, dict) else document
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ValueError(
                f"{path} holds {type(document).__name__} in JSON, but rows must be objects: one "
                "per line, or a list of objects"
            )
        try:
            return blocks.from_rows(rows)
        except TypeError as error:
            raise _unreadable(path, error) from error

    def _options(self) -> object:
        return (
            self._open_stream_args,
            self.lines,
            self.parse_options and self.parse_options.explicit_schema,
        )


class _NotLines(ValueError):
    """The beginning of a file is not one object per line."""

    def __init__(self, text: bytes, message: str) -> None:
        super().__init__(message)
        self.text = text


def _unreadable(path: str, error: BaseException) -> ValueError:
    return ValueError(f"{path} cannot be read as JSON: {error}")
