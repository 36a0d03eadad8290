"""Where a rank's time goes: waiting for data, reporting, communicating, and computing, which is all
the rest.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """How a rank has spent the time since its training function began, in seconds."""

    total_s: float = 0.0
    """All of it."""
    data_s: float = 0.0
    """Waiting for batches of datasets and prepared data loaders."""
    report_s: float = 0.0
    """In `report`, `get_checkpoint`, `collective` and their relatives."""
    communication_s: float = 0.0
    """In collective operations, as far as they were not hidden behind computation."""

    @property
    def compute_s(self) -> float:
        """The rest."""
        return max(0.0, self.total_s - self.data_s - self.report_s - self.communication_s)
