"""One file with one snapshot: a header page, the regions of tensors and arrays, and a description.

    0         header: `_FIXED`, then the versions as JSON
    4096      regions, each at a multiple of 64 bytes
    …         description, a pickle stream with a checksum

The header has a mark for completeness. A writer clears it first and sets it last, so a process that
is killed while it writes leaves an incomplete snapshot, which readers ignore. The contents of the
file outlive the process, because they belong to the file system in memory. A crash of the machine
is not covered: the file does not survive it.

The first write of a process uses `pwritev`, which fills no page table. The second one maps the
file; from then on a write is a copy into touched pages.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from syncline import faults

FORMAT = 2
"""Version of the file format."""
ALIGNMENT_BYTES = 64
HEADER_BYTES = 4096

_MAGIC = b"SLNSNAP\0"
# magic, format, mark, rank, world size, attempt, step, next report, time, description's offset,
# size and checksum, size of the JSON
_FIXED = struct.Struct("<8sIIIIQQQdQQII")
_MARK_OFFSET = 12
_MARK = struct.Struct("<I")
_COMPLETE = 0x4B4F
_PIECES_PER_CALL = 512
_SLACK_BYTES = 1 << 16
"""Room for a longer description."""
_MAP_POPULATE = getattr(mmap, "MAP_POPULATE", 0)


class SnapshotId(NamedTuple):
    """Snapshot of all ranks. An attempt may repeat the steps of the one before, so a step alone
    does not tell which snapshots belong together. Later snapshots are greater.
    """

    attempt: int
    step: int


@dataclass(frozen=True, kw_only=True)
class SnapshotHeader:
    """Facts about a complete snapshot."""

    rank: int
    world_size: int
    step: int
    """Number of the step, from 1, over all attempts of the run."""
    attempt: int = 0
    """Number that grows from attempt to attempt: `SnapshotSpec.attempt`."""
    next_report: int
    """Number of the next report of this rank at that time."""
    taken_at: float
    """Time of the snapshot in seconds since the epoch."""
    versions: Mapping[str, str]
    """`SnapshotSpec.versions`."""
    format: int = FORMAT

    @property
    def id(self) -> SnapshotId:
        """Attempt and step, by which the snapshots of all ranks are compared."""
        return SnapshotId(self.attempt, self.step)


@dataclass(frozen=True, kw_only=True)
class Region:
    """Memory to copy into a snapshot."""

    address: int
    nbytes: int
    owner: object
    """Object that keeps the memory alive."""


class SnapshotSlot:
    """A snapshot file. Written by one process; readers may be others.

    Args:
        path: Path of the file, which need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._capacity = 0
        self._map: mmap.mmap | None = None
        self._address = 0
        self._has_written = False

    def header(self) -> SnapshotHeader | None:
        """Return the header; None without a complete snapshot."""
        try:
            page = self._page()
        except OSError:
            return None
        if len(page) < _FIXED.size:
            return None
        fields = _FIXED.unpack_from(page)
        magic, form, mark, rank, world_size, attempt, step, report, time, *_, size = fields
        if magic != _MAGIC or mark != _COMPLETE:
            return None
        if form != FORMAT:  # the other fields are elsewhere
            return SnapshotHeader(
                rank=rank,
                world_size=world_size,
                step=0,
                next_report=0,
                taken_at=0.0,
                versions={},
                format=form,
            )
        try:
            versions = json.loads(page[_FIXED.size : _FIXED.size + size])
        except ValueError:
            return None
        return SnapshotHeader(
            rank=rank,
            world_size=world_size,
            attempt=attempt,
            step=step,
            next_report=report,
            taken_at=time,
            versions=versions,
            format=form,
        )

    def write(self, header: SnapshotHeader, regions: Sequence[Region], description: bytes) -> None:
        """Replace the snapshot.

        Raises:
            OSError: The file system is full. The slot is then empty.
        """
        offsets = region_offsets([region.nbytes for region in regions])
        end = offsets[-1] + regions[-1].nbytes if regions else HEADER_BYTES
        described = -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        versions = json.dumps(dict(header.versions)).encode()
        if _FIXED.size + len(versions) > HEADER_BYTES:
            raise ValueError(f"The versions of a snapshot have {len(versions)} bytes: too many.")
        page = _FIXED.pack(
            _MAGIC,
            FORMAT,
            0,
            header.rank,
            header.world_size,
            header.attempt,
            header.step,
            header.next_report,
            header.taken_at,
            described,
            len(description),
            zlib.crc32(description),
            len(versions),
        )
        self._open(described + len(description))
        os.pwrite(self._file, page + versions, 0)  # from here on the old snapshot is invalid
        faults.reach("snapshot.copying")
        if self._has_written:
            self._copy(offsets, regions, described, description)
        else:
            self._write(offsets, regions, described, description)
        faults.reach("snapshot.copied")
        self.complete()
        self._has_written = True

    @property
    def exists(self) -> bool:
        """True if there is a file, with or without a complete snapshot."""
        return self._fd is not None or self.path.exists()

    @property
    def nbytes(self) -> int:
        """Size of the complete snapshot; the file may be larger.

        Raises:
            OSError: The file cannot be read.
        """
        offset, size = _FIXED.unpack_from(self._page())[9:11]
        return int(offset) + int(size)

    def description(self) -> bytes:
        """Return the description of the complete snapshot.

        Raises:
            ValueError: The checksum is wrong.
            OSError: The file cannot be read.
        """
        offset, size, checksum = _FIXED.unpack_from(self._page())[9:12]
        data = os.pread(self._reader(), size, offset)
        if len(data) != size or zlib.crc32(data) != checksum:
            raise ValueError(f"The snapshot {self.path} is damaged: its checksum is wrong.")
        return data

    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill `target`, a writable view of bytes, from the file.

        Raises:
            ValueError: The file ends before.
        """
        done = 0
        while done < target.nbytes:
            count = os.preadv(self._reader(), [target[done:]], offset + done)
            if not count:
                raise ValueError(f"The snapshot {self.path} is damaged: it is too short.")
            done += count

    def view(self) -> memoryview:
        """Return the contents of the file. Writes to it do not change the file."""
        size = os.fstat(self._reader()).st_size
        return memoryview(
            mmap.mmap(
                self._reader(), size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE
            )
        )

    def complete(self) -> None:
        """Set the mark for completeness, once everything else is written."""
        os.pwrite(self._reader(), _MARK.pack(_COMPLETE), _MARK_OFFSET)

    def invalidate(self) -> None:
        """Clear the mark for completeness, if there is a file."""
        with suppress(OSError):
            os.pwrite(self._reader(), _MARK.pack(0), _MARK_OFFSET)

    def remove(self) -> None:
        """Delete the file."""
        self.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Release the mapping and the descriptor."""
        self._unmap()
        if self._fd is not None:
            os.close(self._fd)
        self._fd, self._capacity, self._has_written = None, 0, False

    # -- writing

    @property
    def _file(self) -> int:
        assert self._fd is not None
        return self._fd

    def _open(self, nbytes: int) -> None:
        """Open the file for writing, with at least this size."""
        if self._fd is None:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._capacity = os.fstat(self._fd).st_size
        if nbytes > self._capacity:
            self._unmap()
            self._has_written = False  # the new pages are allocated by `pwritev`, which can fail
            self._capacity = nbytes + _SLACK_BYTES
            os.ftruncate(self._fd, self._capacity)

    def _write(
        self, offsets: Sequence[int], regions: Sequence[Region], described: int, description: bytes
    ) -> None:
        pieces: list[memoryview] = []
        position = begin = HEADER_BYTES
        for offset, region in zip(offsets, regions, strict=True):
            if offset > position:
                pieces.append(memoryview(bytes(offset - position)))
            if region.nbytes:
                pieces.append(_view(region.address, region.nbytes))
            position = offset + region.nbytes
            if len(pieces) >= _PIECES_PER_CALL:
                write_all(self._file, pieces, begin)
                pieces, begin = [], position
        pieces += [memoryview(bytes(described - position)), memoryview(description)]
        write_all(self._file, pieces, begin)

    def _copy(
        self, offsets: Sequence[int], regions: Sequence[Region], described: int, description: bytes
    ) -> None:
        if self._map is None:
            self._map = mmap.mmap(self._file, self._capacity, flags=mmap.MAP_SHARED | _MAP_POPULATE)
            self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        for offset, region in zip(offsets, regions, strict=True):
            ctypes.memmove(self._address + offset, region.address, region.nbytes)
        # Its length changes. A write to a new page of a mapping would kill the process if the file
        # system is full, `pwrite` raises.
        write_all(self._file, [memoryview(description)], described)

    def _unmap(self) -> None:
        if self._map is not None:
            self._map.close()
        self._map = None

    # -- reading

    def _reader(self) -> int:
        if self._fd is None:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            self._capacity = os.fstat(self._fd).st_size
        return self._fd

    def _page(self) -> bytes:
        return os.pread(self._reader(), HEADER_BYTES, 0)


