"""CPUs and memory that this process may use: cgroups v1 and v2, affinity mask, and the machine.

Every function takes ``root``, which replaces ``/``, so that tests can describe a machine as a small
tree of files. Limits of nested cgroups are read from the process's own group upwards; the smallest
counts. Not covered: CPU shares and weights, which limit only on a busy machine, swap limits, and
soft limits such as ``memory.high``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from syncline import system
from syncline.optional import deferred
from syncline.records import dataclass

if TYPE_CHECKING:
    import psutil
else:
    psutil = deferred("psutil")


_Number = TypeVar("_Number", int, float)
_ROOT = Path("/")
_V1_UNLIMITED_BYTES = 1 << 60
"""Any v1 limit above this means "no limit"; the kernel uses a page-aligned maximum."""


@dataclass(frozen=True, kw_only=True)
class MachineLimits:
    """CPUs and memory that this process may use."""

    cpus: int
    """Whole CPUs, at least 1: minimum of affinity mask, cgroup quota (rounded down) and CPUs."""
    memory_bytes: int
    """The minimum of the machine's memory and the cgroup limit."""


@dataclass(frozen=True, kw_only=True)
class _Mount:
    """Mount of one cgroup hierarchy."""

    controllers: frozenset[str]
    inside: str
    point: str


def machine_limits(root: Path = _ROOT) -> MachineLimits:
    """Read all limits again, so that a resized container is seen by the next call."""
    return MachineLimits(cpus=cpu_count(root), memory_bytes=memory_bytes(root))


def cpu_count(root: Path = _ROOT, *, affinity: int | None = None) -> int:
    """Return the whole CPUs for this process, at least 1; ``affinity`` replaces the mask's count.

    A quota of 2.5 CPUs counts as 2: a third busy process would be throttled half of the time.
    """
    allowed = affinity if affinity is not None else len(system.allowed_cpus())
    quota = cpu_quota(root)
    return max(1, allowed if quota is None else min(allowed, int(quota)))


def cpu_quota(root: Path = _ROOT) -> float | None:
    """Return the CPUs that the cgroups grant, fractional, or ``None`` without a quota."""
    quotas = [_quota_v2(directory / "cpu.max") for directory in _directories(root, "")]
    quotas += [_quota_v1(directory) for directory in _directories(root, "cpu")]
    return _smallest(quotas)


def memory_limit(root: Path = _ROOT) -> int | None:
    """Return the bytes that the cgroups grant, or ``None`` without a limit."""
    limits = [_number(directory / "memory.max") for directory in _directories(root, "")]
    limits += [
        _number(directory / "memory.limit_in_bytes") for directory in _directories(root, "memory")
    ]
    return _smallest(
        [limit for limit in limits if limit is not None and 0 < limit < _V1_UNLIMITED_BYTES]
    )


def memory_bytes(root: Path = _ROOT) -> int:
    """Return the bytes that this process may use: the machine's, or a smaller cgroup limit."""
    total = _field(root / "proc/meminfo", "MemTotal:", 1024)
    installed = psutil.virtual_memory().total if total is None else total
    limit = memory_limit(root)
    return installed if limit is None else min(installed, limit)


@dataclass(frozen=True, kw_only=True)
class MemoryFiles:
    """Files for repeated readings of available memory and of out-of-memory kills."""

    root: Path
    groups: tuple[Path, ...]
    """Directories of this process's v2 and v1 cgroups, the nearest first in each hierarchy."""

    @classmethod
    def of(cls, root: Path = _ROOT) -> MemoryFiles:
        """Find the files once; a later move to another cgroup is not followed."""
        return cls(root=root, groups=(*_directories(root, ""), *_directories(root, "memory")))

    def available_bytes(self) -> int | None:
        """Return the available bytes of the machine or of the tightest group; page cache counts."""
        return _smallest(
            [
                _field(self.root / "proc/meminfo", "MemAvailable:", 1024),
                *map(_left_in_group, self.groups),
            ]
        )

    def kills(self) -> int | None:
        """Return the number of out-of-memory kills in this process's group, else on the machine.

        None if the system counts neither.
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


def _quota_v2(path: Path) -> float | None:
    """Parse ``cpu.max``: "quota period" in microseconds, or "max period"."""
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
    """Yield the process's cgroup directory of one controller ("" for v2), then its ancestors.

    Inside a container, ``/proc/self/cgroup`` may have the host's path, which does not exist below
    the mount. Then only the existing ancestors are yielded; the mount point is the container's own
    group.
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
    """Parse lines of "id:controllers:path"; the v2 line has no controllers."""
    for line in _lines(root / "proc/self/cgroup"):
        fields = line.split(":", 2)
        if len(fields) == 3 and controller in fields[1].split(","):
            return fields[2]
    return None


def _mounts(root: Path) -> list[_Mount]:
    """Return the cgroup mounts of ``/proc/self/mountinfo``, or the usual ones if unreadable."""
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
    """Return the number after `name` at the start of a line, times `unit`."""
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
    """Return the file's text; empty for a missing or forbidden file, which sets no limit."""
    try:
        return path.read_text()
    except OSError:
        return ""
