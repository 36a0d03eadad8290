"""The records that the scheduler keeps: classes of tasks, environments, workers and actors. State
only, no decisions.
"""

from __future__ import annotations

from collections import deque

from syncline.core.embedded.pools import Demand, Holding, Pool
from syncline.core.resources import Resources

ShapeKey = tuple[Resources, tuple[int, int] | None, str, bool]
"""What makes two tasks alike: resources, (placement group, bundle), environment, and whether the
spare slot is open to them.
"""


class Shape:
    """A class of tasks with the same needs, and the queue of its tasks."""

    __slots__ = (
        "bare",
        "demand",
        "depth",
        "env",
        "group_id",
        "key",
        "open",
        "pools",
        "queue",
        "running",
        "spare",
        "waiting",
        "weightless",
    )

    def __init__(
        self, key: ShapeKey, env: Environment, pools: tuple[Pool, ...], demand: Demand, bare: Demand
    ) -> None:
        _, group, _, spare = key
        self.key = key
        self.env = env
        self.pools = pools
        self.demand = demand
        self.bare = bare
        """The demand without CPU, for the spare slot."""
        self.group_id = None if group is None else group[0]
        self.spare = spare
        self.weightless = demand.cpu == 0
        self.depth = 1
        self.queue: deque[int] = deque()
        self.waiting = False
        """In the ring, which is so exactly while the queue has tasks."""
        self.open: dict[int, Worker] = {}
        """Busy workers of this shape with room for another task behind the ones they have."""
        self.running = 0


class Environment:
    """The workers of one runtime environment."""

    __slots__ = ("actors", "idle", "key", "starting")

    def __init__(self, key: str) -> None:
        self.key = key
        self.idle: deque[Worker] = deque()
        """The most recently used last: it has the warmest caches and is used first."""
        self.starting = 0
        self.actors: deque[Actor] = deque()
        """Actors that hold their resources and wait for a process."""


class Worker:
    """One process: idle (no holding, no actor), busy with tasks, or the home of an actor."""

    __slots__ = (
        "actor",
        "env",
        "gpu_ids",
        "holding",
        "id",
        "refill",
        "retiring",
        "shape",
        "streak",
        "tasks",
    )

    def __init__(self, worker_id: int, env: Environment) -> None:
        self.id = worker_id
        self.env = env
        self.tasks: deque[int] = deque()
        self.shape: Shape | None = None
        self.holding: Holding | None = None
        self.gpu_ids: tuple[str, ...] = ()
        self.actor: Actor | None = None
        self.streak = 0
        self.refill = True
        """More tasks may be queued behind the current one; off while that one turned out to be long
        or waits itself.
        """
        self.retiring = False


class Actor:
    """An actor that waits for resources (no holding), waits for a process (no worker), or lives."""

    __slots__ = ("holding", "id", "keeps", "shape", "worker")

    def __init__(self, actor_id: int, shape: Shape, keeps: Shape) -> None:
        self.id = actor_id
        self.shape = shape
        self.keeps = keeps
        self.holding: Holding | None = None
        self.worker: Worker | None = None
