"""`Sampler`: resource usage of a process: CPU, memory, disk, network, GPUs.

Descendants of the process, such as data loader workers, count as part of it. Network and GPU values
are those of the machine, because the system does not attribute them to processes. A sample costs a
tenth of a millisecond, plus ten microseconds per thread when descendants are listed. On Linux the
counters are read directly from `/proc`, because workers are sampled from inside the training
process. Other systems use psutil; values that it does not provide are 0.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syncline import system
from syncline.optional import deferred
from syncline.runs.json_values import JsonObject

if TYPE_CHECKING:
    import psutil
else:
    psutil = deferred("psutil")

FIRST_LISTINGS = 3
"""Number of first samples that list the descendants each time."""
LISTING_INTERVAL = 3
"""Interval of listing descendants after that; it takes longer than the rest of a sample."""


@dataclass(frozen=True, kw_only=True)
class _Counters:
    """Counters at one moment."""

    time: float
    cpu_s: float
    read_bytes: int
    written_bytes: int
    host: HostCounters


class Sampler:
    """Repeated samples of one process; rates are relative to the previous sample. For one thread.

    Args:
        pid: Process ID; this process by default.
        gpu_ids: GPUs of the process, as in `CUDA_VISIBLE_DEVICES`.
        clock: Returns seconds.

    Raises:
        psutil.NoSuchProcess: The process does not exist.
    """

    def __init__(
        self,
        pid: int | None = None,
        gpu_ids: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._began = process_counters(self._pid).began
        self._gpu_ids = tuple(gpu_ids)
        self._clock = clock
        self._samples = 0
        self._descendants: dict[int, float] = {}  # PID -> start time
        self._last: _Counters | None = None
        self._gpus: list[tuple[str, Any]] | None = None
        self._nvml: Any = None

    def sample(self) -> JsonObject:
        """Return plain values: `cpu_percent` (100 is one core), `rss_bytes`, `threads`,
        `read_bytes_per_s` etc., `host_cpu_percent`, `host_memory_percent`, and `gpus` if the
        process has GPUs. The first sample has no rates. psutil.Error if the process has ended.
        """
        own = process_counters(self._pid)
        if own.began != self._began:  # the PID was reused
            raise psutil.NoSuchProcess(self._pid)
        processes = [own, *self._sample_descendants()]
        now = _Counters(
            time=self._clock(),
            cpu_s=sum(process.cpu_s for process in processes),
            read_bytes=sum(process.read_bytes for process in processes),
            written_bytes=sum(process.written_bytes for process in processes),
            host=host_counters(),
        )
        found: JsonObject = {
            "rss_bytes": sum(process.rss_bytes for process in processes),
            "threads": own.threads,
            "processes": len(processes),
        }
        if self._last is not None and now.time > self._last.time:
            found |= _rates(self._last, now)
        self._last = now
        found["host_memory_percent"] = now.host.memory_percent
        if self._gpu_ids:
            found["gpus"] = self._sample_gpus()
        return found

    def _sample_descendants(self) -> list[ProcessCounters]:
        is_due = self._samples < FIRST_LISTINGS or self._samples % LISTING_INTERVAL == 0
        self._samples += 1
        found, known = [], self._descendants
        self._descendants = {}
        for pid in descendants(self._pid) if is_due else known:
            try:
                child = process_counters(pid)
            except psutil.Error:
                continue
            if is_due or child.began == known[pid]:
                self._descendants[pid] = child.began
                found.append(child)
        return found

    def _sample_gpus(self) -> list[JsonObject]:
        if self._gpus is None:
            self._gpus = self._open_gpus()
        return [{"id": name, **self._gpu_values(handle)} for name, handle in self._gpus]

    def _open_gpus(self) -> list[tuple[str, Any]]:
        try:
            self._nvml = importlib.import_module("pynvml")
            self._nvml.nvmlInit()
        except Exception:  # no driver, or a driver that does not respond
            return []
        opened = []
        for name in self._gpu_ids:
            try:
                handle = (
                    self._nvml.nvmlDeviceGetHandleByIndex(int(name))
                    if name.isdigit()
                    else self._nvml.nvmlDeviceGetHandleByUUID(name)
                )
            except self._nvml.NVMLError:
                continue
            opened.append((name, handle))
        return opened

    def _gpu_values(self, handle: object) -> JsonObject:
        found: JsonObject = {}
        try:
            memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
            found = {"memory_bytes": int(memory.used), "memory_total_bytes": int(memory.total)}
            found["util_percent"] = int(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        except self._nvml.NVMLError:  # MIG slices have no utilization
            pass
        return found


def _rates(before: _Counters, now: _Counters) -> dict[str, float]:
    seconds = now.time - before.time
    host_s = now.host.cpu_s - before.host.cpu_s
    busy_s = host_s - (now.host.idle_s - before.host.idle_s)

    def rate(then: float, present: float) -> float:
        # The counters of a child disappear with it, so a difference may be negative.
        return round(max(0.0, present - then) / seconds, 1)

    return {
        "cpu_percent": rate(before.cpu_s * 100, now.cpu_s * 100),
        "read_bytes_per_s": rate(before.read_bytes, now.read_bytes),
        "written_bytes_per_s": rate(before.written_bytes, now.written_bytes),
        "sent_bytes_per_s": rate(before.host.sent_bytes, now.host.sent_bytes),
        "received_bytes_per_s": rate(before.host.received_bytes, now.host.received_bytes),
        "host_cpu_percent": round(min(100.0, max(0.0, 100 * busy_s / host_s)), 1)
        if host_s > 0
        else 0.0,
    }


_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if system.IS_LINUX else 1
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if system.IS_LINUX else 1
_STATE, _USER, _SYSTEM, _THREADS, _START, _PAGES = 0, 11, 12, 17, 19, 21
"""Field numbers in `/proc/PID/stat`, counted after the program name."""


@dataclass(frozen=True, kw_only=True)
class ProcessCounters:
    """Counters of one process."""

    began: float
    """Start time in seconds; identifies the process together with its PID."""
    cpu_s: float
    rss_bytes: int
    threads: int
    read_bytes: int
    written_bytes: int


@dataclass(frozen=True, kw_only=True)
class HostCounters:
    """Counters of this machine."""

    cpu_s: float
    """Total CPU time of all cores since boot."""
    idle_s: float
    """Idle part of `cpu_s`, including time spent waiting for disks."""
    sent_bytes: int
    received_bytes: int
    memory_percent: float


def process_counters(pid: int) -> ProcessCounters:
    """Return the counters of a process; raise psutil.NoSuchProcess if it has ended."""
    if not system.IS_LINUX:
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


def descendants(pid: int) -> list[int]:
    """Return the PIDs of all live descendants of a process.

    Reads the kernel's lists of children on Linux, ten microseconds per thread, and scans all
    processes elsewhere.
    """
    if not system.IS_LINUX:
        try:
            return [child.pid for child in psutil.Process(pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            return []
    found: list[int] = []
    waiting = [pid]
    while waiting:
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


def host_counters() -> HostCounters:
    """Return the counters of this machine."""
    if not system.IS_LINUX:
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
        idle_s=sum(ticks[3:5]) / _TICKS_PER_S,  # idle and iowait
        received_bytes=sum(int(fields[0]) for fields in network),
        sent_bytes=sum(int(fields[8]) for fields in network),
        memory_percent=round(100 * (total - free) / total, 1) if total else 0.0,
    )


def _content(path: str, limit_bytes: int = 4096) -> bytes:
    """Return the beginning of a file, or b"" if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, limit_bytes)
    except OSError:  # the process has ended since
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
