"""Read Avro files with fastavro: a row for each record. Records of one file share a schema, so its
columns have the same types in all blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar import schemas
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sources.file_based_datasource import FileBasedDatasource
from syncline.optional import load, require

_ROWS = 8192
_PRIMITIVE = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_INSTALL = "syncline[avro]"


class AvroDatasource(FileBasedDatasource):
    """Reads Avro object container files. Arguments: see `FileBasedDatasource`."""

    _FILE_EXTENSIONS = ["avro"]

    def __init__(self, paths: filesystems.Paths, **options: Any) -> None:
        require("fastavro", purpose="read_avro", install=_INSTALL)
        super().__init__(paths, **options)

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        fastavro = load("fastavro", purpose="read_avro", install=_INSTALL)
        try:
            reader = fastavro.reader(f)
            schema = _arrow_schema(reader.writer_schema, path)
            tables = blocks.from_row_stream(reader, schema, rows_per_block=_ROWS)
            yield next(tables, blocks.empty(schema or pa.schema([])))
            yield from tables
        except (ValueError, EOFError, IndexError, StopIteration) as error:
            raise ValueError(f"{path} cannot be read as Avro: {error}") from error


def _arrow_schema(record: Any, path: str) -> pa.Schema | None:
    """Return the schema of the rows; None if Arrow has no equivalent of a type, such as a union of
    several types.
    """
    if not isinstance(record, Mapping) or record.get("type") not in ("record", "error"):
        kind = record.get("type") if isinstance(record, Mapping) else record
        raise ValueError(f"its values are {kind!r}, but rows need records")
    type_ = _arrow_type(record, {})
    return None if type_ is None else pa.schema([type_.field(i) for i in range(type_.num_fields)])


def _arrow_type(avro: Any, named: dict[str, pa.DataType | None]) -> pa.DataType | None:
    if isinstance(avro, str):
        return _PRIMITIVE.get(avro, named.get(avro))
    if isinstance(avro, list):
        return _union(avro, named)
    logical = _logical(avro)
    if logical is not None:
        return logical
    match avro["type"]:
        case "record" | "error":
            named[avro["name"]] = None  # a record that contains itself has no Arrow type
            fields = {field["name"]: _arrow_type(field["type"], named) for field in avro["fields"]}
            named[avro["name"]] = _unless_unknown(fields)
            return named[avro["name"]]
        case "array":
            items = _arrow_type(avro["items"], named)
            return None if items is None else pa.list_(items)
        case "map":
            values = _arrow_type(avro["values"], named)
            return None if values is None else pa.map_(pa.string(), values)
        case "enum":
            named[avro["name"]] = pa.string()
        case "fixed":
            named[avro["name"]] = pa.binary(avro["size"])
        case inner:
            return _arrow_type(inner, named)
    return named[avro["name"]]


def _unless_unknown(fields: Mapping[str, pa.DataType | None]) -> pa.DataType | None:
    if None in fields.values():
        return None
    return pa.struct([pa.field(name, type_) for name, type_ in fields.items()])


def _union(branches: list[Any], named: dict[str, pa.DataType | None]) -> pa.DataType | None:
    types = [_arrow_type(branch, named) for branch in branches if branch != "null"]
    if len(types) == 1:
        return types[0]
    joined: pa.DataType | None = pa.null()
    for type_ in types:
        joined = None if joined is None or type_ is None else schemas.joined_type(joined, type_)
    return joined


def _logical(avro: Mapping[str, Any]) -> pa.DataType | None:
    kind = avro.get("logicalType")
    if kind == "decimal":
        return pa.decimal128(avro["precision"], avro.get("scale", 0))
    return None if kind is None else _LOGICAL.get(kind)
