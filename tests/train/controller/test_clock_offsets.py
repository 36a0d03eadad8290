"""Offsets of the clocks of nodes, with clocks that the test sets."""

from __future__ import annotations

import pytest

from syncline.diagnosis.clock_offset import QUESTIONS
from syncline.train.backend import Worker
from syncline.train.controller.clock_offsets import clock_offsets


def workers(*nodes: str) -> list[Worker]:
    return [
        Worker(
            rank=rank,
            node_id=node,
            node_ip="",
            hostname=node,
            pid=rank,
            local_rank=0,
            local_world_size=1,
            node_rank=0,
            gpu_ids=[],
        )
        for rank, node in enumerate(nodes)
    ]


class Network:
    """Nodes whose clocks are ahead, and whose answers take some time, every other one longer."""

    def __init__(self, ahead_s: dict[int, float]) -> None:
        self.now = 1_000.0
        self.asked: list[int] = []
        self._ahead = ahead_s

    def ask(self, rank: int) -> float:
        self.asked.append(rank)
        self.now += 0.001
        answer = self.now + self._ahead[rank]
        self.now += 0.001 if len(self.asked) % 2 else 0.5  # the way back
        return answer


def test_the_clock_of_the_other_node_is_compared_with_that_of_rank_0() -> None:
    network = Network({0: 0.2, 2: 5.2})
    found = clock_offsets(workers("a", "a", "b", "b"), network.ask, lambda: network.now)
    assert found == pytest.approx({0: 0.0, 1: 0.0, 2: 5.0, 3: 5.0})
    assert sorted(network.asked) == [0] * QUESTIONS + [2] * QUESTIONS


def test_ranks_of_one_node_have_one_clock() -> None:
    network = Network({})
    assert clock_offsets(workers("a", "a"), network.ask, lambda: network.now) == {0: 0.0, 1: 0.0}
    assert network.asked == []
