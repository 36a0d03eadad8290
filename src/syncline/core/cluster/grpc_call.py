"""One gRPC call over a connection of our own, with a time limit.

Ray's client waits without a limit for an address without a server and prints its attempts, so the
head of a cluster is called this way before Ray connects. Covered: one unary call of gRPC over
HTTP/2 (RFC 9113), plain or over TLS. Compressed headers are not decoded: Ray's servers send the
needed ones as plain text.
"""

from __future__ import annotations

import io
import queue
import re
import socket
import ssl
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass

UNIMPLEMENTED = 12
UNAUTHENTICATED = 16

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_FRAME_HEADER_BYTES = 9
_DATA, _HEADERS, _RESET, _SETTINGS, _GO_AWAY = 0, 1, 3, 4, 7
_END_STREAM = 1
_HEADERS_END = 4
_STREAM = 1
"""Number of the only stream."""
_MESSAGE_HEADER_BYTES = 5
"""Compression flag and length of a gRPC message."""
_SHOWN_BYTES = 60
_STATUS = re.compile(rb"grpc-status[\x01\x02](\d+)")
_HTTP_OK = 0x88
"""`:status 200` in HTTP/2's static table."""


class NotGrpcError(OSError):
    """The server does not speak gRPC."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A unary call."""

    path: str
    """Service and method: "/package.Service/Method"."""
    body: bytes
    """Message in protobuf encoding."""
    headers: Mapping[str, str]
    """Additional headers by lower-case name."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The reply of a gRPC server."""

    status: int | None
    """gRPC status code, 0 for success; None if a proxy has compressed it."""
    body: bytes
    """Message; empty if there is none."""


def call_server(
    host: str, port: int, call: Call, *, limit_s: float, tls: ssl.SSLContext | None = None
) -> Answer:
    """Send one call and return the reply.

    Raises:
        OSError: The name is unknown, no server listens, none answers within `limit_s`
            (TimeoutError), or the server is `NotGrpcError`.
    """
    outcome: queue.SimpleQueue[Answer | OSError] = queue.SimpleQueue()

    def exchange() -> None:
        try:
            outcome.put(_exchange(host, port, call, limit_s, tls))
        except OSError as error:
            outcome.put(error)

    # In a thread, because name resolution has no time limit.
    threading.Thread(target=exchange, name="syncline-probe", daemon=True).start()
    try:
        answer = outcome.get(timeout=limit_s)
    except queue.Empty:
        answer = TimeoutError()
    if isinstance(answer, TimeoutError):
        raise TimeoutError(f"no answer within {limit_s:g} s")
    if isinstance(answer, OSError):
        raise answer
    return answer


def request(authority: str, call: Call) -> bytes:
    """Return all bytes that a client sends for one call."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": call.path,
        ":authority": authority,
        "te": "trailers",
        "content-type": "application/grpc",
        **call.headers,
    }
    message = b"\0" + struct.pack(">I", len(call.body)) + call.body
    return b"".join(
        (
            _PREFACE,
            _frame(_SETTINGS, 0, 0, b""),
            _frame(
                _HEADERS,
                _HEADERS_END,
                _STREAM,
                b"".join(_field(name, value) for name, value in headers.items()),
            ),
            _frame(_DATA, _END_STREAM, _STREAM, message),
        )
    )


def read_answer(stream: io.BufferedIOBase) -> Answer:
    """Read the reply; OSError if there is none, `NotGrpcError` for another protocol."""
    header = stream.read(_FRAME_HEADER_BYTES)
    if header[3:4] != bytes([_SETTINGS]):
        raise NotGrpcError(
            _other_protocol(header + stream.read1(_SHOWN_BYTES - _FRAME_HEADER_BYTES))
        )
    headers = body = b""
    while True:
        size, kind, flags, number = (
            int.from_bytes(header[:3], "big"),
            header[3],
            header[4],
            int.from_bytes(header[5:], "big"),
        )
        payload = stream.read(size)
        if number == _STREAM and kind == _HEADERS:
            headers += payload
        elif number == _STREAM and kind == _DATA:
            body += payload
        if (number == _STREAM and (kind == _RESET or flags & _END_STREAM)) or kind == _GO_AWAY:
            return _answer(headers, body)
        header = stream.read(_FRAME_HEADER_BYTES)
        if len(header) < _FRAME_HEADER_BYTES:
            raise ConnectionError("the server closed the connection without a reply")


def _exchange(
    host: str, port: int, call: Call, limit_s: float, tls: ssl.SSLContext | None
) -> Answer:
    connection = socket.create_connection((host, port), timeout=limit_s)
    if tls is not None:
        connection = tls.wrap_socket(connection, server_hostname=host)
    with connection, connection.makefile("rb") as stream:
        connection.sendall(request(f"{host}:{port}", call))
        return read_answer(stream)


def _answer(headers: bytes, body: bytes) -> Answer:
    found = _STATUS.search(headers)
    if found is None and not body and headers[:1] != bytes([_HTTP_OK]):
        raise NotGrpcError("an HTTP/2 server that does not know the call answers there")
    return Answer(
        status=None if found is None else int(found[1]), body=body[_MESSAGE_HEADER_BYTES:]
    )


def _other_protocol(received: bytes) -> str:
    if not received:
        return "the server there closes the connection without a reply"
    return f"another kind of server answers there: it sends {received.decode('latin-1')!r}"


def _frame(kind: int, flags: int, number: int, payload: bytes) -> bytes:
    return (
        struct.pack(">I", len(payload))[1:]
        + bytes([kind, flags])
        + struct.pack(">I", number)
        + payload
    )


def _field(name: str, value: str) -> bytes:
    """Encode a header without compression (RFC 7541, 6.2.2)."""
    return b"\0" + _text(name) + _text(value)


def _text(text: str) -> bytes:
    data = text.encode()
    length, limit = len(data), 127
    if length < limit:
        return bytes([length]) + data
    rest, parts = length - limit, [limit]
    while rest >= 128:
        parts.append(rest % 128 + 128)
        rest //= 128
    return bytes([*parts, rest]) + data
