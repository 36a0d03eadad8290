"""What the scheduler tells its driver to do, and the small answers of its other methods. Plain
tuples: one is made per task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Assign(NamedTuple):
    """Send the task to the worker; if the worker is busy, it runs the task after those that it
    has.
    """

    worker: int
    task_id: int
    gpu_ids: tuple[str, ...]


class StartWorker(NamedTuple):
    """Start that many worker processes for a runtime environment and report each with
    ``worker_ready``.
    """

    environment: str
    processes: int


class StopWorker(NamedTuple):
    """End an idle worker process, or the process of a released actor; the scheduler has already
    forgotten it.
    """

    worker: int


class AssignActor(NamedTuple):
    """The worker belongs to the actor from now on."""

    worker: int
    actor_id: int
    gpu_ids: tuple[str, ...]


class GroupReady(NamedTuple):
    """All bundles of the placement group are reserved."""

    group_id: int


Instruction = Assign | StartWorker | StopWorker | AssignActor | GroupReady
Instructions = Sequence[Instruction]


class WorkerLoss(NamedTuple):
    """What a dead worker had: its tasks, the running one first, then those not started; and the
    actor that lived in it.
    """

    tasks: list[int]
    actor_id: int | None
    instructions: Instructions


class GroupRemoval(NamedTuple):
    """What a removed placement group leaves to be failed (queued tasks) and killed (workers with
    their tasks, actors).
    """

    queued: list[int]
    running: list[tuple[int, list[int]]]
    actors: list[int]
    instructions: Instructions


@dataclass(frozen=True, kw_only=True)
class PendingDemand:
    """Things of one kind that wait for the same resources; ``str()`` gives "3 tasks of {'GPU':
    1}".
    """

    kind: str
    """"task", "actor" or "placement group"."""
    count: int
    resources: dict[str, float]

    def __str__(self) -> str:
        return f"{self.count} {self.kind}{'' if self.count == 1 else 's'} of {self.resources}"


@dataclass(frozen=True, kw_only=True)
class SchedulerStatistics:
    """Counts at one moment."""

    workers: int
    """Processes that are up, those of actors included."""
    idle: int
    """Workers with nothing to do."""
    running: int
    """Workers that run tasks, the blocked ones included."""
    blocked: int
    """Workers, of tasks or actors, that wait and have given back their CPU."""
    starting: int
    """Processes asked for and not ready."""
    queued: int
    """Tasks that no worker has."""
    pipelined: int
    """Tasks that wait behind another one in a worker."""
    actors: int
    """Actors that hold resources."""
    actors_waiting: int
    """Actors that wait for resources."""
    groups: int
    """Placement groups that are reserved."""
    groups_waiting: int
    """Placement groups that wait for resources."""
