"""What happens to a search, and what is to be done about it: the two vocabularies of
`state.TuneMachine`.

Events are written to the journal in the order in which they were handled; handling them again gives
the same search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from syncline.train.checkpoint import Checkpoint
from syncline.tune.execution.placement_groups import PlacementGroupFactory

Resumption = Literal["RESUME", "RESTART", "SKIP"]
"""What a restored search does with a trial: keep it and go on from its checkpoint, reset it, or
leave it ended.
"""

# -- events


@dataclass(frozen=True, kw_only=True)
class Begin:
    """The search starts."""

    total_resources: Mapping[str, float]
    """Everything that the machines have."""


@dataclass(frozen=True, kw_only=True)
class Resumed:
    """The process that ran the search is gone, and this one goes on."""

    total_resources: Mapping[str, float]
    """Everything that the machines have."""
    finished: Resumption
    unfinished: Resumption
    errored: Resumption


@dataclass(frozen=True, kw_only=True)
class Suggested:
    """The searcher gave a trial."""

    trial_id: str
    config: dict[str, Any]
    evaluated_params: dict[str, Any]
    tag: str
    factory: PlacementGroupFactory
    name: str | None
    directory: str


@dataclass(frozen=True, kw_only=True)
class NothingSuggested:
    """The searcher gave none."""

    finished: bool
    """It will not give any more; else it waits for a result."""


@dataclass(frozen=True, kw_only=True)
class PlaceHeld:
    """What a trial needs is reserved."""

    trial_id: str


@dataclass(frozen=True, kw_only=True)
class PlaceRefused:
    """What a trial needs can never be had."""

    trial_id: str
    error: bytes
    text: str


@dataclass(frozen=True, kw_only=True)
class TrialStarted:
    """A trainable was made."""

    trial_id: str
    attempt: int
    location: str
    now: float


@dataclass(frozen=True, kw_only=True)
class TrialStepped:
    """A result came."""

    trial_id: str
    attempt: int
    result: dict[str, Any]
    checkpoint: Checkpoint | None
    ended: bool
    earlier: tuple[dict[str, Any], ...] = ()
    """Results that came shortly before, about which nobody decides."""


@dataclass(frozen=True, kw_only=True)
class TrialSaved:
    """A checkpoint that was asked for is there, or None: the trainable is a function."""

    trial_id: str
    attempt: int
    checkpoint: Checkpoint | None


@dataclass(frozen=True, kw_only=True)
class TrialFailed:
    """The trainable has raised, or its process has died."""

    trial_id: str
    attempt: int
    error: bytes
    text: str


@dataclass(frozen=True, kw_only=True)
class NotReset:
    """The trainable in the process that was to serve again cannot become another trial's."""

    trial_id: str
    attempt: int


@dataclass(frozen=True, kw_only=True)
class PlaceWanted:
    """A trainer inside a trial is about to reserve its workers."""

    trial_id: str
    attempt: int


@dataclass(frozen=True, kw_only=True)
class PlaceFound:
    """It has what it needs."""

    trial_id: str
    attempt: int


@dataclass(frozen=True, kw_only=True)
class Donated:
    """A donor's checkpoint is a trial's own now; None where it could not be copied."""

    trial_id: str
    checkpoint: Checkpoint | None
    problem: str = ""


@dataclass(frozen=True)
class Tick:
    """A second has passed in which nothing happened."""


@dataclass(frozen=True)
class TimeUp:
    """The time budget is used up."""


Event = (
    Begin
    | Resumed
    | Suggested
    | NothingSuggested
    | PlaceHeld
    | PlaceRefused
    | TrialStarted
    | TrialStepped
    | TrialSaved
    | TrialFailed
    | NotReset
    | PlaceWanted
    | PlaceFound
    | Donated
    | Tick
    | TimeUp
)

OF_A_START = (
    TrialStarted,
    TrialStepped,
    TrialSaved,
    TrialFailed,
    NotReset,
    PlaceWanted,
    PlaceFound,
)
"""Those that mean one start of a trial, and nothing when that is over."""

# -- instructions

