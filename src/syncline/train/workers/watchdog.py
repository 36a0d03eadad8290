"""Whether a training function hangs in a collective operation, and how much of its time it spends
in such, judged by looks from beside.

A rank that waits for others in a collective operation does nothing at all: its thread uses no CPU
time. That, at a place in `torch.distributed` or in a backward pass (whose gradients
`DistributedDataParallel` reduces), is what counts as stuck; a thread that did the least thing since
the last look is not. Libraries that wait busily (NCCL) have a watchdog of their own, whose errors
end the rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import FrameType

from syncline.train.workers.messages import Stuck

TELL_AFTER = 0.1
"""The part of the limit after which people are told."""
GIVE_UP_AFTER = 0.9
"""The part of the limit after which the attempt is to end: before the operation ends by itself,
with an error that names nobody.
"""


@dataclass(frozen=True)
class Look:
    """What one look at a thread sees."""

    cpu_s: float
    """CPU time of the thread so far."""
    in_collective: bool
    """Whether it stands in a collective operation."""


class Judge:
    """Turns looks at a thread into messages. Pure."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._last: Look | None = None
        self._since_s = 0.0
        self._told = False

    def consider(self, look: Look, now_s: float) -> Stuck | None:
        """What there is to say after a look; once the limit is reached, after every look."""
        if look != self._last or not look.in_collective:
            told, self._told = self._told, False
            self._last, self._since_s = look, now_s
            return Stuck(seconds=0.0, too_long=False) if told else None
        seconds = now_s - self._since_s
        if seconds >= GIVE_UP_AFTER * self._limit_s:
            self._told = True
            return Stuck(seconds=seconds, too_long=True)
        if seconds >= TELL_AFTER * self._limit_s and not self._told:
            self._told = True
            return Stuck(seconds=seconds, too_long=False)
        return None


def is_in_collective(frame: FrameType | None) -> bool:
    """Whether a stack, given by its innermost frame, goes through `torch.distributed` or a backward
    pass.
    """
    while frame is not None:
        if communicates(frame) or frame.f_code.co_name == "_engine_run_backward":
            return True
        frame = frame.f_back
    return False


def communicates(frame: FrameType | None) -> bool:
    """Whether the innermost frame of a stack is in `torch.distributed`: a call of the program's, or
    of a wrapped model's hooks.
    """
    return frame is not None and str(frame.f_globals.get("__name__", "")).startswith(
        "torch.distributed"
    )
