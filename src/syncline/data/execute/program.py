"""`Program`: what an execution executes, all together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from syncline.data.context import DataContext
from syncline.data.execute.shape import Shape
from syncline.data.execute.stages import Stage


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
    name: str = ""
