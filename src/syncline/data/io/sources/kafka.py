"""Read ranges of Kafka topics with confluent-kafka: a row for each message, a task for each range
of offsets of one partition.

The ranges are fixed when the dataset is created, so every execution reads the same messages and a
resumed one continues at the exact offset, as long as the topic retains them. Keys and values are
bytes. Not covered: reading without an end, transactions of consumer groups.
"""

from __future__ import annotations

import datetime
import functools
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from syncline.data.io import argument_types
from syncline.data.io.sources.datasource import (
    BlockMetadata,
    Datasource,
    ReadTask,
    digest,
    slice_bounds,
)
from syncline.optional import load
from syncline.records import dataclass
from syncline.suggestions import did_you_mean

if TYPE_CHECKING:
    from syncline.data.context import DataContext

logger = logging.getLogger(__name__)

Offset: TypeAlias = int | str | datetime.datetime | None
"""A number, "earliest", "latest", or the first message at or after a time (UTC without a zone)."""
Offsets: TypeAlias = Offset | Mapping[str, Mapping[int, Offset]]
"""One for all partitions, or by topic and partition."""

INSTALL = "syncline[kafka]"
SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("timestamp", pa.int64()),
        ("timestamp_type", pa.int32()),
        ("headers", pa.map_(pa.string(), pa.binary())),
    ]
)
"""Columns of the rows. The timestamp is in milliseconds since the epoch; its type is 0 for none, 1
for the time of the message, 2 for that of the log.
"""

_SERVER_TIMEOUT_S = 10.0
# A longer wait would delay the check of `timeout_ms`.
_POLL_S = 1.0
_MESSAGES = 1000
_MESSAGES_PER_TASK = 1000
_AUTHENTICATION = {
    "security_protocol": "security.protocol",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
    "sasl_kerberos_service_name": "sasl.kerberos.service.name",
    "sasl_kerberos_name": "sasl.kerberos.principal",
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_password": "ssl.key.password",
    "ssl_ciphers": "ssl.cipher.suites",
    "ssl_crlfile": "ssl.crl.location",
}


@dataclass(frozen=True, kw_only=True)
class OffsetRange:
    """Messages of one partition."""

    topic: str
    """The topic."""
    partition: int
    """Number of the partition."""
    start: int
    """Offset of the first message."""
    end: int
    """Offset after the last message."""


