"""msgpack with NumPy arrays, compatible with `msgpack_numpy` but independent of it.

Covered: arrays and scalars of all dtypes except object, complex numbers, and the Python types that
msgpack supports. Tuples are loaded as lists.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from syncline.optional import load


def pack(value: object) -> bytes:
    """Return `value` as msgpack bytes.

    Raises:
        ImportError: msgpack is not installed.
        TypeError: `value` contains an object that msgpack cannot represent.
    """
    packed: bytes = _msgpack().packb(value, default=_encode)
    return packed


def unpack(data: bytes) -> Any:
    """Return the value of `pack`, or of bytes written with `msgpack_numpy`."""
    return _msgpack().unpackb(data, object_hook=_decode, strict_map_key=False)


def _msgpack() -> Any:
    return load("msgpack", purpose="Reading or writing msgpack files", install="msgpack")


def _encode(value: object) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "O":
            raise TypeError(
                f"msgpack cannot represent an array of Python objects (shape {value.shape}). "
                "Convert it to a numeric dtype or save with pickle (`use_msgpack=False`)."
            )
        structured = value.dtype.kind == "V"
        return {
            b"nd": True,
            b"type": value.dtype.descr if structured else value.dtype.str,
            b"kind": b"V" if structured else b"",
            b"shape": value.shape,
            b"data": value.tobytes(),
        }
    if isinstance(value, np.generic):
        return {b"nd": False, b"type": value.dtype.str, b"data": value.tobytes()}
    if isinstance(value, complex):
        return {b"complex": True, b"data": repr(value)}
    raise TypeError(
        f"msgpack cannot represent {value!r} of type {type(value).__name__}. "
        "Save with pickle (`use_msgpack=False`)."
    )


def _decode(value: dict[object, Any]) -> Any:
    if b"nd" in value:
        dtype = np.dtype(_descr(value[b"type"]) if value.get(b"kind") == b"V" else value[b"type"])
        if not value[b"nd"]:
            return np.frombuffer(value[b"data"], dtype)[0]
        return np.frombuffer(value[b"data"], dtype).reshape(value[b"shape"]).copy()
    if b"complex" in value:
        return complex(value[b"data"])
    return value


def _descr(fields: list[Any]) -> list[tuple[object, ...]]:
    return [tuple(tuple(e) if isinstance(e, list) else e for e in field) for field in fields]
