"""What the system says about processes and this machine at one moment.

On Linux the few files of `/proc` that matter are read as they are, a dozen microseconds each: this
is done again and again beside a training function, in its process. Elsewhere psutil asks, and what
cannot be had is 0.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import psutil

_IS_LINUX = sys.platform == "linux"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if _IS_LINUX else 1
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if _IS_LINUX else 1
_STATE, _USER, _SYSTEM, _THREADS, _START, _PAGES = 0, 11, 12, 17, 19, 21
"""Places in `/proc/…/stat` after the name of the program."""


@dataclass(frozen=True, kw_only=True)
class ProcessCounters:
    """Of one process."""

    began: float
    """With its number, tells it from all others."""
    cpu_s: float
    rss_bytes: int
    threads: int
    read_bytes: int
    written_bytes: int


@dataclass(frozen=True, kw_only=True)
class HostCounters:
    """Of the machine."""

    cpu_s: float
    """Of all its cores, since it was started."""
    idle_s: float
    """Of those, doing nothing."""
    sent_bytes: int
    received_bytes: int
    memory_percent: float


def of_process(pid: int) -> ProcessCounters:
    """Counters of a process. psutil.NoSuchProcess where it has ended."""
    if not _IS_LINUX:
        return _by_psutil(psutil.Process(pid))
    data = _content(f"/proc/{pid}/stat")
    fields = data[data.rfind(b")") + 2 :].split()
    if not fields or fields[_STATE] in b"ZX":
        raise psutil.NoSuchProcess(pid)
    disk = dict(zip(*[iter(_content(f"/proc/{pid}/io").split())] * 2, strict=False))
    return ProcessCounters(
        began=int(fields[_START]) / _TICKS_PER_S,
        cpu_s=(int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS_PER_S,
        rss_bytes=int(fields[_PAGES]) * _PAGE_BYTES,
        threads=int(fields[_THREADS]),
        read_bytes=int(disk.get(b"read_bytes:", 0)),
        written_bytes=int(disk.get(b"write_bytes:", 0)),
    )


def children(pid: int) -> list[int]:
    """Processes that a process has started and that live, and theirs; by the kernel's lists, as
    looking at all processes takes long. Costs ten microseconds for each thread. Linux only: none
    elsewhere.
    """
    found: list[int] = []
    waiting = [pid]
    while waiting and _IS_LINUX:
        tasks = f"/proc/{waiting.pop()}/task"
        try:
            threads = os.listdir(tasks)
        except OSError:
            continue
        numbers = [
            int(number)
            for thread in threads
            for number in _content(f"{tasks}/{thread}/children").split()
        ]
        found += numbers
        waiting += numbers
    return found


def of_host() -> HostCounters:
    """Counters of this machine."""
    if not _IS_LINUX:
        return _host_by_psutil()
    ticks = [int(field) for field in _content("/proc/stat", 512).partition(b"\n")[0].split()[1:9]]
    memory = dict(
        line.split()[:2]
        for line in _content("/proc/meminfo", 256).split(b"\n")[:3]
        if line.count(b" ")
    )
    total, free = int(memory.get(b"MemTotal:", 0)), int(memory.get(b"MemAvailable:", 0))
    network = [
        line.rpartition(b":")[2].split()
        for line in _content("/proc/net/dev", 65536).split(b"\n")[2:]
        if b":" in line
    ]
    return HostCounters(
        cpu_s=sum(ticks) / _TICKS_PER_S,
        idle_s=sum(ticks[3:5]) / _TICKS_PER_S,  # idle, and waiting for a disk
        received_bytes=sum(int(fields[0]) for fields in network),
        sent_bytes=sum(int(fields[8]) for fields in network),
        memory_percent=round(100 * (total - free) / total, 1) if total else 0.0,
    )


def _content(path: str, limit_bytes: int = 4096) -> bytes:
    """The beginning of a file; nothing where it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, limit_bytes)
    except OSError:  # the process has ended meanwhile
        return b""
    finally:
        os.close(descriptor)


def _by_psutil(process: psutil.Process) -> ProcessCounters:
    with process.oneshot():
        times = process.cpu_times()
        return ProcessCounters(
            began=process.create_time(),
            cpu_s=times.user + times.system,
            rss_bytes=process.memory_info().rss,
            threads=process.num_threads(),
            read_bytes=0,
            written_bytes=0,
        )


def _host_by_psutil() -> HostCounters:
    times, network = psutil.cpu_times(), psutil.net_io_counters()
    return HostCounters(
        cpu_s=sum(times),
        idle_s=times.idle,
        sent_bytes=network.bytes_sent if network else 0,
        received_bytes=network.bytes_recv if network else 0,
        memory_percent=psutil.virtual_memory().percent,
    )