class KafkaDatasource(Datasource):
    """Reads ranges of topics; arguments as in `read_kafka`."""

    def __init__(
        self,
        topics: str | Sequence[str],
        bootstrap_servers: str | Sequence[str],
        start_offset: Offsets = "earliest",
        end_offset: Offsets = "latest",
        kafka_auth_config: Any = None,
        consumer_config: Mapping[str, Any] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        self._topics = argument_types.texts("topics", topics, "a name or a list of names")
        if not self._topics:
            raise ValueError("no topic was given: pass a name or a non-empty list of names")
        argument_types.require("timeout_ms", timeout_ms, (int, type(None)), "a number, or None")
        if timeout_ms is not None and timeout_ms <= 0:
            raise ValueError(f"timeout_ms={timeout_ms}: pass a positive number, or None")
        if kafka_auth_config is not None and consumer_config is not None:
            raise ValueError(
                "kafka_auth_config and consumer_config exclude each other: pass consumer_config"
            )
        self._servers = servers(bootstrap_servers)
        self._config = {**authentication(kafka_auth_config), **(consumer_config or {})}
        self._timeout_ms = timeout_ms
        with self._consumer() as consumer:
            partitions = self._partitions(consumer)
            _check_names("start_offset", start_offset, partitions)
            _check_names("end_offset", end_offset, partitions)
            self._ranges = [
                self._range(consumer, topic, partition, start_offset, end_offset)
                for topic, partition in partitions
            ]

    def schema(self) -> pa.Schema:
        return self._projected(SCHEMA)

    def supports_projection_pushdown(self) -> bool:
        """True: columns that are not needed are not converted."""
        return True

    def input_files(self) -> list[str]:
        return [_uri(each) for each in self._ranges]

    def identity(self) -> str:
        """Return a digest of the ranges."""
        return digest("Kafka", self._servers, self._ranges, self._projection)

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """Return a task for each partition; several, if there are fewer partitions than tasks."""
        per_partition = max(1, -(-parallelism // len(self._ranges)))
        tasks = []
        for whole in self._ranges:
            count = min(per_partition, -(-(whole.end - whole.start) // _MESSAGES_PER_TASK))
            for start, end in slice_bounds(whole.end - whole.start, count):
                part = OffsetRange(
                    topic=whole.topic,
                    partition=whole.partition,
                    start=whole.start + start,
                    end=whole.start + end,
                )
                read = functools.partial(self._read, part)
                # Compacted topics have fewer messages than offsets.
                metadata = BlockMetadata(None, None, input_files=[_uri(part)])
                tasks.append(ReadTask(read, metadata, self.schema(), per_task_row_limit))
        return tasks

    @contextmanager
    def _consumer(self) -> Iterator[Any]:
        library = load("confluent_kafka", purpose="read_kafka", install=INSTALL)
        config = {
            "enable.auto.commit": False,
            "group.id": "syncline",  # required, although partitions are assigned here
            "enable.partition.eof": True,
            "log_level": 2,  # errors are raised; below 2 there are hundreds of lines about them
            **self._config,
            "bootstrap.servers": self._servers,
        }
        consumer = library.Consumer(config, logger=logger)
        try:
            yield consumer
        finally:
            consumer.close()

    def _partitions(self, consumer: Any) -> list[tuple[str, int]]:
        library = load("confluent_kafka", purpose="read_kafka", install=INSTALL)
        try:
            known = consumer.list_topics(timeout=_SERVER_TIMEOUT_S).topics
        except library.KafkaException as error:
            raise ConnectionError(
                f"no Kafka broker answers at {self._servers} within {_SERVER_TIMEOUT_S:.0f} s "
                f"({error.args[0].str()}): check bootstrap_servers and the options of "
                "consumer_config for its security"
            ) from error
        found = []
        for topic in self._topics:
            if topic not in known or not known[topic].partitions:
                names = sorted(name for name in known if not name.startswith("__"))
                raise ValueError(
                    f"there is no Kafka topic {topic!r}, only {names}{did_you_mean(topic, names)}"
                )
            found += [(topic, partition) for partition in sorted(known[topic].partitions)]
        return found

    def _range(
        self, consumer: Any, topic: str, partition: int, start: Offsets, end: Offsets
    ) -> OffsetRange:
        library = load("confluent_kafka", purpose="read_kafka", install=INSTALL)
        place = library.TopicPartition(topic, partition)
        low, high = consumer.get_watermark_offsets(place, timeout=_SERVER_TIMEOUT_S)
        resolve = functools.partial(resolved, consumer, topic, partition, low, high)
        first = resolve(_of_partition(start, topic, partition, "earliest"))
        last = min(resolve(_of_partition(end, topic, partition, "latest")), high)
        if first < low:
            logger.warning(
                "Partition %d of the Kafka topic %r begins at offset %d: messages from %d on are "
                "deleted",
                partition,
                topic,
                low,
                first,
            )
            first = low
        if first > last:
            raise ValueError(
                f"partition {partition} of the Kafka topic {topic!r} has the offsets {low} to "
                f"{high}, so start_offset={start!r} ({first}) is after end_offset={end!r} ({last})"
            )
        return OffsetRange(topic=topic, partition=partition, start=first, end=last)

    def _read(self, part: OffsetRange) -> Iterator[pa.Table]:
        library = load("confluent_kafka", purpose="read_kafka", install=INSTALL)
        deadline = None if self._timeout_ms is None else time.monotonic() + self._timeout_ms / 1000
        at = part.start
        with self._consumer() as consumer:
            consumer.assign([library.TopicPartition(part.topic, part.partition, part.start)])
            while at < part.end:
                if deadline is not None and time.monotonic() >= deadline:
                    logger.warning(
                        "%s: stopped at offset %d of %d after timeout_ms=%d",
                        _uri(part),
                        at,
                        part.end,
                        self._timeout_ms,
                    )
                    return
                received = consumer.consume(min(_MESSAGES, part.end - at), timeout=_POLL_S)
                messages = [each for each in received if not self._is_end(each, part)]
                kept = [each for each in messages if each.offset() < part.end]
                if kept:
                    yield _table(kept, self.schema())
                if messages:
                    at = messages[-1].offset() + 1
                if len(messages) < len(received):
                    return  # the end of the partition: the last offsets hold no messages

    def _is_end(self, message: Any, part: OffsetRange) -> bool:
        """Return True for the mark of the partition's end; raise other errors."""
        library = load("confluent_kafka", purpose="read_kafka", install=INSTALL)
        error = message.error()
        if error is None:
            return False
        if error.code() == library.KafkaError._PARTITION_EOF:
            return True
        raise OSError(f"reading {_uri(part)} failed: {error.str()}")


def servers(bootstrap_servers: str | Sequence[str]) -> str:
    """Return the addresses as one text. Raise ValueError for one without a port."""
    wanted = "'host:port', or a list of them"
    given = argument_types.texts("bootstrap_servers", bootstrap_servers, wanted)
    addresses = [address for text in given for address in text.split(",")]
    if not addresses or any(":" not in address for address in addresses):
        raise ValueError(f"bootstrap_servers={bootstrap_servers!r}: pass {wanted}")
    return ",".join(addresses)


def authentication(kafka_auth_config: Any) -> dict[str, Any]:
    """Return the options of `confluent_kafka` for a `KafkaAuthConfig`, an object with the names of
    kafka-python. Raise ValueError for options that have no counterpart.
    """
    if kafka_auth_config is None:
        return {}
    given = {
        name: value
        for name, value in vars(kafka_auth_config).items()
        if value is not None and not name.startswith("_")
    }
    unknown = sorted(set(given) - set(_AUTHENTICATION))
    if unknown:
        raise ValueError(
            f"kafka_auth_config has {unknown}, which confluent-kafka has no option for: pass "
            "consumer_config with its options, such as 'ssl.ca.location'"
        )
    return {_AUTHENTICATION[name]: value for name, value in given.items()}


def _uri(part: OffsetRange) -> str:
    return f"kafka://{part.topic}/{part.partition}"


def _of_partition(offsets: Offsets, topic: str, partition: int, otherwise: str) -> Offset:
    if isinstance(offsets, Mapping):
        return offsets.get(topic, {}).get(partition, otherwise)
    return offsets


def _check_names(name: str, offsets: Offsets, known: Sequence[tuple[str, int]]) -> None:
    """Raise ValueError for offsets of a partition that is not read, or at the wrong end."""
    wrong = "latest" if name == "start_offset" else "earliest"
    if not isinstance(offsets, Mapping):
        given = {("", 0): offsets}
    else:
        given = {
            (topic, partition): offset
            for topic, of_topic in offsets.items()
            for partition, offset in of_topic.items()
        }
        for topic, partition in given:
            if (topic, partition) not in known:
                raise ValueError(
                    f"{name} names partition {partition} of the topic {topic!r}, which is not "
                    f"among the partitions to read: {list(known)}"
                )
    for offset in given.values():
        if offset == wrong or isinstance(offset, str) and offset not in ("earliest", "latest"):
            right = "earliest" if name == "start_offset" else "latest"
            raise ValueError(
                f"{name}={offset!r}: pass a number, a datetime or {right!r}, or these by topic "
                "and partition"
            )


def resolved(consumer: Any, topic: str, partition: int, low: int, high: int, offset: Offset) -> int:
    """Return the number of an offset in a partition that has the offsets `low` to `high`."""
    library = load("confluent_kafka", purpose="read_kafka", install=INSTALL)
    if offset is None or offset == "earliest":
        return low
    if offset == "latest":
        return high
    if isinstance(offset, datetime.datetime):
        moment = offset if offset.tzinfo else offset.replace(tzinfo=datetime.timezone.utc)
        place = library.TopicPartition(topic, partition, int(moment.timestamp() * 1000))
        (found,) = consumer.offsets_for_times([place], timeout=_SERVER_TIMEOUT_S)
        return int(found.offset) if found.offset >= 0 else high
    assert isinstance(offset, int)
    return offset


def _table(messages: Sequence[Any], schema: pa.Schema) -> pa.Table:
    columns: dict[str, Callable[[Any], object]] = {
        "offset": lambda each: each.offset(),
        "key": lambda each: each.key(),
        "value": lambda each: each.value(),
        "topic": lambda each: each.topic(),
        "partition": lambda each: each.partition(),
        "timestamp": lambda each: each.timestamp()[1],
        "timestamp_type": lambda each: each.timestamp()[0],
        "headers": lambda each: each.headers() or [],
    }
    return pa.table(
        {
            field.name: pa.array([columns[field.name](each) for each in messages], field.type)
            for field in schema
        },
        schema=schema,
    )
