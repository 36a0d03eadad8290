"""What the state machine knows of one worker group, and of a preemption that it has heard of."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from syncline.train.controller.barriers import CollectiveBarrier, ReportGathering
from syncline.train.controller.events import WorkerFailure
from syncline.train.errors import PreemptionInfo
from syncline.train.workers.messages import Finished, Stuck


class Preemption:
    """What is known of nodes that are about to be taken away."""

    def __init__(self) -> None:
        self.nodes: dict[str, set[int]] = {}
        self.deadline_ms: int | None = None
        self.seconds_left: float = float("inf")
        self.timed_out = False

    @property
    def info(self) -> PreemptionInfo:
        return PreemptionInfo(
            self.deadline_ms, {node: sorted(ranks) for node, ranks in self.nodes.items()}
        )

    def learn(
        self, nodes: Mapping[str, Collection[int]], deadline_ms: int | None, seconds_left: float
    ) -> bool:
        """Add to what is known; whether that was new. The earliest deadline counts."""
        before = self.info
        for node, ranks in nodes.items():
            self.nodes.setdefault(node, set()).update(ranks)
        if seconds_left < self.seconds_left:
            self.seconds_left, self.deadline_ms = seconds_left, deadline_ms
        return self.info != before


class Attempt:
    """What is known of one worker group."""

    def __init__(self, *, number: int, world_size: int, first_index: int) -> None:
        self.number = number
        self.world_size = world_size
        self.gathering = ReportGathering(world_size=world_size, first_index=first_index)
        self.collective = CollectiveBarrier(world_size=world_size)
        self.finished: dict[int, Finished] = {}
        self.failures: dict[int, WorkerFailure] = {}
        self.silent: set[int] = set()
        self.hushed = False
        self.timed_report: int | None = None
        self.overdue: str | None = None  # why stacks are being taken: which timer ran out, or HANG
        self.stuck: dict[int, Stuck] = {}  # ranks that wait in a collective operation
        self.hangs = False  # and have done so for too long
        self.preemption: Preemption | None = None
        self.ended: set[int] = (
            set()
        )  # of a preempted group: ranks that run no training function any more
        self.wanted: int | None = None  # another number of workers, for which there is room

    @property
    def talking(self) -> tuple[int, ...]:
        return tuple(rank for rank in range(self.world_size) if rank not in self.silent)
