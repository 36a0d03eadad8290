"""`Sampler`: what a process uses of its machine: CPU, memory, disk, network, GPUs.

Processes that it has started (workers of data loaders) count as part of it. Network and GPUs are
the machine's, as nothing tells them apart by process. Costs a tenth of a millisecond, and ten
microseconds for each thread now and then. Linux shows everything; elsewhere what cannot be had is
0.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from syncline.runs import counters
from syncline.runs.counters import HostCounters, ProcessCounters

FIRST_LOOKS = 3
"""At so many first looks it is seen which processes it has started; then at every third, as that
takes longer than all else.
"""
LATER_LOOKS = 3


@dataclass(frozen=True, kw_only=True)
class _Look:
    """What was seen at one moment."""

    time: float
    cpu_s: float
    read_bytes: int
    written_bytes: int
    host: HostCounters


class Sampler:
    """Looks at one process again and again; rates are those since the look before. For one thread.

    Args:
        pid: The process; this one if None.
        gpu_ids: Its GPUs, as `CUDA_VISIBLE_DEVICES` names them.
        clock: Seconds.

    Raises:
        psutil.NoSuchProcess: There is no such process.
    """

    def __init__(
        self,
        pid: int | None = None,
        gpu_ids: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._began = counters.of_process(self._pid).began
        self._gpu_ids = tuple(gpu_ids)
        self._clock = clock
        self._looks = 0
        self._children: dict[int, float] = {}  # and when they began
        self._last: _Look | None = None
        self._gpus: list[tuple[str, Any]] | None = None
        self._nvml: Any = None

    def sample(self) -> dict[str, Any]:
        """Plain values: `cpu_percent` (100 is one core), `rss_bytes`, `threads`, `read_bytes_per_s`
        and the like, `host_cpu_percent`, `host_memory_percent`, and with GPUs `gpus`; rates are
        missing at the first look. psutil.Error where the process has ended.
        """
        own = counters.of_process(self._pid)
        if own.began != self._began:  # its number was given again
            raise psutil.NoSuchProcess(self._pid)
        processes = [own, *self._look_at_children()]
        now = _Look(
            time=self._clock(),
            cpu_s=sum(process.cpu_s for process in processes),
            read_bytes=sum(process.read_bytes for process in processes),
            written_bytes=sum(process.written_bytes for process in processes),
            host=counters.of_host(),
        )
        found: dict[str, Any] = {
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

    def _look_at_children(self) -> list[ProcessCounters]:
        is_due = self._looks < FIRST_LOOKS or self._looks % LATER_LOOKS == 0
        self._looks += 1
        found, known = [], self._children
        self._children = {}
        for pid in counters.children(self._pid) if is_due else known:
            try:
                child = counters.of_process(pid)
            except psutil.Error:
                continue
            if is_due or child.began == known[pid]:
                self._children[pid] = child.began
                found.append(child)
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
                handle = (
                    self._nvml.nvmlDeviceGetHandleByIndex(int(name))
                    if name.isdigit()
                    else self._nvml.nvmlDeviceGetHandleByUUID(name)
                )
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


def _rates(before: _Look, now: _Look) -> dict[str, float]:
    seconds = now.time - before.time
    host_s = now.host.cpu_s - before.host.cpu_s
    busy_s = host_s - (now.host.idle_s - before.host.idle_s)

    def rate(then: float, present: float) -> float:
        return round(
            max(0.0, present - then) / seconds, 1
        )  # a child that has ended takes its counters with it

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
