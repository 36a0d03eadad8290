"""Data of the state machine: one attempt with its barriers, failures and preemption, and the
failure budgets of the run.

Pure: no clock and no I/O. An attempt is the life of one worker group. `ReportCollector` and
`CollectiveBarrier` are the two barriers of its ranks: reports of equal number, and calls of
`collective`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from syncline.runs.outliers import NO_ANSWER, hanging_ranks, mismatch_text, ranks_text, stacks_text
from syncline.runs.verdicts import STALLS, Cause, Verdict
from syncline.train.config import FailureConfig
from syncline.train.errors import (
    NCCLHangError,
    PreemptionError,
    PreemptionInfo,
    TrainingFailedError,
    WorkerGroupError,
    worker_failure_message,
)
from syncline.train.metric_values import Metrics
from syncline.train.workers.messages import (
    CheckpointPart,
    CheckpointsRequested,
    Finished,
    Reported,
    Stalled,
    Uploaded,
)

REPORT_TIMER = "report"
COLLECTIVE_TIMER = "collective"
HANG = "hang"

FailureKind = Literal["worker", "preemption", "controller"]

EXPLAIN_ERRORS = STALLS | {Cause.NOT_A_NUMBER}
"""Causes of which the error of a failed attempt tells."""
FUTILE_CONTROLLER_FAILURES = 3
"""Consecutive controller failures without a report in between that end the run regardless of its
limit, since nothing has changed.
"""


@dataclass(frozen=True, kw_only=True)
class CompleteReport:
    """Reports of all ranks that have the same number."""

    index: int
    metrics: tuple[Metrics | None, ...]
    """Metrics by rank; None for a rank that was too far behind (never with a checkpoint)."""
    parts: tuple[CheckpointPart, ...]
    """Checkpoint parts in rank order, of the ranks that reported files; empty for metrics only."""
    states: Mapping[int, bytes] = field(default_factory=dict)
    """`Reported.states` by rank, of ranks that reported no files while others did."""


@dataclass(kw_only=True)
class _OpenReport:
    """A report that at least one rank has made."""

    arrived: int = 0
    metrics: dict[int, Metrics] = field(default_factory=dict)
    parts: dict[int, CheckpointPart] = field(default_factory=dict)
    uploading: set[int] = field(default_factory=set)
    states: dict[int, bytes] = field(default_factory=dict)

    @property
    def has_checkpoint(self) -> bool:
        return bool(self.parts or self.uploading)


class ReportCollector:
    """Collects the ranks' reports by number and returns them in order once all ranks have reported.

    At most `max_open` reports without a checkpoint are held, so a rank may run ahead with its
    metrics without limit. The cost of a message does not depend on the number of ranks.
    """

    def __init__(self, *, world_size: int, first_index: int, max_open: int = 4096) -> None:
        self._world_size = world_size
        self._max_open = max_open
        self._next = [first_index] * world_size
        self._excluded: set[int] = set()
        self._open: OrderedDict[int, _OpenReport] = OrderedDict()  # in ascending order
        self._checkpoints: set[int] = set()  # open reports that have files
        self._dropped_below = first_index

    def reporters(self, index: int) -> tuple[int, ...]:
        """Return the ranks that have made this report."""
        return tuple(rank for rank, position in enumerate(self._next) if position > index)

    def missing(self, index: int) -> tuple[int, ...]:
        """Return the ranks that still have to make this report."""
        return tuple(
            rank
            for rank, position in enumerate(self._next)
            if position <= index and rank not in self._excluded
        )

    def reported(self, rank: int, message: Reported) -> list[CompleteReport]:
        """Add a rank's next report; return the reports that are complete now."""
        assert message.index == self._next[rank], (
            f"rank {rank} made report {message.index}, expected {self._next[rank]}"
        )
        self._next[rank] += 1
        entry = self._open.get(message.index) or self._opened(message)
        if entry is None:
            return []
        entry.arrived += 1
        entry.metrics[rank] = message.metrics
        if message.part is not None:
            entry.parts[rank] = message.part
        if message.uploading:
            entry.uploading.add(rank)
        if message.states is not None:
            entry.states[rank] = message.states
        if entry.has_checkpoint:
            self._checkpoints.add(message.index)
        elif entry.arrived == self._world_size:
            entry.states.clear()
        return self._complete()

    def uploaded(self, rank: int, message: Uploaded) -> list[CompleteReport]:
        """Add the part of an earlier report; return the reports that are complete now."""
        entry = self._open[message.index]
        entry.uploading.discard(rank)
        entry.parts[rank] = message.part
        return self._complete()

    def exclude(self, rank: int) -> list[CompleteReport]:
        """Stop waiting for a rank that has ended; return the reports that are complete now."""
        self._excluded.add(rank)
        return self._complete()

    def oldest_incomplete(self) -> int | None:
        """Return the number of the oldest checkpoint that is `missing` ranks."""
        index = self._oldest_checkpoint
        return None if index is None or self._has_all(index) else index

    def is_behind(self, rank: int, ended: Collection[int]) -> bool:
        """Return True if a report of this rank is incomplete, unless it is for want of ranks that
        have ended.
        """
        for index, entry in self._open.items():
            if index >= self._next[rank]:
                return False
            if entry.uploading or not set(self.missing(index)) <= set(ended):
                return True
        return False

    def uploading(self) -> frozenset[int]:
        """Return the ranks that upload the oldest checkpoint, if every rank has reported it."""
        index = self._oldest_checkpoint
        if index is None or not self._has_all(index):
            return frozenset()
        return frozenset(self._open[index].uploading)

    def flush(self) -> list[CompleteReport]:
        """Return the remaining reports without a checkpoint, at the end of the attempt."""
        rest = [
            self._pop(index) for index in list(self._open) if not self._open[index].has_checkpoint
        ]
        self._open.clear()
        return rest

    @property
    def _oldest_checkpoint(self) -> int | None:
        return min(self._checkpoints, default=None)

    def _opened(self, message: Reported) -> _OpenReport | None:
        """Add an entry for a report; None for metrics of a report that was returned incomplete."""
        entry = _OpenReport()
        if message.index >= self._dropped_below:
            self._open[message.index] = entry
            return entry
        if message.part is None and not message.uploading:
            return None
        # The ranks ahead have passed this checkpoint of a rank far behind: insert it in order.
        entry.arrived = len(self.reporters(message.index)) - 1
        self._open = OrderedDict(sorted([*self._open.items(), (message.index, entry)]))
        return entry

    def _has_all(self, index: int) -> bool:
        excluded = sum(self._next[rank] <= index for rank in self._excluded)
        return self._open[index].arrived + excluded >= self._world_size

    def _complete(self) -> list[CompleteReport]:
        complete: list[CompleteReport] = []
        while self._open:
            index = next(iter(self._open))
            if self._open[index].uploading or not self._has_all(index):
                break
            complete.append(self._pop(index))
        if len(self._open) > self._max_open:
            oldest = next(
                (index for index, entry in self._open.items() if not entry.has_checkpoint), None
            )
            if oldest is not None:
                self._dropped_below = oldest + 1
                complete.append(self._pop(oldest))
        return complete

    def _pop(self, index: int) -> CompleteReport:
        entry = self._open.pop(index)
        self._checkpoints.discard(index)
        return CompleteReport(
            index=index,
            metrics=tuple(entry.metrics.get(rank) for rank in range(self._world_size)),
            parts=tuple(entry.parts[rank] for rank in sorted(entry.parts)),
            states=entry.states if entry.parts else {},
        )


