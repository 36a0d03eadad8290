"""Snapshots of the controller, from which a restarted one continues.

On one machine they are files in the session's directory (mode 0700), which need no process and are
removed with the session. On a cluster the controller may restart on another node, and `core.api`
gives no access to the cluster's key-value store; a detached actor without resources holds them.

Large bytes (pickled code and arguments) are stored once under their digest, so that a snapshot of
many replicas stays small.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from syncline.core.api import get, get_actor, remote
from syncline.core.api import kill as kill_actor
from syncline.records import dataclass
from syncline.serve.controller.process import NAMESPACE
from syncline.serve.controller.saved_state import SavedState

LARGE_BYTES = 4096
"""Minimum size of bytes that are stored separately."""
HOLDER_NAME = "SERVE_SNAPSHOT"
_SNAPSHOT = "controller.snapshot"


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Everything that survives the controller."""

    key: bytes
    """Key of the session."""
    directory: str
    """Directory of the sockets."""
    state: SavedState | None = None
    """None before the first deployment."""


class SnapshotStore(Protocol):
    """Keeps named bytes beyond the death of the controller."""

    def load(self, name: str) -> bytes | None:
        """Return stored bytes, or None."""

    def save(self, name: str, data: bytes) -> None:
        """Store bytes; a reader sees the old or the new ones, never a part."""

    def remove(self, name: str) -> None:
        """Remove bytes, if they exist."""

    def clear(self) -> None:
        """Remove everything."""


class FileStore:
    """Files in a directory that only the user can read."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory

    def load(self, name: str) -> bytes | None:
        """Return stored bytes, or None."""
        try:
            return (self._directory / name).read_bytes()
        except FileNotFoundError:
            return None

    def save(self, name: str, data: bytes) -> None:
        """Store bytes under another name and rename the file."""
        temporary = self._directory / f"{name}.new"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
        temporary.replace(self._directory / name)

    def remove(self, name: str) -> None:
        """Remove bytes, if they exist."""
        (self._directory / name).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove everything."""
        for path in self._directory.glob("blob-*"):
            path.unlink(missing_ok=True)
        self.remove(_SNAPSHOT)


class SnapshotHolder:
    """The actor that holds snapshots on a cluster."""

    def __init__(self) -> None:
        self._data: dict[str, bytes] = {}

    def load(self, name: str) -> bytes | None:
        """Return stored bytes, or None."""
        return self._data.get(name)

    def save(self, name: str, data: bytes) -> None:
        """Store bytes."""
        self._data[name] = data

    def remove(self, name: str) -> None:
        """Remove bytes, if they exist."""
        self._data.pop(name, None)


class ActorStore:
    """A detached actor, which is started if it does not run."""

    def __init__(self) -> None:
        self._actor = (
            remote(SnapshotHolder)
            .options(
                name=HOLDER_NAME,
                namespace=NAMESPACE,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                max_restarts=0,
            )
            .remote()
        )

    def load(self, name: str) -> bytes | None:
        """Return stored bytes, or None."""
        data: bytes | None = get(self._actor.load.remote(name))
        return data

    def save(self, name: str, data: bytes) -> None:
        """Send bytes; calls arrive in order."""
        self._actor.save.remote(name, data)

    def remove(self, name: str) -> None:
        """Remove bytes, if they exist."""
        self._actor.remove.remote(name)

    def clear(self) -> None:
        """End the actor."""
        kill_actor(get_actor(HOLDER_NAME, NAMESPACE))


class SnapshotWriter:
    """Writes snapshots to a store, and reads the last one."""

    def __init__(self, store: SnapshotStore) -> None:
        self._store = store
        self._known: set[str] = set()

    def load(self) -> Snapshot | None:
        """Return the last snapshot, or None."""
        data = self._store.load(_SNAPSHOT)
        if data is None:
            return None
        snapshot: Snapshot = _Unpickler(io.BytesIO(data), self._blob).load()
        return snapshot

    def save(self, snapshot: Snapshot) -> None:
        """Store a snapshot in place of the last one."""
        buffer = io.BytesIO()
        pickler = _Pickler(buffer)
        pickler.dump(snapshot)
        for name, data in pickler.blobs.items():
            if name not in self._known:
                self._store.save(name, data)
                self._known.add(name)
        self._store.save(_SNAPSHOT, buffer.getvalue())
        for name in self._known.difference(pickler.blobs):
            self._store.remove(name)
        self._known.intersection_update(pickler.blobs)

    def clear(self) -> None:
        """Remove everything."""
        self._store.clear()

    def _blob(self, name: str) -> bytes:
        data = self._store.load(name)
        if data is None:
            raise pickle.UnpicklingError(f"the snapshot lacks its part {name}")
        self._known.add(name)
        return data


_names: dict[int, tuple[bytes, str]] = {}
"""By id of the object: large bytes that live anyway, and their names, to digest them once."""
_MOST_NAMES = 10_000


def _name_of(data: bytes) -> str:
    known = _names.get(id(data))
    if known is not None and known[0] is data:
        return known[1]
    if len(_names) >= _MOST_NAMES:
        _names.clear()
    name = f"blob-{hashlib.blake2b(data, digest_size=16).hexdigest()}"
    _names[id(data)] = (data, name)
    return name


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.blobs: dict[str, bytes] = {}

    def persistent_id(self, obj: object) -> str | None:
        """Return the name of large bytes."""
        if type(obj) is not bytes or len(obj) < LARGE_BYTES:
            return None
        name = _name_of(obj)
        self.blobs[name] = obj
        return name


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, blob: Callable[[str], bytes]) -> None:
        super().__init__(file)
        self._blob = blob
        self._loaded: dict[str, bytes] = {}

    def persistent_load(self, pid: Any) -> bytes:
        """Return large bytes by their name."""
        if pid not in self._loaded:
            self._loaded[pid] = self._blob(pid)
        return self._loaded[pid]
