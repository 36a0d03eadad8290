"""Peak memory of a measurement's processes: what counts, and sampling from outside."""

import subprocess
import sys

import psutil
import pytest

from bench.memory import PeakMemory, shares, total_bytes
from syncline.testing.waiting import eventually

ROLLUP = """555b7487d000-7fff9b199000 ---p 00000000 00:00 0                          [rollup]
Rss:                1748 kB
Pss:                 500 kB
Pss_Anon:            112 kB
Pss_Shmem:           200 kB
"""
HOLDS_64_MB = (
    "import sys; kept = bytes(range(256)) * 250_000; print('here', flush=True); sys.stdin.read()"
)


def test_shares_split_ordinary_pages_and_shared_memory() -> None:
    assert shares(ROLLUP) == (300 * 1024, 200 * 1024)


def test_kernel_without_shared_memory_figures_counts_all_as_ordinary() -> None:
    assert shares("header\nPss:  500 kB\n") == (500 * 1024, 0)


@pytest.mark.parametrize(("shared_bytes", "expected"), [(0, 360), (40, 360), (100, 400)])
def test_shared_memory_counts_once_mapped_or_not(shared_bytes: int, expected: int) -> None:
    assert total_bytes([(100, 20), (200, 40)], shared_bytes) == expected


@pytest.mark.processes
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is counted in /proc")
def test_memory_of_a_live_process_is_sampled() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS_64_MB], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"here\n"
        with PeakMemory(lambda: [psutil.Process(process.pid)]) as memory:
            eventually(lambda: memory.peak_bytes > 0)
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()
    assert memory.peak_bytes > 64_000_000


def test_sampling_continues_after_a_process_has_exited() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.DEVNULL)
    known = psutil.Process(gone.pid)
    gone.wait()
    looks: list[int] = []

    def find() -> list[psutil.Process]:
        looks.append(1)
        return [known]

    with PeakMemory(find):
        eventually(lambda: len(looks) > 1)
