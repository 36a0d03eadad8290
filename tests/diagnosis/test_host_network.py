"""From the round-trip times between hosts to the host whose network is slow."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from syncline.diagnosis.host_network import HostNetwork, SlowHost, slow_host
from syncline.diagnosis.observation import WINDOW_S, Address, Link, RankObserved
from syncline.diagnosis.thread_states import ThreadTimes
from syncline.runs.verdicts import Cause, Verdict

USUAL_S, SLOW_S = 0.0002, 0.04


def address(host: int, rank: int, other: int) -> Address:
    return f"10.0.0.{host}", 1000 * rank + other


def ring(hosts: Mapping[int, int], slow: Collection[int] = ()) -> dict[int, list[Link]]:
    """Return the connections of ranks in a ring, each with its neighbors.

    Args:
        hosts: Host by rank.
        slow: Hosts whose round trips are slow.
    """
    links: dict[int, list[Link]] = {rank: [] for rank in hosts}
    for rank in hosts:
        other = (rank + 1) % len(hosts)
        ends = address(hosts[rank], rank, other), address(hosts[other], other, rank)
        if ends[0][0] == ends[1][0]:
            continue
        trip = SLOW_S if {hosts[rank], hosts[other]} & set(slow) else USUAL_S
        links[rank].append(Link(*ends, trip))
        links[other].append(Link(ends[1], ends[0], trip + 0.001))
    return links


def test_a_host_with_slow_connections_to_all_others_is_named() -> None:
    one_each = {rank: rank for rank in range(4)}
    assert slow_host(ring(one_each, slow=[2])) == SlowHost("10.0.0.2", (2,), SLOW_S, USUAL_S)
    assert slow_host(ring(one_each)) is None


def test_all_ranks_of_the_host_are_named() -> None:
    two_each = {rank: rank // 2 for rank in range(6)}
    found = slow_host(ring(two_each, slow=[1]))
    assert found is not None
    assert (found.host, found.ranks) == ("10.0.0.1", (2, 3))


def test_of_two_hosts_none_is_named() -> None:
    assert slow_host(ring({0: 0, 1: 1}, slow=[1])) is None


def test_one_slow_connection_between_two_fast_hosts_is_no_slow_host() -> None:
    links = ring({rank: rank for rank in range(4)})
    links[0][0] = links[0][0]._replace(round_trip_s=SLOW_S)
    assert slow_host(links) is None


def test_a_difference_below_a_millisecond_is_usual_among_switches() -> None:
    links = ring({rank: rank for rank in range(4)}, slow=[2])
    near = {
        rank: [each._replace(round_trip_s=each.round_trip_s / 50) for each in own]
        for rank, own in links.items()
    }
    assert slow_host(near) is None


def test_connections_to_others_than_ranks_do_not_count() -> None:
    links = ring({rank: rank for rank in range(3)})
    for rank in range(3):  # to a storage far away
        links[rank].append(Link((f"10.0.0.{rank}", 9), ("10.9.9.9", 443), 0.1))
    assert slow_host(links) is None


class Hosts:
    """Windows of four ranks on four hosts."""

    def __init__(self, communication: float = 0.8) -> None:
        self.network = HostNetwork()
        self.communication = dict.fromkeys(range(4), communication)
        self.spent = dict.fromkeys(range(4), 0.0)
        self.number = 0

    def window(self, slow: Collection[int] = ()) -> Verdict | None:
        self.number += 1
        links = ring({rank: rank for rank in range(4)}, slow)
        members = {}
        for rank in range(4):
            self.spent[rank] += self.communication[rank] * WINDOW_S
            members[rank] = RankObserved(
                window=self.number,
                times=ThreadTimes(communication_s=self.spent[rank]),
                line="",
                calls=(),
                links=tuple(links[rank]),
            )
        return self.network.observe(members)


def test_three_slow_windows_in_a_row_are_a_verdict() -> None:
    hosts = Hosts()
    found = [hosts.window(slow=[2]) for _ in range(5)]
    assert [each is not None for each in found] == [False, False, False, True, True]
    verdict = found[-1]
    assert verdict is not None
    assert (verdict.cause, verdict.ranks) == (Cause.NETWORK_DELAY, (2,))
    assert (
        "10.0.0.2 (rank 2) is slow: a round trip to the other hosts takes 40.0 ms" in verdict.text
    )
    assert "80 % of the time" in verdict.text


def test_the_verdict_ends_with_the_delay() -> None:
    hosts = Hosts()
    found = [hosts.window(slow) for slow in ([2], [2], [2], [2], [], [2], [2])]
    assert [each is not None for each in found] == [False, False, False, True, False, False, False]


@pytest.mark.parametrize("busy_rank", [None, 1])
def test_a_slow_network_that_nobody_waits_for_is_no_verdict(busy_rank: int | None) -> None:
    hosts = Hosts(communication=0.05 if busy_rank is None else 0.8)
    if busy_rank is not None:  # it comes last to the operations, and the others wait for it
        hosts.communication[busy_rank] = 0.01
    assert [hosts.window(slow=[2]) for _ in range(6)] == [None] * 6
