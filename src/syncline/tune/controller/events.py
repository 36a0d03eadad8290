"""Rules, events and instructions of a search: the inputs and outputs of `state.TuneMachine`.

The journal holds events in the order in which they were handled. Handling them again in that order
rebuilds the same search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from syncline.train.checkpoint import Checkpoint
from syncline.train.storage.context import StorageContext
from syncline.tune.config import CheckpointConfig
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.result import Config, Metrics
from syncline.tune.workers.messages import Command

Resumption: TypeAlias = Literal["RESUME", "RESTART", "SKIP"]
"""Treatment of a trial in a restored search: continue from its checkpoint, reset it, or end it."""


@dataclass(frozen=True, kw_only=True)
class SearchRules:
    """Settings of a search that its decisions depend on."""

    trainable_name: str
    """Name of the trainable."""
    is_function: bool
    """True if the trainable is a function, which decides itself when to save."""
    storage: StorageContext
    """Experiment directory."""
    trial_prefix: str
    """Prefix of trial ids."""
    metric: str | None
    """Metric to optimize; None if unset."""
    strict_metrics: bool
    """Treat a result without that metric, or without the scheduler's, as an error."""
    max_concurrent: float
    """Maximum number of running trials."""
    max_failures: float
    """Number of restarts of a failing trial."""
    fail_fast: bool
    """End the search at the first failure."""
    checkpoint_config: CheckpointConfig
    """Frequency and retention of checkpoints."""


# -- events


@dataclass(frozen=True, kw_only=True)
class TrialEvent:
    """Base of events of one trial."""

    trial_id: str


@dataclass(frozen=True, kw_only=True)
class AttemptEvent(TrialEvent):
    """Base of events of one attempt of a trial, which are ignored after that attempt ended."""

    attempt: int


@dataclass(frozen=True, kw_only=True)
class SearchStarted:
    """A new search starts."""

    total_resources: Mapping[str, float]
    """Resources of all nodes together."""
    time_s: float = 0.0
    """Seconds since the epoch; 0 if unknown."""


@dataclass(frozen=True, kw_only=True)
class SearchResumed:
    """A search continues in a new process. No trial process of the old one is left."""

    total_resources: Mapping[str, float]
    """Resources of all nodes together."""
    finished: Resumption
    unfinished: Resumption
    errored: Resumption
    time_s: float = 0.0
    """Seconds since the epoch; 0 if unknown."""


@dataclass(frozen=True, kw_only=True)
class TrialSuggested(TrialEvent):
    """The searcher suggested a trial."""

    config: Config
    evaluated_params: Config
    tag: str
    factory: PlacementGroupFactory
    name: str | None
    directory: str


@dataclass(frozen=True, kw_only=True)
class NoSuggestion:
    """The searcher suggested nothing."""

    finished: bool
    """True if it will never suggest again; False if it waits for results."""


@dataclass(frozen=True, kw_only=True)
class ResourcesReserved(TrialEvent):
    """The placement group of a trial is ready."""


@dataclass(frozen=True, kw_only=True)
class ReservationRefused(TrialEvent):
    """The cluster can never hold the placement group of a trial."""

    error: bytes
    text: str


@dataclass(frozen=True, kw_only=True)
class TrialStarted(AttemptEvent):
    """The trainable exists and is restored."""

    location: str
    now: float


@dataclass(frozen=True, kw_only=True)
class TrialStepped(AttemptEvent):
    """A trial reported."""

    result: Metrics
    checkpoint: Checkpoint | None
    ended: bool
    """True if the function returned: `result` repeats the last report."""
    earlier: tuple[Metrics, ...] = ()
    """Reports of the same batch that came before `result`; no decision depends on them."""
    stop_trial: bool = False
    """Verdict of the stopper on this trial; see `TuneMachine.with_stopper_verdict`."""
    stop_all: bool = False
    """Verdict of the stopper on the whole search."""


@dataclass(frozen=True, kw_only=True)
class TrialRan(TrialStepped):
    """A trial started and ended in a batch: `TrialStarted` and `TrialStepped` in one."""

    location: str
    now: float


@dataclass(frozen=True, kw_only=True)
class TrialSaved(AttemptEvent):
    """A requested checkpoint is committed. It is None for a function."""

    checkpoint: Checkpoint | None


@dataclass(frozen=True, kw_only=True)
class TrialFailed(AttemptEvent):
    """The trainable raised, or its process died."""

    error: bytes
    text: str


@dataclass(frozen=True, kw_only=True)
class ResetRefused(AttemptEvent):
    """The trainable in a reused process cannot run another trial."""


@dataclass(frozen=True, kw_only=True)
class TrialReturned(AttemptEvent):
    """The process to which the trial was assigned did not begin it."""


@dataclass(frozen=True, kw_only=True)
class WorkersRequested(AttemptEvent):
    """A trainer inside a trial is about to reserve resources for its workers."""


@dataclass(frozen=True, kw_only=True)
class WorkersReserved(AttemptEvent):
    """The trainer inside a trial has the resources for its workers."""


