"""Reading and writing of shared-memory segments, in any process and any thread.

It defines the layout of a packed value in a segment, writes it, and maps it for reading without a
copy. `object_store` creates and reuses segments, in the driver's process.

Reading maps the file copy-on-write (`MAP_PRIVATE`) and returns read-only views. This costs as much
as a shared read-only mapping, but a write by code that ignores read-only memory (a torch tensor)
makes a private copy of the page instead of killing the process or changing the object for all
readers.

Writing: the first access of a process to a page costs more than the copy. A segment that this
process writes for the first time is written with `pwrite`, which fills no page table. The second
time it is mapped, and the mapping is kept, so that from the third time on a write is a plain copy
into resident pages.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import pickle
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from syncline.core.serialization import Packed

ALIGNMENT_BYTES = 64
COPY_CHUNK_BYTES = 4 << 20
"""Size of one copy; short copies keep other threads from waiting long for the interpreter lock."""

MAX_WRITE_MAPPINGS = 16
MAX_KNOWN_NAMES = 256

# named since Python 3.13
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
_MAP_POPULATE = getattr(mmap, "MAP_POPULATE", 0)
_MAP_FAILED = ctypes.c_void_p(-1).value

_libc: Any = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_longlong,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class Segment(NamedTuple):
    """A file that holds one object at a time."""

    name: str
    """Absolute path; never reused for another file."""
    capacity: int
    """Size of the file in bytes."""
    on_disk: bool
    """True if it is on disk because shared memory was full."""


class Layout(NamedTuple):
    """Position of a packed value in its segment; messages carry it instead of the value."""

    segment: Segment
    data_nbytes: int
    """Length of the pickle stream, which starts at offset 0."""
    buffers: tuple[tuple[int, int], ...]
    """(offset, length) of each out-of-band buffer."""

    @property
    def nbytes(self) -> int:
        """Bytes from the start of the segment to the end of the value."""
        if not self.buffers:
            return self.data_nbytes
        offset, length = self.buffers[-1]
        return offset + length


class Mapped(NamedTuple):
    """A mapped value, ready for `serialization.unpack(data, buffers)`."""

    data: memoryview
    buffers: list[memoryview]
    keeper: object
    """Keeps the mapping alive, as do the views and the objects made of them."""


def _buffer_offsets(data_nbytes: int, lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    end = data_nbytes
    for length in lengths:
        offset = -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        yield offset, length
        end = offset + length


def layout_nbytes(packed: Packed) -> int:
    """Return the bytes that `packed` needs in a segment, including alignment."""
    end = len(packed.data)
    for offset, length in _buffer_offsets(end, [buffer.nbytes for buffer in packed.buffers]):
        end = offset + length
    return end


def _map(fd: int, nbytes: int, protection: int, flags: int) -> ctypes.Array[ctypes.c_ubyte]:
    """Map without keeping a file descriptor, unlike `mmap.mmap`.

    A process may map more objects than it may open files.
    """
    address = _libc.mmap(None, nbytes, protection, flags, fd, 0)
    if address == _MAP_FAILED:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot map {nbytes} bytes of shared memory: {os.strerror(code)}")
    region = (ctypes.c_ubyte * nbytes).from_address(address)
    weakref.finalize(region, _libc.munmap, address, nbytes).atexit = False
    return region


def _bytes_view(region: ctypes.Array[ctypes.c_ubyte]) -> memoryview:
    # a plain memoryview would have ctypes' own item format
    return pickle.PickleBuffer(region).raw()


class _Lease:
    """One read mapping; calls `on_release` when its last view is gone."""

    __slots__ = ("on_release", "pinned")

    def __init__(self, on_release: Callable[[], None] | None) -> None:
        self.on_release = on_release
        self.pinned = False


class _Process:
    """Mappings of this process; a forked child starts with a new object."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.writable: OrderedDict[str, ctypes.Array[ctypes.c_ubyte]] = OrderedDict()
        self.written: OrderedDict[str, None] = OrderedDict()
        self.leases: set[_Lease] = set()

    def writable_mapping(self, segment: Segment) -> ctypes.Array[ctypes.c_ubyte] | None:
        """Return the kept mapping of `segment`, or a new one at the second write, else None."""
        with self.lock:
            region = self.writable.get(segment.name)
            if region is not None:
                self.writable.move_to_end(segment.name)
                return region
            if segment.name not in self.written:
                self.written[segment.name] = None
                if len(self.written) > MAX_KNOWN_NAMES:
                    self.written.popitem(last=False)
                return None
        fd = os.open(segment.name, os.O_RDWR | os.O_CLOEXEC)
        try:
            region = _map(
                fd,
                segment.capacity,
                mmap.PROT_READ | mmap.PROT_WRITE,
                mmap.MAP_SHARED | _MAP_POPULATE,
            )
        finally:
            os.close(fd)
        with self.lock:
            self.writable[segment.name] = region
            if len(self.writable) > MAX_WRITE_MAPPINGS:
                self.writable.popitem(last=False)  # unmapped after its last user
        return region


