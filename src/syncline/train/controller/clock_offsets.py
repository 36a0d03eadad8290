"""Offsets of the clocks of other nodes, as in Cristian's algorithm: a worker is asked for its time,
which is taken to belong to the middle between question and answer. The answer with the shortest
round trip counts; half of that trip bounds the error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from syncline.train.backend import Worker

QUESTIONS = 5
"""Questions to each node."""


def clock_offsets(
    workers: Sequence[Worker], ask: Callable[[int], float], clock: Callable[[], float] = time.time
) -> Mapping[int, float]:
    """Return by rank the seconds by which its clock is ahead of that of the node of rank 0.

    Ranks of one node share a clock, so one of them is asked. With one node, none is.

    Args:
        workers: Workers in the order of their ranks.
        ask: Returns the time of a rank's clock in seconds since the epoch.
        clock: Clock of this process.
    """
    asked = {worker.node_id: worker.rank for worker in reversed(workers)}
    if len(asked) < 2:
        return dict.fromkeys(range(len(workers)), 0.0)
    ahead = {node: _offset(rank, ask, clock) for node, rank in asked.items()}
    reference = ahead[workers[0].node_id]
    return {worker.rank: ahead[worker.node_id] - reference for worker in workers}


def _offset(rank: int, ask: Callable[[int], float], clock: Callable[[], float]) -> float:
    found = []
    for _ in range(QUESTIONS):
        asked = clock()
        answer = ask(rank)
        answered = clock()
        found.append((answered - asked, answer - (asked + answered) / 2))
    return min(found)[1]
