"""This host: Unix-domain sockets, processes, network interfaces, the terminal, a running Ray node.

Paths and peers of Unix sockets use `/proc` and SO_PEERCRED on Linux, and otherwise symbolic links
and the calls of BSD.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TextIO

from syncline import system
from syncline.optional import deferred

if TYPE_CHECKING:
    import tempfile

    import psutil
else:
    psutil, tempfile = deferred("psutil"), deferred("tempfile")


_CREDENTIALS = struct.Struct("=iII")
_SOL_LOCAL, _LOCAL_PEERCRED, _LOCAL_PEERPID = 0, 1, 2
"""Options of macOS."""
_TELLS_PEER = system.IS_LINUX or sys.platform == "darwin"
_READ_BYTES = 65_536
_LONGEST_SOCKET_PATH = 107
_RAY_NODE_PROCESS = "raylet"


# -- Unix-domain sockets


class Peer(NamedTuple):
    """The process at the other end of a Unix socket, as the kernel reports it."""

    pid: int
    """0 if the process is not visible, for example from another container."""
    uid: int


@contextmanager
def short_socket_path(path: str | Path) -> Iterator[str]:
    """Yield a path to a Unix socket that is short enough for the system, valid in the context.

    The system limits socket paths to 107 bytes; the directory of `path` exists and may be longer.
    """
    if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH:
        yield str(path)
        return
    directory, name = os.path.split(path)
    if not system.IS_LINUX:
        with tempfile.TemporaryDirectory(prefix="s-", dir="/tmp") as short:
            link = os.path.join(short, "d")
            os.symlink(os.path.abspath(directory), link)
            yield os.path.join(link, name)
        return
    fd = os.open(directory, os.O_PATH | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)


def publish_listener(path: Path) -> None:
    """Let `peer` identify this process, which listens at a socket's file, on any system."""
    if not _TELLS_PEER:
        _pid_file(path).write_text(str(os.getpid()))


def withdraw_listener(path: Path) -> None:
    """Remove a socket's file, and that of `publish_listener`."""
    path.unlink(missing_ok=True)
    if not _TELLS_PEER:
        _pid_file(path).unlink(missing_ok=True)


def peer(connection: socket.socket, path: Path | None = None) -> Peer:
    """Return the process that created the other end; for a client, the listening process.

    On systems that tell neither, the process is that of `publish_listener`, and the user is the
    owner of the socket's file, or this process's user without `path`: only that user can reach a
    socket in a private directory.

    Args:
        connection: A connected Unix socket.
        path: File of the socket, given by a client.
    """
    if not system.IS_LINUX:
        return _portable_peer(connection, path)
    pid, uid, _ = _CREDENTIALS.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return Peer(pid, uid)


def _portable_peer(connection: socket.socket, path: Path | None) -> Peer:
    if sys.platform == "darwin":  # struct xucred begins with its version and the user
        credentials = connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, 76)
        pid = connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID)
        return Peer(pid, struct.unpack_from("=II", credentials)[1])
    if path is None:
        return Peer(0, os.getuid())
    try:
        pid = int(_pid_file(path).read_text())
    except (OSError, ValueError):  # it has ended, or is not published
        pid = 0
    return Peer(pid, os.stat(path).st_uid)


def _pid_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.pid")


def receive_line(connection: socket.socket, *, limit_bytes: int, deadline: float) -> bytes:
    """Receive one line and return it without its newline; no data may follow it.

    Raises TimeoutError at `deadline` (of `time.monotonic()`), EOFError if the peer closes before
    the end of the line, ValueError for more than `limit_bytes`, and OSError for a broken
    connection.
    """
    received = bytearray()
    while not received.endswith(b"\n"):
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError(f"no end of line after {len(received)} bytes")
        connection.settimeout(remaining_s)
        chunk = connection.recv(_READ_BYTES)
        if not chunk:
            raise EOFError(f"the connection was closed after {len(received)} bytes of a line")
        received += chunk
        if len(received) > limit_bytes:
            raise ValueError(f"the line is longer than {limit_bytes} bytes")
    return bytes(received[:-1])


# -- processes, network, terminal, Ray


def kill_group(pid: int) -> None:
    """SIGKILL a process and everything in the process group that it leads."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def is_stopped(pid: int) -> bool:
    """Return True if a process of this machine was stopped by a signal, such as SIGSTOP."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False


class InterfaceAddress(Protocol):
    """One address of an interface, as `psutil.net_if_addrs()` returns it."""

    @property
    def address(self) -> str: ...


def interface_of(
    address: str, interfaces: Mapping[str, Sequence[InterfaceAddress]] | None = None
) -> str | None:
    """Return the name of the network interface with an IP address.

    Returns None if no interface has it, for example behind a NAT. `interfaces` defaults to those of
    this host.
    """
    for name, owned in (psutil.net_if_addrs() if interfaces is None else interfaces).items():
        if any(entry.address.partition("%")[0] == address for entry in owned):
            return name
    return None


def is_terminal(stream: TextIO | None) -> bool:
    """Return True if `stream` is a terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def is_interactive(stream: TextIO | None) -> bool:
    """Return True if `stream` is a terminal or the program runs in a notebook."""
    # Only a program in a notebook has imported its kernel.
    return is_terminal(stream) or "ipykernel" in sys.modules


def ray_node_runs_here() -> bool:
    """Return True if Ray is installed and one of its nodes runs on this host; takes milliseconds.

    Does not import Ray.
    """
    if importlib.util.find_spec("ray") is None:
        return False
    return any(
        process.info["name"] == _RAY_NODE_PROCESS for process in psutil.process_iter(["name"])
    )