_process = _Process()


def _before_fork() -> None:
    """Pin the current mappings: the child keeps views of them and cannot report their release."""
    for lease in list(_process.leases):
        lease.pinned = True


def _after_fork_in_child() -> None:
    global _process
    _process = _Process()  # the inherited leases are pinned, so they report nothing here


os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)


def write(segment: Segment, packed: Packed) -> Layout:
    """Copy a packed value into `segment`, whose size is at least `layout_nbytes(packed)`.

    Raises `FileNotFoundError` if the session that owns the segment has ended.
    """
    buffers = tuple(_buffer_offsets(len(packed.data), [buffer.nbytes for buffer in packed.buffers]))
    layout = Layout(segment, len(packed.data), buffers)
    assert layout.nbytes <= segment.capacity, (layout.nbytes, segment)
    region = None if segment.on_disk else _process.writable_mapping(segment)
    pieces = [
        (0, memoryview(packed.data)),
        *((offset, buffer) for (offset, _), buffer in zip(buffers, packed.buffers, strict=True)),
    ]
    if region is None:
        _write_file(segment.name, pieces)
    else:
        _copy(_bytes_view(region), pieces)
    return layout


def _write_file(name: str, pieces: Sequence[tuple[int, memoryview]]) -> None:
    fd = os.open(name, os.O_RDWR | os.O_CLOEXEC)
    try:
        for offset, piece in pieces:
            done = 0
            while done < piece.nbytes:
                done += os.pwrite(fd, piece[done:], offset + done)
    finally:
        os.close(fd)


def _copy(target: memoryview, pieces: Sequence[tuple[int, memoryview]]) -> None:
    for offset, piece in pieces:
        for start in range(0, piece.nbytes, COPY_CHUNK_BYTES):
            chunk = piece[start : start + COPY_CHUNK_BYTES]
            target[offset + start : offset + start + chunk.nbytes] = chunk


def read(layout: Layout, on_release: Callable[[], None] | None = None) -> Mapped:
    """Map a value, without a copy.

    `on_release` is called once, when the last view of the mapping and every object made of the
    views is gone. The garbage collector calls it, on any thread and at any point, so it must not
    take a lock: append to a `collections.deque`, or write to a pipe. It is not called in a forked
    child, nor for a mapping that was alive when this process forked, because the child may read it.

    Raises `FileNotFoundError` if the segment is gone; `on_release` is not called then.
    """
    fd = os.open(layout.segment.name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        region = _map(
            fd,
            max(layout.nbytes, 1),
            mmap.PROT_READ | mmap.PROT_WRITE,
            mmap.MAP_PRIVATE | _MAP_NORESERVE,
        )
    finally:
        os.close(fd)
    lease = _Lease(on_release)
    _process.leases.add(lease)
    weakref.finalize(region, _released, lease).atexit = False
    view = _bytes_view(region).toreadonly()
    buffers = [view[offset : offset + length] for offset, length in layout.buffers]
    return Mapped(view[: layout.data_nbytes], buffers, region)


def _released(lease: _Lease) -> None:
    _process.leases.discard(lease)
    if lease.on_release is not None and not lease.pinned:
        lease.on_release()
