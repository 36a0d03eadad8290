"""Events and instructions of the controller's state machine (`state`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from syncline.records import dataclass
from syncline.runs.verdicts import Verdict
from syncline.train.controller.attempt import CompleteReport, WorkerFailure
from syncline.train.errors import PreemptionInfo
from syncline.train.workers.messages import ControllerMessage, Reported, StateMessage

# -- events


@dataclass(frozen=True, kw_only=True)
class RunStarted:
    """`fit()` was called."""

    next_index: int
    """Number of the first report; reports of earlier runs of the same name have lower numbers."""


@dataclass(frozen=True, kw_only=True)
class Reserved:
    """Resources for `world_size` workers are reserved."""

    world_size: int


@dataclass(frozen=True, kw_only=True)
class GroupStarted:
    """The workers run, have their ranks, and their backend is set up."""

    attempt: int


@dataclass(frozen=True, kw_only=True)
class StartFailed:
    """A worker did not start, or the backend could not be set up."""

    attempt: int
    failures: Mapping[int, WorkerFailure]
    node_died: bool = False
    """True if a node of the group died during the start; the next attempt uses other nodes."""


@dataclass(frozen=True, kw_only=True)
class MessageReceived:
    """A worker sent a message. A `Failed` arrives as `RankFailed` instead."""

    attempt: int
    rank: int
    message: StateMessage


@dataclass(frozen=True, kw_only=True)
class RankFailed:
    """A worker sent `Failed`; the driver has unpickled the exception."""

    attempt: int
    rank: int
    failure: WorkerFailure


@dataclass(frozen=True, kw_only=True)
class StreamEnded:
    """The message stream of a worker has ended, with `failure` if the worker died."""

    attempt: int
    rank: int
    failure: WorkerFailure | None = None


@dataclass(frozen=True, kw_only=True)
class NodesDraining:
    """Nodes that host ranks are about to be preempted."""

    attempt: int
    nodes: Mapping[str, tuple[int, ...]]
    """Node id to the ranks on it."""
    deadline_ms: int | None
    """Earliest preemption in milliseconds since the epoch; None if unknown."""
    seconds_left: float
    """Seconds until the deadline; if the deadline is unknown, seconds to wait."""


@dataclass(frozen=True, kw_only=True)
class ProgramTerminated:
    """The program received SIGTERM, so its run has to end by the deadline."""

    nodes: Mapping[str, tuple[int, ...]]
    """Node id to the ranks on it, for all running ranks."""
    deadline_ms: int
    seconds_left: float


@dataclass(frozen=True, kw_only=True)
class CapacityChanged:
    """Answer to `CheckCapacity`: number of workers that a group started now would have."""

    attempt: int
    workers: int


@dataclass(frozen=True, kw_only=True)
class VerdictFound:
    """The diagnosis has named ranks that delay or stop the attempt, or they do so no more."""

    attempt: int
    verdict: Verdict | None
    """None if the last verdict about a delay or a stop is over."""


@dataclass(frozen=True, kw_only=True)
class StacksReceived:
    """Answer to `RequestStacks`: Python stacks of the ranks that answered."""

    attempt: int
    stacks: Mapping[int, str]


@dataclass(frozen=True, kw_only=True)
class GroupStopped:
    """Every process of the attempt has ended."""

    attempt: int


@dataclass(frozen=True, kw_only=True)
class ValidationsEnded:
    """No validation is queued or running."""


@dataclass(frozen=True, kw_only=True)
class TimerFired:
    """A timer has expired."""

    name: str


@dataclass(frozen=True, kw_only=True)
class ControllerFailed:
    """An instruction failed."""

    error: BaseException
    retriable: bool
    """True if another attempt may help (a failed write, but no mistake in a callback)."""


@dataclass(frozen=True, kw_only=True)
class Interrupted:
    """The program was interrupted (Ctrl-C)."""


Event = (
    RunStarted
    | Reserved
    | GroupStarted
    | StartFailed
    | MessageReceived
    | RankFailed
    | StreamEnded
    | NodesDraining
    | ProgramTerminated
    | CapacityChanged
    | StacksReceived
    | VerdictFound
    | GroupStopped
    | ValidationsEnded
    | TimerFired
    | ControllerFailed
    | Interrupted
)


# -- instructions


@dataclass(frozen=True, kw_only=True)
class Reserve:
    """Reserve resources for the workers of the scaling configuration; answered by `Reserved`."""


@dataclass(frozen=True, kw_only=True)
class StartGroup:
    """Start workers and backend; answered by `GroupStarted` or `StartFailed`."""

    attempt: int
    world_size: int
    first_index: int


@dataclass(frozen=True, kw_only=True)
class LaunchTraining:
    """Start the training functions and read the workers' messages."""

    attempt: int


@dataclass(frozen=True, kw_only=True)
class RecordReport:
    """Write one rank's metrics to the run directory."""

    rank: int
    report: Reported


@dataclass(frozen=True, kw_only=True)
class CompleteRound:
    """Commit the checkpoint of a report that all ranks have made, if any, and call callbacks."""

    report: CompleteReport


@dataclass(frozen=True, kw_only=True)
class Send:
    """Send a message to one worker, or to all if `rank` is None."""

    rank: int | None
    message: ControllerMessage


@dataclass(frozen=True, kw_only=True)
class SendCheckpoints:
    """Send the list of registered checkpoints to a worker, after the end of all validations if
    `validated`.
    """

    rank: int
    request: int
    validated: bool


@dataclass(frozen=True, kw_only=True)
class SetTimer:
    """Start or restart a timer; answered by `TimerFired`."""

    name: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class CancelTimer:
    """Cancel a timer, which need not be running."""

    name: str


@dataclass(frozen=True, kw_only=True)
class CheckCapacity:
    """Determine how many workers a group started now would have; answered by `CapacityChanged`."""

    attempt: int


@dataclass(frozen=True, kw_only=True)
class RequestStacks:
    """Request the Python stacks of ranks; answered by `StacksReceived` after a short limit, even if
    some ranks do not answer.
    """

    ranks: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class DrainWorkers:
    """Make workers send their buffered messages and end their streams."""

    ranks: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class StopGroup:
    """End every process of the attempt; answered by `GroupStopped`."""

    attempt: int
    graceful: bool
    """Shut the backend down first."""


@dataclass(frozen=True, kw_only=True)
class DrainValidations:
    """Run the queued validations; answered by `ValidationsEnded`."""


@dataclass(frozen=True, kw_only=True)
class NotifyFailure:
    """Record that workers failed and call the callbacks."""

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
    """Current number of workers."""
    workers: int
    """New number of workers."""


@dataclass(frozen=True, kw_only=True)
class NotifyPreemption:
    """Tell the user that nodes are about to be preempted."""

    info: PreemptionInfo
    seconds_left: float


@dataclass(frozen=True, kw_only=True)
class NotifyStall:
    """Record that ranks are stalled in a collective operation, or no longer."""

    seconds: float
    """Time in the operation so far; 0 if no rank is stalled any more."""


@dataclass(frozen=True, kw_only=True)
class Warn:
    """Log a warning."""

    text: str


@dataclass(frozen=True, kw_only=True)
class End:
    """End the run. Last instruction."""

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
    | SendCheckpoints
    | SetTimer
    | CancelTimer
    | CheckCapacity
    | RequestStacks
    | DrainWorkers
    | StopGroup
    | DrainValidations
    | NotifyFailure
    | NotifyRestart
    | NotifyResize
    | NotifyStall
    | NotifyPreemption
    | Warn
    | End
)
