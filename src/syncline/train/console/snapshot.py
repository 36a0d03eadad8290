"""`Snapshot`: everything that a display says about a run at one moment. Plain values that can go to
another process.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from syncline.train.console.progress import Progress
from syncline.train.controller.goodput import Goodput


class Phase(Enum):
    """What a run is doing, in a word for people."""

    WAITING = "waiting for resources"
    STARTING = "starting"
    TRAINING = "training"
    STOPPING = "stopping"
    """Workers have failed: what the others have said is taken in."""
    RESTARTING = "restarting"
    VALIDATING = "validating"
    """The training functions have returned, and checkpoints are still being validated."""
    FINISHING = "finishing"
    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"

    @property
    def is_end(self) -> bool:
        """Nothing follows."""
        return self in (Phase.FINISHED, Phase.FAILED, Phase.INTERRUPTED)


@dataclass(frozen=True, kw_only=True)
class NodeShare:
    """The workers of one node."""

    hostname: str
    workers: int
    gpu_ids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A run at one moment."""

    name: str
    path: str
    """The run directory, for people."""
    page: str | None = None
    """Where a dashboard shows the run."""
    phase: Phase
    running_s: float
    """Since `fit()` was called."""
    attempt: int = 0
    """From 1; 0 before the first."""
    restarts: int = 0
    """After failures."""
    resizes: int = 0
    """For another number of workers."""
    start: str = ""
    """Where the attempt began, in words; "" for from the beginning."""
    nodes: tuple[NodeShare, ...] = ()
    """Empty where no workers run."""
    metrics: tuple[tuple[str, str], ...] = ()
    """Rank 0's latest, as texts."""
    reports: int = 0
    """Made by rank 0 in this call of `fit()`."""
    reports_per_s: float | None = None
    """Lately; None where too little has happened."""
    progress: Progress | None = None
    goodput: Goodput | None = None
    checkpoint: str = ""
    """Where the latest one lies that this call of `fit()` has made."""
    checkpoint_age_s: float = 0.0
    best_checkpoint: str = ""
    """Where the best one lies, by the score that the run was given; "" without one."""

    @property
    def workers(self) -> int:
        """How many run."""
        return sum(node.workers for node in self.nodes)

    def later(self, seconds: float) -> Snapshot:
        """The same run after a while in which nothing else happened."""
        if seconds <= 0 or self.phase.is_end:
            return self
        progress = self.progress
        if progress is not None and progress.left_s is not None:
            progress = replace(progress, left_s=max(0.0, progress.left_s - seconds))
        return replace(
            self,
            running_s=self.running_s + seconds,
            checkpoint_age_s=self.checkpoint_age_s + seconds,
            progress=progress,
        )