class CollectiveBarrier:
    """Barrier of `collective`: releases all ranks together and carries the data of rank 0."""

    def __init__(self, *, world_size: int) -> None:
        self._world_size = world_size
        self._waiting: set[int] = set()
        self._excluded: set[int] = set()
        self._sequence = 0
        self._data: bytes | None = None

    @property
    def sequence(self) -> int:
        """Number of the current barrier call."""
        return self._sequence

    @property
    def has_waiting(self) -> bool:
        """True if a rank has reached the barrier."""
        return bool(self._waiting)

    @property
    def waiting(self) -> frozenset[int]:
        """Ranks that have reached the barrier."""
        return frozenset(self._waiting)

    @property
    def missing(self) -> tuple[int, ...]:
        """Ranks that the waiting ranks wait for; empty if no rank waits."""
        if not self._waiting:
            return ()
        return tuple(
            rank
            for rank in range(self._world_size)
            if rank not in self._waiting and rank not in self._excluded
        )

    def exclude(self, rank: int) -> bool:
        """Stop waiting for a rank that has ended; return True if `release` is due."""
        self._excluded.add(rank)
        return bool(self._waiting) and self._is_complete

    def reached(self, rank: int, sequence: int, data: bytes | None) -> bool:
        """Add a rank that waits; return True if it was the last one and `release` is due."""
        assert sequence == self._sequence, (
            f"rank {rank} is at barrier {sequence}, the others at {self._sequence}"
        )
        self._waiting.add(rank)
        if rank == 0:
            self._data = data
        return self._is_complete

    def release(self) -> tuple[int, bytes | None]:
        """Close the current barrier; return its number and the data of rank 0."""
        closed = (self._sequence, self._data)
        self._sequence += 1
        self._waiting.clear()
        self._data = None
        return closed

    @property
    def _is_complete(self) -> bool:
        return len(self._waiting) + len(self._excluded - self._waiting) == self._world_size


