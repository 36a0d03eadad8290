"""Commands of the controller to a trial's process, and their outcomes. Each command has one
outcome, whose fields the event of the controller has as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from syncline.core.placement import PlacementGroup
from syncline.train.checkpoint import Checkpoint
from syncline.tune.result import Config, Metrics
from syncline.tune.trainable.trainable_state import TrialInfo

# -- commands


@dataclass(frozen=True, kw_only=True)
class Start:
    """Create the trainable of a trial, or reset that of an earlier trial, and restore its
    checkpoint, if any. -> Started, ResetRefused, Failed.
    """

    info: TrialInfo
    """The trial, without its directory on the machine of the process."""
    config: Config
    """Configuration of the trainable."""
    checkpoint: Checkpoint | None = None
    """Checkpoint to continue from."""
    progress: Metrics = field(default_factory=dict)
    """Counters of the result that belongs to the checkpoint."""
    in_trial_directory: bool = False
    """Make the trial's directory the working directory."""
    log_path: str | None = None
    """File for the output in the record of the search."""
    log_files: tuple[str, str] | None = None
    """Further files for output and errors, relative to the trial's directory."""
    isolated: bool = False
    """Let the process run other trials afterwards, and restore its state for them."""
    makes_directory: bool = True
    """Make the trial's directory, even if the trial does not ask for it."""
    in_batch: bool = False
    """The trial is one of a `RunBatch`."""
    imports: tuple[str, ...] = ()
    """Modules to import before the first trial of an isolated process."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """Train until the next result. -> Stepped, Failed."""

    checkpoint_index: int
    """Number of the checkpoint that may come with the result."""
    batch_s: float = 0.0
    """Seconds for which results may be collected and sent together."""


@dataclass(frozen=True, kw_only=True)
class Save:
    """Save a checkpoint of a class trainable. -> Saved, Failed."""

    checkpoint_index: int
    """Number of the checkpoint."""


@dataclass(frozen=True)
class Stop:
    """Clean up. The process then ends or is reused. -> Stopped."""


@dataclass(frozen=True, kw_only=True)
class RunBatch:
    """Run functions one after the other to their ends, and clean up after each. -> BatchRan."""

    starts: tuple[Start, ...]
    """The trials."""
    within_s: float
    """Seconds, without waiting for a core, after which no further trial begins, and the call
    returns although one runs.
    """


@dataclass(frozen=True)
class Await:
    """Wait for the next outcome of the trial that RunBatch left running. -> Stepped, Failed."""


@dataclass(frozen=True)
class Resume:
    """Answer ReservationStarting, ReservationMade and ReservationReady.
    -> Outcome of the command that these interrupted.
    """


Command: TypeAlias = Start | Step | Save | Stop | RunBatch | Await | Resume


# -- outcomes


@dataclass(frozen=True, kw_only=True)
class Started:
    """The trainable exists and is restored."""

    location: str
    """`ip:pid` of the process."""


@dataclass(frozen=True)
class ResetRefused:
    """The trainable cannot run another trial."""


@dataclass(frozen=True, kw_only=True)
class Stepped:
    """The trial reported."""

    result: Metrics
    """Complete result; the last one again after a function returned."""
    earlier: tuple[Metrics, ...] = ()
    """Earlier results of the same batch."""
    checkpoint: Checkpoint | None = None
    """Committed checkpoint of the result."""
    ended: bool = False
    """True if the function returned: `result` repeats the last report."""


@dataclass(frozen=True, kw_only=True)
class Saved:
    """Outcome of a save."""

    checkpoint: Checkpoint | None
    """Committed checkpoint; None for a function, which saves when it reports."""


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """The trainable cleaned up."""

    unusable: str = ""
    """Reason why the process must not run another trial."""


@dataclass(frozen=True, kw_only=True)
class BatchRan:
    """Trials of a batch ran, in its order; later ones have not begun."""

    location: str
    """`ip:pid` of the process."""
    ended: tuple[Stepped | Failed, ...]
    """Outcomes of the trials that ended."""
    seconds: float
    """Time that the batch took, without waiting for a core."""
    runs_on: bool = False
    """True if the trial after these has begun and is not over."""
    unusable: str = ""
    """Reason why the process must not run another trial."""


@dataclass(frozen=True)
class ReservationStarting:
    """A trainer inside the trial is about to reserve its workers and may use the trial's resources.
    Waits for Resume.
    """


@dataclass(frozen=True)
class ReservationMade:
    """The trainer requested a placement group, which may not be ready. Waits for Resume."""

    group: PlacementGroup
    """Released by the trainer, unless the trial ends first."""


@dataclass(frozen=True)
class ReservationReady:
    """The trainer's placement group is ready. Waits for Resume."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The trainable raised."""

    error: bytes
    """Exception, packed by `core.error_frames.pack_error`."""
    text: str
    """Traceback, the user's frames last."""


Question: TypeAlias = ReservationStarting | ReservationMade | ReservationReady
"""Outcomes that interrupt a command and wait for Resume."""

Outcome: TypeAlias = (
    Started | ResetRefused | Stepped | Saved | Stopped | BatchRan | Question | Failed
)
