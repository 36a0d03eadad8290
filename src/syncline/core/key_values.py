"""`KeyValues`: small binary values by key that all processes of an engine share.

`FileKeyValues` keeps each value in a file of the session directory, for engines of one machine; a
cluster's engine has its own (`cluster.key_values`). Values survive the process that put them, and
end with the engine. For large values use `put`.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

_LENGTH = struct.Struct("<I")


class KeyValues(ABC):
    """Values by namespace and key. Any thread of any process may call every method."""

    @abstractmethod
    def get(self, key: bytes, namespace: bytes = b"") -> bytes | None:
        """Return the value; None if there is none."""

    @abstractmethod
    def put(
        self, key: bytes, value: bytes, namespace: bytes = b"", *, overwrite: bool = True
    ) -> bool:
        """Store the value; return True if the key had one.

        Without `overwrite`, an existing value stays; of concurrent calls one stores its value.
        """

    @abstractmethod
    def delete(self, key: bytes, namespace: bytes = b"") -> bool:
        """Delete the value; return True if there was one."""

    @abstractmethod
    def keys(self, prefix: bytes = b"", namespace: bytes = b"") -> list[bytes]:
        """Return the keys that begin with `prefix`, sorted."""


class FileKeyValues(KeyValues):
    """One file per value below `directory`, which is created with the first value.

    Raises FileNotFoundError if the parent of the directory is gone, as after the engine has ended.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def get(self, key: bytes, namespace: bytes = b"") -> bytes | None:
        entry = _read(self._path(key, namespace))
        return None if entry is None else entry[1]

    def put(
        self, key: bytes, value: bytes, namespace: bytes = b"", *, overwrite: bool = True
    ) -> bool:
        path = self._path(key, namespace)
        # Not the parents: the session's directory must not come back after the engine has ended.
        self._directory.mkdir(exist_ok=True)
        path.parent.mkdir(exist_ok=True)
        draft = path.with_name(f".{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
        draft.write_bytes(_LENGTH.pack(len(key)) + key + value)
        try:
            if overwrite:
                existed = path.exists()
                os.replace(draft, path)
                return existed
            os.link(draft, path)  # unlike a rename, fails if the path exists
            return False
        except FileExistsError:
            return True
        finally:
            draft.unlink(missing_ok=True)

    def delete(self, key: bytes, namespace: bytes = b"") -> bool:
        try:
            self._path(key, namespace).unlink()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def keys(self, prefix: bytes = b"", namespace: bytes = b"") -> list[bytes]:
        return sorted(key for key in self._all(namespace) if key.startswith(prefix))

    def _all(self, namespace: bytes) -> Iterator[bytes]:
        try:
            names = os.listdir(self._folder(namespace))
        except FileNotFoundError:
            return
        for name in names:
            entry = None if name.startswith(".") else _read(self._folder(namespace) / name)
            if entry is not None:
                yield entry[0]

    def _folder(self, namespace: bytes) -> Path:
        return self._directory / _name(namespace)

    def _path(self, key: bytes, namespace: bytes) -> Path:
        return self._folder(namespace) / _name(key)


def _name(key: bytes) -> str:
    """Return a file name for a key of any length and content."""
    return hashlib.blake2b(key, digest_size=20).hexdigest()


def _read(path: Path) -> tuple[bytes, bytes] | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    (length,) = _LENGTH.unpack_from(data)
    return data[_LENGTH.size : _LENGTH.size + length], data[_LENGTH.size + length :]
