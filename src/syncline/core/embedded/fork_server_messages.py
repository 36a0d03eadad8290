"""Messages between the driver and the fork server: one pickled dataclass a packet, with file
descriptors.
"""

from __future__ import annotations

import pickle
import socket
import struct
from typing import TYPE_CHECKING, Any

from syncline import system
from syncline.records import dataclass

if TYPE_CHECKING:  # a driver without an engine needs none of them
    from syncline.core.embedded.engine import SessionInfo
    from syncline.core.embedded.session_directories import SessionPaths

PACKET_BYTES = 200_000
"""Largest packet that fits the default socket buffers of Linux."""
SOCKET_TYPE = socket.SOCK_SEQPACKET if system.IS_LINUX else socket.SOCK_STREAM
_FDS = 6
_LENGTH = struct.Struct("!I")


@dataclass(frozen=True, kw_only=True)
class Preload:
    """Request to import modules before the next worker starts; failed imports are ignored."""

    modules: tuple[str, ...]
    sys_path: tuple[str, ...]
    when_idle: bool = False
    """True to import them while there is nothing else to do; workers do not wait for them."""


@dataclass(frozen=True, kw_only=True)
class LaunchWorker:
    """Request for a worker. Descriptors: its channel, its stdout, its stderr."""

    number: int
    environment: str
    """Runtime environment as JSON, "" for none."""
    cwd: str


@dataclass(frozen=True, kw_only=True)
class LaunchProgram:
    """Request for a program. Descriptors: a file with its pickled work (see `program_server`), its
    stdin, stdout and stderr, then those passed as arguments.
    """

    number: int


@dataclass(frozen=True, kw_only=True)
class WorkerStarted:
    """Notice that a worker runs as process `pid`, which leads its own process group."""

    number: int
    pid: int


@dataclass(frozen=True, kw_only=True)
class WorkerEnded:
    """Notice that a worker ended; `status` as in `os.waitpid`."""

    number: int
    pid: int
    status: int
    peak_bytes: int
    """Peak memory of the process, including shared memory."""


@dataclass(frozen=True, kw_only=True)
class ForkServerConfig:
    """Configuration of the fork server."""

    paths: SessionPaths
    session: SessionInfo
    sys_path: tuple[str, ...]
    """Search path of modules of the program."""
    spawn: bool
    """Start each worker as a fresh interpreter instead of a fork."""


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets for messages."""
    return socket.socketpair(socket.AF_UNIX, SOCKET_TYPE)


def send(connection: socket.socket, message: object, fds: tuple[int, ...] = ()) -> None:
    """Send one message with file descriptors."""
    data = pickle.dumps(message, 5)
    if SOCKET_TYPE == socket.SOCK_STREAM:
        data = _LENGTH.pack(len(data)) + data
    sent = socket.send_fds(connection, [data], fds) if fds else connection.send(data)
    if sent < len(data):
        connection.sendall(data[sent:])


def receive(connection: socket.socket) -> tuple[Any, list[int]] | None:
    """Return the next message and its descriptors; None when the peer is gone."""
    is_stream = SOCKET_TYPE == socket.SOCK_STREAM
    data, fds, _, _ = socket.recv_fds(connection, _LENGTH.size if is_stream else PACKET_BYTES, _FDS)
    if is_stream and data:
        data += _exactly(connection, _LENGTH.size - len(data))
        data = _exactly(connection, _LENGTH.unpack(data)[0])
    if not data:
        return None
    return pickle.loads(data), list(fds)


def _exactly(connection: socket.socket, nbytes: int) -> bytes:
    received = b""
    while len(received) < nbytes:
        chunk = connection.recv(nbytes - len(received))
        if not chunk:
            raise ConnectionError("the peer ended within a message")
        received += chunk
    return received
