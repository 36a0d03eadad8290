"""`ViewRequirement`: a column of earlier or later steps for a network from older releases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from syncline.rl.value_types import CheckedSpace


@dataclass
class ViewRequirement:
    """A column, shifted in time."""

    data_col: str | None = None
    """Source column; None for the column with the same name."""
    space: CheckedSpace = None
    """Space of the values."""
    shift: Any = 0
    """Time shift in steps: -1 for the previous step, "-3:-1" for the last three."""
    index: int | None = None
    """Has no effect."""
    batch_repeat_value: int = 1
    """Has no effect."""
    used_for_compute_actions: bool = True
    """True if acting needs it."""
    used_for_training: bool = True
    """True if training needs it."""
