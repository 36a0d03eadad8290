"""The controller's hands: carries out the instructions of `state`, and turns what happens into its
events.

One thread (that of `fit()`) runs the loop; engine threads only put into its queue. It takes a plain
`RunSpec`, so it can run in any process.
"""

from __future__ import annotations

import logging
import queue
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import cloudpickle

from syncline import settings
from syncline.core import api, termination
from syncline.core.context import get_runtime_context
from syncline.core.lifecycle import ensure_engine
from syncline.exceptions import RayError
from syncline.train.backend import Backend, Worker
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import FailureConfig, ScalingConfig
from syncline.train.console.display import INTERVAL_S, Display
from syncline.train.console.narrator import Narrator
from syncline.train.controller import events
from syncline.train.controller.events import Event, Instruction, WorkerFailure
from syncline.train.controller.goodput import GoodputMeter
from syncline.train.controller.ledger import Ledger
from syncline.train.controller.live import LiveActions
from syncline.train.controller.observers import Observers
from syncline.train.controller.policy import FailureBudgets
from syncline.train.controller.state import Limits, State, TrainStateMachine
from syncline.train.controller.validation import (
    Validation,
    ValidationEnded,
    ValidationQueue,
    merged,
)
from syncline.train.datasets import Datasets
from syncline.train.readers import places
from syncline.train.result import Result
from syncline.train.storage import StorageFullError
from syncline.train.storage_probe import StorageProbe, ranks_to_ask, refusal
from syncline.train.workers.group import ActorWorkerGroup, TrainingGroup, WorkerStartError
from syncline.train.workers.inline import InlineWorkerGroup
from syncline.train.workers.messages import (
    Checkpoints,
    Committed,
    Consumed,
    Sent,
    Spent,
    WorkerMessage,
    opened,
)
from syncline.train.workers.placement import Reservation, ReservationInterrupted
from syncline.train.workers.ranks import visible_gpus
from syncline.train.workers.shipped import loaded
from syncline.train.workers.spec import RunSpec, WorkerSpec

logger = logging.getLogger("syncline")

ACKNOWLEDGE_EVERY = 4
"""So many batches are read from a worker before it is told; less than the worker's window, so that
it does not wait.
"""
VALIDATION_TIMER = "validation"
NODES_TIMER = "nodes"
PICTURE_TIMER = "picture"
LOOK_AT_NODES_S = 5.0
"""How often a controller on a cluster looks whether nodes are about to be taken away."""


@dataclass(frozen=True, kw_only=True)
class _Batch:
    """Messages of one worker, as they came."""

    attempt: int
    rank: int
    messages: Sequence[WorkerMessage]


@dataclass(frozen=True)
class _Interruption:
    """Somebody wants the run to end."""


