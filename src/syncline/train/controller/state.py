"""The controller as a pure state machine: `handle(event) -> [instructions]`. No clock, no I/O, no threads.

    INITIALIZING -> SCHEDULING -> STARTING -> RUNNING -> FINISHING -> FINISHED
                        ^             |          |           |
                        |             |          v           |
                        |             |       DRAINING       |        survivors hand over what they have said
                        |             v          v           |
                        +-------- RESTARTING <---+           |        the old group ends
                                      |                      |
                                      +-----> ERRORED <------+        and from every state that is no end: ABORTED

Events of attempts that are over are ignored, so stragglers do no harm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from syncline.core.error_frames import unpack_error
from syncline.train.controller.barriers import CollectiveBarrier, CompleteReport, ReportGathering
from syncline.train.controller.events import (
    AnswerCheckpoints,
    AskStacks,
    Begin,
    CancelTimer,
    CompleteRound,
    ControllerFailed,
    DrainValidations,
    End,
    Event,
    GroupStarted,
    GroupStopped,
    HushWorkers,
    Instruction,
    Interrupted,
    LaunchTraining,
    NotifyFailure,
    NotifyRestart,
    RecordReport,
    Reserve,
    Reserved,
    Said,
    Send,
    SetTimer,
    StacksTaken,
    StartFailed,
    StartGroup,
    StopGroup,
    StreamEnded,
    TimerFired,
    ValidationsEnded,
    WorkerFailure,
)
from syncline.train.controller.policy import Decision, FailureBudgets, FailureKind
from syncline.train.errors import ControllerError, TrainingFailedError, WorkerGroupError, worker_failure_message
from syncline.train.workers.messages import (
    BarrierReached,
    BarrierReleased,
    CheckpointsAsked,
    Finished,
    Reported,
    Uploaded,
)


class State(Enum):
    """Where the run is."""

    INITIALIZING = "initializing"
    SCHEDULING = "scheduling"
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    RESTARTING = "restarting"
    FINISHING = "finishing"
    FINISHED = "finished"
    ERRORED = "errored"
    ABORTED = "aborted"

    @property
    def is_end(self) -> bool:
        """Nothing follows."""
        return not TRANSITIONS[self]


TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.INITIALIZING: frozenset({State.SCHEDULING, State.ERRORED, State.ABORTED}),
    State.SCHEDULING: frozenset({State.STARTING, State.RESTARTING, State.ERRORED, State.ABORTED}),
    State.STARTING: frozenset({State.RUNNING, State.RESTARTING, State.ERRORED, State.ABORTED}),
    State.RUNNING: frozenset({State.DRAINING, State.FINISHING, State.RESTARTING, State.ERRORED, State.ABORTED}),
    State.DRAINING: frozenset({State.RESTARTING, State.ERRORED, State.ABORTED}),
    State.RESTARTING: frozenset({State.SCHEDULING, State.ERRORED, State.ABORTED}),
    State.FINISHING: frozenset({State.FINISHED, State.ERRORED, State.ABORTED}),
    State.FINISHED: frozenset(),
    State.ERRORED: frozenset(),
    State.ABORTED: frozenset(),
}

REPORT_TIMER = "report"
COLLECTIVE_TIMER = "collective"
GRACE_TIMER = "grace"
DRAIN_TIMER = "drain"


class InvalidTransition(RuntimeError):
    """The machine was about to go where the table does not lead; carries what happened before."""

    def __init__(self, state: State, target: State, history: Sequence[str]) -> None:
        story = "\n".join(f"  {line}" for line in history)
        super().__init__(f"the controller cannot go from {state.value} to {target.value}; what happened before:\n{story}")
        self.state = state
        self.target = target
        self.history = tuple(history)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long the controller waits for what."""

    report_s: float
    """For the other ranks' reports once one rank has reported a checkpoint."""
    collective_s: float
    """For the other ranks once one rank waits in `collective`."""
    grace_s: float = 0.5
    """After a failure, for the reports that complete a checkpoint which the failed ranks have reported."""
    drain_s: float = 0.5
    """After a failure, for the survivors to hand over what they have said."""


