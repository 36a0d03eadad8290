"""Messages between workers and the controller.

Each message is defined once and passed through unchanged. Messages to the controller travel in
batches over the stream of `TrainWorker.messages`, in the order in which they were sent. Messages to
a worker are calls of `TrainWorker.deliver`.
"""

from __future__ import annotations

from collections.abc import Mapping

from syncline.diagnosis.observation import RankObserved
from syncline.records import dataclass
from syncline.train.checkpoint import Checkpoint, ReportedCheckpoint
from syncline.train.config import ValidationTaskConfig
from syncline.train.errors import PreemptionInfo
from syncline.train.metric_values import Metrics
from syncline.train.snapshots.slot import SnapshotId

UPLOAD_GRACE_S = 10.0
"""Seconds that a failed attempt waits for uploads of reported checkpoints."""

# -- worker -> controller


@dataclass(frozen=True, kw_only=True)
class CheckpointPart:
    """Location of one rank's files of one checkpoint in the run directory."""

    dir_name: str
    """Checkpoint name that this rank asks for; the name of rank 0 is used."""
    staged: str | None
    """Hidden directory, relative to the run directory, that becomes the checkpoint; None if the
    files are in their final place.
    """
    validation: bool | ValidationTaskConfig = False
    """Request to validate the checkpoint, with its settings if given."""


@dataclass(frozen=True, kw_only=True)
class Reported:
    """One call of `report`."""

    index: int
    """Number of the call, continued over attempts and reruns."""
    metrics: Metrics
    """Plain values, as returned by `metric_values.clean`."""
    time: float
    """Time of the call in seconds since the epoch."""
    part: CheckpointPart | None = None
    """Checkpoint part that is in place already."""
    uploading: bool = False
    """True if the part follows in an `Uploaded`."""
    states: bytes | None = None
    """Result of `Readers.capture` on a rank that reports no files. It is stored with the checkpoint
    if other ranks report files.
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
    """Number of this rank's call, from 0."""
    data: bytes | None
    """Pickled data of rank 0; None on other ranks."""


@dataclass(frozen=True, kw_only=True)
class CheckpointsRequested:
    """This rank requests the list of registered checkpoints."""

    request: int
    """Number of the request, from 0."""
    validated: bool
    """Delay the answer until every requested validation has ended."""
    complete: bool = True
    """Delay the answer until the other ranks have made the reports of this rank."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The training function has returned and every upload is done. Last message of a stream."""

    return_value: bytes | None
    """Pickled return value of rank 0; None on other ranks."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The training function or an upload has raised. Last message of a stream."""

    exception: bytes
    """Exception packed by `core.error_frames.pack_error`. It is unpacked as itself, or as a
    substitute of the same name if its class cannot be imported.
    """
    traceback: str
    """User's frames on the worker, as text."""


@dataclass(frozen=True, kw_only=True)
class Stalled:
    """This rank has spent a long time in one collective operation."""

    seconds: float
    """Time in the operation so far; 0 if the operation has ended."""
    warns: bool = False
    """True if it is time for a warning; before that, the stall is only recorded."""
    over_limit: bool = False
    """True if the limit is reached, so that the attempt fails."""


@dataclass(frozen=True, kw_only=True)
class Debugging:
    """This rank waits in the debugger, or no longer. Other ranks may wait for it without limit."""

    active: bool


@dataclass(frozen=True, kw_only=True)
class Terminating:
    """This rank's process received SIGTERM. It continues until it is killed."""

    node_id: str
    deadline_ms: int
    """Expected time of the kill in milliseconds since the epoch."""
    seconds_left: float
    """Seconds until the expected kill."""


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Time that a rank has spent since its training function began, in seconds."""

    total_s: float = 0.0
    """Total time."""
    data_s: float = 0.0
    """Waiting for batches of datasets and prepared data loaders."""
    report_s: float = 0.0
    """In `report`, `get_checkpoint`, `collective` and similar functions."""
    communication_s: float = 0.0
    """In collective operations, except the part that overlaps with computation."""


@dataclass(frozen=True, kw_only=True)
class UsageReported:
    """Step times of this rank and resource usage of its process. Only recorded."""

    times: StepTimes
    usage: Mapping[str, object]
    """Sample of `runs.usage.Sampler`."""


@dataclass(frozen=True, kw_only=True)
class BadInputs:
    """The last batch of this rank before a report had a value that is not finite."""

    report: int
    """Number of the report."""


@dataclass(frozen=True, kw_only=True)
class CopyReady:
    """This rank can copy its next memory snapshot to another node."""

    copied_step: int | None
    """Step of the last copy; None before the first order, or if the rank had passed its step."""
    newest_step: int
    """Step of its newest snapshot."""


@dataclass(frozen=True, kw_only=True)
class SnapshotsRefused:
    """The program cannot continue from memory snapshots, such as those of another model."""

    last: SnapshotId
    """The last of them."""


StateMessage = (
    Reported
    | Uploaded
    | BarrierReached
    | CheckpointsRequested
    | Finished
    | Failed
    | Debugging
    | Stalled
    | Terminating
)
"""Messages that the state machine handles."""
WorkerMessage = (
    StateMessage | UsageReported | RankObserved | BadInputs | CopyReady | SnapshotsRefused
)

MetricsReported = tuple[int, Metrics, float, bytes | None]
"""Wire form of a `Reported` without a checkpoint: (index, metrics, time, states). Training may send
one in every step, and a dataclass takes ten times as long to create and to pickle.
"""
StreamItem = WorkerMessage | MetricsReported
"""Item of a worker's message stream."""


def as_message(item: StreamItem) -> WorkerMessage:
    """Return a stream item as a message."""
    if not isinstance(item, tuple):
        return item
    index, metrics, time, states = item
    return Reported(index=index, metrics=metrics, time=time, states=states)


# -- controller -> worker


@dataclass(frozen=True, kw_only=True)
class Committed:
    """Checkpoints up to the report `index` are registered."""

    index: int
    checkpoint: Checkpoint


@dataclass(frozen=True, kw_only=True)
class BarrierReleased:
    """Every rank has reached the barrier."""

    sequence: int
    data: bytes | None
    """Data of rank 0; None if rank 0 ended before in a preemption."""


@dataclass(frozen=True, kw_only=True)
class Consumed:
    """The controller has read the first `batches` batches of this worker's stream, so the worker
    may send more.
    """

    batches: int


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """Answer to a `CheckpointsRequested`."""

    request: int
    checkpoints: tuple[ReportedCheckpoint, ...]


@dataclass(frozen=True, kw_only=True)
class PreemptionNoticed:
    """Nodes or processes of the run are about to be preempted."""

    info: PreemptionInfo


@dataclass(frozen=True, kw_only=True)
class CopySnapshot:
    """Copy the first memory snapshot at or after a step to another node."""

    from_step: int
    kept_step: int | None
    """Step of the last snapshot that all ranks have copied; None for none."""


ControllerMessage = (
    Committed | BarrierReleased | Consumed | Checkpoints | PreemptionNoticed | CopySnapshot
)
