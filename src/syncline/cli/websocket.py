"""The receiving end of a WebSocket (RFC 6455): text comes in, and nothing is sent but what the protocol asks for.

Not covered: sending, and extensions such as compression, which the server is not offered.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import socket
import ssl
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

_ACCEPT_SUFFIX = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_LARGEST_HEAD_BYTES = 65_536
_READ_BYTES = 65_536


class Opcode(IntEnum):
    """What a frame is."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One frame of the server's."""

    opcode: int
    is_final: bool
    """Whether the message ends with it."""
    payload: bytes


class HandshakeRefused(ConnectionError):
    """The server does not speak WebSocket at that address, or does not want to."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status} {text}")
        self.status = status


def take_frame(received: bytearray) -> Frame | None:
    """Take a whole frame off the beginning; None if it has not come whole yet."""
    if len(received) < 2:
        return None
    length, begin = received[1] & 0x7F, 2
    if length > 125:
        begin += 2 if length == 126 else 8
        if len(received) < begin:
            return None
        length = int.from_bytes(received[2:begin], "big")
    if len(received) < begin + length:
        return None
    frame = Frame(opcode=received[0] & 0x0F, is_final=bool(received[0] & 0x80), payload=bytes(received[begin : begin + length]))
    del received[: begin + length]
    return frame


def masked_frame(opcode: Opcode, payload: bytes) -> bytes:
    """A control frame as clients send it: at most 125 bytes, with a mask."""
    assert len(payload) <= 125
    mask = secrets.token_bytes(4)
    return bytes([0x80 | opcode, 0x80 | len(payload)]) + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))


class WebSocket:
    """A connection to `url` (`http://` or `https://`). Not for several threads.

    Args:
        url: Where the socket is.
        headers: Besides those of the protocol.
        limit_s: How long connecting, and each step of it, may take.

    Raises:
        HandshakeRefused: The server answers something else.
        OSError: It does not answer.
    """

    def __init__(self, url: str, headers: Mapping[str, str], limit_s: float) -> None:
        parts = urllib.parse.urlsplit(url)
        assert parts.hostname is not None, "the addresses of job APIs have a host"
        port = parts.port or (443 if parts.scheme == "https" else 80)
        self._socket = socket.create_connection((parts.hostname, port), timeout=limit_s)
        try:
            if parts.scheme == "https":
                self._socket = ssl.create_default_context().wrap_socket(self._socket, server_hostname=parts.hostname)
            self._received = self._shake_hands(parts, headers)
        except BaseException:
            self._socket.close()
            raise
        self._message = bytearray()

    def __enter__(self) -> WebSocket:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def _shake_hands(self, parts: urllib.parse.SplitResult, headers: Mapping[str, str]) -> bytearray:
        """Ask for a WebSocket; what the server has sent after its answer."""
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        asked = {
            "Host": parts.netloc,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": key,
            **headers,
        }
        lines = [f"GET {parts.path} HTTP/1.1", *(f"{name}: {value}" for name, value in asked.items())]
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode())
        received = bytearray()
        while b"\r\n\r\n" not in received:
            data = self._socket.recv(_READ_BYTES)
            if not data or len(received) > _LARGEST_HEAD_BYTES:
                raise ConnectionError("the server closed the connection instead of answering, or answered something else")
            received += data
        head, _, rest = received.partition(b"\r\n\r\n")
        _check_answer(head.decode(errors="replace"), key)
        return rest

    def receive(self, limit_s: float) -> str | None:
        """The next message; None if none has come whole within the limit.

        EOFError once the server has closed the connection, OSError where it broke.
        """
        until = time.monotonic() + limit_s
        while True:
            while (frame := take_frame(self._received)) is not None:
                message = self._handle(frame)
                if message is not None:
                    return message
            left = until - time.monotonic()
            if left <= 0:
                return None
            self._socket.settimeout(left)
            try:
                data = self._socket.recv(_READ_BYTES)
            except TimeoutError:
                return None
            if not data:
                raise EOFError("the server closed the connection")
            self._received += data

    def _handle(self, frame: Frame) -> str | None:
        """A message, if this frame ends one."""
        if frame.opcode == Opcode.CLOSE:
            raise EOFError("the server closed the connection")
        if frame.opcode == Opcode.PING:
            self._socket.sendall(masked_frame(Opcode.PONG, frame.payload))
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONTINUATION):
            return None
        self._message += frame.payload
        if not frame.is_final:
            return None
        text = self._message.decode(errors="replace")
        self._message.clear()
        return text


def _check_answer(head: str, key: str) -> None:
    first, *lines = head.split("\r\n")
    _, _, status = first.partition(" ")
    code, _, reason = status.partition(" ")
    if code != "101":
        raise HandshakeRefused(int(code) if code.isdecimal() else 0, reason or first)
    given = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    wanted = base64.b64encode(hashlib.sha1((key + _ACCEPT_SUFFIX).encode(), usedforsecurity=False).digest()).decode()
    if given.get("sec-websocket-accept") != wanted:
        raise HandshakeRefused(101, "with the answer to another question: is there a cache between?")
