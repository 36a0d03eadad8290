"""TFRecords without TensorFlow: framing, checksums, messages."""

import types

import pyarrow as pa
import pytest

from syncline.data.io.sources.tfrecords import (
    TFRecordDatasource,
    decode_examples,
    encode_examples,
    kinds_from_schema,
    records,
)
from syncline.runs.event_file import record

pytest.importorskip("google.protobuf")

# {"a": int64 7} as TensorFlow writes it: Example{features{feature{key "a" value{int64_list{value:
# 7}}}}}.
BYTES_OF_TENSORFLOW = bytes.fromhex("0a0c0a0a0a016112051a030a0107")


def schema(**kinds: int) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        feature=[types.SimpleNamespace(name=name, type=kind) for name, kind in kinds.items()]
    )


def test_messages_equal_those_of_tensorflow():
    assert list(encode_examples(pa.table({"a": [7]}))) == [BYTES_OF_TENSORFLOW]
    assert decode_examples([BYTES_OF_TENSORFLOW], None, "f").to_pylist() == [{"a": 7}]


def test_values_round_trip_by_kind_and_length(place, read_all):
    table = pa.table(
        {
            "one": pa.array([1, 2, None], pa.int64()),
            "many": pa.array([[1.0], [2.0, 3.0], []], pa.list_(pa.float32())),
            "text": ["a", "ä", ""],
            "raw": [b"\x00", b"\xff", None],
        }
    )
    place.write("a.tfrecords", b"".join(map(record, encode_examples(table))))
    found = read_all(TFRecordDatasource(place.path, filesystem=place.filesystem))
    assert found.select(["one", "many", "text", "raw"]).to_pydict() == {
        "one": [1, 2, None],
        "many": [[1.0], [2.0, 3.0], []],
        "text": [b"a", "ä".encode(), b""],
        "raw": [b"\x00", b"\xff", None],
    }
    assert found.schema.field("many").type == pa.list_(pa.float32())


def test_schema_gives_lists_and_rejects_mismatches(place, read_all):
    place.write("a.tfrecords", record(BYTES_OF_TENSORFLOW))
    source = TFRecordDatasource(place.path, tf_schema=schema(a=2), filesystem=place.filesystem)
    assert read_all(source).to_pylist() == [{"a": [7]}]
    for given, message in (
        (schema(b=2), "'a' is not in tf_schema"),
        (schema(a=3), "'a' is INT, but FLOAT"),
    ):
        with pytest.raises(ValueError, match=rf"a\.tfrecords, record 0.*{message}"):
            read_all(TFRecordDatasource(place.path, tf_schema=given, filesystem=place.filesystem))


def test_columns_without_a_feature_kind_are_rejected():
    with pytest.raises(ValueError, match="'t' is timestamp"):
        list(encode_examples(pa.table({"t": pa.array([0], pa.timestamp("s"))})))
    with pytest.raises(ValueError, match="tf_schema has FLOAT"):
        list(encode_examples(pa.table({"a": [1]}), kinds_from_schema(schema(a=3))))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda content: content[:5], "record 0 is corrupt: its length"),
        (lambda content: content[:-6], "record 1 is corrupt: the file ends"),
        (lambda content: content[:14] + b"\x00" + content[15:], "record 0 is corrupt: its content"),
        (lambda content: b"\x01" + content[1:], "record 0 is corrupt: its length"),
    ],
)
def test_corrupt_records_are_reported_with_their_index(broken, message):
    content = broken(record(BYTES_OF_TENSORFLOW) * 2)
    with pytest.raises(ValueError, match=f"f cannot be read as TFRecords: {message}"):
        list(records(pa.BufferReader(content), "f"))


def test_records_that_are_no_examples_are_rejected(place, read_all):
    place.write("a.tfrecords", record(b"\xff\xff\xff"))
    with pytest.raises(ValueError, match=r"a\.tfrecords, record 0: no tf\.train\.Example"):
        read_all(TFRecordDatasource(place.path, filesystem=place.filesystem))
