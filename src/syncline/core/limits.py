"""How many CPUs and how much memory this process may use: cgroups v1 and v2, the affinity mask, and
the machine itself.

Every reading takes ``root``, the directory that stands for ``/``, so that tests describe a machine
as a small tree of files. Nested cgroups are read from the process's own group upwards: the tightest
limit on the way counts. What is not covered: CPU shares and weights (they divide a busy machine,
they limit nobody), swap limits, and soft limits such as ``memory.high``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

_Number = TypeVar("_Number", int, float)
_ROOT = Path("/")
_V1_UNLIMITED_BYTES = 1 << 60
"""The kernel's v1 way to say "no limit" is the largest multiple of the page size, whatever that is;
nobody has an exbibyte.
"""


@dataclass(frozen=True, kw_only=True)
class MachineLimits:
    """What this process may use of the machine it runs on."""

    cpus: int
    """Whole CPUs, at least 1: the smallest of the affinity mask, the cgroup quota (rounded down)
    and the CPUs that exist.
    """
    memory_bytes: int
    """Bytes: the smaller of the memory that exists and the cgroup limit."""


@dataclass(frozen=True, kw_only=True)
class _Mount:
    """Where one cgroup hierarchy is visible in the file system."""

    controllers: frozenset[str]
    inside: str
    point: str


def machine_limits(root: Path = _ROOT) -> MachineLimits:
    """Read all limits once; nothing is cached, so that a container that was resized is seen by the
    next call.
    """
    return MachineLimits(cpus=cpu_count(root), memory_bytes=memory_bytes(root))


def cpu_count(root: Path = _ROOT, *, affinity: int | None = None) -> int:
    """Whole CPUs for this process, at least 1. ``affinity`` replaces the number that the
    scheduler's mask allows.

    A quota of 2.5 CPUs counts as 2: a third busy process would be throttled for half of its time.
    """
    allowed = affinity if affinity is not None else _affinity()
    quota = cpu_quota(root)
    return max(1, allowed if quota is None else min(allowed, int(quota)))


def cpu_quota(root: Path = _ROOT) -> float | None:
    """CPUs that the cgroups of this process grant, fractional, or ``None`` without a quota."""
    quotas = [_quota_v2(directory / "cpu.max") for directory in _directories(root, "")]
    quotas += [_quota_v1(directory) for directory in _directories(root, "cpu")]
    return _smallest(quotas)


def memory_limit(root: Path = _ROOT) -> int | None:
    """Bytes that the cgroups of this process grant, or ``None`` without a limit."""
    limits = [_number(directory / "memory.max") for directory in _directories(root, "")]
    limits += [
        _number(directory / "memory.limit_in_bytes") for directory in _directories(root, "memory")
    ]
    return _smallest(
        [limit for limit in limits if limit is not None and 0 < limit < _V1_UNLIMITED_BYTES]
    )


def memory_bytes(root: Path = _ROOT) -> int:
    """Bytes of memory that this process may use: the machine's own, or the cgroup limit where that
    is smaller.
    """
    installed = _installed_memory(root)
    limit = memory_limit(root)
    return installed if limit is None else min(installed, limit)


@dataclass(frozen=True, kw_only=True)
class MemoryFiles:
    """Where to look, again and again, at the memory that this process may still take, and at the
    kills for lack of it.
    """

    root: Path
    groups: tuple[Path, ...]
    """Directories of the v2 and v1 control groups of this process, the nearest first in each
    hierarchy.
    """

    @classmethod
    def of(cls, root: Path = _ROOT) -> MemoryFiles:
        """Found once; a process that is moved to another group is not followed."""
        return cls(root=root, groups=(*_directories(root, ""), *_directories(root, "memory")))

    def available_bytes(self) -> int | None:
        """Bytes that can still be taken: of the machine, or of the tightest group; files that are
        only cached count as free.
        """
        return _smallest(
            [
                _field(self.root / "proc/meminfo", "MemAvailable:", 1024),
                *map(_left_in_group, self.groups),
            ]
        )

    def kills(self) -> int | None:
        """How many processes of this process's group the system has ended since the group exists;
        without a group, of the machine.

        None where the system counts neither.
        """
        for group in self.groups:
            for name in ("memory.events", "memory.oom_control"):
                count = _field(group / name, "oom_kill")
                if count is not None:
                    return count
        return _field(self.root / "proc/vmstat", "oom_kill")


def _left_in_group(group: Path) -> int | None:
    for limit_name, usage_name, cache_name in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit, usage = _number(group / limit_name), _number(group / usage_name)
        if limit is not None and usage is not None and 0 < limit < _V1_UNLIMITED_BYTES:
            return max(0, limit - usage + (_field(group / "memory.stat", cache_name) or 0))
    return None


def _affinity() -> int:
    """CPUs in the affinity mask; platforms without masks (macOS) answer with all that exist."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _installed_memory(root: Path) -> int:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return int(psutil.virtual_memory().total)


