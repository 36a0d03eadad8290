"""Exit status of workers, and detection of kills by the kernel for lack of memory.

The kernel log (`KernelLog`) names the processes that the kernel killed, where it may be read. The
kernel also counts its kills: if a worker ended by SIGKILL and the count of its control group grew
(v2 `memory.events`, v1 `memory.oom_control`; without such a group the machine's, `/proc/vmstat`),
it ran out of memory. Otherwise the worker's peak memory and the free memory at the last sample tell
whether that is likely. Not covered: other killers for lack of memory (earlyoom, systemd-oomd),
which neither log nor count there, and control groups that a worker enters.
"""

from __future__ import annotations

import os
import re
import signal
from collections import deque
from pathlib import Path

from syncline.core import cgroups, error_messages
from syncline.records import dataclass

SAMPLE_INTERVAL_S = 1.0
RECENT_SAMPLES = 5
"""Samples after which a counted kill is ignored: it hit a process that is not a worker."""
LARGE_SHARE = 0.5
"""Share of all memory above which a killed worker probably ran out of memory."""
_KERNEL_KILL = re.compile(rb"Killed process (\d+) ")
_KERNEL_RECORD_BYTES = 8_192
"""Size of the longest record of the kernel log."""
SCARCE_SHARE = 0.05
"""Share of free memory below which a killed worker probably ran out of memory."""


@dataclass(frozen=True, kw_only=True)
class ExitStatus:
    """Cause of a process's end."""

    cause: str
    """Predicate that follows the process's name, such as "exited with code 1"."""
    is_out_of_memory: bool = False
    """True if the kernel certainly killed it for lack of memory."""


class KernelLog:
    """The kernel's messages about killed processes since this object was created.

    Args:
        root: Replaces `/` in tests.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._killed: set[int] = set()
        try:
            self._fd = os.open(root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError:  # in a container, or only for administrators
            self._fd = -1

    @property
    def is_readable(self) -> bool:
        """False if this process may not read the log."""
        return self._fd >= 0

    def killed(self, pid: int) -> bool:
        """Return True once for a process that the kernel killed for lack of memory.

        In a container the log has other process ids, so True means a kill, but False little.
        """
        while self.is_readable:
            try:
                text = os.read(self._fd, _KERNEL_RECORD_BYTES)
            except BrokenPipeError:  # the kernel has overwritten the next records
                continue
            except OSError:  # no more records
                break
            if not text:
                break
            self._killed.update(int(number) for number in _KERNEL_KILL.findall(text))
        was_killed = pid in self._killed
        self._killed.discard(pid)
        return was_killed

    def close(self) -> None:
        """Close the log."""
        if self.is_readable:
            os.close(self._fd)
            self._fd = -1


class MemoryMonitor:
    """Samples the machine's memory and explains how workers ended. Not thread-safe."""

    def __init__(self, root: Path = Path("/")) -> None:
        """`root` replaces `/` in tests, as in `limits`."""
        self._root = root
        self._files = cgroups.MemoryFiles.of(root)
        self._recent: deque[int] = deque(maxlen=RECENT_SAMPLES)  # kill counts of samples
        self._claimed = 0  # kills attributed to a worker, or too old
        self._available_bytes: int | None = None
        self._total_bytes: int | None = None  # read once per sample, if a worker was killed
        self._log = KernelLog(root)
        self.sample()

    def close(self) -> None:
        """Close the kernel log."""
        self._log.close()

    def sample(self) -> None:
        """Read the free memory and the kill count; call every `SAMPLE_INTERVAL_S`."""
        self._available_bytes = self._files.available_bytes()
        self._total_bytes = None
        kills = self._files.kills()
        if kills is not None:
            self._recent.append(kills)
            self._claimed = max(self._claimed, self._recent[0])

    def exit_status(self, return_code: int, peak_bytes: int, pid: int) -> ExitStatus:
        """Explain the end of a worker from its return code (negative signal) and peak memory."""
        if return_code != -signal.SIGKILL:
            return ExitStatus(cause=error_messages.exit_cause(return_code))
        if self._total_bytes is None:
            self._total_bytes = cgroups.memory_bytes(self._root)
        total_bytes = self._total_bytes
        usage = f"it had grown to {_size(peak_bytes)} of {_size(total_bytes)}"
        kills = self._files.kills()
        is_counted = kills is not None and kills > self._claimed
        if is_counted:
            self._claimed += 1
        if self._log.killed(pid) or is_counted:
            return ExitStatus(
                cause=f"was killed by the system because memory ran out ({usage})",
                is_out_of_memory=True,
            )
        scarce = (
            self._available_bytes is not None and self._available_bytes < SCARCE_SHARE * total_bytes
        )
        if scarce or peak_bytes > LARGE_SHARE * total_bytes:
            likely = "perhaps because memory ran out"
        elif kills is not None or self._log.is_readable:
            likely = (
                "by a person, a job scheduler or another program; the kernel reports no lack of "
                "memory"
            )
        else:
            likely = "by a person, a job scheduler, or the system when memory ran out"
        return ExitStatus(cause=f"was killed by SIGKILL ({likely}: {usage})")


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
