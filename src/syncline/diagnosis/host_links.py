"""`read_links`: the connections of a rank to other hosts, with the round-trip times of TCP."""

from __future__ import annotations

import os
import socket
import stat
import struct

from syncline import system
from syncline.diagnosis.observation import WINDOW_S, Link

MOST_LINKS = 64
"""Connections that a rank sends for one window."""
_TCP_INFO = struct.Struct("@8B24I")  # `struct tcp_info` of linux/tcp.h, until `tcpi_total_retrans`
_ESTABLISHED = 1
_LAST_DATA_SENT, _ROUND_TRIP = 8 + 9, 8 + 15  # milliseconds, microseconds


def read_links() -> tuple[Link, ...]:
    """Return the TCP connections of this process to other hosts on which it has sent data in the
    last `WINDOW_S`; none on systems other than Linux.
    """
    found: list[Link] = []
    if not system.IS_LINUX:
        return ()
    for name in os.listdir("/proc/self/fd"):
        if len(found) == MOST_LINKS:
            break
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                link = _link(int(name))
                found += [link] if link is not None else []
        except OSError:  # another thread has closed it
            continue
    return tuple(found)


def _link(fd: int) -> Link | None:
    connection = socket.socket(fileno=fd)
    try:
        if connection.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        if connection.type != socket.SOCK_STREAM:
            return None
        data = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        info = _TCP_INFO.unpack(data.ljust(_TCP_INFO.size, b"\0"))
        if info[0] != _ESTABLISHED or info[_LAST_DATA_SENT] > 1000 * WINDOW_S:
            return None
        local, remote = connection.getsockname()[:2], connection.getpeername()[:2]
    finally:
        connection.detach()  # it stays open
    if local[0] == remote[0]:
        return None
    return Link(tuple(local), tuple(remote), info[_ROUND_TRIP] * 1e-6)
