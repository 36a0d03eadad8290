"""How user functions are run: as tasks, or by a pool of actors; and what each of them holds while
it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class ComputeStrategy:
    """Base of the ways to run a user function."""


class TaskPoolStrategy(ComputeStrategy):
    """Functions run in worker processes that keep nothing from one block to the next.

    Args:
        size: The most blocks that are worked on at once; None for as many as there is room for.
    """

    def __init__(self, size: int | None = None) -> None:
        _check_count("size", size)
        self.size = size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskPoolStrategy) and self.size == other.size

    def __hash__(self) -> int:
        return hash((TaskPoolStrategy, self.size))

    def __repr__(self) -> str:
        return f"TaskPoolStrategy(size={self.size})"


class ActorPoolStrategy(ComputeStrategy):
    """Classes are constructed once per actor, and called with one batch after the other.

    Args:
        size: Number of actors; not together with the others.
        min_size: Actors that are kept, 1 by default.
        max_size: The most actors, started while there is more to do than they manage; None for as
            many as there is room for.
        initial_size: Actors that are started at the beginning; `min_size` by default.
        max_tasks_in_flight_per_actor: Blocks that are with one actor at once; None lets the
            executor choose.
        enable_true_multi_threading: Kept for programs that pass it.
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
        return hash(
            (
                ActorPoolStrategy,
                self.min_size,
                self.max_size,
                self.initial_size,
                self.max_tasks_in_flight_per_actor,
            )
        )

    def __repr__(self) -> str:
        return (
            f"ActorPoolStrategy(min_size={self.min_size}, max_size={self.max_size}, "
            f"initial_size={self.initial_size})"
        )


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What a task or an actor holds while it runs."""

    num_cpus: float | None = None
    """CPUs; None: 1 for a task, for an actor 1 unless it holds GPUs."""
    num_gpus: float | None = None
    """GPUs, parts of one allowed."""
    memory: float | None = None
    """Bytes that are reserved; nothing enforces them."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further options of `remote`, by name: `resources`, `scheduling_strategy`, `runtime_env`,
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
        raise ValueError(f"{name}={value} is too small: give at least 1, or None")
