"""Messages between the driver and the fork server: one pickled dataclass a packet, with file
descriptors.
"""

from __future__ import annotations

import array
import pickle
import socket
from typing import TYPE_CHECKING, Any

from syncline.records import dataclass

if TYPE_CHECKING:  # a driver without an engine needs none of them
    from syncline.core.embedded.engine import SessionInfo
    from syncline.core.embedded.session_directories import SessionPaths

PACKET_BYTES = 200_000
"""Largest packet that fits the default socket buffers of Linux."""
_FDS = 6


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
    stdin, stdout and stderr, then those that it gets as argument.
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


def send(connection: socket.socket, message: object, fds: tuple[int, ...] = ()) -> None:
    """Send one message with file descriptors."""
    data = pickle.dumps(message, 5)
    if fds:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        connection.sendmsg([data], ancillary)
    else:
        connection.send(data)


def receive(connection: socket.socket) -> tuple[Any, list[int]] | None:
    """Return the next message and its descriptors; None when the peer is gone."""
    data, fds, _, _ = socket.recv_fds(connection, PACKET_BYTES, _FDS)
    if not data:
        return None
    return pickle.loads(data), list(fds)
