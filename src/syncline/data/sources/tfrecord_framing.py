"""The framing of TFRecord files: length, its checksum, content, its checksum; all little-endian.

Source: the format's description in TensorFlow's documentation ("TFRecords format details").
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import google_crc32c
import pyarrow as pa

_HEAD = struct.Struct("<QI")
_TAIL = struct.Struct("<I")


def frame(content: bytes) -> bytes:
    """One record."""
    length = struct.pack("<Q", len(content))
    return b"".join((length, _TAIL.pack(_masked(length)), content, _TAIL.pack(_masked(content))))


def records(file: pa.NativeFile, path: str) -> Iterator[bytes]:
    """The contents of all records. ValueError names the file and the record that is broken."""
    index = 0
    while head := file.read(_HEAD.size):
        if len(head) < _HEAD.size or _masked(head[:8]) != _HEAD.unpack(head)[1]:
            raise _broken(path, index, "its length is cut off or its checksum is wrong")
        length = _HEAD.unpack(head)[0]
        content = file.read(length)
        tail = file.read(_TAIL.size)
        if len(content) < length or len(tail) < _TAIL.size:
            raise _broken(path, index, f"the file ends before its {length} bytes do")
        if _masked(content) != _TAIL.unpack(tail)[0]:
            raise _broken(path, index, "the checksum of its content is wrong")
        yield content
        index += 1


def _masked(data: bytes) -> int:
    crc: int = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _broken(path: str, index: int, reason: str) -> ValueError:
    return ValueError(f"{path} cannot be read as TFRecords: record {index} is broken, {reason}")
