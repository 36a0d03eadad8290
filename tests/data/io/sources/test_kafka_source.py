"""Kafka: round trips through librdkafka's own brokers, which listen on sockets of this process."""

import datetime
import json
import pickle
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest

from syncline import data
from syncline.data import UnknownColumnError
from syncline.data.io.sources.kafka import KafkaDatasource, authentication, resolved

kafka = pytest.importorskip("confluent_kafka")

ROWS = 3000
PARIS = datetime.timezone(datetime.timedelta(hours=1))


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Brokers with the topic `numbers`, of four partitions and the messages 0 to 2 999."""
    brokers = kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0, "linger.ms": 1})
    found = next(iter(brokers.list_topics("numbers", timeout=30).brokers.values()))
    address = f"{found.host}:{found.port}"
    data.range(ROWS, override_num_blocks=2).write_kafka(
        "numbers", address, key_field="id", producer_config={"linger.ms": 1}
    )
    yield address
    brokers.flush(30)


def read(servers: str, **options: Any) -> data.Dataset:
    return data.read_kafka("numbers", bootstrap_servers=servers, **options)


def test_every_row_is_a_message_that_is_read_once(servers: str) -> None:
    rows = read(servers).take_all()
    assert sorted(json.loads(row["value"])["id"] for row in rows) == list(range(ROWS))
    assert all(json.loads(row["key"]) == json.loads(row["value"])["id"] for row in rows)
    assert {row["partition"] for row in rows} == {0, 1, 2, 3}
    assert list(rows[0]) == [
        *("offset", "key", "value", "topic", "partition", "timestamp", "timestamp_type", "headers")
    ]


def test_messages_that_arrive_later_are_not_read(servers: str) -> None:
    source = KafkaDatasource("numbers", servers)
    tasks = pickle.loads(cloudpickle.dumps(source.get_read_tasks(8)))
    before = source.identity()
    data.from_items([{"id": -1}]).write_kafka("numbers", servers, producer_config={"linger.ms": 1})
    try:
        rows = [row for task in tasks for table in task() for row in table.to_pylist()]
        assert len(rows) == ROWS
        assert KafkaDatasource("numbers", servers).identity() != before
    finally:
        assert read(servers).count() == ROWS + 1


def test_offsets_limit_what_is_read(servers: str) -> None:
    found = read(servers, start_offset=10, end_offset=20).select_columns(["partition", "offset"])
    rows = found.take_all()
    assert [row["offset"] for row in rows if row["partition"] == 2] == list(range(10, 20))
    assert len(rows) == 40
    ends = {"numbers": {0: 7, 1: 0, 2: 0, 3: 0}}
    rows = read(servers, start_offset={"numbers": {0: 5}}, end_offset=ends).take_all()
    assert [row["offset"] for row in rows] == [5, 6]


def test_columns_are_known_without_messages(servers: str) -> None:
    none = read(servers, start_offset=5, end_offset=5).select_columns(["key"]).materialize()
    assert (none.count(), none.schema().names) == (0, ["key"])


class Consumer:
    """A consumer of one partition with a message for each second since 2024-01-01, UTC."""

    def offsets_for_times(self, places: list[Any], timeout: float) -> list[Any]:
        (place,) = places
        begin = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc).timestamp()
        seconds = -(-(place.offset - begin * 1000) // 1000)
        place.offset = -1 if seconds > 99 else max(0, int(seconds))
        return [place]


# The brokers of these tests do not look up times.
@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (datetime.datetime(2024, 1, 1, 0, 0, 7), 7),
        (datetime.datetime(2024, 1, 1, 0, 0, 7, 1000), 8),
        (datetime.datetime(2024, 1, 1, 1, 0, 7, tzinfo=PARIS), 7),
        (datetime.datetime(2020, 1, 1), 0),
        (datetime.datetime(2030, 1, 1), 100),
    ],
)
def test_a_time_means_the_first_message_at_or_after_it(
    moment: datetime.datetime, expected: int
) -> None:
    assert resolved(Consumer(), "numbers", 0, 0, 100, moment) == expected


def test_serializers_of_keys_and_values(servers: str) -> None:
    rows = data.from_items([{"k": b"\x00\xff", "v": "text"}])
    options = {"key_field": "k", "producer_config": {"linger.ms": 1}}
    rows.write_kafka("kinds", servers, **options, key_serializer="bytes")
    rows.write_kafka("kinds", servers, **options, key_serializer="json", value_serializer="string")
    found = data.read_kafka("kinds", bootstrap_servers=servers).take_all()
    assert {row["key"] for row in found} == {b'"AP8="', b"\x00\xff"}
    assert {row["value"] for row in found} == {
        b'{"k": "AP8=", "v": "text"}',
        b"{'k': b'\\x00\\xff', 'v': 'text'}",
    }


def test_authentication_in_the_names_of_kafka_python() -> None:
    given = SimpleNamespace(security_protocol="SASL_SSL", sasl_plain_username="me", ssl_cafile=None)
    assert authentication(given) == {"security.protocol": "SASL_SSL", "sasl.username": "me"}
    with pytest.raises(ValueError, match=r"\['ssl_context'\].*consumer_config"):
        authentication(SimpleNamespace(ssl_context=object()))


def test_mistakes_say_what_to_do(servers: str) -> None:
    with pytest.raises(ValueError, match="no Kafka topic 'number'.*Did you mean 'numbers'"):
        data.read_kafka("number", bootstrap_servers=servers)
    with pytest.raises(ValueError, match="start_offset='latest': pass a number"):
        read(servers, start_offset="latest")
    with pytest.raises(ValueError, match=r"start_offset=10 \(10\) is after end_offset=3"):
        read(servers, start_offset=10, end_offset=3)
    with pytest.raises(ValueError, match="names partition 9 of the topic 'numbers'"):
        read(servers, start_offset={"numbers": {9: 1}})
    with pytest.raises(ValueError, match="pass 'host:port'"):
        read("localhost")
    with pytest.raises(ValueError, match="only 'once' is offered"):
        read(servers, trigger="always")
    with pytest.raises(UnknownColumnError, match="Did you mean 'id'"):
        data.range(3).write_kafka("numbers", servers, key_field="idd")
    with pytest.raises(ValueError, match="'avro' is no serializer.*'json', 'string', 'bytes'"):
        data.range(3).write_kafka("numbers", servers, value_serializer="avro")
