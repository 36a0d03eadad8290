"""TensorBoard event files as bytes: records, events, scalars, histograms, hyperparameters.

An event file is a sequence of records (length, checksum, data, checksum). Each record holds one
`Event` message in the wire format of Protocol Buffers. tensorboardX writes the same format, but it
imports torch (about two seconds), starts a thread and a queue per file, and computes checksums in a
Python loop; a search may have thousands of trials and results per second. The messages are defined
in TensorFlow's `event.proto` and `summary.proto`, and in TensorBoard's `hparams/plugin_data.proto`
and `hparams/api.proto`. The checksum is CRC-32C (RFC 3720, appendix B.4), masked as TensorFlow
masks it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

HISTOGRAM_BINS = 30
_FILE_VERSION = b"brain.Event:2"
_SESSION_STARTS = 1
_RGBA = 4
"""Color space of images."""
_STRING, _BOOL, _FLOAT = 1, 2, 3
"""Types of hyperparameters."""
_SUCCESS, _FAILURE = 1, 2
"""Session end states."""


# -- messages


def record(event: bytes) -> bytes:
    """Return data framed as one record. TFRecord files use the same framing."""
    length = struct.pack("<Q", len(event))
    return b"".join(
        (
            length,
            struct.pack("<I", masked_checksum(length)),
            event,
            struct.pack("<I", masked_checksum(event)),
        )
    )


def first_event(wall_time: float) -> bytes:
    """Return the version event that begins every file."""
    return _double(1, wall_time) + _bytes(3, _FILE_VERSION)


def session_start(wall_time: float, step: int) -> bytes:
    """Return the event of a trial that resumes before `step`: TensorBoard drops earlier values for
    this step and later ones.
    """
    return _double(1, wall_time) + _whole(2, step) + _bytes(7, _whole(1, _SESSION_STARTS))


def summary_event(wall_time: float, step: int, summary: bytes) -> bytes:
    """Return the event with the values of one step; `summary` is their concatenation."""
    return b"".join((_double(1, wall_time), _whole(2, step), _bytes(5, summary)))


def scalar(tag: str, value: float | np.number[Any]) -> bytes:
    """Return a number as part of a summary."""
    try:
        number = struct.pack("<f", value)
    except (OverflowError, struct.error):  # struct.error: an int beyond the range of float
        number = struct.pack("<f", np.inf if value > 0 else -np.inf)
    return _scalar_head(tag) + number


def histogram(tag: str, values: npt.NDArray[Any]) -> bytes:
    """Return a distribution as part of a summary, in bins of equal width.

    Raises:
        ValueError: A value is not finite.
        TypeError: A value is not a number.
    """
    numbers = values.astype(np.float64).ravel()
    counts, edges = np.histogram(numbers, bins=HISTOGRAM_BINS)
    moments = (numbers.min(), numbers.max(), numbers.size, numbers.sum(), np.square(numbers).sum())
    content = b"".join(_double(number, float(moment)) for number, moment in enumerate(moments, 1))
    content += _bytes(6, edges[1:].astype("<f8").tobytes()) + _bytes(
        7, counts.astype("<f8").tobytes()
    )
    return _bytes(1, _bytes(1, tag.encode()) + _bytes(5, content))


def binned_histogram(tag: str, counts: Sequence[float], edges: Sequence[float]) -> bytes:
    """Return a distribution that is in bins already as part of a summary.

    Args:
        tag: Name.
        counts: Number of values in each bin.
        edges: Limits of the bins, one more than `counts`.
    """
    middles = [(low + high) / 2 for low, high in zip(edges, edges[1:], strict=False)]
    pairs = list(zip(counts, middles, strict=True))
    moments = (
        edges[0],
        edges[-1],
        sum(counts),
        sum(count * middle for count, middle in pairs),
        sum(count * middle * middle for count, middle in pairs),
    )
    content = b"".join(_double(number, float(moment)) for number, moment in enumerate(moments, 1))
    for number, values in ((6, edges[1:]), (7, counts)):
        content += _bytes(number, struct.pack(f"<{len(values)}d", *values))
    return _bytes(1, _bytes(1, tag.encode()) + _bytes(5, content))


def image(tag: str, png: bytes, width: int, height: int) -> bytes:
    """Return a PNG image as part of a summary."""
    content = _whole(1, height) + _whole(2, width) + _whole(3, _RGBA) + _bytes(4, png)
    return _bytes(1, _bytes(1, tag.encode()) + _bytes(4, content))


def hyperparameters(
    params: Mapping[str, object], metrics: Iterable[str], *, failed: bool
) -> list[bytes]:
    """Return the three summaries that add a trial to TensorBoard's hyperparameter table.

    Args:
        params: Hyperparameters. Numbers, booleans and strings keep their type; other values are
            shown as text; None is left out.
        metrics: Tags of the scalars that the table shows.
        failed: True if the trial failed.
    """
    kinds: list[tuple[str, int]] = []
    values = b""
    for name, value in params.items():
        if value is None:
            continue
        kind, content = _parameter(value)
        kinds.append((name, kind))
        values += _bytes(1, _bytes(1, name.encode()) + _bytes(2, content))
    return [
        _experiment(tuple(kinds), tuple(metrics)),
        _plugin_value("_hparams_/session_start_info", _bytes(3, values)),
        _session_end(failed),
    ]


@lru_cache(maxsize=64)
def _experiment(kinds: Sequence[tuple[str, int]], metrics: Sequence[str]) -> bytes:
    """Return the summary with names and types of parameters, equal for all trials of a search."""
    columns = b"".join(
        _bytes(4, _bytes(1, name.encode()) + _whole(4, kind)) for name, kind in kinds
    )
    shown = b"".join(_bytes(5, _bytes(1, _bytes(2, tag.encode()))) for tag in metrics)
    return _plugin_value("_hparams_/experiment", _bytes(2, columns + shown))


@lru_cache(maxsize=2)
def _session_end(failed: bool) -> bytes:
    return _plugin_value(
        "_hparams_/session_end_info", _bytes(4, _whole(1, _FAILURE if failed else _SUCCESS))
    )


def _parameter(value: object) -> tuple[int, bytes]:
    """Return the type of a hyperparameter and its value as a `google.protobuf.Value`."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return _BOOL, _whole(4, int(value))
    if isinstance(value, (int, float)):
        return _FLOAT, _double(2, float(value))
    return _STRING, _bytes(3, str(value).encode())


def _plugin_value(tag: str, content: bytes) -> bytes:
    metadata = _bytes(1, _bytes(1, b"hparams") + _bytes(2, content))
    return _bytes(1, _bytes(1, tag.encode()) + _bytes(9, metadata))


@lru_cache(maxsize=4096)
def _scalar_head(tag: str) -> bytes:
    """Return a scalar up to its number: the tag (field 1) and the key of field 2."""
    head = _bytes(1, tag.encode()) + b"\x15"
    return b"\x0a" + _varint(len(head) + 4) + head


# -- wire format: each field is a key (number, wire type) and its content


def _whole(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value & 0xFFFFFFFFFFFFFFFF)


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


_ONE_BYTE = [bytes((value,)) for value in range(128)]


def _varint(value: int) -> bytes:
    """Encode seven bits per byte, lowest first; the eighth bit marks that more bytes follow."""
    if value < 128:
        return _ONE_BYTE[value]
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    digits.append(value)
    return bytes(digits)


# -- checksums


def masked_checksum(data: bytes) -> int:
    """Return the masked CRC-32C of `data`: rotated, plus a constant."""
    checksum: int = google_crc32c.value(data)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF
