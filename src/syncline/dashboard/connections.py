"""Checks of connections: the user at the other end, and the form of websocket messages.

All users of a machine can connect to its loopback address, so a dashboard could expose files that
only their owner may read. `is_other_user` finds the user of a connection in the system's connection
table. Linux only: without the table no user counts as a stranger.

The page framework also accepts websocket messages in binary pieces and stores them until the last
piece arrives, however many are announced. Pages never send such messages; `text_only` rejects them.
"""

from __future__ import annotations

import ipaddress
import os
import struct
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
Address = tuple[str, int]
_LOCAL, _REMOTE, _USER, _INODE = 1, 2, 7, 9
_IN_IPV6 = "0000000000000000FFFF0000"


def is_other_user(client: Address | None, server: Address | None) -> bool:
    """Return True if the client is a process of a user other than this user and root, or of none.

    Args:
        client: Address of the other end.
        server: Address of this end.
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
            # Closed connections have no inode and appear as root's.
            if fields[_LOCAL] in client and fields[_REMOTE] in server and fields[_INODE] != "0":
                return int(fields[_USER])
    return None


def _written(address: Address) -> Iterator[str]:
    """Yield an address and port as the tables write it: IPv4 in both tables, in one as IPv6."""
    host, port = ipaddress.ip_address(address[0].partition("%")[0]), f"{address[1]:04X}"
    host = getattr(host, "ipv4_mapped", None) or host
    text = "".join(
        f"{word:08X}" for word in struct.unpack(f"={len(host.packed) // 4}I", host.packed)
    )
    yield f"{text}:{port}"
    if host.version == 4:
        yield f"{_IN_IPV6}{text}:{port}"


Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

_MESSAGE = "4"
_IN_PIECES = ("5", "6")
_UNSUPPORTED_DATA = 1003


def text_only(receive: Receive) -> Receive:
    """Wrap `receive` to disconnect on any websocket message that is not a complete text."""

    async def checked() -> Message:
        message = await receive()
        if message["type"] != "websocket.receive" or _is_text(message):
            return message
        return {"type": "websocket.disconnect", "code": _UNSUPPORTED_DATA}

    return checked


def _is_text(message: Message) -> bool:
    text = message.get("text")
    return isinstance(text, str) and not (text.startswith(_MESSAGE) and text[1:2] in _IN_PIECES)
