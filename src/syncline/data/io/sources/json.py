"""Reading JSON files: one object a line (streamed), or one document that holds a list of objects or
a single one.
"""

from __future__ import annotations

import json as python_json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import json

from syncline.data.columnar import block as blocks
from syncline.data.io.sources.file_based_datasource import FileBasedDatasource

_CHUNK_BYTES = 16 * 1024**2
# Arrow refuses pieces of 2 GiB and more.
_LARGEST_CHUNK_BYTES = 2**31 - 2


class JSONDatasource(FileBasedDatasource):
    """Reads JSON files.

    Args:
        paths: As `FileBasedDatasource` takes them. lines: The files hold one object a line. False
        looks at the first character: "[" begins a document. arrow_json_args: `read_options` and
        `parse_options` of `pyarrow.json`. file_based_datasource_kwargs: As `FileBasedDatasource`
        takes them.
    """

    _FILE_EXTENSIONS = [
        f"{name}{packed}"
        for packed in ("", ".gz", ".br", ".zst", ".lz4")
        for name in ("json", "jsonl")
    ]

    def __init__(
        self,
        paths: Any,
        *,
        lines: bool = False,
        arrow_json_args: dict[str, Any] | None = None,
        **file_based_datasource_kwargs: Any,
    ) -> None:
        arguments = dict(arrow_json_args or {})
        self.lines = lines
        self.parse_options = arguments.pop("parse_options", None)
        self.read_options = arguments.pop("read_options", None)
        arguments.pop("memory_pool", None)
        if arguments:
            raise TypeError(
                f"read_json got {sorted(arguments)}: it takes read_options and parse_options of pyarrow.json"
            )
        super().__init__(paths, **file_based_datasource_kwargs)

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        head = f.read(_CHUNK_BYTES)
        if not self.lines and head.lstrip()[:1] == b"[":
            yield self._document(head + f.read(), path)
            return
        try:
            yield from self._pieces(head, f)
        except _NotLines as error:
            if self.lines:
                raise _unreadable(path, error) from error
            yield self._document(error.text + f.read(), path)

    def _pieces(self, head: bytes, f: pa.NativeFile) -> Iterator[pa.Table]:
        """Tables of whole lines. `_NotLines` if the first piece shows that objects span lines."""
        rest, chunk, first = b"", head, True
        while chunk or rest:
            following = f.read(_CHUNK_BYTES) if chunk else b""
            text = rest + chunk
            cut = text.rfind(b"\n") + 1 if following else len(text)
            if cut == 0 and len(text) > _LARGEST_CHUNK_BYTES:
                raise pa.ArrowInvalid(f"a line is longer than {_LARGEST_CHUNK_BYTES} bytes")
            piece, rest = text[:cut], text[cut:]
            if piece.strip():
                try:
                    yield self._parse(piece)
                except pa.ArrowInvalid as error:
                    if not first:
                        raise
                    raise _NotLines(text + following, str(error)) from error
                first = False
            chunk = following

    def _parse(self, lines: bytes) -> pa.Table:
        # The piece is one block to Arrow, so that no object straddles two of them.
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
                f"{path} holds {type(document).__name__} in JSON, and rows need objects: one a line, or a list of them"
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
    """Arrow cannot read the beginning as objects one a line."""

    def __init__(self, text: bytes, message: str) -> None:
        super().__init__(message)
        self.text = text


def _unreadable(path: str, error: BaseException) -> ValueError:
    return ValueError(f"{path} cannot be read as JSON: {error}")
