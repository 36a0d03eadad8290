"""Read WebDataset shards: tar files in which adjacent files with the same name before the first "."
form one row.

The last part of a file's name selects the conversion from and to bytes. txt, text: str · cls, cls2:
int · json: any JSON · npy: ndarray · jpg, png, ppm, …: image array · mp: MessagePack. Pickles (pt,
pth, pickle, pkl) are not read by default, since unpickling runs code from the file; pass a decoder
for them. All other files are bytes.
"""

from __future__ import annotations

import fnmatch
import io
import json
import pickle
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sources.file_based_datasource import FileBasedDatasource
from syncline.data.io.sources.images import ImageDecoder
from syncline.optional import load

Row = dict[str, Any]
Selection = Sequence[str] | Callable[[str], bool] | None
Codec = bool | str | Callable[[Row], Row] | list[Any] | None
"""Conversion of a row: True (or an image format: "PIL") for the rules above, a function of the row,
a list of these that are applied in order, or None for none.
"""

_ROWS_PER_BLOCK = 256
_BLOCK_BYTES = 32 * 1024**2
_IMAGES = frozenset({"jpg", "jpeg", "png", "ppm", "pgm", "pbm", "pnm"})
_PICKLES = frozenset({"pt", "pth", "pickle", "pkl"})


