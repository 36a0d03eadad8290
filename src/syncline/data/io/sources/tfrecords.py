"""Read TFRecord files of `tf.train.Example` messages without TensorFlow.

Records have the framing: length, its checksum, content, its checksum; all little-endian (source:
"TFRecords format details" in TensorFlow's documentation). Checksums are verified. protobuf parses
and serializes the messages, from the public definition of the format:

    Example { Features features = 1 }
    Features { map<string, Feature> feature = 1 }
    Feature { oneof kind { BytesList = 1; FloatList = 2; Int64List = 3 } }
    each list: repeated value = 1
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import islice
from typing import Any, TypeAlias

import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar import tensors
from syncline.data.columnar.columns import is_list, is_text
from syncline.data.io import filesystem as filesystems
from syncline.data.io.sources.file_based_datasource import FileBasedDatasource
from syncline.optional import load
from syncline.runs.event_file import masked_checksum

_ROWS_PER_BLOCK = 1024
_PACKAGE = "syncline.tfexample"
_LENGTH_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
Protobuf: TypeAlias = Any
"""A module, class or message of protobuf, which has no types here."""


class TFRecordDatasource(FileBasedDatasource):
    """Reads Examples; arguments as in `read_tfrecords`, options as in `FileBasedDatasource`."""

    _FILE_EXTENSIONS = ["tfrecords"]

    def __init__(self, paths: filesystems.Paths, tf_schema: object = None, **options: Any) -> None:
        example_class()  # raises ImportError here and not on a worker
        super().__init__(paths, **options)
        self._kinds = kinds_from_schema(tf_schema)

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        contents = records(f, path)
        while batch := list(islice(contents, _ROWS_PER_BLOCK)):
            yield decode_examples(batch, self._kinds, path)

    def _options(self) -> object:
        return (self._open_stream_args, self._kinds)


class FeatureKind(IntEnum):
    """Kinds of features, numbered as in `tensorflow_metadata`."""

    BYTES = 1
    INT = 2
    FLOAT = 3


_LIST_OF = {
    FeatureKind.BYTES: "bytes_list",
    FeatureKind.INT: "int64_list",
    FeatureKind.FLOAT: "float_list",
}
_KIND_OF = {name: kind for kind, name in _LIST_OF.items()}
_ARROW_TYPES = {
    FeatureKind.BYTES: pa.binary(),
    FeatureKind.INT: pa.int64(),
    FeatureKind.FLOAT: pa.float32(),
}


@functools.cache
def example_class() -> Protobuf:
    """Return the message class. Raises ImportError if protobuf is not installed."""
    descriptor_pb2 = _protobuf("descriptor_pb2")
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="syncline_tfexample.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, type_ in (
        ("BytesList", field.TYPE_BYTES),
        ("FloatList", field.TYPE_FLOAT),
        ("Int64List", field.TYPE_INT64),
    ):
        file.message_type.add(name=name).field.add(
            name="value", number=1, label=field.LABEL_REPEATED, type=type_
        )
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, (name, kind) in enumerate(
        (("bytes_list", "BytesList"), ("float_list", "FloatList"), ("int64_list", "Int64List")), 1
    ):
        _refer(feature, name, number, kind, field.LABEL_OPTIONAL).oneof_index = 0
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=field.LABEL_OPTIONAL, type=field.TYPE_STRING)
    _refer(entry, "value", 2, "Feature", field.LABEL_OPTIONAL)
    _refer(features, "feature", 1, "Features.FeatureEntry", field.LABEL_REPEATED)
    _refer(file.message_type.add(name="Example"), "features", 1, "Features", field.LABEL_OPTIONAL)
    pool = _protobuf("descriptor_pool").DescriptorPool()
    pool.Add(file)
    return _protobuf("message_factory").GetMessageClass(
        pool.FindMessageTypeByName(f"{_PACKAGE}.Example")
    )


def _refer(owner: Protobuf, name: str, number: int, to: str, label: int) -> Protobuf:
    message_kind = 11  # FieldDescriptorProto.TYPE_MESSAGE
    return owner.field.add(
        name=name, number=number, label=label, type=message_kind, type_name=f".{_PACKAGE}.{to}"
    )


def _protobuf(module: str) -> Protobuf:
    return load(f"google.protobuf.{module}", purpose="TFRecord files", install="protobuf")


def kinds_from_schema(tf_schema: Any) -> dict[str, FeatureKind] | None:
    """Return the kinds by name of a `tensorflow_metadata` Schema (any object with `.feature`, each
    with `.name` and `.type`).
    """
    if tf_schema is None:
        return None
    return {feature.name: FeatureKind(feature.type) for feature in tf_schema.feature}


def decode_examples(
    contents: Iterable[bytes], kinds: dict[str, FeatureKind] | None, path: str
) -> pa.Table:
    """Decode messages to rows. Without `kinds`, a feature becomes a plain column if each message
    has at most one value, otherwise a column of lists.

    Raises ValueError for other messages, and for features that do not match `kinds`.
    """
    rows: list[dict[str, list[object]]] = []
    found: dict[str, FeatureKind] = dict(kinds or {})
    example_type, decode_error = example_class(), _protobuf("message").DecodeError
    for content in contents:
        example = example_type()
        try:
            example.ParseFromString(content)
        except decode_error as error:
            raise ValueError(f"{path}, record {len(rows)}: no tf.train.Example: {error}") from error
        row: dict[str, list[object]] = {}
        for name, feature in example.features.feature.items():
            row[name] = values = []
            which = feature.WhichOneof("kind")
            if which is None:
                continue
            if kinds is not None and name not in kinds:
                raise ValueError(
                    f"{path}, record {len(rows)}: the feature {name!r} is not in tf_schema, which "
                    f"has {sorted(kinds)}"
                )
            kind = found.setdefault(name, _KIND_OF[which])
            if kind is not _KIND_OF[which]:
                raise ValueError(
                    f"{path}, record {len(rows)}: {name!r} is {_KIND_OF[which].name}, but "
                    f"{kind.name} in other records or in tf_schema"
                )
            values.extend(getattr(feature, which).value)
        rows.append(row)
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table(
        {
            name: _column([row.get(name) for row in rows], found.get(name), plain=kinds is None)
            for name in names
        }
    )


def encode_examples(
    table: pa.Table, kinds: dict[str, FeatureKind] | None = None
) -> Iterator[bytes]:
    """Encode rows to messages: tensors are flattened, single values become lists of one, null
    becomes a feature without values.

    Raises ValueError for a column whose type has no kind or does not match `kinds`.
    """
    found = {field.name: _kind(field.name, field.type) for field in table.schema}
    for name, kind in found.items():
        _check(name, kind, table.schema.field(name).type, kinds)
    lists = {name: _LIST_OF[kind] for name, kind in found.items() if kind is not None}
    example_type = example_class()
    for row in blocks.rows(table):
        example = example_type()
        for name, value in row.items():
            feature = example.features.feature[name]
            if value is not None and name in lists:
                getattr(feature, lists[name]).value.extend(_values(value))
        yield example.SerializeToString(deterministic=True)


def _column(
    values: list[list[object] | None], kind: FeatureKind | None, *, plain: bool
) -> pa.Array:
    type_ = pa.null() if kind is None else _ARROW_TYPES[kind]
    if plain and all(value is None or len(value) <= 1 for value in values):
        return pa.array([value[0] if value else None for value in values], type_)
    return pa.array(values, pa.list_(type_))


def _kind(name: str, type_: pa.DataType) -> FeatureKind | None:
    """Return the kind of a column, None for a column of nulls."""
    if tensors.is_tensor(type_) or is_list(type_):
        return _kind(name, type_.value_type)
    if pa.types.is_boolean(type_) or pa.types.is_integer(type_):
        return FeatureKind.INT
    if pa.types.is_floating(type_):
        return FeatureKind.FLOAT
    if pa.types.is_null(type_):
        return None
    if is_text(type_) or pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return FeatureKind.BYTES
    raise ValueError(
        f"the column {name!r} is {type_}, but an Example holds only ints, floats, text and bytes: "
        "convert or drop it"
    )


def _check(
    name: str, kind: FeatureKind | None, type_: pa.DataType, kinds: dict[str, FeatureKind] | None
) -> None:
    if kinds is None:
        return
    if name not in kinds:
        raise ValueError(f"the column {name!r} is not in tf_schema, which has {sorted(kinds)}")
    if kind is not None and kind is not kinds[name]:
        raise ValueError(
            f"the column {name!r} is {type_}, which is written as {kind.name}, but tf_schema has "
            f"{kinds[name].name}"
        )


def _values(value: Any) -> list[object]:
    if hasattr(value, "ravel"):
        value = value.ravel().tolist()
    values = value if isinstance(value, list) else [value]
    return [item.encode() if isinstance(item, str) else item for item in values]


def records(file: pa.NativeFile, path: str) -> Iterator[bytes]:
    """Yield the contents of all records. Raises ValueError for a corrupt record."""
    index = 0
    while head := file.read(_LENGTH_HEADER.size):
        if len(head) < _LENGTH_HEADER.size or (
            masked_checksum(head[:8]) != _LENGTH_HEADER.unpack(head)[1]
        ):
            raise _corrupt(path, index, "its length is truncated or has a wrong checksum")
        length = _LENGTH_HEADER.unpack(head)[0]
        content = file.read(length)
        tail = file.read(_CHECKSUM.size)
        if len(content) < length or len(tail) < _CHECKSUM.size:
            raise _corrupt(path, index, f"the file ends before its {length} bytes")
        if masked_checksum(content) != _CHECKSUM.unpack(tail)[0]:
            raise _corrupt(path, index, "its content has a wrong checksum")
        yield content
        index += 1


def _corrupt(path: str, index: int, reason: str) -> ValueError:
    return ValueError(f"{path} cannot be read as TFRecords: record {index} is corrupt: {reason}")
