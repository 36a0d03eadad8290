"""Connections without an event loop: blocking requests, and frames over a reactor.

`request` asks the controller and waits for the answer. `SocketConnection` is the program's side of
a connection to a replica or to the controller; several threads may share it under one lock.
"""

from __future__ import annotations

import hmac
import os
import pickle
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from syncline.core.embedded.reactor import Reactor
from syncline.core.host import short_socket_path
from syncline.serve.wire.connection import CHALLENGE_BYTES, CONNECT_S, Hello, identity, proof
from syncline.serve.wire.frames import FrameReader, Kind, encode
from syncline.serve.wire.routes import Address
from syncline.serve.wire.values import unpack_failure

_READ_BYTES = 262_144

Frame = tuple[int, int, bytes]


def open_socket(address: Address, *, node_id: str, hello: Hello, key: bytes) -> socket.socket:
    """Connect and return the blocking socket after the handshake.

    Raises OSError if the process does not listen, refuses, or does not answer in time.
    """
    if address.tcp is not None and address.node_id != node_id:
        connection = socket.create_connection(address.tcp, CONNECT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    else:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(CONNECT_S)
        try:
            with short_socket_path(address.unix_path) as path:
                connection.connect(path)
        except BaseException:
            connection.close()
            raise
    try:
        _shake_hands(connection, hello, key)
    except BaseException:
        connection.close()
        raise
    return connection


def _shake_hands(connection: socket.socket, hello: Hello, key: bytes) -> None:
    challenge = secrets.token_bytes(CHALLENGE_BYTES)
    connection.sendall(encode(Kind.HELLO, 0, challenge))
    _, _, theirs = _receive_one(connection)
    connection.sendall(encode(Kind.HELLO, 0, proof(key, theirs, is_client=True), identity(hello)))
    _, _, answer = _receive_one(connection)
    if not hmac.compare_digest(answer[:CHALLENGE_BYTES], proof(key, challenge, is_client=False)):
        raise ConnectionError("the other process does not know the key of this session")


def _receive_one(connection: socket.socket) -> Frame:
    """Receive one frame, byte-exact, so that later frames stay in the socket."""
    frames: list[Frame] = []
    reader = FrameReader()
    while not frames:
        data = connection.recv(reader.missing)
        if not data:
            raise ConnectionError("the other process closed the connection")
        reader.feed(data, lambda *frame: frames.append(frame))
    return frames[0]


def request(
    address: Address, message: object, *, node_id: str, key: bytes, timeout_s: float | None = None
) -> Any:
    """Send a request to the controller and return the reply.

    Raises the error of the controller, OSError if it cannot be reached or ends meanwhile, and
    TimeoutError after `timeout_s`.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    hello = Hello(role="caller", id=secrets.token_hex(8), pid=os.getpid())
    with open_socket(address, node_id=node_id, hello=hello, key=key) as connection:
        connection.settimeout(CONNECT_S)
        connection.sendall(encode(Kind.REQUEST, 1, pickle.dumps(message, 5)))
        while True:
            connection.settimeout(
                None if deadline is None else max(0.001, deadline - time.monotonic())
            )
            kind, _, payload = _receive_one(connection)
            if kind == Kind.REPLY:
                return pickle.loads(payload)
            if kind == Kind.FAILURE:
                raise unpack_failure(payload)


class SocketConnection:
    """Frames over a nonblocking socket that a reactor watches. Not thread-safe."""

    def __init__(
        self,
        connection: socket.socket,
        reactor: Reactor,
        *,
        on_frame: Callable[[int, int, bytes], None],
        on_closed: Callable[[], None],
        guard: Any,
    ) -> None:
        """The reactor's thread calls `on_frame` and `on_closed`, holding `guard`."""
        connection.setblocking(False)
        self._socket = connection
        self._reactor = reactor
        self._on_frame = on_frame
        self._on_closed = on_closed
        self._guard = guard
        self._reader = FrameReader()
        self._backlog: deque[memoryview] = deque()
        self._is_open = True
        reactor.register(connection.fileno(), self.receive)
        reactor.wake()

    def send(self, kind: int, call_id: int = 0, *parts: bytes | memoryview) -> None:
        """Send a frame; bytes that the socket does not accept are sent later."""
        if not self._is_open:
            return
        data = encode(kind, call_id, *parts)
        if not self._backlog:
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                return  # the reactor reports the end
            if sent == len(data):
                return
            data = data[sent:]
            self._reactor.modify(self._socket.fileno(), writable=True)
        self._backlog.append(memoryview(data))

    def close(self) -> None:
        """Close the connection and report its end."""
        if self._is_open:
            self._is_open = False
            self._reactor.unregister(self._socket.fileno())
            self._socket.close()
            self._on_closed()

    def receive(self, events: int = 0) -> None:
        """Handle the frames that have arrived, on any thread, without the reactor."""
        with self._guard:
            if self._backlog:
                self._write_backlog()
            try:
                data = self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""  # also after `close`
            if data:
                self._reader.feed(data, self._on_frame)
            else:
                self.close()

    def _write_backlog(self) -> None:
        while self._backlog:
            first = self._backlog[0]
            try:
                sent = self._socket.send(first)
            except OSError:
                return
            if sent < len(first):
                self._backlog[0] = first[sent:]
                return
            self._backlog.popleft()
        self._reactor.modify(self._socket.fileno(), writable=False)
