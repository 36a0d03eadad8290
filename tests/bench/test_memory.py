"""The memory of a measurement's processes: what counts, and that a peak is seen from outside."""

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


def test_a_process_has_its_share_of_ordinary_pages_and_of_shared_memory() -> None:
    assert shares(ROLLUP) == (300 * 1024, 200 * 1024)


def test_a_kernel_that_does_not_tell_shared_memory_apart_counts_it_as_ordinary() -> None:
    assert shares("header\nPss:  500 kB\n") == (500 * 1024, 0)


@pytest.mark.parametrize(("unmapped_too", "expected"), [(0, 360), (40, 360), (100, 400)])
def test_shared_memory_counts_once_mapped_or_not(unmapped_too: int, expected: int) -> None:
    assert total_bytes([(100, 20), (200, 40)], unmapped_too) == expected


@pytest.mark.processes
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is counted in /proc")
def test_memory_of_another_process_is_seen_while_it_lives() -> None:
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


def test_a_process_that_is_gone_ends_no_watch() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.DEVNULL)
    known = psutil.Process(gone.pid)
    gone.wait()
    looks: list[int] = []

    def find() -> list[psutil.Process]:
        looks.append(1)
        return [known]

    with PeakMemory(find):
        eventually(lambda: len(looks) > 1)
