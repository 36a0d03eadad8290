"""Page tables of memory-mapped columns.

The first read of a mapped page is a page fault, and Linux maps at most 16 pages per fault. Where a
kernel reads a column once, these faults can take longer than the copy.
"""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np

_MADV_POPULATE_READ = 22  # since Linux 5.14; `mmap` has no name for it
_MIN_BYTES = 16 * mmap.PAGESIZE  # one page fault

_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
if _libc is not None:
    _libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def populate(values: np.ndarray) -> None:
    """Map all pages of a C-contiguous array in one system call; the values stay unchanged.

    Without effect on resident memory, on arrays of one page fault or less, on Linux before 5.14,
    and on other systems.
    """
    if _libc is None or values.nbytes <= _MIN_BYTES:
        return
    address = values.ctypes.data
    start = address - address % mmap.PAGESIZE
    _libc.madvise(start, address + values.nbytes - start, _MADV_POPULATE_READ)