def _quota_v2(path: Path) -> float | None:
    """``cpu.max`` holds "quota period" in microseconds, or "max period"."""
    fields = _text(path).split()
    if len(fields) != 2 or fields[0] == "max":
        return None
    quota, period = int(fields[0]), int(fields[1])
    return quota / period if quota > 0 and period > 0 else None


def _quota_v1(directory: Path) -> float | None:
    quota = _number(directory / "cpu.cfs_quota_us")
    period = _number(directory / "cpu.cfs_period_us")
    return (
        quota / period
        if quota is not None and period is not None and quota > 0 and period > 0
        else None
    )


def _directories(root: Path, controller: str) -> Iterator[Path]:
    """The process's cgroup directory of one controller ("" is the v2 hierarchy) and its ancestors
    up to the mount point.

    Inside a container the path in ``/proc/self/cgroup`` may be the host's and not exist below the
    mount: then only the ancestors that do exist are given, the mount point among them, which is the
    container's own group.
    """
    path = _group_path(root, controller)
    if path is None:
        return
    for mount in _mounts(root):
        if controller not in mount.controllers:
            continue
        if mount.inside != "/" and (path + "/").startswith(mount.inside + "/"):
            path = path[len(mount.inside) :]
        point = root / mount.point.lstrip("/")
        parts = [part for part in path.split("/") if part and part != ".."]
        for depth in range(len(parts), -1, -1):
            directory = point.joinpath(*parts[:depth])
            if directory.is_dir():
                yield directory
        return


def _group_path(root: Path, controller: str) -> str | None:
    """Lines read "id:controllers:path"; the v2 line has no controllers."""
    for line in _lines(root / "proc/self/cgroup"):
        fields = line.split(":", 2)
        if len(fields) == 3 and controller in fields[1].split(","):
            return fields[2]
    return None


def _mounts(root: Path) -> list[_Mount]:
    """Cgroup mounts from ``/proc/self/mountinfo``, or the customary places where that file cannot
    be read.
    """
    mounts = []
    for line in _lines(root / "proc/self/mountinfo"):
        before, separator, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if not separator or len(fields) < 5 or not kind or kind[0] not in ("cgroup", "cgroup2"):
            continue
        controllers = frozenset({""}) if kind[0] == "cgroup2" else frozenset(kind[-1].split(","))
        mounts.append(_Mount(controllers=controllers, inside=fields[3], point=fields[4]))
    return mounts or [
        _Mount(controllers=frozenset({""}), inside="/", point="/sys/fs/cgroup"),
        _Mount(controllers=frozenset({"cpu"}), inside="/", point="/sys/fs/cgroup/cpu"),
        _Mount(controllers=frozenset({"memory"}), inside="/", point="/sys/fs/cgroup/memory"),
    ]


def _smallest(values: Iterable[_Number | None]) -> _Number | None:
    return min((value for value in values if value is not None), default=None)


def _field(path: Path, name: str, unit: int = 1) -> int | None:
    """The number after a name at the begin of a line, times `unit`."""
    for line in _lines(path):
        fields = line.split()
        if len(fields) > 1 and fields[0] == name and fields[1].isdigit():
            return int(fields[1]) * unit
    return None


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.lstrip("-").isdigit() else None


def _lines(path: Path) -> list[str]:
    return _text(path).splitlines()


def _text(path: Path) -> str:
    """The file's text, or nothing: a file that is missing or forbidden states no limit."""
    try:
        return path.read_text()
    except OSError:
        return ""
