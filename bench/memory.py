"""Peak memory of the processes of a measurement, sampled from outside.

A sample is the sum of the proportional set sizes (PSS) of all processes, plus pages in `/dev/shm`
that no process maps: an object store with files in `/dev/shm` has many of them. Systems without
`/proc` are not covered; the peak is 0 there.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import psutil

SHARED_MEMORY = Path("/dev/shm")
INTERVAL_S = 0.1
PAUSE_PER_COST = 20
"""Minimum ratio of the pause to the duration of a sample: sampling slows the program down."""


def shares(rollup: str) -> tuple[int, int]:
    """Parse a `smaps_rollup`; return (PSS without shared memory, PSS of shared memory) in bytes."""
    sizes = {}
    for line in rollup.splitlines()[1:]:
        name, _, size = line.partition(":")
        sizes[name] = int(size.split()[0]) * 1024
    shared = sizes.get("Pss_Shmem", 0)
    return sizes["Pss"] - shared, shared


def total_bytes(each: Sequence[tuple[int, int]], shared_bytes: int) -> int:
    """Return the memory of processes with these `shares`; `shared_bytes` is all shared memory that
    they created, mapped or not.
    """
    return sum(own for own, _ in each) + max(sum(shared for _, shared in each), shared_bytes)


class PeakMemory:
    """Samples the processes that `find` returns until exit; `peak_bytes` is the maximum.

    New files in `/dev/shm` are counted as theirs.
    """

    def __init__(self, find: Callable[[], Sequence[psutil.Process]]) -> None:
        self.peak_bytes = 0
        self._find = find
        self._before = _shared_memory_bytes()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak-memory", daemon=True)

    def __enter__(self) -> "PeakMemory":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        pause = 0.0
        while not self._stopped.wait(pause):
            begin = time.monotonic()
            self.peak_bytes = max(self.peak_bytes, self._sample())
            pause = max(INTERVAL_S, PAUSE_PER_COST * (time.monotonic() - begin))

    def _sample(self) -> int:
        each = []
        for process in self._find():
            try:
                each.append(shares(Path(f"/proc/{process.pid}/smaps_rollup").read_text()))
            except (OSError, KeyError):
                continue  # the process has ended
        return total_bytes(each, _shared_memory_bytes() - self._before)


def _shared_memory_bytes() -> int:
    if not SHARED_MEMORY.is_dir():
        return 0
    facts = os.statvfs(SHARED_MEMORY)
    return (facts.f_blocks - facts.f_bfree) * facts.f_frsize
