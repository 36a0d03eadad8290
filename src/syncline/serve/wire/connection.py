"""`LoopConnection`: frames over a stream socket, on an event loop.

Each side first sends HELLO. Between nodes, whose sockets any process can reach, both sides prove
that they know the session's key: each answers the other's random challenge with an HMAC, and drops
the connection if the answer is wrong or later than `HANDSHAKE_S`. Unix sockets are in a directory
with mode 0700; the key is checked there as well.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import marshal
import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, cast

from syncline.core.host import short_socket_path
from syncline.records import dataclass
from syncline.serve.wire.frames import FrameReader, Kind, encode
from syncline.serve.wire.routes import Address

logger = logging.getLogger("syncline.serve")

HANDSHAKE_S = 10.0
"""Seconds for the handshake of a connection."""
CONNECT_S = 10.0
MERGE_S = 0.0002
"""Seconds after a write during which frames wait for others."""
LARGE_FRAME_BYTES = 65_536
"""Size from which a frame is written alone: joining it with others would copy it."""
CHALLENGE_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class Hello:
    """Identity of the process at the other end."""

    role: str
    """"controller", "proxy", "replica" or "caller"."""
    id: str
    """Replica id, proxy id, or a random id."""
    pid: int


class Receiver(Protocol):
    """Handles the frames of one connection."""

    def on_frame(self, kind: int, call_id: int, payload: bytes) -> None:
        """Handle a frame."""

    def on_closed(self) -> None:
        """Handle the end of the connection."""


class LoopConnection(asyncio.Protocol):
    """One end of a connection. Use it on its loop's thread only."""

    def __init__(
        self,
        hello: Hello,
        key: bytes,
        on_ready: Callable[[LoopConnection], Receiver],
        on_failure: Callable[[Exception], None] | None = None,
        *,
        is_client: bool,
    ) -> None:
        """`on_ready(connection)` is called after the handshake and returns the receiver."""
        self._is_client = is_client
        self._hello = hello
        self._key = key
        self._on_ready = on_ready
        self._on_failure = on_failure
        self._receiver: Receiver | None = None
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._frames: list[bytes] = []  # sent in this turn of the loop
        self._written_at = 0.0
        self._challenge = secrets.token_bytes(CHALLENGE_BYTES)
        self._greeted = False
        self._timer: asyncio.TimerHandle | None = None
        self.peer: Hello | None = None
        """Identity of the other side; set when `on_ready` is called."""
        self.is_writable = True
        """False while the socket accepts no more bytes."""

    # -- use

    @property
    def is_closed(self) -> bool:
        """True after the end of the connection."""
        return self._transport is None or self._transport.is_closing()

    @property
    def unsent_bytes(self) -> int:
        """Number of sent bytes that the socket has not taken yet."""
        if self._transport is None:
            return 0
        return self._transport.get_write_buffer_size() + sum([len(each) for each in self._frames])

    def send(self, kind: int, call_id: int = 0, *parts: bytes | memoryview) -> None:
        """Send a frame; it is dropped if the connection is closed.

        A write that wakes the other process costs more than all else, so frames that follow a write
        within `MERGE_S` leave together: at the end of this turn of the loop, or with the first
        frame after that time if code that computes holds the turn.
        """
        frame = encode(kind, call_id, *parts)
        now = time.perf_counter()
        if now - self._written_at > MERGE_S or len(frame) >= LARGE_FRAME_BYTES:
            self._written_at = now
            self.flush()
            if self._transport is not None:
                self._transport.write(frame)
        elif self._frames:
            self._frames.append(frame)
        elif self._loop is not None:
            self._frames.append(frame)
            self._loop.call_soon(self.flush)

    def close(self) -> None:
        """Close the connection after the sent frames."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def flush(self) -> None:
        """Write the frames that wait for others."""
        frames = self._frames
        if frames and self._transport is not None:
            self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))
        frames.clear()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the challenge."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's has another base class
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop = asyncio.get_running_loop()
        self.send(Kind.HELLO, 0, self._challenge)
        self._timer = self._loop.call_later(
            HANDSHAKE_S, self._refuse, "the handshake took too long"
        )

    def data_received(self, data: bytes) -> None:
        """Handle the frames that `data` completes."""
        self._reader.feed(data, self._on_frame)

    def connection_lost(self, error: Exception | None) -> None:
        """Tell the receiver."""
        self._transport = self._loop = None
        self._frames.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._receiver is not None:
            self._receiver.on_closed()
        elif self._on_failure is not None:
            self._on_failure(error or ConnectionError("the other process closed the connection"))

    def pause_writing(self) -> None:
        """Record that the socket is full."""
        self.is_writable = False

    def resume_writing(self) -> None:
        """Record that the socket accepts bytes again."""
        self.is_writable = True

    # -- handshake

    def _on_frame(self, kind: int, call_id: int, payload: bytes) -> None:
        if self._receiver is not None:
            self._receiver.on_frame(kind, call_id, payload)
        elif kind != Kind.HELLO:
            self._refuse(f"a frame of kind {kind} before the handshake")
        elif not self._greeted:
            self._greeted = True
            answer = proof(self._key, payload, is_client=self._is_client)
            self.send(Kind.HELLO, 0, answer, identity(self._hello))
        else:
            self._check(payload)

    def _check(self, payload: bytes) -> None:
        expected = proof(self._key, self._challenge, is_client=not self._is_client)
        if not hmac.compare_digest(payload[:CHALLENGE_BYTES], expected):
            self._refuse("the other process does not know the key of this session")
            return
        role, id_, pid = marshal.loads(payload[CHALLENGE_BYTES:])
        self.peer = Hello(role=role, id=id_, pid=pid)
        if self._timer is not None:
            self._timer.cancel()
        self._receiver = self._on_ready(self)

    def _refuse(self, reason: str) -> None:
        if self._receiver is None and self._transport is not None:
            logger.warning("A connection was refused: %s.", reason)
            self._transport.abort()


def proof(key: bytes, challenge: bytes, *, is_client: bool) -> bytes:
    """Return the answer of one side to the other side's challenge."""
    # The side is part of the text, so that a challenge cannot be answered by its own sender.
    return hmac.digest(key, (b"client" if is_client else b"server") + challenge, "sha256")


