"""The controller as a pure state machine: `handle(event) -> [instructions]`. No clock, no I/O, no
threads.

    INITIALIZING -> SCHEDULING -> STARTING -> RUNNING -> FINISHING -> FINISHED
                        ^             |          |           |
                        |             |          v           |
                        |             |       DRAINING       |        survivors hand over what they have said
                        |             v          v           |
                        +-------- RESTARTING <---+           |        the old group ends; also to go on with another number of ranks
                                      |                      |
                                      +-----> ERRORED <------+        and from every state that is no end: ABORTED

Events of attempts that are over are ignored, so stragglers do no harm. Where nodes or processes are
to be taken away (a preemption), the attempt stays in RUNNING until all ranks have ended or the time
is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from syncline.core.error_frames import unpack_error
from syncline.train.controller.attempt import Attempt, Preemption
from syncline.train.controller.barriers import CompleteReport
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
    LookForRoom,
    NodesDraining,
    NotifyFailure,
    NotifyPreemption,
    NotifyResize,
    NotifyRestart,
    ProgramTerminated,
    RecordReport,
    Reserve,
    Reserved,
    RoomSeen,
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
    Warn,
    WorkerFailure,
)
from syncline.train.controller.hangs import NO_ANSWER, odd_ones, ranks_text, side_by_side
from syncline.train.controller.policy import Decision, FailureBudgets, FailureKind
from syncline.train.errors import (
    ControllerError,
    NCCLHangError,
    PreemptionError,
    PreemptionInfo,
    TrainingFailedError,
    WorkerGroupError,
    worker_failure_message,
)
from syncline.train.workers.messages import (
    BarrierReached,
    BarrierReleased,
    CheckpointsAsked,
    Failed,
    PreemptionNoticed,
    Reported,
    Stuck,
    Terminating,
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
    State.RUNNING: frozenset(
        {State.DRAINING, State.FINISHING, State.RESTARTING, State.ERRORED, State.ABORTED}
    ),
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
PREEMPTION_TIMER = "preemption"
RESIZE_TIMER = "resize"
HANG = "hang"


class InvalidTransition(RuntimeError):
    """The machine was about to go where the table does not lead; carries what happened before."""

    def __init__(self, state: State, target: State, history: Sequence[str]) -> None:
        story = "\n".join(f"  {line}" for line in history)
        super().__init__(
            f"the controller cannot go from {state.value} to {target.value}; what happened before:\n{story}"
        )
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
    """After a failure, for the reports that complete a checkpoint which the failed ranks have
    reported.
    """
    drain_s: float = 0.5
    """After a failure, for the survivors to hand over what they have said."""
    preemption_grace_s: float = 0.0
    """After the deadline of a preemption, for the ranks to end."""
    resize_s: float | None = None
    """Between two looks for room for more workers, or for fewer; None: the number of workers is
    fixed.
    """
    relax_on_preemption: bool = False
    """Whether ranks that a preemption has ended are not waited for."""


class TrainStateMachine:
    """The life of one run, from `fit()` to its end."""

    def __init__(self, *, budgets: FailureBudgets, limits: Limits) -> None:
        self._budgets = budgets
        self._limits = limits
        self._state = State.INITIALIZING
        self._attempt_number = 0
        self._attempt: Attempt | None = None
        self._next_index = 0
        self._kind: FailureKind | None = (
            "worker"  # of the failure that ended the last attempt; None: it did not fail
        )
        self._controller_error: ControllerFailed | None = None
        self._group_stopped = False
        self._node_died = False
        self._leaving = False  # the program ends, and the run with it
        self._validations_ended = False
        self._history: deque[str] = deque(maxlen=50)
        self._handlers: dict[type, Callable[[Any], list[Instruction]]] = {
            Begin: self._begin,
            Reserved: self._reserved,
            GroupStarted: self._group_started,
            StartFailed: self._start_failed,
            Said: self._said,
            StreamEnded: self._stream_ended,
            NodesDraining: self._nodes_draining,
            ProgramTerminated: self._program_terminated,
            RoomSeen: self._room_seen,
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
        self._attempt = Attempt(
            number=self._attempt_number, world_size=event.world_size, first_index=self._next_index
        )
        self._go(State.STARTING, f"resources for {event.world_size} workers are held")
        return [
            StartGroup(
                attempt=self._attempt_number,
                world_size=event.world_size,
                first_index=self._next_index,
            )
        ]

    def _group_started(self, event: GroupStarted) -> list[Instruction]:
        self._go(State.RUNNING, f"attempt {event.attempt} has started")
        return [LaunchTraining(attempt=event.attempt), *self._time_resize()]

    def _start_failed(self, event: StartFailed) -> list[Instruction]:
        if event.node_died:
            # The failure that this node's end is has been counted already, where its workers ran;
            # and each node can die only once.
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
            return [
                AnswerCheckpoints(rank=rank, request=message.request, validated=message.validated)
            ]
        if isinstance(message, Stuck):
            return self._rank_stuck(rank, message)
        if isinstance(message, Terminating):
            return self._preempted(
                {message.node_id: (rank,)}, message.deadline_ms, message.seconds_left
            )
        if isinstance(message, Failed):
            return self._rank_failed(
                rank,
                WorkerFailure(
                    exception=unpack_error(message.exception), traceback=message.traceback
                ),
            )
        attempt.finished[rank] = message
        if attempt.preemption is not None:
            return self._ended_in_preemption(rank)
        return self._uneven() or self._finish_if_all_have()

    def _rounds(self, complete: list[CompleteReport]) -> list[Instruction]:
        """Rounds to complete, then what the reports still outstanding ask for."""
        instructions: list[Instruction] = [CompleteRound(report=report) for report in complete]
        if (
            self._state is State.RUNNING
            and self._current.wanted is not None
            and any(report.parts for report in complete)
        ):
            return instructions + self._resize(self._current.wanted)
        if self._state is State.DRAINING:
            return instructions + self._hush_if_complete()
        if self._state is not State.RUNNING:
            return instructions
        attempt = self._current
        waiting = attempt.gathering.waits_for()
        if waiting is None and attempt.timed_report is not None:
            attempt.timed_report = None
            instructions.append(CancelTimer(name=REPORT_TIMER))
        elif waiting is not None and waiting != attempt.timed_report:
            attempt.timed_report = waiting
            instructions.append(SetTimer(name=REPORT_TIMER, seconds=self._limits.report_s))
        return instructions + self._uneven()

    def _at_barrier(self, rank: int, message: BarrierReached) -> list[Instruction]:
        barrier = self._current.collective
        first = not barrier.is_open
        if barrier.reached(rank, message.sequence, message.data):
            return self._release_barrier()
        if self._state is not State.RUNNING:
            return []
        timer: list[Instruction] = (
            [SetTimer(name=COLLECTIVE_TIMER, seconds=self._limits.collective_s)] if first else []
        )
        return timer + self._uneven()

    def _release_barrier(self) -> list[Instruction]:
        sequence, data = self._current.collective.take()
        return [
            CancelTimer(name=COLLECTIVE_TIMER),
            Send(rank=None, message=BarrierReleased(sequence=sequence, data=data)),
        ]

    def _uneven(self) -> list[Instruction]:
        """Fail where ranks wait for one whose training function has returned already."""
        attempt = self._current
        if (
            self._state is not State.RUNNING
            or not attempt.finished
            or attempt.preemption is not None
        ):
            return []
        index = attempt.gathering.waits_for()
        in_vain = (
            [rank for rank in attempt.gathering.missing(index) if rank in attempt.finished]
            if index is not None
            else []
        )
        if index is not None and in_vain:
            there = ranks_text(attempt.gathering.past(index))
            return self._ranks_failed(
                {
                    rank: RuntimeError(
                        f"rank {rank} returned from its training function without the report number {index}, with which "
                        f"{there} reported a checkpoint, so that checkpoint can never be complete: "
                        "make the same number of calls of `report` on every rank."
                    )
                    for rank in in_vain
                }
            )
        gone = [rank for rank in attempt.collective.missing if rank in attempt.finished]
        return self._ranks_failed(
            {
                rank: RuntimeError(
                    f"rank {rank} returned from its training function while {ranks_text(attempt.collective.waiting)} waited for it in "
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
        rounds: list[Instruction] = [
            CompleteRound(report=report) for report in attempt.gathering.rest()
        ]
        timers = [CancelTimer(name=REPORT_TIMER), *self._stop_timing_resize()]
        return [
            *rounds,
            *timers,
            StopGroup(attempt=attempt.number, graceful=True),
            DrainValidations(),
        ]

    # -- ranks that fail, and ranks that wait for too long

    def _stream_ended(self, event: StreamEnded) -> list[Instruction]:
        attempt, rank = self._current, event.rank
        if rank in attempt.silent:
            return []
        attempt.silent.add(rank)
        if self._state is State.RUNNING and rank not in attempt.finished:
            failure = event.failure or WorkerFailure(
                exception=RuntimeError(f"rank {rank} went silent without a result"), died=True
            )
            return self._rank_failed(rank, failure)
        if self._state is State.DRAINING:
            if event.failure is not None and rank not in attempt.finished:
                attempt.failures[rank] = event.failure
            return self._after_drain() if len(attempt.silent) == attempt.world_size else []
        return []

    def _rank_failed(self, rank: int, failure: WorkerFailure) -> list[Instruction]:
        attempt = self._current
        attempt.failures.setdefault(rank, failure)
        if self._state is not State.RUNNING:
            return []
        if attempt.preemption is not None:
            return self._ended_in_preemption(rank)
        self._go(State.DRAINING, f"rank {rank} failed: {type(failure.exception).__name__}")
        cancelled: list[Instruction] = [
            CancelTimer(name=REPORT_TIMER),
            CancelTimer(name=COLLECTIVE_TIMER),
            *self._stop_timing_resize(),
        ]
        if self._completable():
            return [*cancelled, SetTimer(name=GRACE_TIMER, seconds=self._limits.grace_s)]
        return cancelled + self._hush()

    def _ranks_failed(self, errors: Mapping[int, Exception]) -> list[Instruction]:
        if not errors:
            return []
        self._current.failures.update(
            {rank: WorkerFailure(exception=error) for rank, error in errors.items()}
        )
        first = next(iter(errors))
        return self._rank_failed(first, self._current.failures[first])

    def _completable(self) -> bool:
        """A checkpoint waits, but for no rank that has failed: the living can complete it."""
        gathering = self._current.gathering
        index = gathering.waits_for()
        return index is not None and not self._current.failures.keys() & set(
            gathering.missing(index)
        )

    def _hush_if_complete(self) -> list[Instruction]:
        return (
            []
            if self._current.hushed or self._completable()
            else [CancelTimer(name=GRACE_TIMER), *self._hush()]
        )

    def _hush(self) -> list[Instruction]:
        attempt = self._current
        attempt.hushed = True
        if not attempt.talking:
            return self._after_drain()
        return [
            HushWorkers(ranks=attempt.talking),
            SetTimer(name=DRAIN_TIMER, seconds=self._limits.drain_s),
        ]

    def _timer_fired(self, event: TimerFired) -> list[Instruction]:
        if self._state is State.DRAINING:
            if event.name == GRACE_TIMER:
                return [] if self._current.hushed else self._hush()
            return self._after_drain() if event.name == DRAIN_TIMER else []
        if self._state is State.FINISHING and event.name == PREEMPTION_TIMER:
            self._go(State.ERRORED, "the program was told to end, and validations take too long")
            return [
                End(
                    outcome="errored",
                    error=PreemptionError(
                        PreemptionInfo(), drain_timed_out=True, program_terminated=True
                    ),
                )
            ]
        if self._state is not State.RUNNING:
            return []
        if event.name == PREEMPTION_TIMER:
            return self._preemption_over()
        if event.name == RESIZE_TIMER:
            return [LookForRoom(attempt=self._current.number), *self._time_resize()]
        if (
            event.name not in (REPORT_TIMER, COLLECTIVE_TIMER)
            or self._current.preemption is not None
        ):
            return []
        missing = self._missing(event.name)
        if not missing:
            return []
        self._current.overdue = event.name
        return [AskStacks(ranks=missing)]

    def _missing(self, timer: str) -> tuple[int, ...]:
        if timer == COLLECTIVE_TIMER:
            return self._current.collective.missing
        index = self._current.gathering.waits_for()
        return self._current.gathering.missing(index) if index is not None else ()

    def _stacks_taken(self, event: StacksTaken) -> list[Instruction]:
        attempt = self._current
        timer, attempt.overdue = attempt.overdue, None
        if self._state is not State.RUNNING or timer is None:
            return []
        if timer == HANG:
            return self._hang_seen(event.stacks)
        missing = self._missing(timer)
        if timer == REPORT_TIMER:
            place, limit = (
                f"report number {attempt.timed_report}, with which other ranks reported a checkpoint,",
                self._limits.report_s,
            )
        else:
            place, limit = (
                f"call number {attempt.collective.sequence} of `syncline.train.collective`",
                self._limits.collective_s,
            )
        return self._ranks_failed(
            {
                rank: TimeoutError(
                    f"rank {rank} has not come to {place} within {limit:g} s, so the others waited in vain: make the same calls on every "
                    "rank, or raise the limit with SYNCLINE_TRAIN_COLLECTIVE_TIMEOUT_S. Where it is now:\n"
                    f"{event.stacks.get(rank, NO_ANSWER)}"
                )
                for rank in missing
            }
        )

    # -- collective operations that do not end

    def _rank_stuck(self, rank: int, message: Stuck) -> list[Instruction]:
        attempt = self._current
        attempt.stuck.pop(rank, None)
        if not message.seconds:
            return []
        attempt.stuck[rank] = message
        if (
            self._state is not State.RUNNING
            or attempt.overdue is not None
            or attempt.preemption is not None
        ):
            return []
        if not message.too_long and len(attempt.stuck) > 1:
            return []  # people have been told
        attempt.overdue = HANG
        attempt.hangs = message.too_long
        return [AskStacks(ranks=tuple(range(attempt.world_size)))]

    def _hang_seen(self, stacks: Mapping[int, str]) -> list[Instruction]:
        attempt = self._current
        if not attempt.stuck:
            return []
        odd = odd_ones(stacks, attempt.world_size, attempt.stuck)
        seconds = max(message.seconds for message in attempt.stuck.values())
        picture = side_by_side(stacks, attempt.world_size, odd)
        waits = f"{ranks_text(attempt.stuck)} waited {seconds:.0f} s in a collective operation"
        if not attempt.hangs:
            return [Warn(text=f"{waits} so far; where all ranks are now:\n{picture}")]
        remedy = (
            "see that every rank makes the same calls in the same order; if a rank really needs so long between two of them, raise "
            "`TorchConfig(timeout_s=…)` and SYNCLINE_TRAIN_COLLECTIVE_TIMEOUT_S"
        )
        error = TimeoutError(
            f"{waits}, which does not end: {remedy}. Where all ranks are:\n{picture}"
        )
        return self._ranks_failed(dict.fromkeys(odd, error))

    # -- nodes and processes that are taken away

    def _nodes_draining(self, event: NodesDraining) -> list[Instruction]:
        return self._preempted(event.nodes, event.deadline_ms, event.seconds_left)

    def _program_terminated(self, event: ProgramTerminated) -> list[Instruction]:
        self._leaving = True
        if self._state is State.RUNNING:
            return self._preempted(event.nodes, event.deadline_ms, event.seconds_left)
        if self._state in (State.DRAINING, State.RESTARTING):
            return []  # it ends soon in any case
        if self._state is State.FINISHING:  # perhaps in time; only validations can take long
            return [
                SetTimer(
                    name=PREEMPTION_TIMER,
                    seconds=event.seconds_left + self._limits.preemption_grace_s,
                )
            ]
        stop: list[Instruction] = (
            [StopGroup(attempt=self._attempt.number, graceful=False)]
            if self._attempt is not None
            else []
        )
        self._go(State.ERRORED, "the program was told to end")
        return [
            *stop,
            End(
                outcome="errored",
                error=PreemptionError(PreemptionInfo(event.deadline_ms), program_terminated=True),
            ),
        ]

    def _preempted(
        self, nodes: Mapping[str, Collection[int]], deadline_ms: int | None, seconds_left: float
    ) -> list[Instruction]:
        attempt = self._current
        if self._state is not State.RUNNING:
            return []
        known = attempt.preemption or Preemption()
        if not known.learn(nodes, deadline_ms, seconds_left):
            return []
        began = attempt.preemption is None
        attempt.preemption = known
        attempt.ended.update(attempt.finished)
        instructions: list[Instruction] = [
            Send(rank=None, message=PreemptionNoticed(info=known.info))
        ]
        if not began:
            return instructions
        limit = SetTimer(
            name=PREEMPTION_TIMER, seconds=seconds_left + self._limits.preemption_grace_s
        )
        notice = NotifyPreemption(info=known.info, seconds_left=seconds_left)
        return [
            notice,
            *instructions,
            limit,
            *self._stop_timing_resize(),
            *self._excuse(*attempt.finished),
        ]

    def _excuse(self, *ranks: int) -> list[Instruction]:
        """Ranks that have ended are not waited for, if the run wants it so."""
        if not self._limits.relax_on_preemption:
            return []
        instructions: list[Instruction] = []
        for rank in ranks:
            instructions += [
                CompleteRound(report=report) for report in self._current.gathering.excuse(rank)
            ]
            if self._current.collective.excuse(rank):
                instructions += self._release_barrier()
        return instructions

    def _ended_in_preemption(self, rank: int) -> list[Instruction]:
        """A rank has ended; when all have, nothing more comes."""
        excused = self._excuse(rank)
        self._current.ended.add(rank)
        if len(self._current.ended) < self._current.world_size:
            return excused
        return [*excused, *self._leave_preempted("every rank has ended")]

    def _preemption_over(self) -> list[Instruction]:
        if self._current.preemption is None:
            return []
        self._current.preemption.timed_out = True
        return self._leave_preempted("the deadline is over")

    def _leave_preempted(self, cause: str) -> list[Instruction]:
        self._go(State.DRAINING, f"preempted: {cause}")
        cancelled = [
            CancelTimer(name=name) for name in (PREEMPTION_TIMER, REPORT_TIMER, COLLECTIVE_TIMER)
        ]
        return [*cancelled, *self._hush()]

    # -- another number of workers

    def _time_resize(self) -> list[Instruction]:
        return (
            [SetTimer(name=RESIZE_TIMER, seconds=self._limits.resize_s)]
            if self._limits.resize_s is not None
            else []
        )

    def _stop_timing_resize(self) -> list[Instruction]:
        return [CancelTimer(name=RESIZE_TIMER)] if self._limits.resize_s is not None else []

    def _room_seen(self, event: RoomSeen) -> list[Instruction]:
        if self._state is State.RUNNING:
            self._current.wanted = (
                event.workers if event.workers != self._current.world_size else None
            )
        return []

    def _resize(self, workers: int) -> list[Instruction]:
        """A checkpoint has just been committed: go on from it with another number of workers."""
        attempt = self._current
        if attempt.preemption is not None or attempt.finished:
            return []
        self._kind = None
        self._go(State.RESTARTING, f"there is room for {workers} workers")
        cancelled = [
            CancelTimer(name=name) for name in (REPORT_TIMER, COLLECTIVE_TIMER, RESIZE_TIMER)
        ]
        notice = NotifyResize(world_size=attempt.world_size, workers=workers)
        return [notice, *cancelled, StopGroup(attempt=attempt.number, graceful=False)]

    # -- the way down

    def _after_drain(self) -> list[Instruction]:
        return [
            CancelTimer(name=GRACE_TIMER),
            CancelTimer(name=DRAIN_TIMER),
            *self._give_up_attempt("workers failed"),
        ]

    def _give_up_attempt(self, cause: str) -> list[Instruction]:
        self._kind = "worker" if self._current.preemption is None else "preemption"
        self._go(State.RESTARTING, cause)
        attempt = self._current
        # A death explains the errors of those that talked to the dead, and may become known after
        # them.
        attempt.failures = dict(sorted(attempt.failures.items(), key=lambda item: not item[1].died))
        return [
            NotifyFailure(failures=dict(attempt.failures)),
            StopGroup(attempt=attempt.number, graceful=False),
        ]

    def _controller_failed(self, event: ControllerFailed) -> list[Instruction]:
        if self._state is State.RESTARTING:
            return []
        if self._attempt is None:
            self._go(State.ERRORED, f"the controller failed: {event.error!r}")
            return [End(outcome="errored", error=event.error)]
        if self._state is State.STARTING and isinstance(
            event.error, (ValueError, TypeError)
        ):  # a mistake in the arguments
            self._go(
                State.ERRORED, f"the group cannot be started as it was asked for: {event.error!r}"
            )
            return [
                StopGroup(attempt=self._current.number, graceful=False),
                End(outcome="errored", error=event.error),
            ]
        if self._state is State.FINISHING:
            self._go(State.ERRORED, f"the controller failed: {event.error!r}")
            return [
                StopGroup(attempt=self._current.number, graceful=False),
                End(outcome="errored", error=ControllerError(event.error)),
            ]
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
        if self._kind is None and not self._leaving:
            self._attempt = None
            self._go(
                State.SCHEDULING,
                f"attempt {event.attempt} ends for one with another number of workers",
            )
            return [Reserve()]
        error = self._error()
        if self._leaving:
            self._go(State.ERRORED, "the program was told to end")
            return [End(outcome="errored", error=error)]
        assert self._kind is not None
        if self._controller_error is not None and not self._controller_error.retriable:
            self._go(State.ERRORED, "the controller's failure would come again")
            return [End(outcome="errored", error=error)]
        decision = self._budgets.charge(self._kind)
        if not decision.retry:
            self._go(
                State.ERRORED, f"{decision.count} {self._kind} failures, limit {decision.limit}"
            )
            return [End(outcome="errored", error=error)]
        return self._restart(event.attempt, error, decision)

    def _restart(
        self, failed_attempt: int, error: TrainingFailedError, decision: Decision
    ) -> list[Instruction]:
        self._attempt = None
        self._controller_error = None
        self._go(
            State.SCHEDULING,
            f"attempt {failed_attempt} failed, {decision.count} of {decision.limit}",
        )
        notice = NotifyRestart(
            failed_attempt=failed_attempt,
            cause=str(error),
            count=decision.count,
            limit=decision.limit,
        )
        return [notice, Reserve()]

    def _error(self) -> TrainingFailedError:
        if self._controller_error is not None:
            return ControllerError(self._controller_error.error)
        attempt, failures = self._current, self._current.failures
        exceptions = {rank: failure.exception for rank, failure in failures.items()}
        tracebacks = {
            rank: failure.traceback for rank, failure in failures.items() if failure.traceback
        }
        kind = NCCLHangError if attempt.hangs else WorkerGroupError
        failed = kind(worker_failure_message(exceptions, tracebacks), exceptions)
        if attempt.preemption is None and not self._leaving:
            return failed
        preemption = attempt.preemption or Preemption()
        preempted = PreemptionError(preemption.info, preemption.timed_out, self._leaving)
        preempted.__cause__ = (
            failed if failures else None
        )  # ranks may have failed to save their work
        return preempted

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
        stop: list[Instruction] = (
            [StopGroup(attempt=self._attempt.number, graceful=False)]
            if self._attempt is not None
            else []
        )
        self._go(State.ABORTED, "interrupted")
        return [*stop, End(outcome="aborted")]

    # -- transitions

    @property
    def _current(self) -> Attempt:
        assert self._attempt is not None
        return self._attempt

    def _go(self, target: State, cause: str) -> None:
        if target not in TRANSITIONS[self._state]:
            raise InvalidTransition(self._state, target, self._history)
        self._history.append(f"{self._state.value} -> {target.value}: {cause}")
        self._state = target
