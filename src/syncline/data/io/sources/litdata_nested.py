"""Decode nested values of LitData (serializer `json`): lists and dicts in a compact form with a tag
in front of each value, or JSON (source: `litdata/streaming/serializers.py` of litdata 0.2.76).
"""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

_FIRST_OF_JSON = 0x20
"""Tags are smaller than the first byte of JSON."""


def nested(data: bytes) -> Any:
    """Decode a nested value.

    Raises:
        ValueError: A tag is unknown.
    """
    if not data or data[0] > _FIRST_OF_JSON:
        return json.loads(data)
    return _Reader(data).value()


class _Reader:
    """Reads values one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def value(self) -> Any:
        """Read the next value."""
        tag = self._take(1)[0]
        read = _VALUES.get(tag)
        if read is None:
            raise ValueError(f"a nested value has the unknown tag {tag}")
        return read(self)

    def text(self) -> str:
        return self._take(self.count()).decode()

    def count(self) -> int:
        return int.from_bytes(self._take(4), "little")

    def integer(self) -> int:
        return int.from_bytes(self._take(8), "little", signed=True)

    def number(self) -> float:
        (value,) = struct.unpack("<d", self._take(8))
        return float(value)

    def flag(self) -> bool:
        return self._take(1) != b"\0"

    def json(self) -> Any:
        return json.loads(self._take(self.count()))

    def texts(self) -> list[str]:
        return [self.text() for _ in range(self.count())]

    def numbers(self, kind: str) -> list[Any]:
        values: list[Any] = np.frombuffer(self._take(8 * self.count()), kind).tolist()
        return values

    def flags(self) -> list[bool]:
        return [byte != 0 for byte in self._take(self.count())]

    def mapping(self) -> dict[str, Any]:
        return {self.text(): self.value() for _ in range(self.count())}

    def records(self) -> list[dict[str, Any]]:
        """Read dicts with the same keys, whose values are scalars."""
        rows, keys = self.count(), self.count()
        names = [self.text() for _ in range(keys)]
        return [{name: self._scalar() for name in names} for _ in range(rows)]

    def _scalar(self) -> Any:
        tag = self._take(1)[0]
        read = _SCALARS.get(tag)
        if read is None:
            raise ValueError(f"a nested record has the unknown tag {tag}")
        return read(self)

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise ValueError(f"a nested value ends after {len(self._data)} bytes")
        taken, self._at = self._data[self._at : end], end
        return taken


_VALUES: dict[int, Any] = {
    0: _Reader.json,
    1: _Reader.texts,
    2: lambda reader: reader.numbers("<i8"),
    3: lambda reader: reader.numbers("<f8"),
    4: _Reader.flags,
    5: _Reader.mapping,
    6: _Reader.records,
    7: _Reader.text,
    8: _Reader.integer,
    9: _Reader.number,
    10: _Reader.flag,
    11: lambda reader: None,
}
_SCALARS: dict[int, Any] = {
    0x10: lambda reader: None,
    0x11: _Reader.text,
    0x12: _Reader.integer,
    0x13: _Reader.number,
    0x14: _Reader.flag,
}