class _Attempt:
    """What is known of one worker group."""

    def __init__(self, *, number: int, world_size: int, first_index: int) -> None:
        self.number = number
        self.world_size = world_size
        self.gathering = ReportGathering(world_size=world_size, first_index=first_index)
        self.collective = CollectiveBarrier(world_size=world_size)
        self.finished: dict[int, Finished] = {}
        self.failures: dict[int, WorkerFailure] = {}
        self.silent: set[int] = set()
        self.hushed = False
        self.timed_report: int | None = None
        self.overdue: str | None = None  # which timer ran out, while stacks are being taken

    @property
    def talking(self) -> tuple[int, ...]:
        return tuple(rank for rank in range(self.world_size) if rank not in self.silent)


class TrainStateMachine:
    """The life of one run, from `fit()` to its end."""

    def __init__(self, *, budgets: FailureBudgets, limits: Limits) -> None:
        self._budgets = budgets
        self._limits = limits
        self._state = State.INITIALIZING
        self._attempt_number = 0
        self._attempt: _Attempt | None = None
        self._next_index = 0
        self._kind: FailureKind = "worker"
        self._controller_error: ControllerFailed | None = None
        self._group_stopped = False
        self._node_died = False
        self._validations_ended = False
        self._history: deque[str] = deque(maxlen=50)
        self._handlers: dict[type, Callable[[Any], list[Instruction]]] = {
            Begin: self._begin,
            Reserved: self._reserved,
            GroupStarted: self._group_started,
            StartFailed: self._start_failed,
            Said: self._said,
            StreamEnded: self._stream_ended,
            StacksTaken: self._stacks_taken,
            GroupStopped: self._stopped,
            ValidationsEnded: self._validations_have_ended,
            TimerFired: self._timer_fired,
            ControllerFailed: self._controller_failed,
            Interrupted: self._interrupted,
        }

    @property
    def state(self) -> State:
        """Where the run is."""
        return self._state

    @property
    def history(self) -> tuple[str, ...]:
        """The last state changes with what caused them."""
        return tuple(self._history)

    def handle(self, event: Event) -> list[Instruction]:
        """What to do now that `event` has happened, in order."""
        if self._state.is_end:
            return []
        number = getattr(event, "attempt", None)
        if number is not None and (self._attempt is None or number != self._attempt.number):
            return []
        return self._handlers[type(event)](event)

    # -- the way up

    def _begin(self, event: Begin) -> list[Instruction]:
        self._next_index = event.next_index
        self._go(State.SCHEDULING, "fit() was called")
        return [Reserve()]

    def _reserved(self, event: Reserved) -> list[Instruction]:
        self._attempt_number += 1
        self._attempt = _Attempt(number=self._attempt_number, world_size=event.world_size, first_index=self._next_index)
        self._go(State.STARTING, f"resources for {event.world_size} workers are held")
        return [StartGroup(attempt=self._attempt_number, world_size=event.world_size, first_index=self._next_index)]

    def _group_started(self, event: GroupStarted) -> list[Instruction]:
        self._go(State.RUNNING, f"attempt {event.attempt} has started")
        return [LaunchTraining(attempt=event.attempt)]

    def _start_failed(self, event: StartFailed) -> list[Instruction]:
        if event.node_died:
            # The failure that this node's end is has been counted already, where its workers ran; and each node can die only once.
            self._node_died = True
            self._go(State.RESTARTING, "a node died while the worker group started")
            return [StopGroup(attempt=event.attempt, graceful=False)]
        self._current.failures.update(event.failures)
        return self._give_up_attempt("the worker group did not start")

    # -- what workers say

    def _said(self, event: Said) -> list[Instruction]:
        attempt, rank, message = self._current, event.rank, event.message
        if isinstance(message, Reported):
            self._budgets.progressed()
            self._next_index = max(self._next_index, message.index + 1)
            instructions: list[Instruction] = [RecordReport(rank=rank, report=message)]
            return instructions + self._rounds(attempt.gathering.reported(rank, message))
        if isinstance(message, Uploaded):
            return self._rounds(attempt.gathering.uploaded(rank, message))
        if isinstance(message, BarrierReached):
            return self._at_barrier(rank, message)
        if isinstance(message, CheckpointsAsked):
            return [AnswerCheckpoints(rank=rank, request=message.request, validated=message.validated)]
        if isinstance(message, Finished):
            attempt.finished[rank] = message
            return self._uneven() or self._finish_if_all_have()
        return self._rank_failed(rank, WorkerFailure(exception=unpack_error(message.exception), traceback=message.traceback))

    def _rounds(self, complete: list[CompleteReport]) -> list[Instruction]:
        """Rounds to complete, then what the reports still outstanding ask for."""
        instructions: list[Instruction] = [CompleteRound(report=report) for report in complete]
        if self._state is State.DRAINING:
            return instructions + self._hush_if_complete()
        if self._state is not State.RUNNING:
            return instructions
        attempt = self._current
        waiting = attempt.gathering.waits_for()
        if waiting is None and attempt.timed_report is not None:
            attempt.timed_report = None
            instructions.append(CancelTimer(name=REPORT_TIMER))
        elif waiting is not None and waiting[0] != attempt.timed_report:
            attempt.timed_report = waiting[0]
            instructions.append(SetTimer(name=REPORT_TIMER, seconds=self._limits.report_s))
        return instructions + self._uneven()

    def _at_barrier(self, rank: int, message: BarrierReached) -> list[Instruction]:
        barrier = self._current.collective
        first = not barrier.waiting
        if barrier.reached(rank, message.sequence, message.data):
            sequence, data = barrier.take()
            return [CancelTimer(name=COLLECTIVE_TIMER), Send(rank=None, message=BarrierReleased(sequence=sequence, data=data))]
        if self._state is not State.RUNNING:
            return []
        timer: list[Instruction] = [SetTimer(name=COLLECTIVE_TIMER, seconds=self._limits.collective_s)] if first else []
        return timer + self._uneven()

    def _uneven(self) -> list[Instruction]:
        """Fail where ranks wait for one whose training function has returned already."""
        attempt = self._current
        if self._state is not State.RUNNING or not attempt.finished:
            return []
        in_vain = attempt.gathering.waits_in_vain_for(attempt.finished)
        if in_vain is not None:
            index, ranks = in_vain
            there = [rank for rank, position in enumerate(attempt.gathering.next_indices) if position > index]
            return self._ranks_failed(
                {
                    rank: RuntimeError(
                        f"rank {rank} returned from its training function without the report number {index}, with which "
                        f"{_ranks(there)} reported a checkpoint, so that checkpoint can never be complete: "
                        "make the same number of calls of `report` on every rank."
                    )
                    for rank in ranks
                }
            )
        gone = [rank for rank in attempt.collective.missing if rank in attempt.finished]
        return self._ranks_failed(
            {
                rank: RuntimeError(
                    f"rank {rank} returned from its training function while {_ranks(sorted(attempt.collective.waiting))} waited for it in "
                    f"`syncline.train.collective` (call number {attempt.collective.sequence}): call it equally often on every rank."
                )
                for rank in gone
            }
        )

    def _finish_if_all_have(self) -> list[Instruction]:
        attempt = self._current
        if self._state is not State.RUNNING or len(attempt.finished) < attempt.world_size:
            return []
        self._go(State.FINISHING, "every training function has returned")
        rounds: list[Instruction] = [CompleteRound(report=report) for report in attempt.gathering.rest()]
        return [*rounds, CancelTimer(name=REPORT_TIMER), StopGroup(attempt=attempt.number, graceful=True), DrainValidations()]

    # -- ranks that fail, and ranks that wait for too long

    def _stream_ended(self, event: StreamEnded) -> list[Instruction]:
        attempt, rank = self._current, event.rank
        if rank in attempt.silent:
            return []
        attempt.silent.add(rank)
        if self._state is State.RUNNING and rank not in attempt.finished:
            failure = event.failure or WorkerFailure(exception=RuntimeError(f"rank {rank} went silent without a result"), died=True)
            return self._rank_failed(rank, failure)
        if self._state is State.DRAINING:
            if event.failure is not None and rank not in attempt.finished:
                attempt.failures[rank] = event.failure
            return self._after_drain() if not attempt.talking else []
        return []

    def _rank_failed(self, rank: int, failure: WorkerFailure) -> list[Instruction]:
        attempt = self._current
        attempt.failures.setdefault(rank, failure)
        if self._state is not State.RUNNING:
            return []
        self._go(State.DRAINING, f"rank {rank} failed: {type(failure.exception).__name__}")
        cancelled: list[Instruction] = [CancelTimer(name=REPORT_TIMER), CancelTimer(name=COLLECTIVE_TIMER)]
        if self._completable():
            return [*cancelled, SetTimer(name=GRACE_TIMER, seconds=self._limits.grace_s)]
        return cancelled + self._hush()

    def _ranks_failed(self, errors: Mapping[int, Exception]) -> list[Instruction]:
        if not errors:
            return []
        self._current.failures.update({rank: WorkerFailure(exception=error) for rank, error in errors.items()})
        first = next(iter(errors))
        return self._rank_failed(first, self._current.failures[first])

    def _completable(self) -> bool:
        """A checkpoint waits, but for no rank that has failed: the living can complete it."""
        waiting = self._current.gathering.waits_for()
        return waiting is not None and not set(waiting[1]) & self._current.failures.keys()

    def _hush_if_complete(self) -> list[Instruction]:
        return [] if self._current.hushed or self._completable() else [CancelTimer(name=GRACE_TIMER), *self._hush()]

    def _hush(self) -> list[Instruction]:
        attempt = self._current
        attempt.hushed = True
        if not attempt.talking:
            return self._after_drain()
        return [HushWorkers(ranks=attempt.talking), SetTimer(name=DRAIN_TIMER, seconds=self._limits.drain_s)]

    def _timer_fired(self, event: TimerFired) -> list[Instruction]:
        if self._state is State.DRAINING:
            if event.name == GRACE_TIMER:
                return [] if self._current.hushed else self._hush()
            return self._after_drain() if event.name == DRAIN_TIMER else []
        if self._state is not State.RUNNING or event.name not in (REPORT_TIMER, COLLECTIVE_TIMER):
            return []
        missing = self._missing(event.name)
        if not missing:
            return []
        self._current.overdue = event.name
        return [AskStacks(ranks=missing)]

    def _missing(self, timer: str) -> tuple[int, ...]:
        if timer == COLLECTIVE_TIMER:
            return self._current.collective.missing
        waiting = self._current.gathering.waits_for()
        return waiting[1] if waiting is not None else ()

    def _stacks_taken(self, event: StacksTaken) -> list[Instruction]:
        attempt = self._current
        timer, attempt.overdue = attempt.overdue, None
        if self._state is not State.RUNNING or timer is None:
            return []
        missing = self._missing(timer)
        if timer == REPORT_TIMER:
            place, limit = f"report number {attempt.timed_report}, with which other ranks reported a checkpoint,", self._limits.report_s
        else:
            place, limit = f"call number {attempt.collective.sequence} of `syncline.train.collective`", self._limits.collective_s
        return self._ranks_failed(
            {
                rank: TimeoutError(
                    f"rank {rank} has not come to {place} within {limit:g} s, so the others waited in vain: make the same calls on every "
                    "rank, or raise the limit with SYNCLINE_TRAIN_COLLECTIVE_TIMEOUT_S. Where it is now:\n"
                    f"{event.stacks.get(rank, '(it does not answer)')}"
                )
                for rank in missing
            }
        )

    # -- the way down

    def _after_drain(self) -> list[Instruction]:
        return [CancelTimer(name=GRACE_TIMER), CancelTimer(name=DRAIN_TIMER), *self._give_up_attempt("workers failed")]

    def _give_up_attempt(self, cause: str) -> list[Instruction]:
        self._kind = "worker"
        self._go(State.RESTARTING, cause)
        attempt = self._current
        # A death explains the errors of those that talked to the dead, and may become known after them.
        attempt.failures = dict(sorted(attempt.failures.items(), key=lambda item: not item[1].died))
        return [NotifyFailure(failures=dict(attempt.failures)), StopGroup(attempt=attempt.number, graceful=False)]

    def _controller_failed(self, event: ControllerFailed) -> list[Instruction]:
        if self._state is State.RESTARTING:
            return []
        if self._attempt is None:
            self._go(State.ERRORED, f"the controller failed: {event.error!r}")
            return [End(outcome="errored", error=event.error)]
        if self._state is State.STARTING and isinstance(event.error, (ValueError, TypeError)):  # a mistake in the arguments
            self._go(State.ERRORED, f"the group cannot be started as it was asked for: {event.error!r}")
            return [StopGroup(attempt=self._current.number, graceful=False), End(outcome="errored", error=event.error)]
        if self._state is State.FINISHING:
            self._go(State.ERRORED, f"the controller failed: {event.error!r}")
            return [StopGroup(attempt=self._current.number, graceful=False), End(outcome="errored", error=ControllerError(event.error))]
        self._kind = "controller"
        self._controller_error = event
        self._go(State.RESTARTING, f"the controller failed: {event.error!r}")
        return [StopGroup(attempt=self._current.number, graceful=False)]

    def _stopped(self, event: GroupStopped) -> list[Instruction]:
        if self._state is State.FINISHING:
            self._group_stopped = True
            return self._end_if_done()
        if self._state is not State.RESTARTING:
            return []
        if self._node_died:
            self._node_died = False
            self._attempt = None
            self._go(State.SCHEDULING, f"attempt {event.attempt} did not start")
            return [Reserve()]
        error = self._error()
        if self._controller_error is not None and not self._controller_error.retriable:
            self._go(State.ERRORED, "the controller's failure would come again")
            return [End(outcome="errored", error=error)]
        decision = self._budgets.charge(self._kind)
        if not decision.retry:
            self._go(State.ERRORED, f"{decision.count} {self._kind} failures, limit {decision.limit}")
            return [End(outcome="errored", error=error)]
        return self._restart(event.attempt, error, decision)

    def _restart(self, failed_attempt: int, error: TrainingFailedError, decision: Decision) -> list[Instruction]:
        self._attempt = None
        self._controller_error = None
        self._go(State.SCHEDULING, f"attempt {failed_attempt} failed, {decision.count} of {decision.limit}")
        notice = NotifyRestart(failed_attempt=failed_attempt, cause=str(error), count=decision.count, limit=decision.limit)
        return [notice, Reserve()]

    def _error(self) -> TrainingFailedError:
        if self._controller_error is not None:
            return ControllerError(self._controller_error.error)
        failures = self._current.failures
        exceptions = {rank: failure.exception for rank, failure in failures.items()}
        tracebacks = {rank: failure.traceback for rank, failure in failures.items() if failure.traceback}
        return WorkerGroupError(worker_failure_message(exceptions, tracebacks), exceptions)

    def _validations_have_ended(self, event: ValidationsEnded) -> list[Instruction]:
        if self._state is not State.FINISHING:
            return []
        self._validations_ended = True
        return self._end_if_done()

    def _end_if_done(self) -> list[Instruction]:
        if not (self._group_stopped and self._validations_ended):
            return []
        self._go(State.FINISHED, "the group has ended and nothing waits")
        return [End(outcome="finished", return_value=self._current.finished[0].return_value)]

    def _interrupted(self, event: Interrupted) -> list[Instruction]:
        stop: list[Instruction] = [StopGroup(attempt=self._attempt.number, graceful=False)] if self._attempt is not None else []
        self._go(State.ABORTED, "interrupted")
        return [*stop, End(outcome="aborted")]

    # -- transitions

    @property
    def _current(self) -> _Attempt:
        assert self._attempt is not None
        return self._attempt

    def _go(self, target: State, cause: str) -> None:
        if target not in TRANSITIONS[self._state]:
            raise InvalidTransition(self._state, target, self._history)
        self._history.append(f"{self._state.value} -> {target.value}: {cause}")
        self._state = target


def _ranks(ranks: Sequence[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
