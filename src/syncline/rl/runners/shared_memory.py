"""Samples in shared memory: transfer of arrays from a runner in another process.

A runner writes the arrays of a sample into memory that it reuses, and returns the rest (some
hundred bytes) as its answer. The reader copies the arrays immediately, so that the memory can be
reused. Steps and arrays are not pickled. The memory is an anonymous file that the reader opens
through `/proc`, so dead processes leave nothing behind. Not covered: runners on other machines, and
systems without anonymous files; they return the sample directly.
"""

from __future__ import annotations

import mmap
import os
import pickle
import socket
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

PROGRESS_BYTES = 8
NO_PROGRESS = -1
"""Value of the step counter for runners that do not count steps."""
_ALIGNMENT_BYTES = 64


@dataclass(frozen=True, kw_only=True)
class MemoryAddress:
    """Address of an in-memory file of a process."""

    host: str
    pid: int
    fd: int

    def open(self) -> int:
        """Return a file descriptor of this process.

        Raises:
            OSError: It is on another machine, or this system has no anonymous files.
        """
        if self.host != socket.gethostname():
            raise OSError(f"the memory is on {self.host}")
        return os.open(f"/proc/{self.pid}/fd/{self.fd}", os.O_RDWR)


class StoredSample(NamedTuple):
    """A sample whose arrays are in shared memory."""

    pickled: bytes
    """The sample without its arrays."""
    fd: int
    """The runner's file descriptor of the memory."""
    capacity: int
    """Size of the memory in bytes."""
    bounds: tuple[int, ...]
    """Start and stop of each array, alternating."""


class SampleWriter:
    """The writer in the runner, with one memory slot per unread sample."""

    def __init__(self) -> None:
        self._slots: dict[int, _Memory] = {}
        self._progress: _Memory | None = None
        self.progress = np.zeros(1, np.int64)
        """[1]: number of steps so far; in shared memory if available."""
        if hasattr(os, "memfd_create"):
            self._progress = _Memory(PROGRESS_BYTES)
            self.progress = np.frombuffer(self._progress.map, np.int64)

    @property
    def address(self) -> MemoryAddress | None:
        """Address of the step counter for other processes; None without shared memory."""
        return None if self._progress is None else self._progress.address

    def write(self, sample: object, slot: int) -> Any:
        """Move the arrays of a sample to a slot; return the sample unchanged if it has parts that
        only a custom pickler supports.
        """
        buffers: list[pickle.PickleBuffer] = []
        try:
            pickled = pickle.dumps(sample, protocol=5, buffer_callback=buffers.append)
        except (pickle.PicklingError, AttributeError, TypeError):
            return sample
        views = [buffer.raw() for buffer in buffers]
        bounds: list[int] = []
        end = 0
        for view in views:
            start = -(-end // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
            end = start + view.nbytes
            bounds += (start, end)
        memory = self._slots.get(slot)
        if memory is None:
            memory = self._slots[slot] = _Memory(max(2 * end, mmap.PAGESIZE))
        elif memory.size < end:
            memory.grow(2 * end)
        for place, view in enumerate(views):
            memory.map[bounds[2 * place] : bounds[2 * place + 1]] = view
        return StoredSample(pickled, memory.fd, memory.size, tuple(bounds))


class SampleReader:
    """The reader, which maps the memory of one runner.

    Args:
        progress: Address of the runner's step counter.

    Raises:
        OSError: This process cannot read the memory.
    """

    def __init__(self, progress: MemoryAddress) -> None:
        self._runner = progress
        self._maps: dict[int, mmap.mmap] = {}
        self._progress = np.frombuffer(_mapped(progress, PROGRESS_BYTES), np.int64)

    @property
    def progress(self) -> int | None:
        """Number of steps of the runner so far; None if it does not count them."""
        steps = int(self._progress[0])
        return None if steps == NO_PROGRESS else steps

    def read(self, stored: StoredSample) -> Any:
        """Return a sample with copied arrays."""
        found = self._maps.get(stored.fd)
        if found is None or len(found) < stored.capacity:
            address = replace(self._runner, fd=stored.fd)
            found = self._maps[stored.fd] = _mapped(address, stored.capacity)
        bounds = stored.bounds
        data = memoryview(bytearray(memoryview(found)[: bounds[-1] if bounds else 0]))
        arrays = [data[start:stop] for start, stop in zip(bounds[::2], bounds[1::2], strict=True)]
        return pickle.loads(stored.pickled, buffers=arrays)


class _Memory:
    """An anonymous file and its mapping."""

    def __init__(self, size: int) -> None:
        self.fd = os.memfd_create("syncline-samples")
        self.grow(size)
        self.address = MemoryAddress(host=socket.gethostname(), pid=os.getpid(), fd=self.fd)

    def grow(self, size: int) -> None:
        """Enlarge the file and map it again."""
        os.ftruncate(self.fd, size)
        self.size = size
        self.map = mmap.mmap(self.fd, size)


def _mapped(address: MemoryAddress, size: int) -> mmap.mmap:
    fd = address.open()
    try:
        return mmap.mmap(fd, size)
    finally:
        os.close(fd)
