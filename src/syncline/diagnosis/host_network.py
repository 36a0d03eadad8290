"""`HostNetwork`: from the connections of all ranks to the host whose network is slow. Pure.

Such a host delays every collective operation, but no rank comes late to it: the time passes in the
operation, on all ranks. Covered: operations over TCP (Gloo, NCCL over sockets) between at least
three hosts. Not covered: InfiniBand, and two hosts, of which either could be the slow one.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Collection, Mapping
from statistics import median
from typing import NamedTuple

from syncline.diagnosis.observation import SLOW_WINDOWS, WINDOW_S, Address, Link, RankObserved
from syncline.diagnosis.thread_states import ThreadTimes
from syncline.records import dataclass
from syncline.runs.outliers import ranks_text
from syncline.runs.verdicts import Cause, Verdict

SLOW_FACTOR = 3.0
SLOW_S = 1e-3
"""A host's network is slow if each of its round trips takes at least this factor of those between
the other hosts, and so many seconds more.
"""
COMMUNICATION_SHARE = 0.15
"""Share of the time that every rank spends in collective operations, from which on there may be a
verdict.
"""


class SlowHost(NamedTuple):
    """A host whose network is slow in one window."""

    host: str
    ranks: tuple[int, ...]
    round_trip_s: float
    usual_s: float
    """Median round trip between the other hosts."""


@dataclass(frozen=True, kw_only=True)
class _Window:
    slow: SlowHost
    communication_share: float
    """The lowest of all ranks. A rank that comes last to operations, and so makes others wait, has
    a low one.
    """


class HostNetwork:
    """Comparison of the hosts of one attempt, window by window."""

    def __init__(self) -> None:
        self._before: dict[int, ThreadTimes] = {}
        self._windows: deque[_Window | None] = deque(maxlen=SLOW_WINDOWS)

    def observe(self, members: Mapping[int, RankObserved]) -> Verdict | None:
        """Add the observations of all ranks for one window; return a verdict if one holds."""
        before, self._before = self._before, {rank: each.times for rank, each in members.items()}
        slow = slow_host({rank: each.links for rank, each in members.items()})
        if slow is None or before.keys() != members.keys():
            self._windows.append(None)
            return None
        seconds = [
            each.times.communication_s - before[rank].communication_s
            for rank, each in members.items()
        ]
        share = min(1.0, min(seconds) / WINDOW_S)
        self._windows.append(_Window(slow=slow, communication_share=share))
        return self._verdict()

    def _verdict(self) -> Verdict | None:
        windows = [each for each in self._windows if each is not None]
        if len(windows) < SLOW_WINDOWS or len({each.slow.host for each in windows}) != 1:
            return None
        share = min(each.communication_share for each in windows)
        if share < COMMUNICATION_SHARE:
            return None
        slow = windows[-1].slow
        who = ranks_text(slow.ranks)
        return Verdict(
            cause=Cause.NETWORK_DELAY,
            ranks=slow.ranks,
            seconds=share * WINDOW_S * SLOW_WINDOWS,
            text=f"The network of host {slow.host} ({who}) is slow: a round trip to the other "
            f"hosts takes {1000 * slow.round_trip_s:.1f} ms, one between them "
            f"{1000 * slow.usual_s:.1f} ms. All ranks spend at least {100 * share:.0f} % of the "
            "time in collective operations. Look at the interface, the cable and the load of this "
            "host.",
        )


def slow_host(links: Mapping[int, Collection[Link]]) -> SlowHost | None:
    """Return the host whose connections to all other hosts are slower than those between them, or
    None; of fewer than three hosts always None.

    Args:
        links: By rank. A connection counts if both of its ends belong to ranks.
    """
    ends = {(link.local, link.remote): (rank, link) for rank, own in links.items() for link in own}
    ranks: dict[str, set[int]] = defaultdict(set)
    trips: dict[tuple[str, str], float] = {}  # by pair of hosts, the shortest
    shortest: dict[str, float] = {}  # by host
    for (local, remote), (rank, link) in ends.items():
        if (remote, local) not in ends:
            continue
        ranks[local[0]].add(rank)
        pair, trip_s = _pair(local, remote), link.round_trip_s
        trips[pair] = min(trip_s, trips.get(pair, trip_s))
        for host in pair:
            shortest[host] = min(trip_s, shortest.get(host, trip_s))
    if not shortest:
        return None
    slowest = max(shortest, key=lambda host: shortest[host])
    rest = [trip_s for pair, trip_s in trips.items() if slowest not in pair]
    own_s, usual_s = shortest[slowest], median(rest or [math.inf])
    if own_s < max(SLOW_FACTOR * usual_s, usual_s + SLOW_S):
        return None
    return SlowHost(slowest, tuple(sorted(ranks[slowest])), own_s, usual_s)


def _pair(one: Address, other: Address) -> tuple[str, str]:
    first, second = sorted((one[0], other[0]))
    return first, second
