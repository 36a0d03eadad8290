"""Which user of this machine is at the other end of a connection, as the system's table of
connections has it.

A machine has many users, and all of them reach what listens on loopback: files that only their
owner may read would be everybody's to read through a dashboard. Linux only: elsewhere the table
cannot be read, and nobody counts as a stranger.
"""

from __future__ import annotations

import ipaddress
import os
import struct
from collections.abc import Iterator
from pathlib import Path

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
Address = tuple[str, int]
_LOCAL, _REMOTE, _USER, _INODE = 1, 2, 7, 9
_IN_IPV6 = "0000000000000000FFFF0000"


def is_stranger(client: Address | None, server: Address | None) -> bool:
    """Whether a connection comes from a process of neither this user nor root; so does one that is
    nobody's any more.

    Args:
        client: The other end.
        server: This end.
    """
    if client is None or server is None:
        return False
    try:
        user = _user_of(set(_written(client)), set(_written(server)))
    except OSError:
        return False
    return user not in (0, os.getuid())


def _user_of(client: set[str], server: set[str]) -> int | None:
    for table in TABLES:
        try:
            lines = table.read_text(encoding="ascii").splitlines()
        except FileNotFoundError:
            if table is TABLES[0]:
                raise
            continue  # a system without IPv6
        for line in lines[1:]:
            fields = line.split()
            # What was closed already has no inode, and counts as root's.
            if fields[_LOCAL] in client and fields[_REMOTE] in server and fields[_INODE] != "0":
                return int(fields[_USER])
    return None


def _written(address: Address) -> Iterator[str]:
    """An address and port as the tables have it: IPv4 addresses are in both, in one as part of
    IPv6.
    """
    host, port = ipaddress.ip_address(address[0].partition("%")[0]), f"{address[1]:04X}"
    host = getattr(host, "ipv4_mapped", None) or host
    text = "".join(
        f"{word:08X}" for word in struct.unpack(f"={len(host.packed) // 4}I", host.packed)
    )
    yield f"{text}:{port}"
    if host.version == 4:
        yield f"{_IN_IPV6}{text}:{port}"