def identity(hello: Hello) -> bytes:
    """Return the bytes that follow the proof in the second HELLO."""
    return marshal.dumps((hello.role, hello.id, hello.pid))


async def connect(
    address: Address,
    *,
    node_id: str,
    hello: Hello,
    key: bytes,
    on_ready: Callable[[LoopConnection], Receiver],
) -> LoopConnection:
    """Connect to a process of serve and return after the handshake.

    Raises OSError or TimeoutError if the process does not listen or refuses.
    """
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def began(connection: LoopConnection) -> Receiver:
        receiver = on_ready(connection)
        if not ready.done():
            ready.set_result(None)
        return receiver

    def failed(error: Exception) -> None:
        if not ready.done():
            ready.set_exception(error)

    def factory() -> LoopConnection:
        return LoopConnection(hello, key, began, failed, is_client=True)

    opened: Awaitable[tuple[asyncio.BaseTransport, LoopConnection]]
    if address.tcp is not None and address.node_id != node_id:
        opened = loop.create_connection(factory, *address.tcp)
        _, connection = await asyncio.wait_for(opened, CONNECT_S)
    else:
        with short_socket_path(address.unix_path) as path:
            opened = loop.create_unix_connection(factory, path)
            _, connection = await asyncio.wait_for(opened, CONNECT_S)
    try:
        await asyncio.wait_for(ready, CONNECT_S)
    except BaseException:
        connection.close()
        raise
    return connection


class Listener:
    """Listens on a Unix socket and, for processes of other nodes, on a TCP port."""

    def __init__(
        self, hello: Hello, key: bytes, on_ready: Callable[[LoopConnection], Receiver]
    ) -> None:
        self._hello = hello
        self._key = key
        self._on_ready = on_ready
        self._servers: list[asyncio.AbstractServer] = []
        self.address: Address | None = None

    async def start(self, unix_path: str, *, node_id: str, host: str | None) -> Address:
        """Start to listen; `host` is this node's address for other nodes, None for one machine."""
        loop = asyncio.get_running_loop()
        try:
            os.unlink(unix_path)  # of a killed predecessor
        except FileNotFoundError:
            pass
        with short_socket_path(unix_path) as path:
            self._servers.append(await loop.create_unix_server(self._accept, path))
        tcp = None
        if host is not None:
            server = await loop.create_server(self._accept, host, 0)
            self._servers.append(server)
            tcp = (host, server.sockets[0].getsockname()[1])
        self.address = Address(node_id=node_id, unix_path=unix_path, tcp=tcp)
        return self.address

    def close(self) -> None:
        """Stop to listen; open connections remain."""
        for server in self._servers:
            server.close()

    def _accept(self) -> LoopConnection:
        return LoopConnection(self._hello, self._key, self._on_ready, is_client=False)
