"""The most memory that the processes of a measurement had at one moment, sampled from outside of
them.

Counted are the proportional shares (PSS) of all processes, and pages in shared memory that no
process has mapped at the moment: a store whose objects are files in `/dev/shm` has many of those.
Not covered: systems without `/proc`, where nothing is counted.
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
"""Pauses are at least so many times as long as a look takes, as both share the machine with what is
measured.
"""


def shares(rollup: str) -> tuple[int, int]:
    """What a `smaps_rollup` says: bytes of the process's own share of ordinary pages, and of shared
    memory.
    """
    sizes = {}
    for line in rollup.splitlines()[1:]:
        name, _, size = line.partition(":")
        sizes[name] = int(size.split()[0]) * 1024
    shared = sizes.get("Pss_Shmem", 0)
    return sizes["Pss"] - shared, shared


def total_bytes(each: Sequence[tuple[int, int]], unmapped_too: int) -> int:
    """What processes with these `shares` have together; `unmapped_too` is what they put into shared
    memory, mapped or not.
    """
    return sum(own for own, _ in each) + max(sum(shared for _, shared in each), unmapped_too)


class PeakMemory:
    """Looks again and again at the processes that `find` names while the block runs; `peak_bytes`
    is the most that it saw.

    Everything that appears in `/dev/shm` meanwhile counts as theirs.
    """

    def __init__(self, find: Callable[[], Sequence[psutil.Process]]) -> None:
        self.peak_bytes = 0
        self._find = find
        self._before = _shared_memory_bytes()
        self._over = threading.Event()
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
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        pause = 0.0
        while not self._over.wait(pause):
            begin = time.monotonic()
            self.peak_bytes = max(self.peak_bytes, self._look())
            pause = max(INTERVAL_S, PAUSE_PER_COST * (time.monotonic() - begin))

    def _look(self) -> int:
        each = []
        for process in self._find():
            try:
                each.append(shares(Path(f"/proc/{process.pid}/smaps_rollup").read_text()))
            except (OSError, KeyError):
                continue  # gone meanwhile
        return total_bytes(each, _shared_memory_bytes() - self._before)


def _shared_memory_bytes() -> int:
    if not SHARED_MEMORY.is_dir():
        return 0
    facts = os.statvfs(SHARED_MEMORY)
    return (facts.f_blocks - facts.f_bfree) * facts.f_frsize
