"""The object store: which shared-memory segments exist, which are in use, and which wait to be used
again.

Covered: creating, pooling and removing the segment files of one session, within a limit and with a
way out to disk when shared memory is full. `Store` lives in the driver's process and is called
under the hub's lock; it never looks into a segment. Reading and writing, in every process, is in
`segments`. Not covered: who refers to an object. `release` means that nobody maps the segment any
more.
"""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from syncline.core.embedded.segments import (
    Layout,
    Mapped,
    MappingStatistics,
    Segment,
    layout_nbytes,
    mapping_statistics,
    read,
    write,
)
from syncline.exceptions import ObjectStoreFullError, OutOfDiskError

__all__ = [
    "INLINE_LIMIT_BYTES",
    "Layout",
    "Mapped",
    "MappingStatistics",
    "Segment",
    "Store",
    "StoreStatistics",
    "layout_nbytes",
    "mapping_statistics",
    "read",
    "write",
]

INLINE_LIMIT_BYTES = 100_000
"""Values with at least this many bytes go to the store; smaller ones travel in the message."""

SMALLEST_SEGMENT_BYTES = 131_072

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM)


@dataclass(frozen=True, kw_only=True)
class StoreStatistics:
    """The state of a store. Sizes are capacities of segments in bytes."""

    limit_bytes: int
    """Shared memory that the store may occupy."""
    in_use_bytes: int
    """Shared memory of objects."""
    pooled_bytes: int
    """Shared memory that waits to be used again."""
    disk_bytes: int
    """Objects that lie on disk because shared memory was full."""
    in_use_segments: int
    pooled_segments: int
    disk_segments: int
    created: int
    """Files created in shared memory so far."""
    reused: int
    """Creations so far that the pool served."""
    spilled: int
    """Creations so far that went to disk."""