@dataclass(frozen=True, kw_only=True)
class WorkerFailure:
    """Failure of one rank."""

    exception: BaseException
    """The user's exception, or the engine's if the process died."""
    traceback: str | None = None
    """Traceback on the worker; None if the process died."""
    died: bool = False
    """True if the process died. Its death explains errors of ranks that communicated with it."""


class Preemption:
    """Nodes that are about to be preempted, as known so far."""

    def __init__(self) -> None:
        self.nodes: dict[str, set[int]] = {}
        self.deadline_ms: int | None = None
        self.seconds_left: float = float("inf")
        self.timed_out = False

    @property
    def info(self) -> PreemptionInfo:
        return PreemptionInfo(
            self.deadline_ms, {node: sorted(ranks) for node, ranks in self.nodes.items()}
        )

    def update(
        self, nodes: Mapping[str, Collection[int]], deadline_ms: int | None, seconds_left: float
    ) -> bool:
        """Add nodes and keep the earliest deadline; return True if anything changed."""
        before = self.info
        for node, ranks in nodes.items():
            self.nodes.setdefault(node, set()).update(ranks)
        if seconds_left < self.seconds_left:
            self.seconds_left, self.deadline_ms = seconds_left, deadline_ms
        return self.info != before


class Attempt:
    """State of one worker group."""

    def __init__(self, *, number: int, world_size: int, first_index: int) -> None:
        self.number = number
        self.world_size = world_size
        self.collector = ReportCollector(world_size=world_size, first_index=first_index)
        self.collective = CollectiveBarrier(world_size=world_size)
        self.finished: dict[int, Finished] = {}
        self.failures: dict[int, WorkerFailure] = {}
        self.closed_streams: set[int] = set()
        self.is_draining = False
        self.awaits_uploads = False  # after a failure, of a checkpoint that every rank reported
        self.timed_report: int | None = None  # number of the report that the timer runs for
        self.stack_request: str | None = None  # REPORT_TIMER, COLLECTIVE_TIMER or HANG
        self.stalled: dict[int, Stalled] = {}
        self.debugging: set[int] = set()  # ranks that wait in the debugger
        # Of ranks whose reports are incomplete.
        self.requests: list[tuple[int, CheckpointsRequested]] = []
        self.verdict: Verdict | None = None  # the latest one that holds
        self.has_warned = False  # of the stalled ranks
        self.hangs = False  # a stalled rank is over its limit
        self.preemption: Preemption | None = None
        self.ended: set[int] = set()  # in a preemption: ranks whose training function has ended
        self.target_size: int | None = None  # number of workers to resize to

    @property
    def all_streams_closed(self) -> bool:
        """True if no rank may send messages."""
        return len(self.closed_streams) == self.world_size

    @property
    def open_streams(self) -> tuple[int, ...]:
        """Ranks that may still send messages."""
        return tuple(rank for rank in range(self.world_size) if rank not in self.closed_streams)

    @property
    def is_completable(self) -> bool:
        """True if no failed rank still has to report or upload the oldest open checkpoint."""
        index = self.collector.oldest_incomplete()
        awaited = self.collector.uploading() if index is None else self.collector.missing(index)
        return bool(awaited) and not self.failures.keys() & set(awaited)

    def missing(self, timer: str) -> tuple[int, ...]:
        """Return the ranks that a barrier waits for."""
        if timer == COLLECTIVE_TIMER:
            return self.collective.missing
        index = self.collector.oldest_incomplete()
        return self.collector.missing(index) if index is not None else ()

    def errors_of_returned_ranks(self) -> dict[int, Exception]:
        """Return an error for each rank that returned although other ranks wait for it."""
        index = self.collector.oldest_incomplete()
        if index is not None:
            missing = [rank for rank in self.collector.missing(index) if rank in self.finished]
            if missing:
                waiting = ranks_text(self.collector.reporters(index))
                return {
                    rank: RuntimeError(
                        f"Rank {rank} returned from its training function without report number "
                        f"{index}, with which {waiting} reported a checkpoint, so this checkpoint "
                        "cannot become complete. Call `report` equally often on every rank."
                    )
                    for rank in missing
                }
        return {
            rank: RuntimeError(
                f"Rank {rank} returned from its training function while "
                f"{ranks_text(self.collective.waiting)} waited for it in "
                f"`syncline.train.collective` (call number {self.collective.sequence}). "
                "Make the same calls on every rank."
            )
            for rank in self.collective.missing
            if rank in self.finished
        }

    def timeout_errors(
        self, timer: str, limit_s: float, stacks: Mapping[int, str]
    ) -> dict[int, Exception]:
        """Return an error with the current stack for each rank that a barrier waits for."""
        barrier = (
            f"report number {self.timed_report}, with which other ranks reported a checkpoint,"
            if timer == REPORT_TIMER
            else f"call number {self.collective.sequence} of `syncline.train.collective`"
        )
        return {
            rank: TimeoutError(
                f"Rank {rank} did not reach {barrier} within {limit_s:g} s. Make the same calls on "
                "every rank, or raise the limit with SYNCLINE_TRAIN_COLLECTIVE_TIMEOUT_S. Current "
                f"stack of the rank:\n{stacks.get(rank, NO_ANSWER)}"
            )
            for rank in self.missing(timer)
        }

    def hang_warning(self, stacks: Mapping[int, str]) -> str:
        """Return a warning about stalled ranks with the stacks of all ranks."""
        text = stacks_text(stacks, self.world_size, self._hanging(stacks))
        found = mismatch_text(stacks) + self._verdict_text()
        return f"{self._stall()} so far.{found} Stacks of all ranks:\n{text}"

    def hang_errors(self, stacks: Mapping[int, str]) -> dict[int, Exception]:
        """Return an error for each rank that the stalled ranks seem to wait for."""
        ranks = self._hanging(stacks)
        found = mismatch_text(stacks) + self._verdict_text()
        error: Exception = TimeoutError(
            f"{self._stall()} that does not end.{found} Make the same calls in the "
            "same order on every rank. If a rank needs this much time between two calls, raise "
            "`TorchConfig(timeout_s=…)` and SYNCLINE_TRAIN_COLLECTIVE_TIMEOUT_S. Stacks of all "
            f"ranks:\n{stacks_text(stacks, self.world_size, ranks)}"
        )
        return dict.fromkeys(ranks, error)

    def error(self, *, program_terminated: bool, outcome: str = "") -> TrainingFailedError:
        """Return the error of this failed attempt; if a process died, with the `outcome`."""
        exceptions = {rank: failure.exception for rank, failure in self.failures.items()}
        tracebacks = {
            rank: failure.traceback for rank, failure in self.failures.items() if failure.traceback
        }
        kind = NCCLHangError if self.hangs else WorkerGroupError
        message = worker_failure_message(exceptions, tracebacks)
        if self.verdict is not None and self.verdict.cause in EXPLAIN_ERRORS:
            message += f"\n{self.verdict.text}"
        if outcome and any(failure.died for failure in self.failures.values()):
            message += f"\n{outcome}"
        failed = kind(message, exceptions)
        if self.preemption is None and not program_terminated:
            return failed
        preemption = self.preemption or Preemption()
        preempted = PreemptionError(preemption.info, preemption.timed_out, program_terminated)
        if self.failures:  # ranks may have failed while they saved a checkpoint
            preempted.__cause__ = failed
        return preempted

    def _verdict_text(self) -> str:
        verdict = self.verdict
        return f" {verdict.text}" if verdict is not None and verdict.cause in STALLS else ""

    def _hanging(self, stacks: Mapping[int, str]) -> tuple[int, ...]:
        if self.verdict is not None and self.verdict.cause in STALLS:
            return self.verdict.ranks
        return hanging_ranks(stacks, self.world_size, self.stalled)

    def _stall(self) -> str:
        text = ranks_text(self.stalled)
        seconds = max(message.seconds for message in self.stalled.values())
        return f"{text[0].upper()}{text[1:]} waited {seconds:.0f} s in a collective operation"


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Outcome of charging a failed attempt to its budget."""

    retry: bool
    count: int
    """Failures of this kind so far."""
    limit: int
    """Number of failures that are retried; -1 for no limit."""

    @property
    def outcome(self) -> str:
        """Explanation for users if the run ends after failures of workers."""
        failures = "failure" if self.count == 1 else "failures"
        return (
            f"The run has ended after {self.count} {failures}, since "
            f"`FailureConfig(max_failures={self.limit})` allows {self.limit or 'no'} "
            f"restart{'s' if self.limit > 1 else ''}. Raise it to restart automatically, or run "
            "again with the same name; both continue from the last checkpoint."
        )


class FailureBudgets:
    """Counts failed attempts by kind, each against its own limit. Retry while count <= limit."""

    def __init__(self, config: FailureConfig) -> None:
        self._limits: dict[FailureKind, int] = {
            "worker": config.max_failures,
            "preemption": config.max_preemption_failures,
            "controller": config.controller_failure_limit,
        }
        self._counts: dict[FailureKind, int] = dict.fromkeys(self._limits, 0)
        self._futile = 0

    def progressed(self) -> None:
        """Record that a report has arrived."""
        self._futile = 0

    def charge(self, kind: FailureKind) -> Decision:
        """Count one failed attempt and decide whether another follows."""
        self._counts[kind] += 1
        self._futile = self._futile + 1 if kind == "controller" else 0
        count, limit = self._counts[kind], self._limits[kind]
        allowed = limit < 0 or count <= limit
        return Decision(
            retry=allowed and self._futile < FUTILE_CONTROLLER_FAILURES, count=count, limit=limit
        )
