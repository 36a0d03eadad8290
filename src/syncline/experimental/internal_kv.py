"""Small binary values by key that all processes of the engine share, under Ray's names.

Keys, values and namespaces are bytes or text. For large values use `syncline.put`.
"""

from __future__ import annotations

from syncline.core.lifecycle import ensure_engine, is_initialized

Bytes = str | bytes


def _internal_kv_initialized() -> bool:
    """Return True if the engine runs."""
    return is_initialized()


def _internal_kv_get(key: Bytes, *, namespace: Bytes | None = None) -> bytes | None:
    """Return the value; None if there is none."""
    return ensure_engine().key_values.get(_bytes(key), _bytes(namespace))


def _internal_kv_exists(key: Bytes, *, namespace: Bytes | None = None) -> bool:
    """Return True if there is a value."""
    return _internal_kv_get(key, namespace=namespace) is not None


def _internal_kv_put(
    key: Bytes, value: Bytes, overwrite: bool = True, *, namespace: Bytes | None = None
) -> bool:
    """Store a value; return True if the key had one. Without `overwrite`, an old value stays."""
    return ensure_engine().key_values.put(
        _bytes(key), _bytes(value), _bytes(namespace), overwrite=overwrite
    )


def _internal_kv_del(
    key: Bytes, *, del_by_prefix: bool = False, namespace: Bytes | None = None
) -> int:
    """Delete a value, or with `del_by_prefix` all whose keys begin so; return their number."""
    values, space = ensure_engine().key_values, _bytes(namespace)
    keys = values.keys(_bytes(key), space) if del_by_prefix else [_bytes(key)]
    return sum(values.delete(each, space) for each in keys)


def _internal_kv_list(prefix: Bytes, *, namespace: Bytes | None = None) -> list[bytes]:
    """Return the keys that begin with `prefix`."""
    return ensure_engine().key_values.keys(_bytes(prefix), _bytes(namespace))


def _internal_kv_reset() -> None:
    """Do nothing, because processes have no separate connections."""


def _bytes(value: Bytes | None) -> bytes:
    if value is None:
        return b""
    if not isinstance(value, (str, bytes)):
        raise TypeError(f"{value!r} is a {type(value).__name__}: pass bytes or text.")
    return value.encode() if isinstance(value, str) else value