@dataclass(frozen=True, kw_only=True)
class CheckpointCopied(TrialEvent):
    """A donor's checkpoint was copied into the trial's directory. None if the copy failed."""

    checkpoint: Checkpoint | None
    problem: str = ""


@dataclass(frozen=True)
class Tick:
    """No event came for `driver.POLL_S` while the searcher had nothing to suggest."""


@dataclass(frozen=True)
class TimeBudgetExhausted:
    """The time budget is used up."""


Event: TypeAlias = (
    SearchStarted
    | SearchResumed
    | TrialSuggested
    | NoSuggestion
    | ResourcesReserved
    | ReservationRefused
    | TrialStarted
    | TrialStepped
    | TrialRan
    | TrialSaved
    | TrialFailed
    | ResetRefused
    | TrialReturned
    | WorkersRequested
    | WorkersReserved
    | CheckpointCopied
    | Tick
    | TimeBudgetExhausted
)

# -- instructions

Hook: TypeAlias = Literal[
    "start", "restore", "result", "checkpoint", "complete", "error", "recover"
]


@dataclass(frozen=True, kw_only=True)
class TrialInstruction:
    """Base of instructions for one trial."""

    trial_id: str


@dataclass(frozen=True, kw_only=True)
class AttemptInstruction(TrialInstruction):
    """Base of instructions for one attempt of a trial."""

    attempt: int


@dataclass(frozen=True, kw_only=True)
class AskSearcher(TrialInstruction):
    """Ask the searcher for a configuration. -> TrialSuggested, NoSuggestion."""


@dataclass(frozen=True, kw_only=True)
class ReportResult(TrialInstruction):
    """Pass a result to the searcher."""

    result: Metrics


@dataclass(frozen=True, kw_only=True)
class ReportCompletion(TrialInstruction):
    """Tell the searcher that a trial ended."""

    result: Metrics | None
    error: bool


@dataclass(frozen=True, kw_only=True)
class NotifyCallbacks:
    """Call a hook of the callbacks."""

    hook: Hook
    trial_id: str
    subject: Metrics | Checkpoint | None = None
    """The result for `result`, the checkpoint for `checkpoint`."""


@dataclass(frozen=True, kw_only=True)
class ReserveResources(TrialInstruction):
    """Reserve a trial's placement group. -> ResourcesReserved, ReservationRefused."""

    factory: PlacementGroupFactory


@dataclass(frozen=True, kw_only=True)
class ReleaseResources(TrialInstruction):
    """Remove the placement group, reserved or pending, of a trial without a process."""


@dataclass(frozen=True, kw_only=True)
class StartTrial(AttemptInstruction):
    """Create the trainable in the trial's placement group. -> TrialStarted, TrialFailed."""

    checkpoint: Checkpoint | None
    progress: Metrics = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RunCommand(AttemptInstruction):
    """Carry out a command in the trial's process: Step -> TrialStepped, TrialFailed; Save ->
    TrialSaved, TrialFailed; Resume, after the trainer inside has reserved its workers.
    """

    command: Command


@dataclass(frozen=True, kw_only=True)
class StopTrial(AttemptInstruction):
    """End the trial's process, or keep it for another trial, and release the trial's resources."""

    failed: bool = False
    """True if the trainable is unusable."""


@dataclass(frozen=True, kw_only=True)
class LendResources(AttemptInstruction):
    """Remove the trial's placement group for the trainer inside it, and resume the trial."""


@dataclass(frozen=True, kw_only=True)
class CopyCheckpoint(TrialInstruction):
    """Copy another trial's checkpoint into the trial's directory and compare the hashes.
    -> CheckpointCopied.
    """

    source: Checkpoint
    checkpoint_index: int


@dataclass(frozen=True, kw_only=True)
class ConfirmCheckpoint(TrialInstruction):
    """Mark a checkpoint as registered, which makes it final."""

    checkpoint: Checkpoint


@dataclass(frozen=True, kw_only=True)
class DeleteCheckpoint(TrialInstruction):
    """Delete a checkpoint that retention does not keep."""

    checkpoint: Checkpoint


@dataclass(frozen=True, kw_only=True)
class AppendLines:
    """Append lines to files of the experiment directory."""

    lines: tuple[tuple[str, str], ...]
    """(file name, line)."""


@dataclass(frozen=True, kw_only=True)
class LogWarning:
    """Log a warning about a probable mistake."""

    text: str


@dataclass(frozen=True, kw_only=True)
class EndSearch:
    """The search is over."""

    problem: str | None = None
    """Reason for an early end; None for a regular one."""
    error: bytes | None = None
    """Packed exception for `fail_fast="raise"`."""
    interrupted: bool = False
    """True after Ctrl-C."""


Instruction: TypeAlias = (
    AskSearcher
    | ReportResult
    | ReportCompletion
    | NotifyCallbacks
    | ReserveResources
    | ReleaseResources
    | StartTrial
    | RunCommand
    | StopTrial
    | LendResources
    | CopyCheckpoint
    | ConfirmCheckpoint
    | DeleteCheckpoint
    | AppendLines
    | LogWarning
    | EndSearch
)