Hook = Literal["start", "restore", "result", "save", "checkpoint", "complete", "error", "recover"]


@dataclass(frozen=True, kw_only=True)
class AskSearcher:
    """Have the searcher suggest a configuration for this id. -> Suggested, NothingSuggested."""

    trial_id: str


@dataclass(frozen=True, kw_only=True)
class TellResult:
    """Tell the searcher of a result."""

    trial_id: str
    result: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class TellComplete:
    """Tell the searcher that a trial has ended."""

    trial_id: str
    result: Mapping[str, Any] | None
    error: bool


@dataclass(frozen=True, kw_only=True)
class Notify:
    """Tell the callbacks."""

    hook: Hook
    trial_id: str
    subject: Any = None
    """The result of `result`, the checkpoint of `checkpoint`."""


@dataclass(frozen=True, kw_only=True)
class Reserve:
    """Reserve what a trial needs. -> PlaceHeld, PlaceRefused."""

    trial_id: str
    factory: PlacementGroupFactory


@dataclass(frozen=True, kw_only=True)
class GiveBack:
    """Give back what is reserved, or about to be, for a trial that has no process."""

    trial_id: str


@dataclass(frozen=True, kw_only=True)
class StartTrial:
    """Make the trainable where the trial's place is. -> TrialStarted, TrialFailed."""

    trial_id: str
    attempt: int
    checkpoint: Checkpoint | None
    progress: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StepTrial:
    """Train until the next result. -> TrialStepped, TrialFailed."""

    trial_id: str
    attempt: int
    checkpoint_index: int
    collect_s: float = 0.0
    """Results that come within so many seconds may be told together."""


@dataclass(frozen=True, kw_only=True)
class SaveTrial:
    """Save a checkpoint. -> TrialSaved, TrialFailed."""

    trial_id: str
    attempt: int
    checkpoint_index: int


@dataclass(frozen=True, kw_only=True)
class StopTrial:
    """End the trial's process, or keep it for another trial, and give back what it holds."""

    trial_id: str
    attempt: int
    failed: bool = False
    """Its trainable cannot be used any more."""


@dataclass(frozen=True, kw_only=True)
class Lend:
    """Give back what a trial holds, so that the trainer inside it can have it, and let it go on."""

    trial_id: str
    attempt: int


@dataclass(frozen=True, kw_only=True)
class LetGoOn:
    """Let the trainer inside a trial go on."""

    trial_id: str
    attempt: int


@dataclass(frozen=True, kw_only=True)
class Donate:
    """Copy a checkpoint of one trial into the directory of another, and compare the two by hash. ->
    Donated.
    """

    trial_id: str
    source: Checkpoint
    checkpoint_index: int


@dataclass(frozen=True, kw_only=True)
class Confirm:
    """The search knows of a checkpoint: it is finished."""

    trial_id: str
    checkpoint: Checkpoint


@dataclass(frozen=True, kw_only=True)
class Delete:
    """A checkpoint need not be kept any more."""

    trial_id: str
    checkpoint: Checkpoint


@dataclass(frozen=True, kw_only=True)
class WriteLines:
    """Add lines to files of the experiment directory."""

    lines: tuple[tuple[str, str], ...]
    """(name of the file, line)."""


@dataclass(frozen=True, kw_only=True)
class Warn:
    """Tell the person who runs the search something that is probably not meant."""

    text: str


@dataclass(frozen=True, kw_only=True)
class LookAgain:
    """Nothing can go on, but the searcher may have something later. -> Tick."""


@dataclass(frozen=True, kw_only=True)
class End:
    """The search is over."""

    problem: str | None = None
    """Why it ends early; None where it has come to its end."""
    error: bytes | None = None
    """What `fail_fast` is to raise."""


Instruction = (
    AskSearcher
    | TellResult
    | TellComplete
    | Notify
    | Reserve
    | GiveBack
    | StartTrial
    | StepTrial
    | SaveTrial
    | StopTrial
    | Lend
    | LetGoOn
    | Donate
    | Confirm
    | Delete
    | WriteLines
    | Warn
    | LookAgain
    | End
)