class Store:
    """The segments of one session. Not thread-safe; does nothing in a forked child."""

    def __init__(self, *, directory: Path, disk_directory: Path | None, limit_bytes: int) -> None:
        """Directories are made on first use with mode 0700, and removed by `close`.

        directory: in shared memory, of this session alone.
        disk_directory: where objects go that do not fit; `None` forbids it.
        limit_bytes: shared memory to occupy at most. Half of it may be pooled.
        """
        self._directory = directory
        self._disk_directory = disk_directory
        self._limit_bytes = limit_bytes
        self._pid = os.getpid()
        self._in_use: dict[str, Segment] = {}
        self._pool: dict[int, list[Segment]] = {}
        self._in_use_bytes = 0
        self._pooled_bytes = 0
        self._disk_bytes = 0
        self._serial = 0
        self._created = 0
        self._reused = 0
        self._spilled = 0

    def create(self, nbytes: int) -> Segment:
        """A segment of at least `nbytes` bytes, from the pool if one fits.

        Raises `ObjectStoreFullError` when shared memory is full and the disk is not allowed,
        `OutOfDiskError` when both are full.
        """
        capacity = segment_capacity(nbytes)
        segment = self._take_pooled(capacity)
        if segment is None and self._make_room(capacity):
            segment = self._create_in_memory(capacity)
        if segment is None:
            segment = self._create_on_disk(nbytes)
        self._in_use[segment.name] = segment
        if segment.on_disk:
            self._disk_bytes += segment.capacity
        else:
            self._in_use_bytes += segment.capacity
        return segment

    def release(self, segment: Segment) -> None:
        """Take back a segment that nobody maps any more."""
        if os.getpid() != self._pid or self._in_use.pop(segment.name, None) is None:
            return  # a forked child's copy, or released after `close`
        if segment.on_disk:
            self._disk_bytes -= segment.capacity
            _remove(segment)
            return
        self._in_use_bytes -= segment.capacity
        if self._pooled_bytes + segment.capacity > self._limit_bytes // 2:
            _remove(segment)
            return
        self._pooled_bytes += segment.capacity
        self._pool.setdefault(segment.capacity, []).append(segment)

    def close(self) -> None:
        """Remove all files. Views that are still mapped stay readable."""
        if os.getpid() != self._pid:
            return
        self._in_use.clear()
        self._pool.clear()
        self._in_use_bytes = self._pooled_bytes = self._disk_bytes = 0
        shutil.rmtree(self._directory, ignore_errors=True)
        if self._disk_directory is not None:
            shutil.rmtree(self._disk_directory, ignore_errors=True)

    def statistics(self) -> StoreStatistics:
        """The state of the store now."""
        disk_segments = sum(segment.on_disk for segment in self._in_use.values())
        return StoreStatistics(
            limit_bytes=self._limit_bytes,
            in_use_bytes=self._in_use_bytes,
            pooled_bytes=self._pooled_bytes,
            disk_bytes=self._disk_bytes,
            in_use_segments=len(self._in_use) - disk_segments,
            pooled_segments=sum(map(len, self._pool.values())),
            disk_segments=disk_segments,
            created=self._created,
            reused=self._reused,
            spilled=self._spilled,
        )

    def _take_pooled(self, capacity: int) -> Segment | None:
        """The most recently released segment of this size class, or else of the next: its pages are
        likely still mapped.
        """
        for candidate in (capacity, segment_capacity(capacity + 1)):
            segments = self._pool.get(candidate)
            if segments:
                segment = segments.pop()
                if not segments:
                    del self._pool[candidate]
                self._pooled_bytes -= segment.capacity
                self._reused += 1
                return segment
        return None

    def _make_room(self, capacity: int) -> bool:
        """Whether `capacity` bytes fit below the limit, after dropping pooled segments if need
        be.
        """
        if self._in_use_bytes + capacity > self._limit_bytes:
            return False
        self._trim(self._limit_bytes - capacity - self._in_use_bytes)
        return True

    def _trim(self, keep_bytes: int) -> None:
        """Drop pooled segments, the largest and longest pooled first, until `keep_bytes` or less
        are pooled.
        """
        for capacity in sorted(self._pool, reverse=True):
            segments = self._pool[capacity]
            while segments and self._pooled_bytes > keep_bytes:
                self._pooled_bytes -= capacity
                _remove(segments.pop(0))
            if not segments:
                del self._pool[capacity]

    def _create_in_memory(self, capacity: int) -> Segment | None:
        """A new file in shared memory with its pages reserved, or `None` if there is no space."""
        segment = Segment(str(self._directory / self._next_name()), capacity, False)
        while True:
            try:
                _create_file(segment)
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                if not self._pool:
                    return None
                self._trim(0)
            else:
                self._created += 1
                return segment

    def _create_on_disk(self, nbytes: int) -> Segment:
        if self._disk_directory is None:
            raise ObjectStoreFullError(
                f"an object of {_megabytes(nbytes)} does not fit into the object store, of which {_megabytes(self._in_use_bytes)} of "
                f"{_megabytes(self._limit_bytes)} are in use, and writing objects to disk is turned off: drop references to objects that "
                "are not needed any more, or raise `object_store_memory` in `syncline.init()`."
            )
        segment = Segment(str(self._disk_directory / self._next_name()), max(nbytes, 1), True)
        try:
            _create_file(segment)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            free_bytes = shutil.disk_usage(self._disk_directory).free
            raise OutOfDiskError(
                f"an object of {_megabytes(nbytes)} fits neither into shared memory ({_megabytes(self._in_use_bytes)} of "
                f"{_megabytes(self._limit_bytes)} in use) nor onto the disk of {self._disk_directory} ({_megabytes(free_bytes)} free, "
                f"{_megabytes(self._disk_bytes)} taken by earlier objects): drop references to objects that are not needed any more, "
                "or free disk space."
            ) from error
        self._spilled += 1
        return segment

    def _next_name(self) -> str:
        self._serial += 1
        return f"{self._serial:x}"


def segment_capacity(nbytes: int) -> int:
    """`nbytes` rounded up to a quarter of a power of two (1, 1.25, 1.5, 1.75, 2, 2.5 …): at most 25
    % is wasted.
    """
    if nbytes <= SMALLEST_SEGMENT_BYTES:
        return SMALLEST_SEGMENT_BYTES
    step = 1 << (nbytes - 1).bit_length() - 3
    return -(-nbytes // step) * step


def _create_file(segment: Segment) -> None:
    """Create the file with all its space reserved: a full file system is an error here, not a
    SIGBUS at a write.
    """
    directory = os.path.dirname(segment.name)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    fd = os.open(segment.name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, segment.capacity)
        else:
            os.ftruncate(fd, segment.capacity)
    except OSError:
        os.unlink(segment.name)
        raise
    finally:
        os.close(fd)


def _remove(segment: Segment) -> None:
    """Remove a file that nobody reads. Emptied first: a writer's kept mapping would go on occupying
    its pages.
    """
    try:
        os.truncate(segment.name, 0)
        os.unlink(segment.name)
    except FileNotFoundError:
        return


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:.1f} MB"
