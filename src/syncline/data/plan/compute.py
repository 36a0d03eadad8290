"""Compute strategies of user functions, tasks or a pool of actors; and the resources of each task
or actor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from syncline.records import dataclass
from syncline.suggestions import suggest_arguments


class ComputeStrategy:
    """Base class of the strategies."""


@suggest_arguments
@dataclass(frozen=True)
class TaskPoolStrategy(ComputeStrategy):
    """Run a function in worker processes without state between blocks."""

    size: int | None = None
    """Maximum number of concurrent tasks; None for no limit."""

    def __post_init__(self) -> None:
        _check_count("size", self.size)


@suggest_arguments
class ActorPoolStrategy(ComputeStrategy):
    """Run a class in actors: construct it once per actor and call it with one batch after another.

    Args:
        size: Number of actors; excludes the other sizes.
        min_size: Minimum number of actors, 1 by default.
        max_size: Maximum number of actors, which start while blocks are queued; None for no limit.
        initial_size: Number of actors at the start; `min_size` by default.
        max_tasks_in_flight_per_actor: Maximum blocks queued at one actor; None lets the executor
            choose.
        enable_true_multi_threading: Accepted without effect.
    """

    def __init__(
        self,
        *,
        size: int | None = None,
        min_size: int | None = None,
        max_size: int | None = None,
        initial_size: int | None = None,
        max_tasks_in_flight_per_actor: int | None = None,
        enable_true_multi_threading: bool = False,
    ) -> None:
        for name, value in (
            ("size", size),
            ("min_size", min_size),
            ("max_size", max_size),
            ("initial_size", initial_size),
            ("max_tasks_in_flight_per_actor", max_tasks_in_flight_per_actor),
        ):
            _check_count(name, value)
        if size is not None:
            if (min_size, max_size, initial_size) != (None, None, None):
                raise ValueError(
                    f"size={size} fixes the number of actors: leave out min_size, max_size and "
                    "initial_size"
                )
            min_size = max_size = initial_size = size
        self.min_size = 1 if min_size is None else min_size
        self.max_size = max_size
        self.initial_size = self.min_size if initial_size is None else initial_size
        if (
            not self.min_size
            <= self.initial_size
            <= (self.initial_size if max_size is None else max_size)
        ):
            raise ValueError(
                "a pool of actors begins with between min_size and max_size actors, but "
                f"min_size={self.min_size}, "
                f"initial_size={self.initial_size}, max_size={max_size}"
            )
        self.max_tasks_in_flight_per_actor = max_tasks_in_flight_per_actor
        self.enable_true_multi_threading = enable_true_multi_threading

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorPoolStrategy) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        return (
            f"ActorPoolStrategy(min_size={self.min_size}, max_size={self.max_size}, "
            f"initial_size={self.initial_size})"
        )


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resources of a running task or actor."""

    num_cpus: float | None = None
    """CPUs; None means 1 for a task, and for an actor 1 unless it has GPUs."""
    num_gpus: float | None = None
    """GPUs; fractions are allowed."""
    memory: float | None = None
    """Bytes to reserve; not enforced."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Other options of `remote`, by name: `resources`, `scheduling_strategy`, `runtime_env`,
    `label_selector`, …
    """


def _check_count(name: str, value: int | None) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(
            f"{name}={value!r} is of type {type(value).__name__}, not a number of processes: "
            "give an int or None"
        )
    if value < 1:
        raise ValueError(f"{name}={value} is too small: pass at least 1, or None")
