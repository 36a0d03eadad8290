"""TensorBoard event files, read with tensorboardX's messages and checksums."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

from tensorboardX.crc32c import crc32c
from tensorboardX.proto.event_pb2 import Event


def events(content: bytes) -> list[Any]:
    """Return the messages of an event file without a torn last one. AssertionError for a wrong
    checksum.
    """
    found, start = [], 0
    while start + 12 <= len(content):
        (size,) = struct.unpack_from("<Q", content, start)
        if start + size + 16 > len(content):
            break
        data = content[start + 12 : start + 12 + size]
        assert struct.unpack_from("<I", content, start + 8)[0] == _masked(
            content[start : start + 8]
        )
        assert struct.unpack_from("<I", content, start + 12 + size)[0] == _masked(data)
        found.append(Event.FromString(data))
        start += size + 16
    return found


def event_files(directory: str | os.PathLike[str]) -> list[Path]:
    """Return the event files of a directory in the order in which TensorBoard reads them."""
    return sorted(Path(directory).glob("*tfevents*"))


def curves(directory: str | os.PathLike[str]) -> dict[str, list[tuple[int, float]]]:
    """Return the scalars that TensorBoard shows, as {tag: [(step, value)]}: a session start drops
    the values of its step and later ones.
    """
    found: dict[str, list[tuple[int, float]]] = {}
    for event in (event for path in event_files(directory) for event in events(path.read_bytes())):
        if event.session_log.status == 1:
            found = {
                tag: [point for point in points if point[0] < event.step]
                for tag, points in found.items()
            }
        for value in event.summary.value:
            if value.WhichOneof("value") == "simple_value":
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def _masked(data: bytes) -> int:
    checksum = crc32c(data)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF
