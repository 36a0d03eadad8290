"""What happens to the controller (events) and what it wants done (instructions): the two
vocabularies of `state`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from syncline.train.controller.barriers import CompleteReport
from syncline.train.errors import PreemptionInfo
from syncline.train.workers.messages import ControllerMessage, Reported, Spoken

# -- events


@dataclass(frozen=True, kw_only=True)
class WorkerFailure:
    """How one rank failed."""

    exception: BaseException
    """The user's exception, or the engine's if the process died."""
    traceback: str | None = None
    """As the worker saw it; None if the process died."""
    died: bool = False
    """The process is gone, which explains the errors of those that talked to it."""


@dataclass(frozen=True, kw_only=True)
class Begin:
    """`fit()` was called."""

    next_index: int
    """The number of the first report: those of earlier runs of the same name are below."""


@dataclass(frozen=True, kw_only=True)
class Reserved:
    """Resources for this many workers are held."""

    world_size: int


@dataclass(frozen=True, kw_only=True)
class GroupStarted:
    """The workers run, have their ranks, and their backend is set up."""

    attempt: int


@dataclass(frozen=True, kw_only=True)
class StartFailed:
    """Some worker did not start, or the backend could not be set up."""

    attempt: int
    failures: Mapping[int, WorkerFailure]
    node_died: bool = False
    """A node of the group died meanwhile: what was to start there never ran, and the next attempt
    finds another place.
    """


@dataclass(frozen=True, kw_only=True)
class Said:
    """A worker's message."""

    attempt: int
    rank: int
    message: Spoken


@dataclass(frozen=True, kw_only=True)
class StreamEnded:
    """A worker will say nothing more; `failure` if that is because it died."""

    attempt: int
    rank: int
    failure: WorkerFailure | None = None


@dataclass(frozen=True, kw_only=True)
class NodesDraining:
    """Nodes on which ranks run are about to be taken away."""

    attempt: int
    nodes: Mapping[str, tuple[int, ...]]
    """Node id to the ranks on it."""
    deadline_ms: int | None
    """When the first of them goes, in milliseconds since the epoch; None: not known."""
    seconds_left: float
    """The time until then; where it is not known, how long to wait."""


@dataclass(frozen=True, kw_only=True)
class ProgramTerminated:
    """The program was told to end (SIGTERM): its run ends with it, after so long at most."""

    nodes: Mapping[str, tuple[int, ...]]
    """Node id to the ranks on it, of all ranks that run."""
    deadline_ms: int
    seconds_left: float


@dataclass(frozen=True, kw_only=True)
class RoomSeen:
    """Answer to `LookForRoom`: a group started now would have so many workers."""

    attempt: int
    workers: int


@dataclass(frozen=True, kw_only=True)
class StacksTaken:
    """Answer to `AskStacks`: the Python stack of each rank that answered."""

    attempt: int
    stacks: Mapping[int, str]


@dataclass(frozen=True, kw_only=True)
class GroupStopped:
    """Every process of the attempt is gone."""

    attempt: int


@dataclass(frozen=True, kw_only=True)
class ValidationsEnded:
    """No validation waits or runs."""


@dataclass(frozen=True, kw_only=True)
class TimerFired:
    """The timer of that name has run out."""

    name: str


@dataclass(frozen=True, kw_only=True)
class ControllerFailed:
    """An instruction could not be carried out."""

    error: BaseException
    retriable: bool
    """Whether another attempt may help: writing to storage, rather than a mistake in a callback."""


@dataclass(frozen=True, kw_only=True)
class Interrupted:
    """The program wants to stop (Ctrl-C)."""


Event = (
    Begin
    | Reserved
    | GroupStarted
    | StartFailed
    | Said
    | StreamEnded
    | NodesDraining
    | ProgramTerminated
    | RoomSeen
    | StacksTaken
    | GroupStopped
    | ValidationsEnded
    | TimerFired
    | ControllerFailed
    | Interrupted
)


# -- instructions


@dataclass(frozen=True, kw_only=True)
class Reserve:
    """Hold resources for as many workers as the scaling configuration wants; answered by
    `Reserved`.
    """


@dataclass(frozen=True, kw_only=True)
class StartGroup:
    """Start workers and backend; answered by `GroupStarted` or `StartFailed`."""

    attempt: int
    world_size: int
    first_index: int


@dataclass(frozen=True, kw_only=True)
class LaunchTraining:
    """Start the training functions and follow what the workers say."""

    attempt: int


@dataclass(frozen=True, kw_only=True)
class RecordReport:
    """Write one rank's metrics to the record."""

    rank: int
    report: Reported


@dataclass(frozen=True, kw_only=True)
class CompleteRound:
    """All ranks have made this report: commit its checkpoint if it has one, tell the callbacks."""

    report: CompleteReport


@dataclass(frozen=True, kw_only=True)
class Send:
    """Say something to a worker, or to all (`rank=None`)."""

    rank: int | None
    message: ControllerMessage


@dataclass(frozen=True, kw_only=True)
class AnswerCheckpoints:
    """Tell a worker which checkpoints are registered, once validations have ended if it wants
    them.
    """

    rank: int
    request: int
    validated: bool


@dataclass(frozen=True, kw_only=True)
class SetTimer:
    """Start a timer, or restart it; answered by `TimerFired`."""

    name: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class CancelTimer:
    """The timer is not needed any more; it may not be running."""

    name: str


@dataclass(frozen=True, kw_only=True)
class LookForRoom:
    """See how many workers a group would have that is started now; answered by `RoomSeen`."""

    attempt: int


@dataclass(frozen=True, kw_only=True)
class AskStacks:
    """Ask ranks where their training functions are; answered by `StacksTaken`, soon, however many
    answer.
    """

    ranks: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class HushWorkers:
    """Tell workers to hand over what they have said and then end their streams."""

    ranks: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class StopGroup:
    """End every process of the attempt; answered by `GroupStopped`."""

    attempt: int
    graceful: bool
    """Whether the backend is shut down first."""


@dataclass(frozen=True, kw_only=True)
class DrainValidations:
    """Run the validations that wait; answered by `ValidationsEnded`."""


@dataclass(frozen=True, kw_only=True)
class NotifyFailure:
    """Tell record and callbacks that workers failed."""

    failures: Mapping[int, WorkerFailure]


@dataclass(frozen=True, kw_only=True)
class NotifyRestart:
    """Tell the user that another attempt begins, and why."""

    failed_attempt: int
    cause: str
    count: int
    limit: int


@dataclass(frozen=True, kw_only=True)
class NotifyResize:
    """Tell the user that a group of another size begins."""

    world_size: int
    """The size so far."""
    workers: int
    """The size for which there is room."""


@dataclass(frozen=True, kw_only=True)
class NotifyPreemption:
    """Tell the user that nodes are about to be taken away."""

    info: PreemptionInfo
    seconds_left: float


@dataclass(frozen=True, kw_only=True)
class Warn:
    """Tell the user something that may be wrong."""

    text: str


@dataclass(frozen=True, kw_only=True)
class End:
    """The run is over; nothing follows."""

    outcome: Literal["finished", "errored", "aborted"]
    error: BaseException | None = None
    return_value: bytes | None = None


Instruction = (
    Reserve
    | StartGroup
    | LaunchTraining
    | RecordReport
    | CompleteRound
    | Send
    | AnswerCheckpoints
    | SetTimer
    | CancelTimer
    | LookForRoom
    | AskStacks
    | HushWorkers
    | StopGroup
    | DrainValidations
    | NotifyFailure
    | NotifyRestart
    | NotifyResize
    | NotifyPreemption
    | Warn
    | End
)
