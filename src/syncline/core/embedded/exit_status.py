"""Exit status of workers, and detection of kills by the kernel for lack of memory.

The kernel does not report which process it killed, but counts its kills. If a worker ended by
SIGKILL and the count of its control group grew (v2 `memory.events`, v1 `memory.oom_control`;
without such a group the machine's, `/proc/vmstat`), it ran out of memory. Without a count, the
worker's peak memory and the free memory at the last sample tell whether that is likely. Not
covered: other killers (earlyoom, systemd-oomd), which do not count, and control groups that a
worker enters.
"""

from __future__ import annotations

import signal
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from syncline.core import cgroups, error_messages

SAMPLE_INTERVAL_S = 1.0
RECENT_SAMPLES = 5
"""Samples after which a counted kill is ignored: it hit a process that is not a worker."""
LARGE_SHARE = 0.5
"""Share of all memory above which a killed worker probably ran out of memory."""
SCARCE_SHARE = 0.05
"""Share of free memory below which a killed worker probably ran out of memory."""


@dataclass(frozen=True, kw_only=True)
class ExitStatus:
    """Cause of a process's end."""

    cause: str
    """Predicate that follows the process's name, such as "exited with code 1"."""
    is_out_of_memory: bool = False
    """True if the kernel certainly killed it for lack of memory."""


class MemoryMonitor:
    """Samples the machine's memory and explains how workers ended. Not thread-safe."""

    def __init__(self, root: Path = Path("/")) -> None:
        """`root` replaces `/` in tests, as in `limits`."""
        self._root = root
        self._files = cgroups.MemoryFiles.of(root)
        self._recent: deque[int] = deque(maxlen=RECENT_SAMPLES)  # kill counts of samples
        self._claimed = 0  # kills attributed to a worker, or too old
        self._available_bytes: int | None = None
        self.sample()

    def sample(self) -> None:
        """Read the free memory and the kill count; call every `SAMPLE_INTERVAL_S`."""
        self._available_bytes = self._files.available_bytes()
        kills = self._files.kills()
        if kills is not None:
            self._recent.append(kills)
            self._claimed = max(self._claimed, self._recent[0])

    def exit_status(self, return_code: int, peak_bytes: int) -> ExitStatus:
        """Explain the end of a worker from its return code (negative signal) and peak memory."""
        cause = error_messages.exit_cause(return_code)
        if return_code != -signal.SIGKILL:
            return ExitStatus(cause=cause)
        total_bytes = cgroups.memory_bytes(self._root)
        usage = f"it had grown to {_size(peak_bytes)} of {_size(total_bytes)}"
        kills = self._files.kills()
        if kills is not None and kills > self._claimed:
            self._claimed += 1
            return ExitStatus(
                cause=f"was killed by the system because memory ran out ({usage})",
                is_out_of_memory=True,
            )
        scarce = (
            self._available_bytes is not None and self._available_bytes < SCARCE_SHARE * total_bytes
        )
        if scarce or peak_bytes > LARGE_SHARE * total_bytes:
            return ExitStatus(cause=f"was killed by SIGKILL (perhaps memory ran out: {usage})")
        return ExitStatus(cause=cause)


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
