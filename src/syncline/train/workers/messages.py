"""What workers and the controller say to each other, each message defined here once and passed
through unchanged.

Worker to controller travels in batches over the stream of `TrainWorker.messages`, in the order in
which it was said; controller to worker are calls of `TrainWorker.deliver`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from syncline.train.checkpoint import Checkpoint, ReportedCheckpoint
from syncline.train.config import ValidationTaskConfig
from syncline.train.errors import PreemptionInfo
from syncline.train.step_times import StepTimes

# -- worker -> controller


@dataclass(frozen=True, kw_only=True)
class CheckpointPart:
    """Where one rank's files of one checkpoint lie in the run directory."""

    dir_name: str
    """The name that this rank wants for the checkpoint; rank 0's counts."""
    staged: str | None
    """The hidden directory, relative to the run directory, that becomes the checkpoint; None where
    the files are in place.
    """
    validation: bool | ValidationTaskConfig = False
    """Whether, and how, to validate the checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Reported:
    """One call of `report`."""

    index: int
    """The number of the call, continued over attempts and reruns."""
    metrics: Mapping[str, Any]
    """Plain values, as `metrics.clean` leaves them."""
    time: float
    """When, in seconds since the epoch."""
    part: CheckpointPart | None = None
    """The checkpoint's part, in place already."""
    uploading: bool = False
    """The part will come in an `Uploaded`."""
    states: bytes | None = None
    """Of a rank that gives no files, in case others do: what `Readers.capture` says, to be put
    beside theirs.
    """


@dataclass(frozen=True, kw_only=True)
class Uploaded:
    """The checkpoint part of an earlier report is in place."""

    index: int
    part: CheckpointPart


@dataclass(frozen=True, kw_only=True)
class BarrierReached:
    """This rank waits in `collective`."""

    sequence: int
    """The number of the call of this rank, from 0."""
    data: bytes | None
    """Pickled, from rank 0 only."""


@dataclass(frozen=True, kw_only=True)
class CheckpointsAsked:
    """This rank wants the list of registered checkpoints."""

    request: int
    """The number of the question, from 0."""
    validated: bool
    """Answer only when every validation that was asked for has ended."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The training function has returned and every upload is done; nothing follows."""

    return_value: bytes | None
    """Pickled, from rank 0 only."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The training function, or an upload, has raised; nothing follows."""

    exception: bytes
    """As `core.error_frames.pack_error` makes it: it arrives as itself, or as a stand-in of the
    same name.
    """
    traceback: str
    """As text, the user's frames of the worker."""


@dataclass(frozen=True, kw_only=True)
class Stuck:
    """This rank has been in one collective operation for long."""

    seconds: float
    """For so long; 0: not any more."""
    too_long: bool
    """The limit is reached; before, it is only something to tell people."""


@dataclass(frozen=True, kw_only=True)
class Terminating:
    """This rank's process was told to end (SIGTERM), and goes on until somebody ends it for
    good.
    """

    node_id: str
    """Where it is."""
    deadline_ms: int
    """When that is likely to be, in milliseconds since the epoch."""
    seconds_left: float
    """The time until then."""


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Where this rank's time has gone in this attempt so far, and what its process uses. For the
    record only.
    """

    times: StepTimes
    usage: Mapping[str, Any]
    """As `runs.usage.Sampler` gives it."""


Spoken = (
    Reported
    | Uploaded
    | BarrierReached
    | CheckpointsAsked
    | Finished
    | Failed
    | Stuck
    | Terminating
)
"""What the state of the run depends on."""
WorkerMessage = Spoken | Spent

MetricsReported = tuple[int, Mapping[str, Any], float, bytes | None]
"""A `Reported` without a checkpoint as it travels: index, metrics, time, states. Every step of
training may make one: a dataclass takes ten times as long to make and to pickle.
"""
Sent = WorkerMessage | MetricsReported
"""What is in a worker's stream."""


def opened(message: Sent) -> WorkerMessage:
    """A message as the controller takes it."""
    if not isinstance(message, tuple):
        return message
    index, metrics, time, states = message
    return Reported(index=index, metrics=metrics, time=time, states=states)


# -- controller -> worker


@dataclass(frozen=True, kw_only=True)
class Committed:
    """Checkpoints up to the report `index` are registered."""

    index: int
    checkpoint: Checkpoint


@dataclass(frozen=True, kw_only=True)
class BarrierReleased:
    """Every rank is there."""

    sequence: int
    data: bytes | None
    """From rank 0; None where a preemption has ended rank 0 before."""


@dataclass(frozen=True, kw_only=True)
class Consumed:
    """The controller has read the first `batches` batches of this worker's stream: the worker may
    send more.
    """

    batches: int


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """The answer to a `CheckpointsAsked`."""

    request: int
    checkpoints: tuple[ReportedCheckpoint, ...]


@dataclass(frozen=True, kw_only=True)
class PreemptionNoticed:
    """Nodes or processes of the run are about to be taken away."""

    info: PreemptionInfo


ControllerMessage = Committed | BarrierReleased | Consumed | Checkpoints | PreemptionNoticed
