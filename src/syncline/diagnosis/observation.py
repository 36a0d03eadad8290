"""`RankObserved`: the observation that a rank sends to the diagnosis every two seconds."""

from __future__ import annotations

from syncline.diagnosis.collective_calls import CollectiveCall
from syncline.diagnosis.thread_states import ThreadTimes
from syncline.records import dataclass

WINDOW_S = 2.0
"""Interval of observations. They are made at multiples of it since the epoch, so that those of all
ranks show the same collective operations.
"""


@dataclass(frozen=True, kw_only=True)
class RankObserved:
    """State of this rank, for the diagnosis."""

    window: int
    """Number of the window that ends; windows of the same number end at the same time."""
    times: ThreadTimes
    """Since the training function began."""
    line: str
    """The program's most frequent line in the window; empty if it is unknown."""
    calls: tuple[CollectiveCall, ...] | None
    """Recent collective calls; None if they were not read."""
