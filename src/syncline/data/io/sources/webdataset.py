"""Reading WebDataset shards: tar files in which neighbouring files with the same name before the
first "." are one row.
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
from syncline.data.io.sources.file_based_datasource import FileBasedDatasource
from syncline.data.io.sources.images import ImageDecoder
from syncline.optional import load

Selection = Sequence[str] | Callable[[str], bool] | None

_ROWS_PER_BLOCK = 256
_BLOCK_BYTES = 32 * 1024**2


class WebDatasetDatasource(FileBasedDatasource):
    """Reads tar files. Rows have a column for each ending, `__key__` and `__url__`.

    Args:
        paths: As `FileBasedDatasource` takes them. decoder: How bytes become values: True for the
        rules of the endings (`webdataset_codecs`), a function on the row, a list of
            these, or None for bytes.
        fileselect: Names of files to read: patterns, endings or a function on the name.
        filerename: A function, or a list of functions, from names to names.
        suffixes: Endings to keep: patterns, endings or a function on the ending.
        verbose_open: Print when a shard is opened and done.
        expand_json: The fields of the column `json` become columns.
        file_based_datasource_kwargs: As `FileBasedDatasource` takes them.
    """

    _FILE_EXTENSIONS = ["tar"]

    def __init__(
        self,
        paths: Any,
        decoder: Codec = True,
        fileselect: Selection = None,
        filerename: Any = None,
        suffixes: Selection = None,
        verbose_open: bool = False,
        expand_json: bool = False,
        **file_based_datasource_kwargs: Any,
    ) -> None:
        super().__init__(paths, **file_based_datasource_kwargs)
        self.decoder = decoder
        self.fileselect = fileselect
        self.filerename = filerename
        self.suffixes = suffixes
        self.verbose_open = verbose_open
        self.expand_json = expand_json

    @property
    def reads_in_threads(self) -> bool:
        """False with functions of the program's."""
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
        waiting: list[dict[str, Any]] = []
        size = 0
        for row in _rows(self._members(f, path), self.suffixes, path):
            size += sum(len(value) for value in row.values())
            waiting.append(self._decoded(row, path))
            if len(waiting) == _ROWS_PER_BLOCK or size > _BLOCK_BYTES:
                yield blocks.from_rows(waiting)
                waiting, size = [], 0
        if waiting:
            yield blocks.from_rows(waiting)
        if self.verbose_open:
            print(f"done {path}")

    def _members(self, f: pa.NativeFile, path: str) -> Iterator[tuple[str, bytes]]:
        """Names and contents of the files that are selected."""
        renames = (
            self.filerename
            if isinstance(self.filerename, list)
            else [self.filerename]
            if self.filerename
            else []
        )
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

    def _decoded(self, row: dict[str, Any], path: str) -> dict[str, Any]:
        try:
            decoded = applied(self.decoder, {**row, "__url__": path}, default_decoder)
        except ValueError as error:
            raise ValueError(f"{path}, row {row['__key__']!r}: {error}") from error
        if self.expand_json:
            value = decoded["json"]
            fields = value if isinstance(value, dict) else json.loads(value)
            decoded.update({name: field for name, field in fields.items() if name not in decoded})
        return decoded

    def _options(self) -> object:
        return (self._open_stream_args, self.fileselect, self.suffixes, self.expand_json)


def _rows(
    members: Iterator[tuple[str, bytes]], suffixes: Selection, path: str
) -> Iterator[dict[str, Any]]:
    """Neighbours with one key, put together. ValueError if a key comes again later, or an ending
    twice.
    """
    seen: set[str] = set()
    row: dict[str, Any] = {}
    for name, content in members:
        directory, slash, file = name.rpartition("/")
        stem, dot, ending = file.partition(".")
        if not dot or not stem:
            continue  # no ending, so no column
        key = f"{directory}{slash}{stem}"
        if row and key != row["__key__"]:
            yield row
            row = {}
        if not row:
            if key in seen:
                raise ValueError(
                    f"{path}: the files of {key!r} do not lie together, so that the row cannot be read in one pass: write the archive "
                    "again with sorted names (tar --sort=name)"
                )
            seen.add(key)
            row = {"__key__": key}
        if ending in row:
            raise ValueError(f"{path}: the file {name!r} is there twice")
        if _is_selected(ending, suffixes):
            row[ending] = content
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


Codec = bool | str | Callable[[dict[str, Any]], dict[str, Any]] | list[Any] | None
"""True (or the name of a format: "PIL") for the rules above, a function on the row, a list of these
in turn, None for nothing.
"""

_IMAGES = frozenset({"jpg", "jpeg", "png", "ppm", "pgm", "pbm", "pnm"})
_PICKLES = frozenset({"pt", "pth", "pickle", "pkl"})


def applied(
    codec: Codec, row: Mapping[str, Any], default: Callable[[dict[str, Any], Any], dict[str, Any]]
) -> dict[str, Any]:
    """The row after the codec; `default(row, format)` stands for what is no function."""
    result = dict(row)
    if codec is None or codec is False:
        return result
    for step in codec if isinstance(codec, list) else [codec]:
        result = step(result) if callable(step) else default(result, step)
    return result


def default_decoder(row: dict[str, Any], image_format: Any = True) -> dict[str, Any]:
    """Bytes to values, by the rules of the module. With `image_format="PIL"`, images stay
    pillow's.
    """
    return {
        name: value if name.startswith("__") else _decoded(name, value, image_format)
        for name, value in row.items()
    }


def default_encoder(row: dict[str, Any], image_format: Any = True) -> dict[str, Any]:
    """Values to bytes or text, by the rules of the module; None, bytes and text stay as they
    are.
    """
    return {
        name: value if name.startswith("__") else _encoded(name, value)
        for name, value in row.items()
    }


def _decoded(name: str, value: bytes, image_format: Any) -> Any:
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
            f"{name!r} holds a pickle, which runs code when it is read: if you trust the file, pass decoder=[your function, True] that "
            "replaces it, or fileselect/suffixes that leave it out"
        )
    return value


def _encoded(name: str, value: Any) -> Any:
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
