"""Reading TFRecord files of `tf.train.Example` messages, without TensorFlow; checksums are
verified.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import islice
from typing import Any

import pyarrow as pa

from syncline.data.columnar import block as blocks
from syncline.data.columnar import tensors
from syncline.data.io.sources.file_based_datasource import FileBasedDatasource
from syncline.optional import load
from syncline.runs.event_file import masked_checksum

_ROWS_PER_BLOCK = 1024


class TFRecordDatasource(FileBasedDatasource):
    """Reads Examples.

    Args:
        paths: As `FileBasedDatasource` takes them. tf_schema: A `tensorflow_metadata` Schema: every
        feature it names is a column of lists of its kind, and there are no others.
        file_based_datasource_kwargs: As `FileBasedDatasource` takes them.
    """

    _FILE_EXTENSIONS = ["tfrecords"]

    def __init__(
        self, paths: Any, tf_schema: Any = None, **file_based_datasource_kwargs: Any
    ) -> None:
        example_class()  # ImportError here and not on a worker
        super().__init__(paths, **file_based_datasource_kwargs)
        self._kinds = kinds_from_schema(tf_schema)

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        contents = records(f, path)
        while batch := list(islice(contents, _ROWS_PER_BLOCK)):
            yield decode_examples(batch, self._kinds, path)

    def _options(self) -> object:
        return (self._open_stream_args, self._kinds)


_PACKAGE = "syncline.tfexample"


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
def example_class() -> Any:
    """The message class; its instances have the fields above. ImportError if protobuf is not
    installed.
    """
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


def _refer(owner: Any, name: str, number: int, to: str, label: int) -> Any:
    message_kind = 11  # FieldDescriptorProto.TYPE_MESSAGE
    return owner.field.add(
        name=name, number=number, label=label, type=message_kind, type_name=f".{_PACKAGE}.{to}"
    )


def _protobuf(module: str) -> Any:
    return load(f"google.protobuf.{module}", purpose="TFRecord files", install="protobuf")


def kinds_from_schema(tf_schema: Any) -> dict[str, FeatureKind] | None:
    """Kinds by name from a `tensorflow_metadata` Schema (anything with `.feature`, each with
    `.name` and `.type`).
    """
    return (
        None
        if tf_schema is None
        else {feature.name: FeatureKind(feature.type) for feature in tf_schema.feature}
    )


def decode_examples(
    contents: Iterable[bytes], kinds: dict[str, FeatureKind] | None, path: str
) -> pa.Table:
    """A row for each message. Without `kinds`, a feature is a plain column where each message holds
    at most one value, else one of lists.

    ValueError for other messages, features that `kinds` does not have or has as another kind.
    """
    rows: list[dict[str, Any]] = []
    found: dict[str, FeatureKind] = dict(kinds or {})
    example_type, decode_error = example_class(), _protobuf("message").DecodeError
    for content in contents:
        example = example_type()
        try:
            example.ParseFromString(content)
        except decode_error as error:
            raise ValueError(f"{path}, record {len(rows)}: no tf.train.Example: {error}") from error
        row: dict[str, Any] = {}
        for name, feature in example.features.feature.items():
            row[name] = values = []
            which = feature.WhichOneof("kind")
            if which is None:
                continue
            if kinds is not None and name not in kinds:
                raise ValueError(
                    f"{path}, record {len(rows)}: the feature {name!r} is not in tf_schema, which has {sorted(kinds)}"
                )
            kind = found.setdefault(name, _KIND_OF[which])
            if kind is not _KIND_OF[which]:
                raise ValueError(
                    f"{path}, record {len(rows)}: {name!r} is {_KIND_OF[which].name}, elsewhere {kind.name}"
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
    """A message for each row: lists as they are, tensors flat, single values as lists of one, null
    as a feature without values.

    ValueError names a column whose type no feature has, or differs from `kinds`.
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


def _column(values: list[list[Any] | None], kind: FeatureKind | None, *, plain: bool) -> pa.Array:
    type_ = pa.null() if kind is None else _ARROW_TYPES[kind]
    if plain and all(value is None or len(value) <= 1 for value in values):
        return pa.array([value[0] if value else None for value in values], type_)
    return pa.array(values, pa.list_(type_))


def _kind(name: str, type_: pa.DataType) -> FeatureKind | None:
    """The kind of a column, None for one of nulls. ValueError for types that no feature has."""
    if (
        tensors.is_tensor(type_)
        or pa.types.is_list(type_)
        or pa.types.is_large_list(type_)
        or pa.types.is_fixed_size_list(type_)
    ):
        return _kind(name, type_.value_type)
    if pa.types.is_boolean(type_) or pa.types.is_integer(type_):
        return FeatureKind.INT
    if pa.types.is_floating(type_):
        return FeatureKind.FLOAT
    if pa.types.is_null(type_):
        return None
    text = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
    )
    if any(check(type_) for check in text):
        return FeatureKind.BYTES
    raise ValueError(
        f"the column {name!r} is {type_}, and an Example holds ints, floats, text and bytes only: convert or drop it"
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
            f"the column {name!r} is {type_}, which is written as {kind.name}, but tf_schema says {kinds[name].name}"
        )


def _values(value: Any) -> list[Any]:
    values = (
        value.ravel().tolist()
        if hasattr(value, "ravel")
        else value
        if isinstance(value, list)
        else [value]
    )
    return [item.encode() if isinstance(item, str) else item for item in values]


_HEAD = struct.Struct("<QI")
_TAIL = struct.Struct("<I")


def records(file: pa.NativeFile, path: str) -> Iterator[bytes]:
    """The contents of all records. ValueError names the file and the record that is broken."""
    index = 0
    while head := file.read(_HEAD.size):
        if len(head) < _HEAD.size or masked_checksum(head[:8]) != _HEAD.unpack(head)[1]:
            raise _broken(path, index, "its length is cut off or its checksum is wrong")
        length = _HEAD.unpack(head)[0]
        content = file.read(length)
        tail = file.read(_TAIL.size)
        if len(content) < length or len(tail) < _TAIL.size:
            raise _broken(path, index, f"the file ends before its {length} bytes do")
        if masked_checksum(content) != _TAIL.unpack(tail)[0]:
            raise _broken(path, index, "the checksum of its content is wrong")
        yield content
        index += 1


def _broken(path: str, index: int, reason: str) -> ValueError:
    return ValueError(f"{path} cannot be read as TFRecords: record {index} is broken, {reason}")
