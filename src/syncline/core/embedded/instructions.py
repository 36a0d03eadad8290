"""Instructions of the scheduler to the hub, and the results of its other methods.

Plain tuples, because one is made for each task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from syncline.records import dataclass


class Assign(NamedTuple):
    """Send the task to the worker, which runs it after the tasks that it already has."""

    worker: int
    task_id: int
    gpu_ids: tuple[str, ...]


class StartWorker(NamedTuple):
    """Start `processes` workers for a runtime environment; report each with `worker_ready`."""

    environment: str
    processes: int


class StopWorker(NamedTuple):
    """Stop an idle worker, or the process of a released actor. The scheduler has forgotten it."""

    worker: int


class AssignActor(NamedTuple):
    """Dedicate the worker to the actor."""

    worker: int
    actor_id: int
    gpu_ids: tuple[str, ...]


class GroupReady(NamedTuple):
    """Report that all bundles of the placement group are reserved."""

    group_id: int


Instruction = Assign | StartWorker | StopWorker | AssignActor | GroupReady
Instructions = Sequence[Instruction]


class WorkerLoss(NamedTuple):
    """State of a dead worker: its tasks, the running one first, and its actor."""

    tasks: list[int]
    actor_id: int | None
    instructions: Instructions


class GroupRemoval(NamedTuple):
    """Tasks to fail (`queued`) and workers and actors to kill after a group was removed."""

    queued: list[int]
    running: list[tuple[int, list[int]]]
    actors: list[int]
    instructions: Instructions


@dataclass(frozen=True, kw_only=True)
class SchedulerStatistics:
    """Counts of workers, tasks, actors and groups at one moment."""

    workers: int
    """Processes that are ready, including those of actors."""
    idle: int
    """Workers without tasks."""
    running: int
    """Workers that run tasks, including blocked ones."""
    blocked: int
    """Workers, of tasks or actors, that wait and have released their CPU."""
    starting: int
    """Processes requested and not ready."""
    queued: int
    """Tasks not assigned to a worker."""
    pipelined: int
    """Tasks queued in a worker behind another task."""
    actors: int
    """Actors that hold resources."""
    actors_waiting: int
    """Actors that wait for resources."""
    groups: int
    """Placement groups with reserved bundles."""
    groups_waiting: int
    """Placement groups that wait for resources."""


def reject_unknown(instruction: NoReturn) -> NoReturn:
    """Raise TypeError for an instruction without a handler; mypy proves that there is none."""
    raise TypeError(f"unknown instruction {instruction!r}: add a branch for its type")
