"""`Snapshot`: the state of a run at one moment, as displays show it. It can be pickled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from syncline.runs.run_progress import Progress
from syncline.train.controller.goodput import Goodput


class Phase(Enum):
    """Phase of a run, as text for users."""

    WAITING = "waiting for resources"
    STARTING = "starting"
    TRAINING = "training"
    STOPPING = "stopping"
    """Workers have failed; the remaining messages of the others are read."""
    RESTARTING = "restarting"
    VALIDATING = "validating"
    """The training functions have returned; checkpoints are being validated."""
    FINISHING = "finishing"
    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"

    @property
    def is_end(self) -> bool:
        """True if no phase follows."""
        return self in (Phase.FINISHED, Phase.FAILED, Phase.INTERRUPTED)


@dataclass(frozen=True, kw_only=True)
class NodeShare:
    """Workers of one node."""

    hostname: str
    workers: int
    gpu_ids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """State of a run at one moment."""

    name: str
    path: str
    """Run directory, as text for users."""
    page: str | None = None
    """Address of the run in a dashboard."""
    phase: Phase
    running_s: float
    """Seconds since the call of `fit()`."""
    attempt: int = 0
    """Number of the attempt, from 1; 0 before the first."""
    restarts: int = 0
    """Number of restarts after failures."""
    resizes: int = 0
    """Number of restarts with another number of workers."""
    start: str = ""
    """Checkpoint of the attempt's start, as text; "" without one."""
    nodes: tuple[NodeShare, ...] = ()
    """Nodes with workers; empty if no workers run."""
    metrics: tuple[tuple[str, str], ...] = ()
    """Rank 0's latest metrics, as text."""
    reports: int = 0
    """Number of reports of rank 0 in this call of `fit()`."""
    reports_per_s: float | None = None
    """Recent rate of reports; None if unknown."""
    progress: Progress | None = None
    goodput: Goodput | None = None
    checkpoint: str = ""
    """Path of the latest checkpoint of this call of `fit()`."""
    checkpoint_age_s: float = 0.0
    best_checkpoint: str = ""
    """Path of the checkpoint with the best score; "" without scores."""

    @property
    def workers(self) -> int:
        """Number of workers that run."""
        return sum(node.workers for node in self.nodes)

    def later(self, seconds: float) -> Snapshot:
        """Return the snapshot with its times advanced."""
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
