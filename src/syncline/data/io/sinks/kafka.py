"""Write rows to Kafka topics with confluent-kafka: a message for each row.

Messages are visible at once. A task that runs again after the death of its worker sends its rows
again.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

from syncline.data.columnar import block as block_functions
from syncline.data.columnar import schemas
from syncline.data.io.sinks.datasink import Datasink, TaskContext
from syncline.data.io.sources.kafka import INSTALL, servers
from syncline.optional import load

logger = logging.getLogger(__name__)

_FLUSH_TIMEOUT_S = 30.0
_FULL_TIMEOUT_S = 10.0


class SerializerFormat(str, Enum):
    """How keys and values become bytes."""

    JSON = "json"
    """JSON; bytes become base64."""
    STRING = "string"
    """`str(value)`."""
    BYTES = "bytes"
    """Bytes as they are; other values as STRING."""

    @classmethod
    def _missing_(cls, value: object) -> None:
        formats = ", ".join(repr(each.value) for each in cls)
        raise ValueError(f"{value!r} is no serializer of Kafka messages: choose one of {formats}")


class KafkaDatasink(Datasink[None]):
    """Sends a message for each row; arguments as in `Dataset.write_kafka`."""

    def __init__(
        self,
        topic: str,
        bootstrap_servers: str,
        key_field: str | None = None,
        key_serializer: str = "string",
        value_serializer: str = "json",
        producer_config: Mapping[str, Any] | None = None,
    ) -> None:
        load("confluent_kafka", purpose="write_kafka", install=INSTALL)
        self.topic = topic
        self.bootstrap_servers = servers(bootstrap_servers)
        self.key_field = key_field
        self.key_serializer = SerializerFormat(key_serializer)
        self.value_serializer = SerializerFormat(value_serializer)
        self.producer_config = dict(producer_config or {})

    def on_write_start(self, schema: pa.Schema | None = None) -> None:
        """Raise UnknownColumnError if the key is none of the columns, if these are known."""
        if schema is not None and self.key_field is not None:
            schemas.require_columns([self.key_field], schema.names)

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> None:
        """Send the rows and wait until the brokers have all of them."""
        library = load("confluent_kafka", purpose="write_kafka", install=INSTALL)
        failed: list[str] = []

        def delivered(error: Any, _: object) -> None:
            if error is not None:
                failed.append(error.str())

        config = {
            "log_level": 2,
            **self.producer_config,
            "bootstrap.servers": self.bootstrap_servers,
        }
        producer = library.Producer(config, logger=logger)
        for block in blocks:
            if self.key_field is not None:
                schemas.require_columns([self.key_field], block.column_names)
            for row in block_functions.rows(block):
                key = None if self.key_field is None else row[self.key_field]
                self._send(
                    producer,
                    value=serialized(row, self.value_serializer),
                    key=None if key is None else serialized(key, self.key_serializer),
                    on_delivery=delivered,
                )
                producer.poll(0)
        left = producer.flush(_FLUSH_TIMEOUT_S)
        if left or failed:
            reason = failed[0] if failed else f"no answer within {_FLUSH_TIMEOUT_S:.0f} s"
            raise OSError(
                f"{left + len(failed)} messages did not reach the Kafka topic {self.topic!r} at "
                f"{self.bootstrap_servers}: {reason}. Check the brokers and producer_config"
            )

    def _send(self, producer: Any, **message: Any) -> None:
        try:
            producer.produce(self.topic, **message)
        except BufferError:
            producer.poll(_FULL_TIMEOUT_S)  # until there is room for a message
            producer.produce(self.topic, **message)


def serialized(value: object, serializer: SerializerFormat) -> bytes:
    """Return a key or a row as bytes."""
    if serializer is SerializerFormat.JSON:
        return json.dumps(value, default=_as_json).encode()
    if serializer is SerializerFormat.BYTES and isinstance(value, bytes):
        return value
    return str(value).encode()


def _as_json(value: object) -> object:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)
