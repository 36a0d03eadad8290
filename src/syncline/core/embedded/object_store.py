"""The object store: the shared-memory segments of one session, used and pooled.

It creates, pools and removes segment files within a limit, and falls back to disk when shared
memory is full. `Store` lives in the driver's process and is called under the hub's lock; `segments`
reads and writes the files, in every process. Not covered: references to objects. `release` means
that no process maps the segment any more.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from syncline.core.embedded.segments import Segment
from syncline.exceptions import ObjectStoreFullError, OutOfDiskError
from syncline.records import dataclass

SMALLEST_SEGMENT_BYTES = 131_072

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM)


@dataclass(frozen=True, kw_only=True)
class StoreStatistics:
    """State of a store. Sizes are capacities of segments in bytes."""

    limit_bytes: int
    """Largest size of the store in shared memory."""
    in_use_bytes: int
    """Shared memory of objects."""
    pooled_bytes: int
    """Shared memory of segments that wait for reuse."""
    disk_bytes: int
    """Size of objects on disk."""
    in_use_segments: int
    pooled_segments: int
    disk_segments: int
    created: int
    """Number of files created in shared memory."""
    reused: int
    """Number of segments taken from the pool."""
    spilled: int
    """Number of segments created on disk."""


class Store:
    """The segments of one session. Not thread-safe; inactive in a forked child."""

    def __init__(self, *, directory: Path, disk_directory: Path | None, limit_bytes: int) -> None:
        """Directories are created on first use with mode 0700, and removed by `close`.

        directory: in shared memory, used by this session alone.
        disk_directory: for objects that do not fit into shared memory; None disables this.
        limit_bytes: largest size in shared memory. Half of it may be pooled.
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
        """Return a segment of at least `nbytes` bytes, from the pool if one fits.

        Raises `ObjectStoreFullError` when shared memory is full and the disk is disabled,
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
        """Take back a segment that no process maps."""
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
        """Return the current state."""
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
        """Take the most recently released segment of this size class, or of the next.

        Its pages are probably still mapped.
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
        """Return True if `capacity` bytes fit below the limit, after dropping pooled segments."""
        if self._in_use_bytes + capacity > self._limit_bytes:
            return False
        self._trim(self._limit_bytes - capacity - self._in_use_bytes)
        return True

    def _trim(self, keep_bytes: int) -> None:
        """Drop pooled segments, largest and oldest first, until at most `keep_bytes` are left."""
        for capacity in sorted(self._pool, reverse=True):
            segments = self._pool[capacity]
            while segments and self._pooled_bytes > keep_bytes:
                self._pooled_bytes -= capacity
                _remove(segments.pop(0))
            if not segments:
                del self._pool[capacity]

    def _create_in_memory(self, capacity: int) -> Segment | None:
        """Create a file in shared memory with its pages reserved; None if there is no space."""
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
                f"an object of {_megabytes(nbytes)} does not fit into the object store, of which "
                f"{_megabytes(self._in_use_bytes)} of {_megabytes(self._limit_bytes)} are in use, "
                "and writing objects to disk is disabled: drop references to objects that you no "
                "longer need, or raise `object_store_memory` in `syncline.init()`."
            )
        segment = Segment(str(self._disk_directory / self._next_name()), max(nbytes, 1), True)
        try:
            _create_file(segment)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            free_bytes = shutil.disk_usage(self._disk_directory).free
            raise OutOfDiskError(
                f"an object of {_megabytes(nbytes)} fits neither into shared memory "
                f"({_megabytes(self._in_use_bytes)} of {_megabytes(self._limit_bytes)} in use) nor "
                f"onto the disk of {self._disk_directory} ({_megabytes(free_bytes)} free, "
                f"{_megabytes(self._disk_bytes)} used by earlier objects): drop references to "
                "objects that you no longer need, or free disk space."
            ) from error
        self._spilled += 1
        return segment

    def _next_name(self) -> str:
        self._serial += 1
        return f"{self._serial:x}"


def segment_capacity(nbytes: int) -> int:
    """Round `nbytes` up to a quarter of a power of two, which wastes at most 25 %."""
    if nbytes <= SMALLEST_SEGMENT_BYTES:
        return SMALLEST_SEGMENT_BYTES
    step = 1 << (nbytes - 1).bit_length() - 3
    return -(-nbytes // step) * step


def _create_file(segment: Segment) -> None:
    """Create the file with all its space reserved, so that a full file system is an error here and
    not a SIGBUS at a write.
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
    """Remove a file. It is truncated first, because a writer's mapping would keep its pages."""
    try:
        os.truncate(segment.name, 0)
        os.unlink(segment.name)
    except FileNotFoundError:
        return


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:.1f} MB"
