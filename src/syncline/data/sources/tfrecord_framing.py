"""The framing of TFRecord files: length, its checksum, content, its checksum; all little-endian.

Source: the format's description in TensorFlow's documentation ("TFRecords format details").
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa

from syncline.runs.event_file import masked_checksum

_HEAD = struct.Struct("<QI")
_TAIL = struct.Struct("<I")


def records(file: pa.NativeFile, path: str) -> Iterator[bytes]:
    """The contents of all records. ValueError names the file and the record that is broken."""
    index = 0
    while head := file.read(_HEAD.size):
        if len(head) < _HEAD.size or masked_checksum(head[:8]) != _HEAD.unpack(head)[1]:
            raise _broken(path, index, "its length is cut off or its checksum is wrong")
        length = _HEAD.unpack(head)[0]
        content = file.read(length)
        tail = file.read(_TAIL.size)
        if len(content) < length or len(tail) < _TAIL.size:
            raise _broken(path, index, f"the file ends before its {length} bytes do")
        if masked_checksum(content) != _TAIL.unpack(tail)[0]:
            raise _broken(path, index, "the checksum of its content is wrong")
        yield content
        index += 1


def _broken(path: str, index: int, reason: str) -> ValueError:
    return ValueError(f"{path} cannot be read as TFRecords: record {index} is broken, {reason}")
