"""Driver of the state machine: executes its instructions and turns what happens into its events.

One thread, that of `fit()`, runs the loop; engine threads only put into its queue. The driver takes
a plain `RunSpec`, so it can run in any process.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import cloudpickle

from syncline import settings
from syncline.core import api, termination
from syncline.core.context import get_runtime_context
from syncline.core.error_frames import unpack_error
from syncline.core.lifecycle import ensure_engine
from syncline.core.state_machine import Dispatcher, Timers, on
from syncline.diagnosis.observation import RankObserved
from syncline.exceptions import RayError
from syncline.runs.verdicts import Verdict
from syncline.train.config import FailureConfig, ScalingConfig
from syncline.train.console.console_reporter import ConsoleReporter
from syncline.train.console.display import INTERVAL_S, Display
from syncline.train.controller import events
from syncline.train.controller.attempt import FailureBudgets, WorkerFailure
from syncline.train.controller.callback_runner import CallbackRunner
from syncline.train.controller.copy_rounds import CopyRounds
from syncline.train.controller.diagnosis import CHECK_S, Diagnosis
from syncline.train.controller.events import Event, Instruction
from syncline.train.controller.goodput import GoodputMeter
from syncline.train.controller.group_starter import GroupStarter
from syncline.train.controller.live_actions import LiveActions
from syncline.train.controller.run_recorder import RunRecorder
from syncline.train.controller.state import TrainStateMachine
from syncline.train.controller.transitions import Limits, State
from syncline.train.controller.validation import ValidationEnded, ValidationRunner
from syncline.train.result import Result
from syncline.train.resume_state import resume_position
from syncline.train.snapshots.choice import Choice
from syncline.train.storage.context import StorageFullError
from syncline.train.workers.group import TrainingGroup, WorkerStartError, rank_death
from syncline.train.workers.messages import (
    BadInputs,
    Checkpoints,
    Committed,
    Consumed,
    CopyReady,
    Failed,
    SnapshotsRefused,
    StreamItem,
    UsageReported,
    WorkerMessage,
    as_message,
)
from syncline.train.workers.reservation import Reservation, ReservationInterrupted
from syncline.train.workers.spec import RunSpec

logger = logging.getLogger("syncline")

ACKNOWLEDGE_EVERY = 4
"""Batches between two acknowledgements to a worker; less than the worker's window, so that it does
not wait.
"""
VALIDATION_TIMER = "validation"
NODES_TIMER = "nodes"
DISPLAY_TIMER = "display"
DIAGNOSIS_TIMER = "diagnosis"
CLOCK_ANSWER_S = 10.0
"""Seconds that a worker may take to tell the time."""
CHECK_NODES_S = 5.0
"""Interval at which a controller on a cluster checks for nodes that are about to be preempted."""


@dataclass(frozen=True, kw_only=True)
class _Batch:
    """Messages of one worker, in order."""

    attempt: int
    rank: int
    messages: Sequence[WorkerMessage]


class TrainController(Dispatcher[Instruction, None], handles=Instruction):
    """Runs one run from its start to its end. Used once, from one thread.

    Args:
        spec: The run.
        clock: Monotonic clock in seconds.
        display: Shows the run to the user; by default chosen for the terminal or notebook.
    """

    def __init__(
        self,
        spec: RunSpec,
        clock: Callable[[], float] = time.monotonic,
        display: Display | None = None,
    ) -> None:
        self._spec = spec
        self._clock = clock
        engine = ensure_engine()
        self._local_mode = engine.is_local_mode
        self._recorder = RunRecorder(spec, staging=engine.session_directory)
        self._callbacks = CallbackRunner(spec)
        failure_config = spec.run_config.failure_config or FailureConfig()
        self._machine = TrainStateMachine(
            budgets=FailureBudgets(failure_config),
            limits=_limits(failure_config, spec.scaling_config, fixed=self._local_mode),
        )
        self._queue: queue.SimpleQueue[Event | _Batch | ValidationEnded] = queue.SimpleQueue()
        self._timers = Timers(clock)
        self._reservation = Reservation(spec.scaling_config)
        self._starter = GroupStarter(
            spec,
            self._recorder,
            self._reservation,
            local_mode=self._local_mode,
            node_id=get_runtime_context().get_node_id(),
        )
        self._group: TrainingGroup | None = None
        self._attempt = 0
        self._function: object = None
        self._config: object = None
        self._batches: dict[int, int] = {}
        self._copy_rounds = CopyRounds(world_size=0)
        self._validations = ValidationRunner(
            spec.validation_config,
            self._recorder,
            on_end=self._queue.put,
            set_timer=self._set_validation_timer,
        )
        self._draining_validations = False
        self._checkpoint_requests: list[events.SendCheckpoints] = []
        self._goodput = GoodputMeter()
        self._diagnosis = Diagnosis(self._recorder, self._on_verdict, clock)
        self._console = ConsoleReporter(
            spec,
            self._recorder.storage,
            self._goodput,
            clock=clock,
            display=display,
            may_draw=not self._local_mode,
        )
        self.live = LiveActions(self.interrupt)
        """Answers requests about the workers, on any thread."""
        self.live.diagnosis = self._diagnosis
        self._end: events.End | None = None
        self._is_token_checked = False  # for the batch that is handled
        self._interrupt_reason = ""

    def run(self) -> Result:
        """Train; return when every rank has returned.

        Raises:
            TrainingFailedError: Workers or the controller failed more often than allowed.
            ValueError: The resources cannot be provided.
            TypeError: The training function or its configuration cannot be pickled.
            KeyboardInterrupt: The program was interrupted; every worker has ended.
        """
        result, value = self.run_pickled()
        return replace(result, return_value=cloudpickle.loads(value) if value is not None else None)

    def run_pickled(self) -> tuple[Result, bytes | None]:
        """Run like `run`, but return the pickled return value of rank 0 in addition to the result.

        For a process that cannot unpickle the value.
        """
        try:
            return self._run()
        finally:
            self._console.close(self._machine.state)

    def _run(self) -> tuple[Result, bytes | None]:
        path = self._recorder.storage.experiment_fs_path
        try:
            self._callbacks.start(path, self._recorder.steps.next_step)
            self._function, self._config = self._starter.train_function()
            with (
                termination.termination_notice(self._on_program_terminated),
                self.live.offered(path),
            ):
                self._handle(events.RunStarted(next_index=self._recorder.next_index))
                self._loop()
        except BaseException as error:
            self._handle(events.Interrupted())
            self._recorder.close("aborted", f"{type(error).__name__}: {error}")
            self._callbacks.end(None, error)
            raise
        finally:
            self._validations.stop()
            self._reservation.release()
            self._starter.snapshots.leave()
        return self._result()

    def interrupt(self, reason: str = "") -> None:
        """Abort the run like an interrupt of the program. Thread-safe.

        Args:
            reason: Message of the KeyboardInterrupt.
        """
        self._interrupt_reason = reason
        self._queue.put(events.Interrupted())
        self._reservation.interrupt()

    def _on_program_terminated(self) -> None:
        """Handle SIGTERM, on any thread: running ranks get a notice, pending starts are aborted."""
        notice_s = settings.termination_notice_s()
        self._queue.put(
            events.ProgramTerminated(
                nodes=self._ranks_by_node(),
                deadline_ms=int((time.time() + notice_s) * 1000),
                seconds_left=notice_s,
            )
        )
        # Checked after that: an attempt that ends from now on is not followed by another, which
        # would wait for resources first.
        if self._machine.state in (
            State.INITIALIZING,
            State.SCHEDULING,
            State.STARTING,
            State.RESTARTING,
        ):
            self._reservation.interrupt()

    # -- loop

    def _loop(self) -> None:
        if self._console.draws:
            self._timers.start(DISPLAY_TIMER, 0.0)
        while self._end is None:
            item = self._next()
            self._console.tick(self._machine.state)
            if isinstance(item, _Batch):
                self._handle_batch(item)
            elif isinstance(item, ValidationEnded):
                self._validation_ended(item)
            elif isinstance(item, events.Interrupted):
                raise KeyboardInterrupt(*filter(None, [self._interrupt_reason]))
            else:
                self._handle(item)

    def _next(self) -> Event | _Batch | ValidationEnded:
        """Return the next item of the queue or the next expired timer of the state machine."""
        while True:
            try:
                return self._queue.get(timeout=self._timers.wait_s())
            except queue.Empty:
                name = self._timers.pop_expired()
                if name is None:
                    continue
                if name == VALIDATION_TIMER:
                    ended = self._validations.timed_out()
                    if ended is not None:
                        return ended
                elif name == NODES_TIMER:
                    self._check_nodes()
                elif name == DIAGNOSIS_TIMER:
                    self._check_operations()
                elif name == DISPLAY_TIMER:
                    self._timers.start(DISPLAY_TIMER, INTERVAL_S)
                    self._console.tick(self._machine.state)
                else:
                    return events.TimerFired(name=name)

    def _handle_batch(self, batch: _Batch) -> None:
        attempt, rank = batch.attempt, batch.rank
        self._is_token_checked = False
        for message in batch.messages:
            if isinstance(message, Failed):
                # User code is unpickled here, so that the state machine stays pure.
                failure = WorkerFailure(
                    exception=unpack_error(message.exception), traceback=message.traceback
                )
                self._handle(events.RankFailed(attempt=attempt, rank=rank, failure=failure))
            elif isinstance(message, BadInputs):
                self._diagnosis.bad_inputs(rank, message.report)
            elif isinstance(message, RankObserved):
                if attempt == self._attempt:
                    self._diagnosis.observed(rank, message)
            elif isinstance(message, SnapshotsRefused):
                self._starter.snapshots.refuse(message.last)
                self._recorder.refuse_snapshots(message.last)
            elif isinstance(message, CopyReady):
                if attempt == self._attempt:
                    self._copy_snapshots(rank, message)
            elif not isinstance(message, UsageReported):
                self._handle(events.MessageReceived(attempt=attempt, rank=rank, message=message))
            elif attempt == self._attempt and self._group is not None:
                self._goodput.record(rank, message.times)
                self._recorder.sample(
                    self._group.workers[rank], attempt, message, self._diagnosis.waited_for(rank)
                )
        self._acknowledge(batch)

    def _copy_snapshots(self, rank: int, message: CopyReady) -> None:
        order = self._copy_rounds.ready(rank, message)
        if order is not None:
            self._send(events.Send(rank=None, message=order))

    def _handle(self, event: Event) -> None:
        """Pass an event to the machine and execute its instructions.

        After a failed instruction, only those run that end the group or the run: the others (such
        as `Reserve`, which blocks) assume that all before them succeeded. The machine decides what
        follows the failure.
        """
        has_failed = False
        for instruction in self._machine.handle(event):
            if not has_failed or isinstance(instruction, (events.StopGroup, events.End)):
                has_failed |= not self._execute(instruction)

    def _execute(self, instruction: Instruction) -> bool:
        """Execute an instruction; on failure, queue `ControllerFailed` and return False."""
        try:
            self._console.instruction_started(instruction, self._machine.state)
            self.dispatch(instruction)
        except Exception as error:
            if isinstance(instruction, events.End):
                raise
            self._fail(error)
            return False
        return True

    def _fail(self, error: Exception) -> None:
        retriable = isinstance(error, OSError) and not isinstance(error, StorageFullError)
        self._queue.put(events.ControllerFailed(error=error, retriable=retriable))

    @on(events.SetTimer)
    def _set_timer(self, instruction: events.SetTimer) -> None:
        self._timers.start(instruction.name, instruction.seconds)

    @on(events.CancelTimer)
    def _cancel_timer(self, instruction: events.CancelTimer) -> None:
        self._timers.cancel(instruction.name)

    @on(events.Warn)
    def _warn(self, instruction: events.Warn) -> None:
        logger.warning("%s", instruction.text)

    @property
    def _running_group(self) -> TrainingGroup:
        assert self._group is not None
        return self._group

    # -- group

    @on(events.DrainWorkers)
    def _drain_workers(self, instruction: events.DrainWorkers) -> None:
        self._running_group.drain(instruction.ranks)

    @on(events.Reserve)
    def _reserve(self, instruction: events.Reserve) -> None:
        try:
            world_size = (
                self._spec.scaling_config.max_workers
                if self._local_mode
                else self._reservation.reserve()
            )
        except ReservationInterrupted:
            return  # the cause of the interruption is in the queue
        self._queue.put(events.Reserved(world_size=world_size))

    @on(events.StartGroup)
    def _start_group(self, instruction: events.StartGroup) -> None:
        self._attempt = instruction.attempt
        self._batches = {}
        self._checkpoint_requests = []  # their workers have ended
        self._copy_rounds = CopyRounds(world_size=instruction.world_size)
        group = self._group = self._starter.create(instruction.world_size)
        try:
            self._starter.start(group, instruction)
        except WorkerStartError as error:
            failure = WorkerFailure(exception=error.cause, traceback=error.traceback)
            node_died = isinstance(error.cause, RayError) and self._reservation.has_lost_a_node()
            self._queue.put(
                events.StartFailed(
                    attempt=instruction.attempt,
                    failures={error.position: failure},
                    node_died=node_died,
                )
            )
            return
        chosen = self._starter.snapshots.chosen
        self._console.attempt_started(
            instruction.attempt, group.workers, self._start, from_snapshot=chosen.step is not None
        )
        if instruction.attempt > 1:
            self._recorder.discard_unfinished()
        workers = [vars(worker) for worker in group.workers]
        if chosen.step is not None:
            taken = self._clock() - (time.time() - chosen.taken_at)
            self._goodput.kept_until(taken)
        self._recorder.begin_attempt(
            instruction.attempt,
            instruction.first_index,
            last_report=None if chosen.step is None else chosen.next_report - 1,
            snapshot=chosen.step,
            workers=workers,
        )
        self._queue.put(events.GroupStarted(attempt=instruction.attempt))

    @on(events.LaunchTraining)
    def _launch(self, instruction: events.LaunchTraining) -> None:
        attempt, group = instruction.attempt, self._running_group

        def on_batch(rank: int, items: Sequence[StreamItem]) -> None:
            messages = list(map(as_message, items))
            self._queue.put(_Batch(attempt=attempt, rank=rank, messages=messages))

        def on_end(rank: int, error: BaseException | None) -> None:
            failure = None
            if error is not None:
                error = rank_death(group.workers[rank], error)
                failure = WorkerFailure(exception=error, died=True)
            self._queue.put(events.StreamEnded(attempt=attempt, rank=rank, failure=failure))

        context = self._spec.backend_config.train_func_context
        group.launch(self._function, self._config, context, on_batch, on_end)
        self._goodput.attempt_began(self._clock())
        self.live.group = self._group
        if attempt == 1:
            self._validations.add_pending()
        self._check_nodes()
        self._diagnosis.attempt_began(
            group.workers,
            lambda rank: api.get(
                group.execute_single_async(rank, time.time), timeout=CLOCK_ANSWER_S
            ),
        )
        self._check_operations()

    def _check_operations(self) -> None:
        """Look for an operation that does not end, and set the next check."""
        if self._group is not None:
            self._timers.start(DIAGNOSIS_TIMER, CHECK_S)
            self._diagnosis.check()

    def _on_verdict(self, verdict: Verdict | None) -> None:
        self._handle(events.VerdictFound(attempt=self._attempt, verdict=verdict))

    def _check_nodes(self) -> None:
        """Report nodes of the group that are about to be preempted, and set the next check."""
        engine = ensure_engine()
        if engine.address == "local" or self._group is None:
            return
        self._timers.start(NODES_TIMER, CHECK_NODES_S)
        draining = engine.draining_nodes()
        nodes = {node: ranks for node, ranks in self._ranks_by_node().items() if node in draining}
        if not nodes:
            return
        known = [deadline for node in nodes if (deadline := draining[node]) is not None]
        left_s = max(0.0, min(known) - time.time()) if known else settings.termination_notice_s()
        deadline_ms = int(min(known) * 1000) if known else None
        self._queue.put(
            events.NodesDraining(
                attempt=self._attempt, nodes=nodes, deadline_ms=deadline_ms, seconds_left=left_s
            )
        )

    def _ranks_by_node(self) -> dict[str, tuple[int, ...]]:
        # Read once: the loop may set it to None while another thread is here.
        group = self._group
        nodes: dict[str, tuple[int, ...]] = {}
        for worker in group.workers if group is not None else ():
            nodes[worker.node_id] = (*nodes.get(worker.node_id, ()), worker.rank)
        return nodes

    @on(events.CheckCapacity)
    def _check_capacity(self, instruction: events.CheckCapacity) -> None:
        workers = self._reservation.possible_size()
        self._queue.put(events.CapacityChanged(attempt=instruction.attempt, workers=workers))

    @on(events.StopGroup)
    def _stop_group(self, instruction: events.StopGroup) -> None:
        self.live.group = None
        times = {rank: asdict(times) for rank, times in sorted(self._goodput.ranks.items())}
        self._recorder.event("step_times", attempt=instruction.attempt, ranks=times)
        self._goodput.attempt_ended(self._clock(), lost=not instruction.graceful)
        ensure_engine().show_output()
        if self._group is not None:
            try:
                if instruction.graceful:
                    self._starter.shut_down(self._group)
            except Exception as error:  # the training functions have returned their results
                logger.warning("The backend could not be shut down: %s", error)
            finally:
                self._group.kill()
                self._group = None
        self._queue.put(events.GroupStopped(attempt=instruction.attempt))

    @on(events.RequestStacks)
    def _request_stacks(self, instruction: events.RequestStacks) -> None:
        stacks = self._running_group.stacks(instruction.ranks)
        self._queue.put(events.StacksReceived(attempt=self._attempt, stacks=stacks))

    @on(events.Send)
    def _send(self, instruction: events.Send) -> None:
        if self._group is not None:
            for rank in (
                range(len(self._group)) if instruction.rank is None else (instruction.rank,)
            ):
                self._group.send(rank, instruction.message)

    def _acknowledge(self, batch: _Batch) -> None:
        """Tell a worker how many batches have been read, so that it may send more."""
        if batch.attempt != self._attempt or self._group is None:
            return
        count = self._batches[batch.rank] = self._batches.get(batch.rank, 0) + 1
        if count % ACKNOWLEDGE_EVERY == 0:
            self._group.send(batch.rank, Consumed(batches=count))

    # -- reports

    @on(events.RecordReport)
    def _record(self, instruction: events.RecordReport) -> None:
        report = instruction.report
        if not self._is_token_checked:
            self._recorder.check_token()
            self._is_token_checked = True
        self._recorder.record(instruction.rank, report)
        if instruction.rank == 0:
            self._callbacks.report(self._recorder.steps.of(report.index), report.metrics)

    @on(events.CompleteRound)
    def _complete_round(self, instruction: events.CompleteRound) -> None:
        report = instruction.report
        checkpoint = None
        if report.parts:
            requested = next((part.validation for part in report.parts if part.validation), None)
            arguments = self._validations.arguments(requested)
            checkpoint = self._recorder.commit(report, arguments)
            self._goodput.committed(self._clock())
            self._console.checkpoint_committed(checkpoint, self._recorder.manager)
            committed = Committed(index=report.index, checkpoint=checkpoint)
            self._send(events.Send(rank=None, message=committed))
            if arguments is not None:
                self._validations.add(report.index, checkpoint, arguments)
        self._diagnosis.round(report.index, report.metrics)
        self._callbacks.round(report.metrics, checkpoint)

    @on(events.SendCheckpoints)
    def _send_checkpoints(self, instruction: events.SendCheckpoints) -> None:
        if instruction.validated and not self._validations.idle:
            self._checkpoint_requests.append(instruction)
            return
        checkpoints = tuple(self._recorder.manager.reported)
        answer = Checkpoints(request=instruction.request, checkpoints=checkpoints)
        self._send(events.Send(rank=instruction.rank, message=answer))

    # -- validations

    def _validation_ended(self, ended: ValidationEnded) -> None:
        try:
            self._validations.ended(ended)
            if self._validations.idle:
                requests, self._checkpoint_requests = self._checkpoint_requests, []
                for request in requests:
                    self._send_checkpoints(request)
                if self._draining_validations:
                    self._queue.put(events.ValidationsEnded())
        except Exception as error:
            self._fail(error)

    def _set_validation_timer(self, seconds: float | None) -> None:
        """Start the timer of the oldest validation; None cancels it."""
        if seconds is None:
            self._timers.cancel(VALIDATION_TIMER)
        else:
            self._timers.start(VALIDATION_TIMER, seconds)

    @on(events.DrainValidations)
    def _drain_validations(self, instruction: events.DrainValidations) -> None:
        self._draining_validations = True
        if self._validations.idle:
            self._queue.put(events.ValidationsEnded())

    # -- notifications

    @on(events.NotifyFailure)
    def _notify_failure(self, instruction: events.NotifyFailure) -> None:
        self._recorder.failed(self._attempt, instruction.failures)
        self._diagnosis.failed(instruction.failures)
        self._callbacks.failure(
            {rank: failure.exception for rank, failure in instruction.failures.items()}
        )

    @on(events.NotifyRestart)
    def _notify_restart(self, instruction: events.NotifyRestart) -> None:
        self._recorder.check_free_space()
        self._starter.snapshots.chosen = Choice()  # that of the failed attempt
        start, newer = self._start, "or from a newer memory snapshot"
        if self._starter.snapshots.exist:
            start = f"{start}, {newer}" if start else "from the last memory snapshot"
        elif self._starter.snapshots.may_exist_elsewhere:
            start = f"{start or 'from the beginning'}, {newer}"
        self._console.restarting(instruction, start)

    @on(events.NotifyResize)
    def _notify_resize(self, instruction: events.NotifyResize) -> None:
        self._recorder.event(
            "resize", world_size=instruction.world_size, workers=instruction.workers
        )
        self._console.resizing(instruction)

    @on(events.NotifyStall)
    def _notify_stall(self, instruction: events.NotifyStall) -> None:
        if instruction.seconds:
            self._recorder.event("stalled", since=time.time() - instruction.seconds)
        else:
            self._recorder.event("resumed")

    @on(events.NotifyPreemption)
    def _notify_preemption(self, instruction: events.NotifyPreemption) -> None:
        nodes = instruction.info.preempted_node_to_ranks
        self._recorder.event("preemption", nodes=nodes, seconds_left=instruction.seconds_left)
        self._console.preempted(instruction)

    @property
    def _start(self) -> str:
        """Starting point of the next attempt as text; empty without a checkpoint."""
        snapshot = self._starter.snapshots.chosen.step
        if snapshot is not None:
            return f"from the memory snapshot of step {snapshot}"
        latest = self._recorder.latest
        if latest is None:
            return ""
        position = resume_position(latest) if self._starter.resumes else ""
        return f"from {latest.path} ({position})" if position else f"from {latest.path}"

    # -- end of the run

    @on(events.End)
    def _take_end(self, instruction: events.End) -> None:
        self._end = instruction

    def _result(self) -> tuple[Result, bytes | None]:
        assert self._end is not None
        goodput = self._goodput.goodput()
        if goodput is not None:
            self._recorder.event("goodput", **goodput.to_json())
        error = self._end.error
        if error is not None:
            self._recorder.close("errored", str(error))
            self._callbacks.end(None, error)
            raise error
        self._recorder.close("finished")
        storage = self._recorder.storage
        self._console.finished(goodput, self._recorder.last_metrics)
        result = Result.from_path(storage.experiment_fs_path, storage.storage_filesystem)
        self._callbacks.end(result, None)
        return result, self._end.return_value


def _limits(failures: FailureConfig, scaling: ScalingConfig, *, fixed: bool) -> Limits:
    limit_s = settings.train_collective_timeout_s()
    is_elastic = scaling.elasticity_enabled and not fixed
    return Limits(
        report_s=limit_s,
        collective_s=limit_s,
        preemption_grace_s=failures.preemption_grace_s,
        resize_s=scaling.elastic_resize_monitor_interval_s if is_elastic else None,
        relax_on_preemption=failures.relax_collectives_on_preemption,
    )
