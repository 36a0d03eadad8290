"""Large values in shared memory: the payload of a frame names a file instead of the bytes.

Writer and reader are on one machine, so that a file costs one copy and the socket several. The
files of arguments belong to the caller, which removes them when the call has ended. Those of
results belong to the caller as soon as it has the frame, and to the replica's connection before.
The controller removes files whose writer is dead. Not covered: values between machines, items of
streams (whose windows count the bytes in the socket), and bodies of HTTP.
"""

from __future__ import annotations

import itertools
import marshal
import os
import weakref
from pathlib import Path
from typing import Any

import psutil

from syncline.core import serialization
from syncline.core.embedded import segments
from syncline.core.embedded.segments import Layout, Mapped, Segment
from syncline.core.serialization import Packed

SHARED_BYTES = 1 << 20
"""Size of the buffers of a value from which on it is written to a file."""
MARK = 0xFFFF_FFFF
"""Number of buffers in the payload of such a value."""
_FOLDER = "serve"


class _State:
    """Directory of this process's files; None: values are not shared."""

    directory: Path | None = None


_state = _State()
_numbers = itertools.count()


class _File:
    """A file that is removed when nothing refers to this object any more."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.removal = weakref.finalize(self, remove, name)


class SharedPayload(bytes):
    """Payload that names a file, which is removed with the payload unless another owns it."""

    file: _File

    def disown(self) -> str:
        """Leave the file to another owner, and return its name."""
        self.file.removal.detach()
        return self.file.name


def use(shared_directory: Path | None) -> None:
    """Write large values below this directory of the session; None: do not share any."""
    _state.directory = None if shared_directory is None else shared_directory / _FOLDER


def write(packed: Packed) -> SharedPayload | None:
    """Write a value to a file; return None if it is small, not shared, or if there is no room."""
    directory = _state.directory
    if directory is None or sum([each.nbytes for each in packed.buffers]) < SHARED_BYTES:
        return None
    name = str(directory / f"{os.getpid()}-{next(_numbers)}")
    capacity = segments.layout_nbytes(packed)
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        layout = segments.write(Segment(name, capacity, True), packed)
    except OSError:  # full: the value goes through the socket
        remove(name)
        return None
    head = marshal.dumps((name, capacity, layout.data_nbytes, layout.buffers))
    payload = SharedPayload(MARK.to_bytes(4, "little") + head)
    payload.file = _File(name)
    return payload


def is_shared(payload: bytes | memoryview) -> bool:
    """Return True if a payload of a value names a file."""
    return payload[:4] == b"\xff\xff\xff\xff"


def open_payload(payload: bytes | memoryview, *, take: bool = False) -> Mapped:
    """Map the file of a payload; with `take`, it is removed and lives as long as the mapping.

    Raises:
        FileNotFoundError: The call has ended, or the writer has died.
    """
    name, capacity, data_nbytes, buffers = marshal.loads(payload[4:])
    mapped = segments.read(Layout(Segment(name, capacity, True), data_nbytes, buffers))
    if take:
        remove(name)
    return mapped


def unpack(mapped: Mapped) -> Any:
    """Return the value of a mapped file."""
    return serialization.unpack(mapped.data, mapped.buffers)


def discard(payload: bytes | memoryview) -> None:
    """Remove the file of an unused result."""
    if is_shared(payload):
        remove(marshal.loads(payload[4:])[0])


def remove(name: str) -> None:
    """Remove a file, if it exists."""
    try:
        os.unlink(name)
    except FileNotFoundError:
        pass


def sweep(shared_directory: Path) -> None:
    """Remove the files of processes that have ended."""
    try:
        names = os.listdir(shared_directory / _FOLDER)
    except FileNotFoundError:
        return
    for name in names:
        if not psutil.pid_exists(int(name.partition("-")[0])):
            remove(str(shared_directory / _FOLDER / name))
