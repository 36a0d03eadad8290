"""How workers end, and whether the system ended one because memory ran out.

The kernel tells nobody whom it kills; it counts. A worker that ended by SIGKILL while the count of
its control group grew (v2 `memory.events`, v1 `memory.oom_control`), or in no such group that of
the machine (`/proc/vmstat`), ran out of memory. Without such a count, the most that it ever had and
what was free at the last look make it likely or not. Not covered: killers of other making
(earlyoom, systemd-oomd), which do not count, and control groups that a worker enters by itself.
"""

from __future__ import annotations

import signal
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from syncline.core import errors, limits

LOOK_EVERY_S = 1.0
RECENT_LOOKS = 5
"""Kills that were counted longer ago than so many looks are nobody's any more: some process that is
no worker was meant.
"""
LARGE_SHARE = 0.5
"""A worker that had so much of all memory may well have run out of it."""
SCARCE_SHARE = 0.05
"""With less than this free at the last look, memory may well have run out."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a process ended."""

    cause: str
    """In words that go on after its name, such as "exited with code 1"."""
    is_out_of_memory: bool = False
    """The system ended it because memory ran out, beyond doubt."""


class MemoryWatch:
    """Looks at the machine's memory now and then, and judges how workers ended. Not thread-safe."""

    def __init__(self, root: Path = Path("/")) -> None:
        """`root` stands for `/`, as in `limits`."""
        self._root = root
        self._files = limits.MemoryFiles.of(root)
        self._recent: deque[int] = deque(
            maxlen=RECENT_LOOKS
        )  # kills that were counted by each look
        self._claimed = (
            0  # of the kills counted: those of workers that were told of, and those of long ago
        )
        self._available_bytes: int | None = None
        self.look()

    def look(self) -> None:
        """To be called every `LOOK_EVERY_S`."""
        self._available_bytes = self._files.available_bytes()
        kills = self._files.kills()
        if kills is not None:
            self._recent.append(kills)
            self._claimed = max(self._claimed, self._recent[0])

    def ending(self, return_code: int, peak_bytes: int) -> Ending:
        """How a worker ended that had `peak_bytes` of memory at most; `return_code` as
        `errors.exit_cause` takes it.
        """
        cause = errors.exit_cause(return_code)
        if return_code != -signal.SIGKILL:
            return Ending(cause=cause)
        total_bytes = limits.memory_bytes(self._root)
        had = f"it had grown to {_size(peak_bytes)} of the {_size(total_bytes)} that there are"
        kills = self._files.kills()
        if kills is not None and kills > self._claimed:
            self._claimed += 1
            return Ending(
                cause=f"was killed by the system because memory ran out ({had})",
                is_out_of_memory=True,
            )
        scarce = (
            self._available_bytes is not None and self._available_bytes < SCARCE_SHARE * total_bytes
        )
        if scarce or peak_bytes > LARGE_SHARE * total_bytes:
            return Ending(cause=f"was killed by SIGKILL (perhaps memory ran out: {had})")
        return Ending(cause=cause)


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
