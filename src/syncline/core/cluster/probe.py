"""One question to a server, over a connection of our own: who answers there, and what it says,
within a limit.

Ray's client waits for an address where nobody answers without end and writes its attempts on the
terminal, so the head of a cluster is asked before Ray connects. Covered: one call of gRPC over
HTTP/2 (RFC 9113), plain or over TLS. Compressed headers are not decoded: what the servers of Ray
say in them is plain text.
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
_ACKNOWLEDGED = _STREAM_ENDS = 1
_HEADERS_END = 4
_CALL = 1
"""The number of the stream of the only call."""
_MESSAGE_HEADER_BYTES = 5
"""Whether a message of gRPC is compressed, and its length."""
_SHOWN_BYTES = 60
_STATUS = re.compile(rb"grpc-status[\x01\x02](\d+)")
_HTTP_OK = 0x88
"""`:status 200`, which HTTP/2 has in a table of what is often said."""


class AnotherServer(OSError):
    """Something answers, but not as a server of gRPC does."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """What is asked."""

    path: str
    """Service and method: "/package.Service/Method"."""
    body: bytes
    """The message, as protobuf writes it."""
    headers: Mapping[str, str]
    """What goes with it, by names in lower case."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a server of gRPC said."""

    status: int | None
    """gRPC's status code, 0 for success; None where a proxy in between has compressed it."""
    body: bytes
    """The message; empty where there is none."""


def ask(
    host: str, port: int, call: Call, *, limit_s: float, tls: ssl.SSLContext | None = None
) -> Answer:
    """The answer to one call.

    Raises:
        OSError: The name is unknown, nobody listens, nobody answers within `limit_s`
        (TimeoutError), or it is `AnotherServer`.
    """
    outcome: queue.SimpleQueue[Answer | OSError] = queue.SimpleQueue()

    def exchange() -> None:
        try:
            outcome.put(_exchange(host, port, call, limit_s, tls))
        except OSError as error:
            outcome.put(error)

    # A thread, because looking up a name has no limit of its own.
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
    """Everything that a client says for one call."""
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
                _CALL,
                b"".join(_field(name, value) for name, value in headers.items()),
            ),
            _frame(_DATA, _STREAM_ENDS, _CALL, message),
        )
    )


def read_answer(stream: io.BufferedIOBase) -> Answer:
    """The answer in what a server says. OSError where it says none, `AnotherServer` where it speaks
    something else.
    """
    header = stream.read(_FRAME_HEADER_BYTES)
    if header[3:4] != bytes([_SETTINGS]):
        raise AnotherServer(_other_words(header + stream.read1(_SHOWN_BYTES - _FRAME_HEADER_BYTES)))
    headers = body = b""
    while True:
        size, kind, flags, number = (
            int.from_bytes(header[:3], "big"),
            header[3],
            header[4],
            int.from_bytes(header[5:], "big"),
        )
        payload = stream.read(size)
        if number == _CALL and kind == _HEADERS:
            headers += payload
        elif number == _CALL and kind == _DATA:
            body += payload
        if (number == _CALL and (kind == _RESET or flags & _STREAM_ENDS)) or kind == _GO_AWAY:
            return _answer(headers, body)
        header = stream.read(_FRAME_HEADER_BYTES)
        if len(header) < _FRAME_HEADER_BYTES:
            raise ConnectionError("the server closed the connection without an answer")


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
        raise AnotherServer("a server of HTTP/2 answers there which does not know the call")
    return Answer(
        status=None if found is None else int(found[1]), body=body[_MESSAGE_HEADER_BYTES:]
    )


def _other_words(words: bytes) -> str:
    if not words:
        return "the server there closes the connection without a word"
    return f"another kind of server answers there: it says {words.decode('latin-1')!r}"


def _frame(kind: int, flags: int, number: int, payload: bytes) -> bytes:
    return (
        struct.pack(">I", len(payload))[1:]
        + bytes([kind, flags])
        + struct.pack(">I", number)
        + payload
    )


def _field(name: str, value: str) -> bytes:
    """A header as it is, not compressed (RFC 7541, 6.2.2)."""
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
