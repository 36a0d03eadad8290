"""`RankObserved`: the observation that a rank sends to the diagnosis every two seconds."""

from __future__ import annotations

from typing import NamedTuple

from syncline.diagnosis.collective_calls import CollectiveCall
from syncline.diagnosis.thread_states import ThreadTimes
from syncline.records import dataclass

WINDOW_S = 2.0
"""Interval of observations. They are made at multiples of it since the epoch, so that those of all
ranks show the same collective operations.
"""
SLOW_WINDOWS = 3
"""Windows in a row with the same slow rank or host, after which there is a verdict."""


Address = tuple[str, int]
"""Host and port."""


class Link(NamedTuple):
    """A TCP connection to another host."""

    local: Address
    remote: Address
    round_trip_s: float
    """Seconds of a round trip, smoothed by the system."""


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
    links: tuple[Link, ...] = ()
    """Connections to other hosts that are in use."""
