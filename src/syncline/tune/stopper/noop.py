"""`NoopStopper`."""

from __future__ import annotations

from syncline.tune.result import Metrics
from syncline.tune.stopper.stopper import Stopper


class NoopStopper(Stopper):
    """Never stop."""

    def __call__(self, trial_id: str, result: Metrics) -> bool:
        return False

    def stop_all(self) -> bool:
        return False
