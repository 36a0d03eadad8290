"""Offsets of the clocks of other nodes, of which a worker is asked for its time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from syncline.diagnosis.clock_offset import clock_offset
from syncline.train.backend import Worker


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
    ahead = {node: clock_offset(partial(ask, rank), clock) for node, rank in asked.items()}
    reference = ahead[workers[0].node_id]
    return {worker.rank: ahead[worker.node_id] - reference for worker in workers}