class WebDatasetDatasource(FileBasedDatasource):
    """Reads tar files; arguments as in `read_webdataset`, options as in `FileBasedDatasource`. Rows
    have a column for each extension, `__key__` and `__url__`.
    """

    _FILE_EXTENSIONS = ["tar"]

    def __init__(
        self,
        paths: filesystems.Paths,
        decoder: Codec = True,
        fileselect: Selection = None,
        filerename: Callable[[str], str] | list[Callable[[str], str]] | None = None,
        suffixes: Selection = None,
        verbose_open: bool = False,
        expand_json: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(paths, **options)
        self.decoder = decoder
        self.fileselect = fileselect
        self.filerename = filerename
        self.suffixes = suffixes
        self.verbose_open = verbose_open
        self.expand_json = expand_json

    @property
    def reads_in_threads(self) -> bool:
        """False if a user function is called."""
        given = (self.decoder, self.fileselect, self.filerename, self.suffixes)
        functions = [
            each
            for value in given
            for each in (value if isinstance(value, list) else [value])
            if callable(each)
        ]
        return super().reads_in_threads and not functions

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        if self.verbose_open:
            print(f"start {path}")
        pending: list[Row] = []
        size = 0
        for row in _rows(self._members(f, path), self.suffixes, path):
            size += sum(len(value) for value in row.values())
            pending.append(self._decode_row(row, path))
            if len(pending) == _ROWS_PER_BLOCK or size > _BLOCK_BYTES:
                yield blocks.from_rows(pending)
                pending, size = [], 0
        if pending:
            yield blocks.from_rows(pending)
        if self.verbose_open:
            print(f"done {path}")

    def _members(self, f: pa.NativeFile, path: str) -> Iterator[tuple[str, bytes]]:
        """Yield names and contents of the selected files."""
        renames = self.filerename or []
        renames = renames if isinstance(renames, list) else [renames]
        try:
            with tarfile.open(fileobj=f, mode="r|*") as archive:
                for member in archive:
                    name = member.name
                    for rename in renames:
                        name = rename(name)
                    content = (
                        archive.extractfile(member)
                        if member.isreg() and _is_selected(name, self.fileselect)
                        else None
                    )
                    if content is not None:
                        yield name, content.read()
        except tarfile.TarError as error:
            raise ValueError(f"{path} cannot be read as a tar file: {error}") from error

    def _decode_row(self, row: Row, path: str) -> Row:
        try:
            decoded = apply_codec(self.decoder, {**row, "__url__": path}, default_decoder)
        except ValueError as error:
            raise ValueError(f"{path}, row {row['__key__']!r}: {error}") from error
        if self.expand_json:
            value = decoded["json"]
            fields = value if isinstance(value, dict) else json.loads(value)
            decoded.update({name: field for name, field in fields.items() if name not in decoded})
        return decoded

    def _options(self) -> object:
        return (self._open_stream_args, self.fileselect, self.suffixes, self.expand_json)


def _rows(members: Iterator[tuple[str, bytes]], suffixes: Selection, path: str) -> Iterator[Row]:
    """Group adjacent files with one key. Raises ValueError if a key returns later or a file is
    duplicated.
    """
    seen: set[str] = set()
    row: Row = {}
    for name, content in members:
        directory, slash, file = name.rpartition("/")
        stem, dot, extension = file.partition(".")
        if not dot or not stem:
            continue
        key = f"{directory}{slash}{stem}"
        if row and key != row["__key__"]:
            yield row
            row = {}
        if not row:
            if key in seen:
                raise ValueError(
                    f"{path}: the files of {key!r} are not adjacent, so the row cannot be read in "
                    "one pass: create the archive with sorted names (tar --sort=name)"
                )
            seen.add(key)
            row = {"__key__": key}
        if extension in row:
            raise ValueError(f"{path}: the file {name!r} occurs twice")
        if _is_selected(extension, suffixes):
            row[extension] = content
    if row:
        yield row


def _is_selected(name: str, selection: Selection) -> bool:
    if selection is None:
        return True
    if callable(selection):
        return selection(name)
    return any(
        name == chosen or f".{name}" == chosen or fnmatch.fnmatch(f".{name}", chosen)
        for chosen in selection
    )


def apply_codec(codec: Codec, row: Mapping[str, Any], default: Callable[[Row, Any], Row]) -> Row:
    """Return the converted row; `default(row, format)` is called for True and format names."""
    result = dict(row)
    if codec is None or codec is False:
        return result
    for step in codec if isinstance(codec, list) else [codec]:
        result = step(result) if callable(step) else default(result, step)
    return result


def default_decoder(row: Row, image_format: bool | str = True) -> Row:
    """Convert bytes to values; images to pillow images with `image_format="PIL"`, else arrays."""
    return {
        name: value if name.startswith("__") else _decode(name, value, image_format)
        for name, value in row.items()
    }


def default_encoder(row: Row, image_format: bool | str = True) -> Row:
    """Convert values to bytes or text; None, bytes and text are kept."""
    return {
        name: value if name.startswith("__") else _encode(name, value)
        for name, value in row.items()
    }


def _decode(name: str, value: bytes, image_format: bool | str) -> object:
    extension = name.rpartition(".")[2].lower()
    if extension in ("txt", "text"):
        return value.decode()
    if extension in ("cls", "cls2"):
        return int(value)
    if extension == "json":
        return json.loads(value)
    if extension == "npy":
        return np.load(io.BytesIO(value))
    if extension in _IMAGES:
        if image_format == "PIL":
            return load("PIL.Image", purpose="decoding images", install="syncline[images]").open(
                io.BytesIO(value)
            )
        return ImageDecoder().decode(value, name)
    if extension == "mp":
        return load("msgpack", purpose="WebDataset's .mp files", install="msgpack").unpackb(
            value, raw=False
        )
    if extension in _PICKLES:
        raise ValueError(
            f"{name!r} holds a pickle, which runs code when it is read: if you trust the file, "
            "pass decoder=[your function, True] that replaces it; otherwise exclude it with "
            "fileselect or suffixes"
        )
    return value


def _encode(name: str, value: Any) -> Any:
    if value is None or isinstance(value, bytes):
        return value
    extension = name.rpartition(".")[2].lower()
    if extension in ("cls", "cls2"):
        return str(value)
    if extension == "json":
        return json.dumps(value)
    if extension == "npy":
        buffer = io.BytesIO()
        np.save(buffer, value)
        return buffer.getvalue()
    if extension in _IMAGES:
        return _image_bytes(
            value, "jpeg" if extension == "jpg" else "ppm" if extension.endswith("m") else extension
        )
    if extension == "mp":
        return load("msgpack", purpose="WebDataset's .mp files", install="msgpack").packb(value)
    if extension in ("pickle", "pkl"):
        return pickle.dumps(value)
    return value


def _image_bytes(value: Any, image_format: str) -> bytes:
    pillow = load("PIL.Image", purpose="encoding images", install="syncline[images]")
    buffer = io.BytesIO()
    (pillow.fromarray(value) if isinstance(value, np.ndarray) else value).save(
        buffer, format=image_format
    )
    return buffer.getvalue()
