"""Rounds of copies of memory snapshots to other nodes. Pure: no clock and no I/O.

A restart needs one step that all ranks have, so all ranks copy the same step in each round. The
controller names a step that no rank has reached yet. Its message takes time, in which fast steps
may pass the named one: then the round has failed, and the next one names a later step.
"""

from __future__ import annotations

from syncline.train.workers.messages import CopyReady, CopySnapshot


class CopyRounds:
    """Rounds of one attempt.

    Args:
        world_size: Number of ranks.
    """

    def __init__(self, *, world_size: int) -> None:
        self._world_size = world_size
        self._ready: dict[int, CopyReady] = {}
        self._ahead = 1  # steps from the newest one to the next copy
        self._kept: int | None = None
        self._has_begun = False

    @property
    def kept_step(self) -> int | None:
        """The last step that all ranks have copied; None for none."""
        return self._kept

    def ready(self, rank: int, message: CopyReady) -> CopySnapshot | None:
        """Add a rank that can copy its next snapshot; return the order for all ranks if it was the
        last one.
        """
        self._ready[rank] = message
        if len(self._ready) < self._world_size:
            return None
        copied = {each.copied_step for each in self._ready.values()}
        newest = max(each.newest_step for each in self._ready.values())
        self._ready = {}
        if len(copied) == 1 and None not in copied:
            (self._kept,) = copied
            self._ahead = max(1, self._ahead // 2)
        elif self._has_begun:
            self._ahead *= 2
        self._has_begun = True
        return CopySnapshot(from_step=newest + self._ahead, kept_step=self._kept)
