"""Frames: the unit of every connection between serve's processes. Pure encoding.

A frame is a header (payload length u32, kind u8, call id u64, little endian) and a payload. One
connection carries the frames of many calls in both directions, in any order. Call ids are chosen by
the caller, and are unique over all callers of a replica: the upper 24 bits name the caller.

A call begins with HTTP, CALL or GRPC and ends with exactly one of RESPONSE, END, VALUE, ERROR,
ABORT or BUSY. Streams send START (not for CALL) and CHUNK frames before END, as long as the
receiver's window allows: 256 kB at first, then as many bytes as WINDOW frames grant. BODY frames
follow only after the replica's first WINDOW frame, which it sends when the call begins: until then,
the first frame alone can be sent to another replica.
"""

from __future__ import annotations

import marshal
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

WINDOW_BYTES = 262_144
"""Bytes of a stream that may be sent before the receiver grants more."""
LARGEST_PAYLOAD = 2**32 - 1

_HEADER = struct.Struct("<IBQ")
HEADER_BYTES = _HEADER.size
_STATUS = struct.Struct("<H")
_LENGTH = struct.Struct("<I")


class Kind(IntEnum):
    """Kind of a frame."""

    HELLO = 1
    """First frame of each side: a pickled `connection.Hello`."""

    # caller -> replica
    HTTP = 10
    """`encode_request`: an HTTP request, with its body unless BODY frames follow."""
    CALL = 11
    """A method call of a handle: `values.pack_call`."""
    BODY = 12
    """A piece of a request body, or bytes of a WebSocket client; empty: the end of the body."""
    CANCEL = 13
    """The caller no longer waits; the replica cancels the call and answers as usual."""
    GRPC = 14
    """A gRPC call: `grpc_frames.encode_head`; BODY frames follow if the client streams."""

    # replica -> caller
    RESPONSE = 20
    """Status u16 and the complete bytes of an HTTP/1.1 response."""
    START = 21
    """Status u16 and the head of a streamed HTTP response, or of a WebSocket handshake."""
    CHUNK = 22
    """Bytes of a streamed response as they go to the client; or one packed item of a stream."""
    END = 23
    """End of a stream."""
    VALUE = 24
    """A packed result."""
    ERROR = 25
    """A packed exception; also instead of END, after chunks."""
    ABORT = 26
    """The stream broke after START: the proxy closes the client's connection."""
    BUSY = 27
    """The replica has `max_ongoing_requests`, or drains: the call did not begin, send it again."""
    FREE = 28
    """After BUSY to this caller: the replica has free slots again (call id 0)."""

    # both directions
    WINDOW = 30
    """Bytes u32 that the other side may send in addition."""

    # to and from the controller
    NOTICE = 40
    """A pickled message without an answer."""
    REQUEST = 41
    """A pickled message; REPLY or FAILURE with the same call id answers it."""
    REPLY = 42
    """A pickled value."""
    FAILURE = 43
    """A packed exception."""


FrameHandler = Callable[[int, int, bytes], None]
"""`handler(kind, call_id, payload)`."""


def encode(kind: int, call_id: int, *parts: bytes | memoryview) -> bytes:
    """Return a frame whose payload is the concatenation of `parts`."""
    size = 0
    for part in parts:
        size += len(part)
    if size > LARGEST_PAYLOAD:
        raise ValueError(
            f"a message of {size} bytes is larger than {LARGEST_PAYLOAD}: "
            f"pass large values as `syncline.put(value)`"
        )
    return b"".join((_HEADER.pack(size, kind, call_id), *parts))


class FrameReader:
    """Splits received bytes into frames."""

    __slots__ = ("_pieces", "missing")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []  # the beginning of an incomplete frame
        self.missing = HEADER_BYTES
        """Bytes that the current frame lacks at least."""

    def feed(self, data: bytes, handle: FrameHandler) -> None:
        """Call `handle` for each frame that `data` completes."""
        if self._pieces:
            self._pieces.append(data)
            self.missing -= len(data)
            if self.missing > 0:  # joined once, when the frame is complete
                return
            data = b"".join(self._pieces)
            self._pieces.clear()
        position, end = 0, len(data)
        unpack = _HEADER.unpack_from
        while end - position >= HEADER_BYTES:
            length, kind, call_id = unpack(data, position)
            stop = position + HEADER_BYTES + length
            if stop > end:
                self.missing = stop - end
                self._pieces.append(data[position:] if position else data)
                return
            handle(kind, call_id, data[position + HEADER_BYTES : stop])
            position = stop
        self.missing = HEADER_BYTES - (end - position)
        if position < end:
            self._pieces.append(data[position:])


# -- payloads


class RequestHead(NamedTuple):
    """Facts about an HTTP request besides its body; encoded with marshal, which runs no code."""

    method: str
    target: bytes
    """The request target as received: raw path and query string."""
    headers: list[tuple[bytes, bytes]]
    """In their order, names in lower case."""
    http_version: str
    """"1.0" or "1.1"."""
    scheme: str
    """"http", "https", "ws" or "wss"; the last two for a WebSocket handshake."""
    client: tuple[str, int] | None
    server: tuple[str, int | None]
    root_path: str
    """The route prefix of the application, without a trailing slash, after the proxy's own."""
    request_id: str
    timeout_s: float | None
    """Seconds left until the deadline."""
    keep_alive: bool
    """False if the response must announce the end of the connection."""
    more_body: bool
    """True if BODY frames follow."""
    multiplexed_model_id: str
    route: str
    """The pattern of the path, or the route prefix; for logs and metrics."""


def encode_request(head: RequestHead, body: bytes) -> tuple[bytes, ...]:
    """Return the parts of an HTTP frame's payload."""
    encoded = marshal.dumps(tuple(head))
    return _LENGTH.pack(len(encoded)), encoded, body


def decode_request(payload: bytes) -> tuple[RequestHead, bytes]:
    """Return the head and the body of an HTTP frame."""
    (length,) = _LENGTH.unpack_from(payload)
    end = 4 + length
    return RequestHead(*marshal.loads(payload[4:end])), payload[end:]


def encode_status(status: int) -> bytes:
    """Return the first two bytes of a RESPONSE or START payload."""
    return _STATUS.pack(status)


def decode_response(payload: bytes) -> tuple[int, bytes]:
    """Return status and bytes of a RESPONSE or START frame."""
    return _STATUS.unpack_from(payload)[0], payload[2:]


def encode_window(granted: int) -> bytes:
    """Return the payload of a WINDOW frame."""
    return _LENGTH.pack(granted)


def decode_window(payload: bytes) -> int:
    """Return the bytes that a WINDOW frame grants."""
    granted: int = _LENGTH.unpack(payload)[0]
    return granted