class TrainController:
    """Runs one run from its start to its end. Used once, from one thread."""

    def __init__(
        self,
        spec: RunSpec,
        clock: Callable[[], float] = time.monotonic,
        display: Display | None = None,
    ) -> None:
        """`display` shows the person who runs this what happens; by default one that fits where
        this program runs.
        """
        self._spec = spec
        self._clock = clock
        engine = ensure_engine()
        self._local_mode = engine.is_local_mode
        self._node_id = get_runtime_context().get_node_id()
        self._ledger = Ledger(spec, staging=engine.session_directory)
        self._observers = Observers(spec)
        failure_config = spec.run_config.failure_config or FailureConfig()
        self._machine = TrainStateMachine(
            budgets=FailureBudgets(failure_config),
            limits=_limits(failure_config, spec.scaling_config, fixed=self._local_mode),
        )
        self._queue: queue.SimpleQueue[Event | _Batch | ValidationEnded | _Interruption] = (
            queue.SimpleQueue()
        )
        self._deadlines: dict[str, float] = {}
        self._reservation = Reservation(spec.scaling_config)
        self._backend: Backend[Any] = spec.backend_config.backend_cls()
        self._datasets = Datasets(
            loaded(spec.datasets), spec.data_config, self._ledger.storage.files
        )
        self._group: TrainingGroup | None = None
        self._attempt = 0
        self._run_token = secrets.token_hex(4)
        self._function: Any = None
        self._config: Any = None
        self._batches: dict[int, int] = {}
        self._validations = (
            ValidationQueue(spec.validation_config, self._queue.put)
            if spec.validation_config is not None
            else None
        )
        self._draining_validations = False
        self._questions: list[events.AnswerCheckpoints] = []
        self._goodput = GoodputMeter()
        self._narrator = Narrator(
            spec,
            self._ledger.storage,
            self._goodput,
            clock=clock,
            display=display,
            may_draw=not self._local_mode,
        )
        self.live = LiveActions()
        """Answers questions about the workers, from any thread."""
        self._end: events.End | None = None
        self._handlers: dict[type, Callable[[Any], None]] = {
            events.Reserve: self._reserve,
            events.StartGroup: self._start_group,
            events.LaunchTraining: self._launch,
            events.RecordReport: self._record,
            events.CompleteRound: self._complete_round,
            events.Send: self._send,
            events.AnswerCheckpoints: self._answer_checkpoints,
            events.SetTimer: lambda do: self._deadlines.update(
                {do.name: self._clock() + do.seconds}
            ),
            events.CancelTimer: self._cancel_timer,
            events.LookForRoom: self._look_for_room,
            events.AskStacks: self._ask_stacks,
            events.HushWorkers: lambda do: self._running_group.hush(do.ranks),
            events.StopGroup: self._stop_group,
            events.DrainValidations: self._drain_validations,
            events.NotifyFailure: self._notify_failure,
            events.NotifyRestart: self._notify_restart,
            events.NotifyResize: self._notify_resize,
            events.NotifyPreemption: self._notify_preemption,
            events.Warn: lambda do: logger.warning("%s", do.text),
            events.End: self._take_end,
        }

    def run(self) -> Result:
        """Train; returns when every rank has returned.

        Raises:
            TrainingFailedError: Workers or the controller failed more often than allowed.
            ValueError: The resources can never be had.
            TypeError: The training function or its configuration cannot be pickled.
            KeyboardInterrupt: The program was interrupted; every worker is gone then.
        """
        result, value = self.run_unloaded()
        return replace(result, return_value=cloudpickle.loads(value) if value is not None else None)

    def run_unloaded(self) -> tuple[Result, bytes | None]:
        """`run`, but with what rank 0 returned as pickled bytes beside the result, for a process
        that cannot load it.
        """
        try:
            return self._run_to_its_end()
        finally:
            self._narrator.close(self._machine.state)

    def _run_to_its_end(self) -> tuple[Result, bytes | None]:
        try:
            self._observers.start(
                self._ledger.storage.experiment_fs_path, self._ledger.steps.next_step
            )
            self._function, self._config = self._shipped()
            with (
                termination.noticed(self._program_terminated),
                self.live.offered(self._ledger.storage.experiment_fs_path),
            ):
                self._handle(events.Begin(next_index=self._ledger.next_index))
                self._loop()
        except BaseException as error:
            self._handle(events.Interrupted())
            self._ledger.close("aborted", f"{type(error).__name__}: {error}")
            self._observers.end(None, error)
            raise
        finally:
            if self._validations is not None:
                self._validations.stop()
            self._reservation.release()
        return self._result()

    def interrupt(self) -> None:
        """End the run as an interrupt of the program would; from any thread."""
        self._queue.put(_Interruption())
        self._reservation.interrupt()

    def _program_terminated(self) -> None:
        """SIGTERM has come: ranks that run get the usual time to save their work; what has not
        begun is not begun. On any thread.
        """
        notice_s = settings.termination_notice_s()
        self._queue.put(
            events.ProgramTerminated(
                nodes=self._ranks_by_node(),
                deadline_ms=int((time.time() + notice_s) * 1000),
                seconds_left=notice_s,
            )
        )
        # Asked after that: an attempt that ends from now on is not followed by another, which would
        # wait for resources first.
        if self._machine.state in (
            State.INITIALIZING,
            State.SCHEDULING,
            State.STARTING,
            State.RESTARTING,
        ):
            self._reservation.interrupt()

    # -- the loop

    def _loop(self) -> None:
        """Take what has happened, one at a time, until the end."""
        if self._narrator.draws:
            self._deadlines[PICTURE_TIMER] = self._clock()
        while self._end is None:
            happened = self._next()
            self._narrator.tick(self._machine.state)
            if isinstance(happened, _Batch):
                self._hear(happened)
            elif isinstance(happened, ValidationEnded):
                self._settle_validation(happened)
            elif isinstance(happened, _Interruption):
                raise KeyboardInterrupt
            else:
                self._handle(happened)

    def _hear(self, batch: _Batch) -> None:
        for message in batch.messages:
            if not isinstance(message, Spent):
                self._handle(events.Said(attempt=batch.attempt, rank=batch.rank, message=message))
            elif batch.attempt == self._attempt and self._group is not None:
                self._goodput.spent(batch.rank, message.times)
                self._ledger.sample(self._group.workers[batch.rank], self._attempt, message)
        self._acknowledge(batch)

    def _next(self) -> Event | _Batch | ValidationEnded | _Interruption:
        while True:
            name = min(self._deadlines, key=self._deadlines.__getitem__, default=None)
            wait_s = None if name is None else self._deadlines[name] - self._clock()
            try:
                return self._queue.get(timeout=None if wait_s is None else max(0.0, wait_s))
            except queue.Empty:
                if name is None or self._deadlines[name] > self._clock():
                    continue
                del self._deadlines[name]
                if name == VALIDATION_TIMER:
                    self._validation_overdue()
                elif name == NODES_TIMER:
                    self._look_at_nodes()
                elif name == PICTURE_TIMER:
                    self._deadlines[PICTURE_TIMER] = self._clock() + INTERVAL_S
                    self._narrator.tick(self._machine.state)
                else:
                    return events.TimerFired(name=name)

    def _handle(self, event: Event) -> None:
        for instruction in self._machine.handle(event):
            self._execute(instruction)

    def _execute(self, instruction: Instruction) -> None:
        """Carry one instruction out; what fails is the controller's failure, to be judged by the
        machine.
        """
        try:
            self._narrator.see(instruction, self._machine.state)
            self._handlers[type(instruction)](instruction)
        except Exception as error:
            if isinstance(instruction, events.End):
                raise
            self._queue.put(events.ControllerFailed(error=error, retriable=_may_pass(error)))

    def _cancel_timer(self, instruction: events.CancelTimer) -> None:
        self._deadlines.pop(instruction.name, None)

    @property
    def _running_group(self) -> TrainingGroup:
        assert self._group is not None
        return self._group

    # -- the group

    def _reserve(self, instruction: events.Reserve) -> None:
        try:
            world_size = (
                self._spec.scaling_config.max_workers
                if self._local_mode
                else self._reservation.reserve()
            )
        except ReservationInterrupted:
            return  # what it was interrupted for is in the queue
        self._queue.put(events.Reserved(world_size=world_size))

    def _start_group(self, instruction: events.StartGroup) -> None:
        self._attempt = instruction.attempt
        self._batches = {}
        self._questions = []  # of workers that are gone
        spec = self._spec
        if self._local_mode:
            self._group = InlineWorkerGroup(num_workers=instruction.world_size)
        else:
            self._group = ActorWorkerGroup(
                placement=self._reservation.group,
                scaling=spec.scaling_config,
                runtime_env=spec.run_config.worker_runtime_env,
                modules=spec.backend_config.worker_modules,
                has_lost_a_node=self._reservation.has_lost_a_node,
            )
        try:
            self._group.start()
            shares = self._datasets.shares(self._group.workers)
            self._group.prepare(self._worker_specs(self._group, instruction, shares))
            with self._storage_seen_by(self._group):
                self._backend.on_start(self._group, spec.backend_config)
            self._backend.on_training_start(self._group, spec.backend_config)
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
        self._narrator.opened(instruction.attempt, self._group.workers, self._start)
        if instruction.attempt > 1:
            self._ledger.discard_unfinished()
        workers = [vars(worker) for worker in self._group.workers]
        self._ledger.begin_attempt(instruction.attempt, instruction.first_index, workers=workers)
        self._queue.put(events.GroupStarted(attempt=instruction.attempt))

    @contextmanager
    def _storage_seen_by(self, group: TrainingGroup) -> Iterator[None]:
        """Ask, while the block runs, every other node whether it sees what this one writes.
        ValueError with those that do not.
        """
        ranks = ranks_to_ask(group.workers, self._node_id)
        if not ranks:
            yield
            return
        probe = StorageProbe(storage=self._ledger.storage)
        probe.plant()
        try:
            asked = [group.execute_single_async(rank, probe.problem) for rank in ranks]
            yield
            problem = refusal(
                probe.storage, dict(zip(ranks, group.gather(asked), strict=True)), group.workers
            )
        finally:
            probe.remove()
        if problem is not None:
            raise ValueError(problem)

    def _worker_specs(
        self,
        group: TrainingGroup,
        instruction: events.StartGroup,
        shares: Sequence[Mapping[str, Any]],
    ) -> list[WorkerSpec]:
        return [
            WorkerSpec(
                worker=worker,
                world_size=len(group),
                run_name=self._ledger.storage.experiment_dir_name,
                attempt=instruction.attempt,
                token=f"{self._run_token}-{instruction.attempt}",
                storage=self._ledger.storage,
                use_gpu=self._spec.scaling_config.use_gpu,
                first_index=instruction.first_index,
                latest_checkpoint=self._ledger.latest,
                has_validation=self._spec.validation_config is not None,
                resumes=self._resumes,
                hang_limit_s=min(
                    self._spec.backend_config.collective_timeout_s,
                    settings.train_collective_timeout_s(),
                ),
                visible_gpus=tuple(visible_gpus(group.workers, worker.node_id))
                if worker.gpu_ids and not self._local_mode
                else None,
                log_path=self._ledger.log_path(f"rank-{worker.rank}.log")
                if self._keeps_output(worker)
                else None,
                shares=shares[worker.rank],
            )
            for worker in group.workers
        ]

    @property
    def _resumes(self) -> bool:
        """Whether the ranks read on where they were: there is a checkpoint of this very run, and
        the program wants it.
        """
        return self._ledger.manager.latest is not None and self._spec.data_config.resume

    def _keeps_output(self, worker: Worker) -> bool:
        """Whether the worker has a way to write into the record: where that is not a directory, its
        files lie on this node first.
        """
        return not self._local_mode and (
            self._ledger.storage.local or worker.node_id == self._node_id
        )

    def _shipped(self) -> tuple[Any, Any]:
        """Function and configuration, pickled once for all workers and attempts."""
        config = self._spec.train_config if self._spec.takes_config else None
        if self._local_mode:
            return self._spec.train_function, config
        return api.put(self._spec.train_function), api.put(config)

    def _launch(self, instruction: events.LaunchTraining) -> None:
        attempt = instruction.attempt

        def on_batch(rank: int, messages: Sequence[Sent]) -> None:
            self._queue.put(
                _Batch(attempt=attempt, rank=rank, messages=list(map(opened, messages)))
            )

        def on_end(rank: int, error: BaseException | None) -> None:
            failure = WorkerFailure(exception=error, died=True) if error is not None else None
            self._queue.put(events.StreamEnded(attempt=attempt, rank=rank, failure=failure))

        self._running_group.launch(
            self._function,
            self._config,
            self._spec.backend_config.train_func_context,
            on_batch,
            on_end,
        )
        self._goodput.attempt_began(self._clock())
        self.live.group = self._group
        self._requeue_validations()
        self._look_at_nodes()

    def _look_at_nodes(self) -> None:
        """Tell of nodes of the group that are about to be taken away, and come back to it."""
        engine = ensure_engine()
        if engine.address == "local" or self._group is None:
            return
        self._deadlines[NODES_TIMER] = self._clock() + LOOK_AT_NODES_S
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
        nodes: dict[str, tuple[int, ...]] = {}
        for worker in self._group.workers if self._group is not None else ():
            nodes[worker.node_id] = (*nodes.get(worker.node_id, ()), worker.rank)
        return nodes

    def _look_for_room(self, instruction: events.LookForRoom) -> None:
        self._queue.put(
            events.RoomSeen(attempt=instruction.attempt, workers=self._reservation.possible_size())
        )

    def _stop_group(self, instruction: events.StopGroup) -> None:
        self.live.group = None
        spent = {rank: asdict(times) for rank, times in sorted(self._goodput.ranks.items())}
        self._ledger.event("step_times", attempt=instruction.attempt, ranks=spent)
        self._goodput.attempt_ended(self._clock(), lost=not instruction.graceful)
        if self._group is not None:
            try:
                if instruction.graceful:
                    self._backend.on_shutdown(self._group, self._spec.backend_config)
            except Exception as error:  # the training functions have returned: their results count, not the way they leave
                logger.warning("the backend could not be shut down: %s", error)
            finally:
                self._group.kill()
                self._group = None
        self._queue.put(events.GroupStopped(attempt=instruction.attempt))

    def _ask_stacks(self, instruction: events.AskStacks) -> None:
        self._queue.put(
            events.StacksTaken(
                attempt=self._attempt, stacks=self._running_group.stacks(instruction.ranks)
            )
        )

    def _send(self, instruction: events.Send) -> None:
        if self._group is not None:
            for rank in (
                range(len(self._group)) if instruction.rank is None else (instruction.rank,)
            ):
                self._group.send(rank, instruction.message)

    def _acknowledge(self, batch: _Batch) -> None:
        """Tell a worker how far its stream has been read, so that it may send more."""
        if batch.attempt != self._attempt or self._group is None:
            return
        count = self._batches[batch.rank] = self._batches.get(batch.rank, 0) + 1
        if count % ACKNOWLEDGE_EVERY == 0:
            self._group.send(batch.rank, Consumed(batches=count))

    # -- reports

    def _record(self, instruction: events.RecordReport) -> None:
        self._ledger.record(instruction.rank, instruction.report)
        if instruction.rank == 0:
            self._observers.report(
                self._ledger.steps.of(instruction.report.index), instruction.report.metrics
            )

    def _complete_round(self, instruction: events.CompleteRound) -> None:
        report = instruction.report
        checkpoint = None
        if report.parts:
            asked = next((part.validation for part in report.parts if part.validation), None)
            config = self._spec.validation_config
            validation = merged(config, asked) if config is not None and asked is not None else None
            checkpoint = self._ledger.commit(
                report, validate=validation is not None, validation_kwargs=validation
            ).checkpoint
            self._goodput.committed(self._clock())
            self._narrator.committed(checkpoint, self._ledger.manager)
            self._send(
                events.Send(rank=None, message=Committed(index=report.index, checkpoint=checkpoint))
            )
            if validation is not None:
                self._validate(report.index, checkpoint, validation)
        self._observers.round(report.metrics, checkpoint)

    def _answer_checkpoints(self, instruction: events.AnswerCheckpoints) -> None:
        if instruction.validated and self._validations is not None and not self._validations.idle:
            self._questions.append(instruction)
            return
        answer = Checkpoints(
            request=instruction.request, checkpoints=tuple(self._ledger.manager.reported)
        )
        self._send(events.Send(rank=instruction.rank, message=answer))

    # -- validations

    def _validate(self, index: int, checkpoint: Checkpoint, stored: Mapping[str, Any]) -> None:
        assert self._validations is not None
        validation = Validation(
            index=index,
            checkpoint=checkpoint,
            fn_kwargs=dict(stored.get("fn_kwargs") or {}),
            timeout_s=stored.get("timeout_s"),
        )
        if self._validations.add(validation):
            self._time_validation()

    def _requeue_validations(self) -> None:
        """At the start of the first attempt: what an earlier run of this name has left pending."""
        if self._attempt != 1:
            return
        for entry in self._ledger.manager.pending:
            if self._validations is None:
                self._ledger.validation_failed(entry.index, timed_out=False)
            else:
                self._validate(entry.index, entry.checkpoint, entry.validation_kwargs or {})

    def _time_validation(self) -> None:
        assert self._validations is not None
        self._deadlines.pop(VALIDATION_TIMER, None)
        running = self._validations.running
        if running is not None and running.timeout_s is not None:
            self._deadlines[VALIDATION_TIMER] = self._clock() + running.timeout_s

    def _validation_overdue(self) -> None:
        assert self._validations is not None
        running = self._validations.running
        if running is not None:
            self._validations.stop_running()
            problem = f"it ran longer than {running.timeout_s:g} s"
            self._settle_validation(
                ValidationEnded(index=running.index, problem=problem, timed_out=True)
            )

    def _settle_validation(self, ended: ValidationEnded) -> None:
        """Take in what a validation has come to; where the storage refuses, that is the
        controller's failure.
        """
        try:
            self._validation_ended(ended)
        except Exception as error:
            self._queue.put(events.ControllerFailed(error=error, retriable=_may_pass(error)))

    def _validation_ended(self, ended: ValidationEnded) -> None:
        assert self._validations is not None
        if not self._validations.finished(ended.index):
            return
        if ended.metrics is not None:
            self._ledger.validated(ended.index, ended.metrics)
        else:
            logger.warning(
                "the validation of report %d failed, training goes on: %s",
                ended.index,
                ended.problem,
            )
            self._ledger.validation_failed(ended.index, timed_out=ended.timed_out)
        self._validations.start_next()
        self._time_validation()
        if self._validations.idle:
            questions, self._questions = self._questions, []
            for question in questions:
                self._answer_checkpoints(question)
            if self._draining_validations:
                self._queue.put(events.ValidationsEnded())

    def _drain_validations(self, instruction: events.DrainValidations) -> None:
        self._draining_validations = True
        if self._validations is None or self._validations.idle:
            self._queue.put(events.ValidationsEnded())

    # -- what is told

    def _notify_failure(self, instruction: events.NotifyFailure) -> None:
        exceptions = {rank: failure.exception for rank, failure in instruction.failures.items()}
        self._ledger.failed(self._attempt, instruction.failures)
        self._observers.failure(exceptions)

    def _notify_restart(self, instruction: events.NotifyRestart) -> None:
        self._ledger.check_room()
        self._narrator.restarting(instruction, self._start)

    def _notify_resize(self, instruction: events.NotifyResize) -> None:
        self._ledger.event("resize", world_size=instruction.world_size, workers=instruction.workers)
        self._narrator.resizing(instruction)

    def _notify_preemption(self, instruction: events.NotifyPreemption) -> None:
        nodes = instruction.info.preempted_node_to_ranks
        self._ledger.event("preemption", nodes=nodes, seconds_left=instruction.seconds_left)
        self._narrator.preempted(instruction)

    @property
    def _start(self) -> str:
        """Where an attempt begins, in words; empty without a checkpoint."""
        latest = self._ledger.latest
        if latest is None:
            return ""
        where = places(latest) if self._resumes else ""
        return f"from {latest.path} ({where})" if where else f"from {latest.path}"

    # -- the end

    def _take_end(self, instruction: events.End) -> None:
        self._end = instruction

    def _result(self) -> tuple[Result, bytes | None]:
        assert self._end is not None
        goodput = self._goodput.goodput()
        if goodput is not None:
            self._ledger.event("goodput", **goodput.to_json())
        error = self._end.error
        if error is not None:
            self._ledger.close("errored", str(error))
            self._observers.end(None, error)
            raise error
        self._ledger.close("finished")
        storage = self._ledger.storage
        self._narrator.finished(goodput, self._ledger.last_metrics)
        result = Result.from_path(storage.experiment_fs_path, storage.storage_filesystem)
        self._observers.end(result, None)
        return result, self._end.return_value


def _may_pass(error: Exception) -> bool:
    """Whether another attempt may succeed where the controller has failed so."""
    return isinstance(error, OSError) and not isinstance(error, StorageFullError)


def _limits(failures: FailureConfig, scaling: ScalingConfig, *, fixed: bool) -> Limits:
    limit_s = settings.train_collective_timeout_s()
    return Limits(
        report_s=limit_s,
        collective_s=limit_s,
        preemption_grace_s=failures.preemption_grace_s,
        resize_s=scaling.elastic_resize_monitor_interval_s
        if scaling.elasticity_enabled and not fixed
        else None,
        relax_on_preemption=failures.relax_collectives_on_preemption,
    )
