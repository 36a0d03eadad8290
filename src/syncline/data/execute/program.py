"""`Program`: what an execution executes, all together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from syncline.data.context import DataContext
from syncline.data.execute.shape import Shape
from syncline.data.execute.stages import Stage
from syncline.data.iterate.position import Restart


@dataclass(frozen=True, kw_only=True)
class Program:
    """What is to be executed."""

    stages: tuple[Stage, ...]
    context: DataContext
    shape: Shape
    seed: int
    epoch: int = 0
    first_row: int = 0
    """Number of the first row that is delivered."""
    point: Any = None
    """Where to start; None for the beginning."""
    caches: tuple[Any, ...] = ()
    """What it does about the caches of the plan (`data.cache`), JSON."""
    name: str = ""
    is_pass: bool = False
    """Whether it delivers the rows of an epoch to those who iterate, other than executions that
    look something up.
    """
    plan: Callable[[], str] | None = None
    """What is executed, as text for people."""

    def restart_at(self, point: Any) -> list[Any]:
        """A point of the scheduler's with all that it depends on."""
        return restart_point(self.shape, point, self.caches)


def restart_point(shape: Shape, point: Any, caches: tuple[Any, ...]) -> list[Any]:
    """What `Restart.point` holds, JSON: a point of the scheduler's, and what an execution of a plan
    depends on beside seed and epoch.
    """
    return [*shape.to_list(), point, *([list(caches)] if caches else [])]


def point_of(restart: Restart) -> Any:
    """The scheduler's point in a restart point."""
    _cpus, _budget_bytes, point, *_caches = restart.point
    return point
