"""What the driver and the template say to each other: one pickled message a packet, file
descriptors beside it.
"""

from __future__ import annotations

import array
import pickle
import socket
from dataclasses import dataclass
from typing import Any

from syncline.core.embedded.session import SessionPaths

PACKET_BYTES = 200_000
"""The largest packet that the default socket buffers of Linux take."""
_FDS = 4


@dataclass(frozen=True, kw_only=True)
class Preload:
    """Import these modules before the next worker is made; what cannot be imported is left to the
    worker that needs it.
    """

    modules: tuple[str, ...]
    sys_path: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class StartWorker:
    """Make a worker. Descriptors beside it: its channel, its stdout, its stderr."""

    number: int
    environment: str
    """Its runtime environment as JSON, "" for none."""
    cwd: str
    namespace: str
    node_id: str


@dataclass(frozen=True, kw_only=True)
class WorkerStarted:
    """The worker exists as process `pid`, which leads a process group of its own."""

    number: int
    pid: int


@dataclass(frozen=True, kw_only=True)
class WorkerEnded:
    """The worker's process has ended; `status` as `os.waitpid` gives it."""

    number: int
    pid: int
    status: int
    peak_bytes: int
    """The most memory that it ever had, that which it shared included."""


@dataclass(frozen=True, kw_only=True)
class TemplateFacts:
    """What the template needs to know when it starts."""

    paths: SessionPaths
    namespace: str
    node_id: str
    spawn: bool
    """Start each worker as a fresh interpreter instead of a fork."""


def send(connection: socket.socket, message: object, fds: tuple[int, ...] = ()) -> None:
    """Send one message."""
    data = pickle.dumps(message, 5)
    if fds:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        connection.sendmsg([data], ancillary)
    else:
        connection.send(data)


def receive(connection: socket.socket) -> tuple[Any, list[int]] | None:
    """The next message and its descriptors; None when the other end is gone."""
    data, fds, _, _ = socket.recv_fds(connection, PACKET_BYTES, _FDS)
    if not data:
        return None
    return pickle.loads(data), list(fds)
