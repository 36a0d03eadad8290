"""Read JSON files: one object per line (streamed), or one document with a list of objects or a
single object.

With `lines`, Arrow parses the lines. Python parses a chunk that Arrow cannot: lines with a list or
a single value, and columns whose values change their type.
"""

from __future__ import annotations

import json as python_json
import warnings
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import json

from syncline.data.columnar import block as blocks
from syncline.data.columnar import columns, tensors
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
            yield from self._parsed_lines(head, f, path)
        except _NotLines as error:
            yield self._document(error.text + f.read(), path)

    def _parsed_lines(self, head: bytes, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        """Yield tables of whole lines. Without `lines`, raise `_NotLines` if the first lines are no
        objects.
        """
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
                    if self.lines:
                        yield _parsed_by_python(lines, path, error)
                        chunk = following
                        continue
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


def _parsed_by_python(lines: bytes, path: str, error: pa.ArrowInvalid) -> pa.Table:
    """Return the rows of lines that Arrow cannot parse for the reason `error`."""
    try:
        values = [python_json.loads(line) for line in lines.splitlines() if line.strip()]
    except ValueError as invalid:
        raise _unreadable(path, invalid) from error
    warnings.warn(
        f"Arrow cannot parse {path} ({error}); Python's parser reads it, which is slower: write "
        "objects whose columns keep their types",
        stacklevel=2,
    )
    return _table(list(map(_row, values)))


def _row(value: object) -> dict[str, object]:
    """Return the row of a line. The columns of a list or of a single value are numbered."""
    if isinstance(value, dict):
        return value
    elements = value if isinstance(value, list) else [value]
    return {str(index): element for index, element in enumerate(elements)}


def _table(rows: list[dict[str, object]]) -> pa.Table:
    """Build a table; columns whose values share no type hold Python objects."""
    found: dict[str, pa.Array] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        try:
            found[name] = columns.from_values(name, values)
        except TypeError:
            found[name] = tensors.object_array(values)
    return blocks.from_columns(found, len(rows))


def _unreadable(path: str, error: BaseException) -> ValueError:
    return ValueError(f"{path} cannot be read as JSON: {error}")
