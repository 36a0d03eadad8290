"""`ViewRequirement`: what a network from older releases asks for of earlier or later steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class ViewRequirement:
    """A column, shifted in time."""

    data_col: str | None = None
    """Column; None for that under whose name this is stored."""
    space: Any = None
    """Space of the values."""
    shift: Any = 0
    """Steps: -1 for the previous one, "-3:-1" for the last three."""
    index: int | None = None
    """Has no effect."""
    batch_repeat_value: int = 1
    """Has no effect."""
    used_for_compute_actions: bool = True
    """Whether acting needs it."""
    used_for_training: bool = True
    """Whether training needs it."""
