"""`Sampler`: what a process uses of its machine: CPU, memory, disk, network, GPUs.

Processes that it has started (workers of data loaders) count as part of it. Network and GPUs are the machine's, as nothing tells them apart
by process. Costs about a millisecond. Linux shows everything; elsewhere what cannot be had is left out.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil


@dataclass(frozen=True, kw_only=True)
class _Counters:
    """Numbers that only grow, at one moment."""

    time: float
    cpu_s: float
    read_bytes: int
    written_bytes: int
    sent_bytes: int
    received_bytes: int


class Sampler:
    """Looks at one process again and again; rates are those since the look before. For one thread.

    Args:
        pid: The process; this one if None.
        gpu_ids: Its GPUs, as `CUDA_VISIBLE_DEVICES` names them.
        clock: Seconds.
    """

    def __init__(self, pid: int | None = None, gpu_ids: Sequence[str] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self._process = psutil.Process(pid)
        self._gpu_ids = tuple(gpu_ids)
        self._clock = clock
        self._last: _Counters | None = None
        self._gpus: list[tuple[str, Any]] | None = None
        self._nvml: Any = None

    def sample(self) -> dict[str, Any]:
        """Plain values: `cpu_percent` (100 is one core), `rss_bytes`, `threads`, `read_bytes_per_s` and the like, `host_cpu_percent`,
        `host_memory_percent`, and with GPUs `gpus`; rates are missing at the first look. psutil.Error where the process has ended."""
        processes = [self._process, *_children(self._process)]
        found: dict[str, Any] = {"rss_bytes": 0, "threads": self._process.num_threads(), "processes": len(processes)}
        cpu_s, read, written = 0.0, 0, 0
        for process in processes:
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    cpu_s += times.user + times.system
                    found["rss_bytes"] += process.memory_info().rss
                    counters = process.io_counters() if hasattr(process, "io_counters") else None
                if counters is not None:
                    read += counters.read_bytes
                    written += counters.write_bytes
            except psutil.NoSuchProcess:
                if process is self._process:
                    raise
            except psutil.AccessDenied:
                continue
        network = psutil.net_io_counters()
        now = _Counters(
            time=self._clock(),
            cpu_s=cpu_s,
            read_bytes=read,
            written_bytes=written,
            sent_bytes=network.bytes_sent if network else 0,
            received_bytes=network.bytes_recv if network else 0,
        )
        if self._last is not None and now.time > self._last.time:
            found |= _rates(self._last, now)
            found["host_cpu_percent"] = psutil.cpu_percent()
        else:
            psutil.cpu_percent()  # the next one is that since now
        self._last = now
        found["host_memory_percent"] = psutil.virtual_memory().percent
        if self._gpu_ids:
            found["gpus"] = self._sample_gpus()
        return found

    def _sample_gpus(self) -> list[dict[str, Any]]:
        if self._gpus is None:
            self._gpus = self._open_gpus()
        return [{"id": name, **self._of_gpu(handle)} for name, handle in self._gpus]

    def _open_gpus(self) -> list[tuple[str, Any]]:
        try:
            self._nvml = importlib.import_module("pynvml")
            self._nvml.nvmlInit()
        except Exception:  # no driver, or one that does not answer
            return []
        opened = []
        for name in self._gpu_ids:
            try:
                handle = self._nvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdigit() else self._nvml.nvmlDeviceGetHandleByUUID(name)
            except self._nvml.NVMLError:
                continue
            opened.append((name, handle))
        return opened

    def _of_gpu(self, handle: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        try:
            memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
            found = {"memory_bytes": int(memory.used), "memory_total_bytes": int(memory.total)}
            found["util_percent"] = int(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        except self._nvml.NVMLError:  # slices of a GPU have no utilisation
            pass
        return found


def _rates(before: _Counters, now: _Counters) -> dict[str, float]:
    seconds = now.time - before.time

    def rate(then: float, present: float) -> float:
        return round(max(0.0, present - then) / seconds, 1)  # a child that has ended takes its counters with it

    return {
        "cpu_percent": rate(before.cpu_s * 100, now.cpu_s * 100),
        "read_bytes_per_s": rate(before.read_bytes, now.read_bytes),
        "written_bytes_per_s": rate(before.written_bytes, now.written_bytes),
        "sent_bytes_per_s": rate(before.sent_bytes, now.sent_bytes),
        "received_bytes_per_s": rate(before.received_bytes, now.received_bytes),
    }


def _children(process: psutil.Process) -> list[psutil.Process]:
    """Processes that a process has started, and theirs. By the kernel's lists, as looking through all processes takes long."""
    found: list[psutil.Process] = []
    waiting = [process.pid]
    while waiting:
        pid = waiting.pop()
        try:
            numbers = {int(number) for path in Path(f"/proc/{pid}/task").glob("*/children") for number in path.read_text().split()}
        except (OSError, ValueError):
            continue
        for number in numbers:
            try:
                found.append(psutil.Process(number))
                waiting.append(number)
            except psutil.Error:
                continue
    return found