def without_mark(page: memoryview) -> None:
    """Clear the mark for completeness in the first bytes of a file, which are in memory."""
    page[_MARK_OFFSET : _MARK_OFFSET + _MARK.size] = _MARK.pack(0)


def region_offsets(sizes: Sequence[int]) -> list[int]:
    """Return the offset of each region in a file."""
    offsets, end = [], HEADER_BYTES
    for size in sizes:
        offset = -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        offsets.append(offset)
        end = offset + size
    return offsets


def snapshot_nbytes(sizes: Sequence[int], description_nbytes: int) -> int:
    """Return the size of a file with regions of these sizes."""
    end = region_offsets([*sizes, 0])[-1]
    return end + description_nbytes


def _view(address: int, nbytes: int) -> memoryview:
    return memoryview((ctypes.c_ubyte * nbytes).from_address(address)).cast("B")


def write_all(fd: int, pieces: Sequence[memoryview], offset: int) -> None:
    """Write all bytes of the pieces, one after the other, from an offset of a file on."""
    rest = [piece for piece in pieces if piece.nbytes]
    while rest:
        count = os.pwritev(fd, rest, offset)
        offset += count
        while rest and count >= rest[0].nbytes:
            count -= rest.pop(0).nbytes
        if count:
            rest[0] = rest[0][count:]
