"""`NoopStopper`: what is used where no stopping criterion is given."""

from __future__ import annotations

from typing import Any

from syncline.tune.stopper.stopper import Stopper


class NoopStopper(Stopper):
    """Stops nothing."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return False
