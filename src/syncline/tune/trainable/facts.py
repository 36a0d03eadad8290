"""`TrialFacts`: what a trainable knows of the trial that it is, and `Clock`, what it measures time
with.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from syncline.train.storage import StorageContext
from syncline.tune.execution.placement_groups import PlacementGroupFactory


@dataclass(frozen=True, kw_only=True)
class TrialFacts:
    """One trial, as its process sees it. The defaults are for a trainable that is used alone."""

    trial_id: str = "default"
    """Id in the search."""
    trial_name: str = "default"
    """What people call it."""
    trial_dir: str | None = None
    """Its directory on this machine; None for a trainable that is used alone."""
    experiment_name: str = "default"
    """The search's name."""
    resources: PlacementGroupFactory | None = None
    """What it holds; None for a trainable that is used alone."""
    storage: StorageContext | None = None
    """Where its files are kept; None where the trainable need not know."""


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Where a trainable reads the time."""

    wall: Callable[[], float] = time.time
    """Seconds since the epoch."""
    steady: Callable[[], float] = time.monotonic
    """Seconds since any moment; never set back, so durations are differences of it."""
