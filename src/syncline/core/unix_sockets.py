"""Unix-domain sockets of this user on this machine: names of any length, who is at the other end,
and one line at a time.

Not covered: what is said. Works on Linux, whose /proc it uses.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_CREDENTIALS = struct.Struct("=iII")
_READ_BYTES = 65_536


class Peer(NamedTuple):
    """Who made the other end of a connection, as the system knows it."""

    pid: int
    """0 where it cannot be seen from here, as from within another container."""
    uid: int


def by_short_name(directory: Path, name: str, use: Callable[[str], None]) -> None:
    """Call `use(path)` with a path to `name` that fits into the 107 bytes that the system allows,
    however long the directory's is.
    """
    fd = os.open(directory, os.O_PATH | os.O_CLOEXEC)
    try:
        use(f"/proc/self/fd/{fd}/{name}")
    finally:
        os.close(fd)


def peer(connection: socket.socket) -> Peer:
    """Who is at the other end; of one that was connected to a listening socket, who made that."""
    pid, uid, _ = _CREDENTIALS.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return Peer(pid, uid)


def receive_line(connection: socket.socket, *, limit_bytes: int, deadline: float) -> bytes:
    """The next line, without its end; nothing may follow it.

    Raises TimeoutError at `deadline` (of `time.monotonic()`), EOFError where the other end closes
    before the line ends, ValueError for more than `limit_bytes`, and OSError where the connection
    breaks.
    """
    received = bytearray()
    while not received.endswith(b"\n"):
        rest_s = deadline - time.monotonic()
        if rest_s <= 0:
            raise TimeoutError(f"the line had not ended after {len(received)} bytes")
        connection.settimeout(rest_s)
        chunk = connection.recv(_READ_BYTES)
        if not chunk:
            raise EOFError(f"the connection was closed after {len(received)} bytes of a line")
        received += chunk
        if len(received) > limit_bytes:
            raise ValueError(f"the line is longer than {limit_bytes} bytes")
    return bytes(received[:-1])
