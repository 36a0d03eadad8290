"""`Thinning`: which reports are written, so that a file of them stays small whatever a program
reports. Pure.

The first `first_bytes` are written whole. After that, every fourth report is, for half as many
bytes; then every sixteenth, for half of that, and so on: a file ends below twice `first_bytes`,
nothing that was written is ever taken out again, and each part of it covers twice the reports of
the one before. All ranks keep the same reports. Reports that somebody may look for later are kept
in any case, until three quarters of the file are full.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

STRIDE_GROWTH = 4


@dataclass(frozen=True, kw_only=True)
class Thinning:
    """The rule for one file of lines."""

    first_bytes: int
    """So much is written whole; the file ends below twice as much."""

    def keeps(
        self,
        member: int | str,
        iteration: int,
        *,
        line_bytes: int,
        size_bytes: int,
        wanted: bool = False,
    ) -> bool:
        """Whether a line is written.

        Args:
            member: Whose it is: ranks keep the same iterations, trials each their own. iteration:
            Its number. line_bytes: Its length. size_bytes: How much was written before. wanted: It
            is kept as long as there is more room than the others need: a report with a checkpoint.
        """
        if size_bytes + line_bytes < self.first_bytes:
            return True
        if size_bytes + line_bytes > 2 * self.first_bytes:
            return False
        if wanted and size_bytes + line_bytes <= 3 * self.first_bytes // 2:
            return True
        shift = zlib.crc32(member.encode()) if isinstance(member, str) else 0
        return (iteration + shift) % self.stride(size_bytes) == 0

    def stride(self, size_bytes: int) -> int:
        """Of so many reports one is written when the file has that size."""
        level, left = 0, 2 * self.first_bytes - size_bytes
        while left <= self.first_bytes >> level and level < 24:
            level += 1
        return int(STRIDE_GROWTH**level)
