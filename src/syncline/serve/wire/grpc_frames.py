"""Payloads of gRPC calls between the proxy and the replicas. Pure encoding.

A call begins with a GRPC frame: `GrpcHead`, and the message of the client unless it streams. The
messages of a streaming client follow in BODY frames, after the replica's first WINDOW frame; each
begins with `MESSAGE` or is `END_OF_MESSAGES`. A reply is a VALUE frame (status and message), or
a CHUNK frame for each message and END (status). ERROR (status) ends a call that failed; START
(status) may precede the chunks, for what must be known before the first one.

Messages stay serialized: the proxy never parses them, and only the replica needs their classes.
Heads and statuses are encoded with marshal, which runs no code.
"""

from __future__ import annotations

import marshal
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

_LENGTH = struct.Struct("<I")

MESSAGE = b"\1"
"""First byte of a BODY frame with a message."""
END_OF_MESSAGES = b"\0"
"""A BODY frame after the last message of the client."""

Metadata = Sequence[tuple[str, "str | bytes"]]


class Code(IntEnum):
    """Status codes of gRPC that serve sends; other codes come from user code."""

    OK = 0
    CANCELLED = 1
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    INTERNAL = 13
    UNAVAILABLE = 14


HIGHEST_CODE = 16


class GrpcHead(NamedTuple):
    """Facts about a gRPC call besides its messages."""

    method: str
    """Name of the method of the ingress deployment."""
    request_id: str
    timeout_s: float | None
    """Seconds left until the deadline."""
    multiplexed_model_id: str
    session_id: str
    app: str
    service_method: str
    """`/package.Service/Method`."""
    streams_request: bool
    """True if the client sends a stream of messages."""
    streams_response: bool
    deserializer: bytes
    """The pickled function that makes a message from bytes; a reference to generated code."""
    metadata: Metadata
    """Invocation metadata of the client."""
    peer: str
    """Address of the client, as gRPC writes it."""
    auth_context: dict[str, list[bytes]]


class GrpcStatus(NamedTuple):
    """Status and metadata set by user code on its `RayServegRPCContext`, or the error of a call."""

    code: int | None = None
    """Status code; None if user code set none."""
    details: str = ""
    trailing_metadata: Metadata = ()
    compression: int | None = None
    """A value of `grpc.Compression`; None for the default."""


def encode_head(head: GrpcHead, message: bytes) -> tuple[bytes, ...]:
    """Return the parts of a GRPC frame's payload."""
    return (*_encode(tuple(head)), message)


def decode_head(payload: bytes) -> tuple[GrpcHead, bytes]:
    """Return the head and the first message of a GRPC frame."""
    fields, rest = _decode(payload)
    return GrpcHead(*fields), rest


def encode_status(status: GrpcStatus, message: bytes = b"") -> tuple[bytes, ...]:
    """Return the parts of a VALUE, START, END or ERROR payload."""
    return (*_encode(tuple(status)), message)


def decode_status(payload: bytes) -> tuple[GrpcStatus, bytes]:
    """Return the status and the message of a VALUE, START, END or ERROR frame."""
    fields, rest = _decode(payload)
    return GrpcStatus(*fields), rest


def _encode(fields: tuple[Any, ...]) -> tuple[bytes, bytes]:
    encoded = marshal.dumps(fields)
    return _LENGTH.pack(len(encoded)), encoded


def _decode(payload: bytes) -> tuple[tuple[Any, ...], bytes]:
    (length,) = _LENGTH.unpack_from(payload)
    end = 4 + length
    return marshal.loads(payload[4:end]), payload[end:]
