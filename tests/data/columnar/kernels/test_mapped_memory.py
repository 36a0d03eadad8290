"""`populate` maps the pages of a mapped array before they are read."""

import mmap
from pathlib import Path

import numpy as np
import pytest

from syncline.data.columnar.kernels.mapped_memory import populate

PAGES = 256


def kernel_populates() -> bool:
    try:
        mmap.mmap(-1, mmap.PAGESIZE).madvise(22)
    except (OSError, AttributeError):
        return False
    return True


def mapped(path: Path) -> np.ndarray:
    """Return a new mapping of a file of `PAGES` pages, of which no page is resident."""
    path.write_bytes(bytes(PAGES * mmap.PAGESIZE))
    return np.memmap(path, np.uint8, mode="r")


def resident_bytes(values: np.ndarray) -> int:
    """Return the resident bytes of the mapping that begins where `values` begins."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    begin = f"{values.ctypes.data:08x}-"
    assert any(line.startswith(begin) for line in lines)
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Rss:"))


@pytest.mark.skipif(not kernel_populates(), reason="needs MADV_POPULATE_READ of Linux 5.14")
def test_all_pages_are_resident_without_a_read(tmp_path):
    values = mapped(tmp_path / "column")
    assert resident_bytes(values) == 0
    populate(values[3:])  # not from the start of a page
    assert resident_bytes(values) == values.nbytes


@pytest.mark.parametrize("rows", [0, 3, 1_000_000])
def test_values_stay_unchanged(rows):
    values = np.arange(rows)
    populate(values)
    assert np.array_equal(values, np.arange(rows))
