"""CRC-32C checksums: google-crc32c where it is installed, else a table (some 20 MB/s)."""

from __future__ import annotations

from collections.abc import Callable

from syncline.data.optional import load


def _make_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


def table_crc32c(data: bytes, table: tuple[int, ...] = _make_table()) -> int:
    """The checksum of `data`, computed here (Castagnoli's polynomial, reflected)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _fastest() -> Callable[[bytes], int]:
    try:
        value: Callable[[bytes], int] = load("google_crc32c", purpose="fast checksums", install="google-crc32c").value
    except ImportError:
        return table_crc32c
    return value


crc32c = _fastest()
