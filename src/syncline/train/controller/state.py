"""State machine of a training run: `handle(event) -> [instructions]`. Pure: no clock, I/O, threads.

    INITIALIZING -> SCHEDULING -> STARTING -> RUNNING -> FINISHING -> FINISHED
                        ^             |          |           |
                        |             |          v           |
                        |             |       DRAINING       |   survivors send their messages
                        |             v          v           |
                        +-------- RESTARTING <---+           |   the old group ends
                                      |                      |
                                      +-----> ERRORED <------+   any state but an end: ABORTED

Events of earlier attempts are ignored. While nodes or processes are being preempted, the attempt
stays in RUNNING until all ranks have ended or the deadline has passed. RESTARTING is also used to
continue with another number of workers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from syncline.core.state_machine import Dispatcher, Lifecycle, on
from syncline.runs.verdicts import Cause
from syncline.train.controller.attempt import (
    COLLECTIVE_TIMER,
    HANG,
    REPORT_TIMER,
    Attempt,
    CompleteReport,
    FailureBudgets,
    FailureKind,
    Preemption,
    WorkerFailure,
)
from syncline.train.controller.events import (
    CancelTimer,
    CapacityChanged,
    CheckCapacity,
    CompleteRound,
    ControllerFailed,
    DrainValidations,
    DrainWorkers,
    End,
    Event,
    GroupStarted,
    GroupStopped,
    Instruction,
    Interrupted,
    LaunchTraining,
    MessageReceived,
    NodesDraining,
    NotifyFailure,
    NotifyPreemption,
    NotifyResize,
    NotifyRestart,
    NotifyStall,
    ProgramTerminated,
    RankFailed,
    RecordReport,
    RequestStacks,
    Reserve,
    Reserved,
    RunStarted,
    Send,
    SendCheckpoints,
    SetTimer,
    StacksReceived,
    StartFailed,
    StartGroup,
    StopGroup,
    StreamEnded,
    TimerFired,
    ValidationsEnded,
    VerdictFound,
    Warn,
)
from syncline.train.controller.transitions import (
    DRAIN_TIMER,
    GRACE_TIMER,
    PREEMPTION_TIMER,
    RESIZE_TIMER,
    TRANSITIONS,
    Limits,
    State,
)
from syncline.train.errors import (
    ControllerError,
    PreemptionError,
    PreemptionInfo,
    TrainingFailedError,
)
from syncline.train.workers.messages import (
    BarrierReached,
    BarrierReleased,
    CheckpointsRequested,
    Debugging,
    Failed,
    PreemptionNoticed,
    Reported,
    Stalled,
    StateMessage,
    Terminating,
    Uploaded,
)


class TrainStateMachine(Dispatcher[Event, list[Instruction]], handles=Event):
    """State of one run, from `fit()` to its end."""

    def __init__(self, *, budgets: FailureBudgets, limits: Limits) -> None:
        self._budgets = budgets
        self._limits = limits
        self._lifecycle = Lifecycle("the controller", TRANSITIONS, State.INITIALIZING)
        self._attempt_number = 0
        self._attempt: Attempt | None = None
        self._next_index = 0
        # Kind of failure that ended the last attempt; None if it was resized.
        self._kind: FailureKind | None = "worker"
        self._controller_error: ControllerFailed | None = None
        self._group_stopped = False
        self._node_died = False
        self._program_terminated = False
        self._validations_ended = False

    @property
    def state(self) -> State:
        """Current state."""
        return self._lifecycle.state

    @property
    def history(self) -> tuple[str, ...]:
        """Last state changes with their causes."""
        return self._lifecycle.history

    def handle(self, event: Event) -> list[Instruction]:
        """Return the instructions to execute after `event`, in order."""
        if self._lifecycle.is_final:
            return []
        number = getattr(event, "attempt", None)
        if number is not None and (self._attempt is None or number != self._attempt.number):
            return []
        return self.dispatch(event)

    # -- start of an attempt

    @on(RunStarted)
    def _on_run_started(self, event: RunStarted) -> list[Instruction]:
        self._next_index = event.next_index
        self._lifecycle.go(State.SCHEDULING, "fit() was called")
        return [Reserve()]

    @on(Reserved)
    def _on_reserved(self, event: Reserved) -> list[Instruction]:
        number, size, first = self._attempt_number + 1, event.world_size, self._next_index
        self._attempt_number = number
        self._attempt = Attempt(number=number, world_size=size, first_index=first)
        self._lifecycle.go(State.STARTING, f"resources for {size} workers are reserved")
        return [StartGroup(attempt=number, world_size=size, first_index=first)]

    @on(GroupStarted)
    def _on_group_started(self, event: GroupStarted) -> list[Instruction]:
        self._lifecycle.go(State.RUNNING, f"attempt {event.attempt} has started")
        return [LaunchTraining(attempt=event.attempt), *self._start_resize_timer()]

    @on(StartFailed)
    def _on_start_failed(self, event: StartFailed) -> list[Instruction]:
        if event.node_died:
            # The death of a node is charged once, to the attempt whose workers ran there.
            self._node_died = True
            self._lifecycle.go(State.RESTARTING, "a node died while the worker group started")
            return [StopGroup(attempt=event.attempt, graceful=False)]
        self._current.failures.update(event.failures)
        return self._fail_attempt("the worker group did not start")

    # -- messages of workers

    @on(RankFailed)
    def _on_rank_failed(self, event: RankFailed) -> list[Instruction]:
        return self._rank_failed(event.rank, event.failure)

    @on(MessageReceived)
    def _on_message(self, event: MessageReceived) -> list[Instruction]:
        attempt = self._current
        instructions = self._handle_message(attempt, event.rank, event.message)
        requests, attempt.requests = attempt.requests, []
        for rank, message in requests:
            if message.complete and attempt.collector.is_behind(rank, attempt.finished):
                attempt.requests.append((rank, message))
            else:
                instructions.append(
                    SendCheckpoints(rank=rank, request=message.request, validated=message.validated)
                )
        return instructions

    def _handle_message(
        self, attempt: Attempt, rank: int, message: StateMessage
    ) -> list[Instruction]:
        if isinstance(message, Reported):
            self._budgets.progressed()
            self._next_index = max(self._next_index, message.index + 1)
            instructions: list[Instruction] = [RecordReport(rank=rank, report=message)]
            return instructions + self._rounds(attempt.collector.reported(rank, message))
        if isinstance(message, Uploaded):
            return self._rounds(attempt.collector.uploaded(rank, message))
        if isinstance(message, BarrierReached):
            return self._at_barrier(rank, message)
        if isinstance(message, CheckpointsRequested):
            attempt.requests.append((rank, message))
            return []
        if isinstance(message, Debugging):
            (attempt.debugging.add if message.active else attempt.debugging.discard)(rank)
            return []
        if isinstance(message, Stalled):
            return self._rank_stalled(rank, message)
        if isinstance(message, Terminating):
            nodes = {message.node_id: (rank,)}
            return self._preempted(nodes, message.deadline_ms, message.seconds_left)
        assert not isinstance(message, Failed), "the driver sends RankFailed"
        attempt.finished[rank] = message
        if attempt.preemption is not None:
            return self._ended_in_preemption(rank)
        return self._fail_returned_ranks() or self._finish_if_all_returned()

    def _rounds(self, complete: list[CompleteReport]) -> list[Instruction]:
        """Complete rounds, then resize, drain, or set the timer for incomplete reports."""
        instructions: list[Instruction] = [CompleteRound(report=report) for report in complete]
        attempt = self._current
        if (
            self.state is State.RUNNING
            and attempt.target_size is not None
            and any(report.parts for report in complete)
        ):
            return instructions + self._resize(attempt.target_size)
        if self.state is State.DRAINING:
            return instructions + self._drain_unless_completable()
        if self.state is not State.RUNNING:
            return instructions
        waiting = attempt.collector.oldest_incomplete()
        if waiting is None and attempt.timed_report is not None:
            attempt.timed_report = None
            instructions.append(CancelTimer(name=REPORT_TIMER))
        elif waiting is not None and waiting != attempt.timed_report:
            attempt.timed_report = waiting
            instructions.append(SetTimer(name=REPORT_TIMER, seconds=self._limits.report_s))
        return instructions + self._fail_returned_ranks()

    def _at_barrier(self, rank: int, message: BarrierReached) -> list[Instruction]:
        barrier = self._current.collective
        is_first = not barrier.has_waiting
        if barrier.reached(rank, message.sequence, message.data):
            return self._release_barrier()
        if self.state is not State.RUNNING:
            return []
        timer: list[Instruction] = (
            [SetTimer(name=COLLECTIVE_TIMER, seconds=self._limits.collective_s)] if is_first else []
        )
        return timer + self._fail_returned_ranks()

    def _release_barrier(self) -> list[Instruction]:
        sequence, data = self._current.collective.release()
        return [
            CancelTimer(name=COLLECTIVE_TIMER),
            Send(rank=None, message=BarrierReleased(sequence=sequence, data=data)),
        ]

    def _fail_returned_ranks(self) -> list[Instruction]:
        """Fail if ranks wait for one whose training function has returned."""
        attempt = self._current
        if (
            self.state is not State.RUNNING
            or not attempt.finished
            or attempt.preemption is not None
        ):
            return []
        return self._ranks_failed(attempt.errors_of_returned_ranks())

    def _finish_if_all_returned(self) -> list[Instruction]:
        attempt = self._current
        if self.state is not State.RUNNING or len(attempt.finished) < attempt.world_size:
            return []
        self._lifecycle.go(State.FINISHING, "every training function has returned")
        rounds = [CompleteRound(report=report) for report in attempt.collector.flush()]
        return [
            *rounds,
            CancelTimer(name=REPORT_TIMER),
            *self._cancel_resize_timer(),
            StopGroup(attempt=attempt.number, graceful=True),
            DrainValidations(),
        ]

    # -- failures and timeouts of ranks

    @on(StreamEnded)
    def _on_stream_ended(self, event: StreamEnded) -> list[Instruction]:
        attempt, rank = self._current, event.rank
        if rank in attempt.closed_streams:
            return []
        attempt.closed_streams.add(rank)
        if self.state is State.RUNNING and rank not in attempt.finished:
            failure = event.failure or WorkerFailure(
                exception=RuntimeError(f"Rank {rank} ended without a result."), died=True
            )
            return self._rank_failed(rank, failure)
        if self.state is State.DRAINING:
            if event.failure is not None and rank not in attempt.finished:
                attempt.failures[rank] = event.failure
            if attempt.all_streams_closed:
                return self._after_drain()
            return self._drain_unless_completable()
        return []

    def _rank_failed(self, rank: int, failure: WorkerFailure) -> list[Instruction]:
        attempt = self._current
        attempt.failures.setdefault(rank, failure)
        if self.state is State.DRAINING:
            return self._drain_unless_completable()
        if self.state is not State.RUNNING:
            return []
        if attempt.preemption is not None:
            return self._ended_in_preemption(rank)
        self._lifecycle.go(
            State.DRAINING, f"rank {rank} failed: {type(failure.exception).__name__}"
        )
        cancelled = [
            CancelTimer(name=REPORT_TIMER),
            CancelTimer(name=COLLECTIVE_TIMER),
            *self._cancel_resize_timer(),
        ]
        grace = SetTimer(name=GRACE_TIMER, seconds=self._limits.grace_s)
        return [*cancelled, *([grace] if attempt.is_completable else self._drain())]

    def _ranks_failed(self, errors: Mapping[int, Exception]) -> list[Instruction]:
        if not errors:
            return []
        failures = {rank: WorkerFailure(exception=error) for rank, error in errors.items()}
        self._current.failures.update(failures)
        first = next(iter(failures))
        return self._rank_failed(first, failures[first])

    def _drain_unless_completable(self) -> list[Instruction]:
        if self._current.is_draining or self._current.is_completable:
            return []
        return [CancelTimer(name=GRACE_TIMER), *self._drain()]

    def _grace_passed(self) -> list[Instruction]:
        attempt = self._current
        if attempt.is_draining:
            return []
        if not attempt.collector.uploading() or attempt.awaits_uploads:
            return self._drain()
        attempt.awaits_uploads = True
        return [SetTimer(name=GRACE_TIMER, seconds=self._limits.upload_grace_s)]

    def _drain(self) -> list[Instruction]:
        attempt = self._current
        attempt.is_draining = True
        if attempt.all_streams_closed:
            return self._after_drain()
        return [
            DrainWorkers(ranks=attempt.open_streams),
            SetTimer(name=DRAIN_TIMER, seconds=self._limits.drain_s),
        ]

    @on(TimerFired)
    def _on_timer(self, event: TimerFired) -> list[Instruction]:
        name = event.name
        if self.state is State.DRAINING:
            if name == GRACE_TIMER:
                return self._grace_passed()
            return self._after_drain() if name == DRAIN_TIMER else []
        if self.state is State.FINISHING and name == PREEMPTION_TIMER:
            error = PreemptionError(PreemptionInfo(), drain_timed_out=True, program_terminated=True)
            return self._end_with(error, "SIGTERM, and validations did not end by the deadline")
        if self.state is not State.RUNNING:
            return []
        attempt = self._current
        if name == PREEMPTION_TIMER:
            return self._preemption_deadline_passed()
        if name == RESIZE_TIMER:
            return [CheckCapacity(attempt=attempt.number), *self._start_resize_timer()]
        if name not in (REPORT_TIMER, COLLECTIVE_TIMER) or attempt.preemption is not None:
            return []
        missing = attempt.missing(name)
        if not missing:
            return []
        if attempt.debugging:
            return [SetTimer(name=name, seconds=self._limit_s(name))]
        attempt.stack_request = name
        return [RequestStacks(ranks=missing)]

    def _limit_s(self, timer: str) -> float:
        """Return the limit of a barrier of the ranks, by the name of its timer."""
        return self._limits.report_s if timer == REPORT_TIMER else self._limits.collective_s

    @on(StacksReceived)
    def _on_stacks(self, event: StacksReceived) -> list[Instruction]:
        attempt = self._current
        reason, attempt.stack_request = attempt.stack_request, None
        if self.state is not State.RUNNING or reason is None:
            return []
        if reason == HANG:
            if not attempt.stalled:
                return []
            if not attempt.hangs:
                return [Warn(text=attempt.hang_warning(event.stacks))]
            return self._ranks_failed(attempt.hang_errors(event.stacks))
        limit_s = self._limit_s(reason)
        return self._ranks_failed(attempt.timeout_errors(reason, limit_s, event.stacks))

    @on(VerdictFound)
    def _on_verdict(self, event: VerdictFound) -> list[Instruction]:
        attempt = self._current
        told = attempt.verdict
        if event.verdict is not None or told is None or told.cause is not Cause.NOT_A_NUMBER:
            attempt.verdict = event.verdict
        return []

    def _rank_stalled(self, rank: int, message: Stalled) -> list[Instruction]:
        attempt = self._current
        was_stalled = bool(attempt.stalled)
        attempt.stalled.pop(rank, None)
        if message.seconds:
            attempt.stalled[rank] = message
        noted: list[Instruction] = []
        if was_stalled != bool(attempt.stalled):
            attempt.has_warned = False
            noted = [NotifyStall(seconds=message.seconds)]
        if (
            not message.warns
            or attempt.debugging
            or self.state is not State.RUNNING
            or attempt.stack_request is not None
            or attempt.preemption is not None
            or (attempt.has_warned and not message.over_limit)
        ):
            return noted
        attempt.has_warned = True
        attempt.stack_request = HANG
        attempt.hangs = message.over_limit
        return [*noted, RequestStacks(ranks=tuple(range(attempt.world_size)))]

    # -- preemption of nodes and processes

    @on(NodesDraining)
    def _on_nodes_draining(self, event: NodesDraining) -> list[Instruction]:
        return self._preempted(event.nodes, event.deadline_ms, event.seconds_left)

    @on(ProgramTerminated)
    def _on_program_terminated(self, event: ProgramTerminated) -> list[Instruction]:
        self._program_terminated = True
        if self.state is State.RUNNING:
            return self._preempted(event.nodes, event.deadline_ms, event.seconds_left)
        if self.state in (State.DRAINING, State.RESTARTING):
            return []  # the run ends as soon as the group has stopped
        if self.state is State.FINISHING:  # only validations can take long
            return [self._preemption_timer(event.seconds_left)]
        error = PreemptionError(PreemptionInfo(event.deadline_ms), program_terminated=True)
        return [*self._stop_group(), *self._end_with(error, "the program received SIGTERM")]

    def _preempted(
        self, nodes: Mapping[str, Collection[int]], deadline_ms: int | None, seconds_left: float
    ) -> list[Instruction]:
        attempt = self._current
        if self.state is not State.RUNNING:
            return []
        is_first = attempt.preemption is None
        preemption = attempt.preemption or Preemption()
        if not preemption.update(nodes, deadline_ms, seconds_left):
            return []
        attempt.preemption = preemption
        attempt.ended.update(attempt.finished)
        send = Send(rank=None, message=PreemptionNoticed(info=preemption.info))
        if not is_first:
            return [send]
        return [
            NotifyPreemption(info=preemption.info, seconds_left=seconds_left),
            send,
            self._preemption_timer(seconds_left),
            *self._cancel_resize_timer(),
            *self._exclude(*attempt.finished),
        ]

    def _preemption_timer(self, seconds_left: float) -> SetTimer:
        return SetTimer(
            name=PREEMPTION_TIMER, seconds=seconds_left + self._limits.preemption_grace_s
        )

    def _exclude(self, *ranks: int) -> list[Instruction]:
        """Stop waiting for ranks that have ended, if the run is configured so."""
        if not self._limits.relax_on_preemption:
            return []
        instructions: list[Instruction] = []
        for rank in ranks:
            complete = self._current.collector.exclude(rank)
            instructions += [CompleteRound(report=report) for report in complete]
            if self._current.collective.exclude(rank):
                instructions += self._release_barrier()
        return instructions

    def _ended_in_preemption(self, rank: int) -> list[Instruction]:
        attempt, excluded = self._current, self._exclude(rank)
        attempt.ended.add(rank)
        all_ended = len(attempt.ended) == attempt.world_size
        return excluded + (self._end_preempted("every rank has ended") if all_ended else [])

    def _preemption_deadline_passed(self) -> list[Instruction]:
        if self._current.preemption is None:
            return []
        self._current.preemption.timed_out = True
        return self._end_preempted("the deadline has passed")

    def _end_preempted(self, cause: str) -> list[Instruction]:
        self._lifecycle.go(State.DRAINING, f"preempted: {cause}")
        timers = (PREEMPTION_TIMER, REPORT_TIMER, COLLECTIVE_TIMER)
        return [*(CancelTimer(name=name) for name in timers), *self._drain()]

    # -- another number of workers

    def _start_resize_timer(self) -> list[Instruction]:
        interval_s = self._limits.resize_s
        return [] if interval_s is None else [SetTimer(name=RESIZE_TIMER, seconds=interval_s)]

    def _cancel_resize_timer(self) -> list[Instruction]:
        return [] if self._limits.resize_s is None else [CancelTimer(name=RESIZE_TIMER)]

    @on(CapacityChanged)
    def _on_capacity_changed(self, event: CapacityChanged) -> list[Instruction]:
        if self.state is State.RUNNING:
            is_other = event.workers != self._current.world_size
            self._current.target_size = event.workers if is_other else None
        return []

    def _resize(self, workers: int) -> list[Instruction]:
        """Continue from the checkpoint just committed with another number of workers."""
        attempt = self._current
        if attempt.preemption is not None or attempt.finished:
            return []
        self._kind = None
        self._lifecycle.go(State.RESTARTING, f"there is capacity for {workers} workers")
        timers = (REPORT_TIMER, COLLECTIVE_TIMER, RESIZE_TIMER)
        return [
            NotifyResize(world_size=attempt.world_size, workers=workers),
            *(CancelTimer(name=name) for name in timers),
            *self._stop_group(),
        ]

    # -- end of an attempt and of the run

    def _after_drain(self) -> list[Instruction]:
        return [
            CancelTimer(name=GRACE_TIMER),
            CancelTimer(name=DRAIN_TIMER),
            *self._fail_attempt("workers failed"),
        ]

    def _fail_attempt(self, cause: str) -> list[Instruction]:
        attempt = self._current
        self._kind = "worker" if attempt.preemption is None else "preemption"
        self._lifecycle.go(State.RESTARTING, cause)
        # A death explains errors of ranks that communicated with the dead one, but may become
        # known after them.
        attempt.failures = dict(sorted(attempt.failures.items(), key=lambda item: not item[1].died))
        return [NotifyFailure(failures=dict(attempt.failures)), *self._stop_group()]

    @on(ControllerFailed)
    def _on_controller_failed(self, event: ControllerFailed) -> list[Instruction]:
        if self.state is State.RESTARTING:
            return []
        cause = f"the controller failed: {event.error!r}"
        if self._attempt is None:
            return self._end_with(event.error, cause)
        stop = self._stop_group()
        if self.state is State.STARTING and isinstance(event.error, (ValueError, TypeError)):
            cause = f"the group cannot start with these arguments: {event.error!r}"
            return [*stop, *self._end_with(event.error, cause)]
        if self.state is State.FINISHING:
            return [*stop, *self._end_with(ControllerError(event.error), cause)]
        self._kind = "controller"
        self._controller_error = event
        self._lifecycle.go(State.RESTARTING, cause)
        return stop

    @on(GroupStopped)
    def _on_group_stopped(self, event: GroupStopped) -> list[Instruction]:
        if self.state is State.FINISHING:
            self._group_stopped = True
            return self._end_if_done()
        if self.state is not State.RESTARTING:
            return []
        if self._node_died:
            self._node_died = False
            return self._reserve_again(f"attempt {event.attempt} did not start")
        if self._kind is None and not self._program_terminated:
            return self._reserve_again(f"attempt {event.attempt} ended to be resized")
        if self._program_terminated:
            return self._end_with(self._error(), "the program received SIGTERM")
        assert self._kind is not None
        if self._controller_error is not None and not self._controller_error.retriable:
            return self._end_with(self._error(), "the controller's failure is not retriable")
        decision = self._budgets.charge(self._kind)
        if not decision.retry:
            cause = f"{decision.count} {self._kind} failures, limit {decision.limit}"
            outcome = decision.outcome if self._kind == "worker" else ""
            return self._end_with(self._error(outcome), cause)
        self._controller_error = None
        failed, count, limit = event.attempt, decision.count, decision.limit
        notice = NotifyRestart(
            failed_attempt=failed, cause=str(self._error()), count=count, limit=limit
        )
        return [notice, *self._reserve_again(f"attempt {failed} failed, {count} of {limit}")]

    def _reserve_again(self, cause: str) -> list[Instruction]:
        self._attempt = None
        self._lifecycle.go(State.SCHEDULING, cause)
        return [Reserve()]

    def _error(self, outcome: str = "") -> TrainingFailedError:
        if self._controller_error is not None:
            return ControllerError(self._controller_error.error)
        return self._current.error(program_terminated=self._program_terminated, outcome=outcome)

    @on(ValidationsEnded)
    def _on_validations_ended(self, event: ValidationsEnded) -> list[Instruction]:
        if self.state is not State.FINISHING:
            return []
        self._validations_ended = True
        return self._end_if_done()

    def _end_if_done(self) -> list[Instruction]:
        if not (self._group_stopped and self._validations_ended):
            return []
        self._lifecycle.go(State.FINISHED, "the group and all validations have ended")
        return [End(outcome="finished", return_value=self._current.finished[0].return_value)]

    def _end_with(self, error: BaseException, cause: str) -> list[Instruction]:
        self._lifecycle.go(State.ERRORED, cause)
        return [End(outcome="errored", error=error)]

    @on(Interrupted)
    def _on_interrupted(self, event: Interrupted) -> list[Instruction]:
        stop = self._stop_group()
        self._lifecycle.go(State.ABORTED, "interrupted")
        return [*stop, End(outcome="aborted")]

    # -- transitions

    @property
    def _current(self) -> Attempt:
        assert self._attempt is not None
        return self._attempt

    def _stop_group(self) -> list[Instruction]:
        """Kill the group of the current attempt, if there is one."""
        if self._attempt is None:
            return []
        return [StopGroup(attempt=self._attempt.number, graceful=False)]
