"""`TuneController`: carries out the instructions of `TuneMachine` and feeds it events.

The thread of `fit()` runs the loop; engine threads only put into its queue. For each event, in this
order: the machine decides; callbacks are called, so that their files are complete; the event is
written to the journal; the other instructions are carried out.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from syncline import faults
from syncline.core.error_frames import pack_error
from syncline.core.lifecycle import ensure_engine
from syncline.core.placement import PlacementGroup
from syncline.core.remote import ActorHandle
from syncline.core.state_machine import Dispatcher, on
from syncline.train.controller.live_actions import STOP_REQUEST
from syncline.tune.callback import CallbackList
from syncline.tune.console.reporter import ProgressReporter
from syncline.tune.controller import events, experiment_files
from syncline.tune.controller.events import Event, Instruction
from syncline.tune.controller.search_record import SearchRecord
from syncline.tune.controller.search_store import SearchStore, snapshot, tell
from syncline.tune.controller.short_trials import ShortTrials
from syncline.tune.controller.state import TuneMachine
from syncline.tune.controller.trial_settings import TrialSettings
from syncline.tune.error import TuneError
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import EXPR_ERROR_FILE, Metrics
from syncline.tune.search.basic_variant import BasicVariantGenerator
from syncline.tune.search.search_algorithm import SearchAlgorithm
from syncline.tune.trainable.trainable_state import TrialInfo
from syncline.tune.workers import messages
from syncline.tune.workers.batches import Assigned, BatchProcess, TrialBatches
from syncline.tune.workers.messages import BatchRan, Outcome
from syncline.tune.workers.pool import OnOutcome, ProcessPool, TrialProcess
from syncline.tune.workers.reservations import TrialReservations

logger = logging.getLogger("syncline")

POLL_S = 0.5
"""Seconds between updates of the display, the time budget and unsent lines without events."""


@dataclass(frozen=True)
class _ProcessStopped:
    """A process cleaned up, or its time for that is over."""

    process: TrialProcess


@dataclass(frozen=True)
class _GroupReady:
    """A placement group is ready. It may have been removed meanwhile."""

    trial_id: str
    group: PlacementGroup | None


@dataclass(frozen=True)
class _GroupRequested:
    """A trainer inside a trial asked the engine for a placement group."""

    trial_id: str
    attempt: int
    group: PlacementGroup


@dataclass(frozen=True)
class _StopRequested:
    """A user asked from another process to end the search."""


@dataclass(frozen=True)
class _BatchRan:
    """A process ran a batch of trials, or died."""

    process: BatchProcess
    outcome: BatchRan | None
    failed: messages.Failed | None


_Message: TypeAlias = (
    Event | _ProcessStopped | _GroupReady | _GroupRequested | _StopRequested | _BatchRan
)

_MESSAGE_OF: Mapping[type[Outcome], Callable[..., _Message]] = {
    messages.Started: events.TrialStarted,
    messages.ResetRefused: events.ResetRefused,
    messages.Stepped: events.TrialStepped,
    messages.Saved: events.TrialSaved,
    messages.ReservationStarting: events.WorkersRequested,
    messages.ReservationMade: _GroupRequested,
    messages.ReservationReady: events.WorkersReserved,
    messages.Failed: events.TrialFailed,
}
"""Messages by outcome: with the fields of the outcome, and the trial and attempt."""

_CALLS: Mapping[events.Hook, tuple[str, ...]] = {
    "start": ("on_trial_start",),
    "restore": ("on_trial_start", "on_trial_restore"),
    "result": ("on_trial_result",),
    "checkpoint": ("on_checkpoint", "on_trial_save"),
    "complete": ("on_trial_complete",),
    "error": ("on_trial_error",),
    "recover": ("on_trial_recover",),
}
"""Methods of callbacks; the first one gets the subject."""


class TuneController(Dispatcher[Instruction, None], handles=Instruction):
    """Runs one search to its end. Use it once, from one thread."""

    def __init__(
        self,
        *,
        machine: TuneMachine,
        search: SearchAlgorithm,
        settings: TrialSettings,
        callbacks: CallbackList,
        reporter: ProgressReporter | None,
        store: SearchStore,
        record: SearchRecord,
        short_trials: ShortTrials | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._machine = machine
        self._search = search
        self._settings = settings
        self._callbacks = callbacks
        self._reporter = reporter
        self._store = store
        self._record = record
        self._short_trials = short_trials
        self._clock = clock
        self._wall = wall
        machine.search_alg = search
        self._queue: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._next_messages: deque[_Message] = deque()  # before those of the queue
        self._reservations = TrialReservations(
            on_ready=lambda trial_id, group: self._queue.put(_GroupReady(trial_id, group))
        )
        self._pool = ProcessPool(
            settings.trainable,
            reuse=settings.reuse or settings.isolated,
            isolated=settings.isolated,
            clock=clock,
        )
        self._processes: dict[str, TrialProcess] = {}
        self._batches: TrialBatches | None = None
        # A batch begins before the results of the one before are known.
        if (
            settings.isolated
            and machine.rules.is_function
            and machine.needs_no_results
            and machine.rules.max_concurrent == float("inf")
            and isinstance(search, BasicVariantGenerator)
        ):
            self._batches = TrialBatches(self._pool, self._reservations, self._on_batch)
        self._reserving: events.ReserveResources | None = None  # asked of the engine
        self._out_of_process: set[str] = set()  # trials whose batch is over, for StopTrial
        self._awaited: set[str] = set()  # trials that left their batch and still train
        self._interrupted_saves: set[str] = set()  # trials that may have an unfinished checkpoint
        self._subject = ""  # trial of the event being handled
        self._in_event = False  # after an error in an event, the journal counts, not the memory
        self._directories = {trial.relative_logdir for trial in machine.trials}
        self._end: events.EndSearch | None = None
        self._deadline = clock() + settings.budget_s if settings.budget_s is not None else None
        self._next_report = 0.0

    def run(self, first: Event) -> events.EndSearch:
        """Run until the end, the time budget, an error, or an interrupt. `first` is SearchStarted
        or SearchResumed.

        Raises:
            TuneError: The search cannot continue, or its state cannot be written.
        """
        try:
            self._handle(first)
            self._record.update(self._machine.trials)
            while self._end is None:
                self._handle(self._next())
            self._await_clean_up()
            return self._end
        except KeyboardInterrupt as interrupt:
            return events.EndSearch(
                problem=str(interrupt) or "it was interrupted", interrupted=True
            )
        finally:
            self._close()

    def interrupt(self) -> None:
        """End the search as Ctrl-C does. Thread-safe."""
        self._queue.put(_StopRequested())

    def actor_of(self, trial_id: str) -> ActorHandle | None:
        """Return the actor that hosts a trial; None if the trial does not run. Thread-safe."""
        process = self._processes.get(trial_id)
        return process.actor if process is not None else None

    # -- the loop

    def _next(self) -> _Message:
        """Wait for the next message and keep the display up to date."""
        while True:
            self._report_progress()
            if self._next_messages:
                return self._next_messages.popleft()
            if self._batches is not None:
                self._batches.flush()
            if self._deadline is not None and self._clock() >= self._deadline:
                self._deadline = None
                return events.TimeBudgetExhausted()
            try:
                return self._queue.get(timeout=POLL_S)
            except queue.Empty:
                self._store.flush()
                if self._machine.waits_for_searcher:
                    return events.Tick()

    def _report_progress(self, done: bool = False) -> None:
        """Update the display, and end processes that take too long to clean up."""
        now = self._clock()
        if now < self._next_report and not done:
            return
        self._next_report = now + POLL_S / 5
        trials = self._machine.trials
        if self._reporter is not None and self._reporter.should_report(trials, done):
            usage = self._reservations.usage(self._machine.total_resources)
            self._reporter.report(trials, done, usage)
        self._next_messages.extend(map(_ProcessStopped, self._pool.overdue()))

    def _handle(self, message: _Message) -> None:
        if isinstance(message, _StopRequested):
            raise KeyboardInterrupt(f"it was {STOP_REQUEST}")
        if isinstance(message, _ProcessStopped):
            if self._pool.finish(message.process):
                self._reservations.release(message.process.reservation)
        elif isinstance(message, _GroupRequested):
            self._group_requested(message)
        elif isinstance(message, _BatchRan):
            self._finish_batch(message)
        elif isinstance(message, _GroupReady):
            if message.group == self._reservations.group_of(message.trial_id):
                self._reserving = None
                self._reservations.count_ready(message.trial_id)
                self._handle_event(events.ResourcesReserved(trial_id=message.trial_id))
        else:
            self._handle_event(message)

    def _handle_event(self, event: Event) -> None:
        machine = self._machine
        self._subject = getattr(event, "trial_id", "")
        self._in_event = True
        self._callbacks.call("on_step_begin", iteration=machine.iteration, trials=machine.trials)
        event = machine.with_stopper_verdict(event)
        if isinstance(event, events.TrialRan) and machine.is_current(event):
            self._record.ran_at(event.trial_id, event.location)
        rest: list[Instruction] = []
        for instruction in machine.handle(event):
            if isinstance(instruction, events.NotifyCallbacks):
                self._notify(instruction)
            else:
                rest.append(instruction)
        faults.reach("tune.before_journal")
        self._persist(lambda: self._store.append(event))
        self._record.update(machine.drain_changed())
        faults.reach("tune.after_journal")
        for instruction in rest:
            self.dispatch(instruction)
            faults.reach("tune.after_instruction")
        self._in_event = False
        self._callbacks.call("on_step_end", iteration=machine.iteration, trials=machine.trials)
        if self._store.wants_snapshot:
            self._snapshot()

    def _snapshot(self) -> None:
        self._persist(
            lambda: self._store.snapshot(snapshot(self._machine, self._search, self._callbacks))
        )

    def _persist(self, write: Callable[[], None]) -> None:
        """Write state of the search.

        Raises:
            TuneError: Writing failed. To continue would mean to train again after a restore.
        """
        try:
            write()
        except OSError as error:
            path = self._machine.rules.storage.experiment_fs_path
            raise TuneError(
                f"the state of the search cannot be written to {path!r} "
                f"({error.strerror or error}), so the search has ended; everything written before "
                "is kept. Free disk space or fix the storage, and continue with "
                f"`Tuner.restore({path!r}, …)`."
            ) from error

    def _close(self) -> None:
        """End all processes, release all resources, and write everything that is buffered."""
        for process in self._processes.values():
            self._pool.end(process)
        self._processes.clear()
        if self._batches is not None:
            self._batches.close()
        self._pool.close()
        while not self._queue.empty():
            message = self._queue.get()
            if isinstance(message, _GroupRequested):
                self._group_requested(message)
        self._reservations.close()
        for trial_id in sorted(self._interrupted_saves):
            self._discard_unfinished(self._trial(trial_id))
        self._report_progress(done=True)
        self._callbacks.on_experiment_end(trials=self._machine.trials)
        if self._reporter is not None:
            self._reporter.close()
        if not self._in_event:
            self._snapshot()
        self._persist(self._store.close)
        if self._short_trials is not None:
            self._short_trials.close()

    def _await_clean_up(self) -> None:
        """Wait for trainables that clean up."""
        while self._pool.cleaning_up:
            message = self._next()
            if isinstance(message, (_ProcessStopped, _GroupRequested)):
                self._handle(message)

    # -- instructions

    @on(events.AskSearcher)
    def _ask_searcher(self, do: events.AskSearcher) -> None:
        suggestion = None if self._search.is_finished() else self._search.next_trial(do.trial_id)
        if suggestion is None:
            self._next_messages.appendleft(events.NoSuggestion(finished=self._search.is_finished()))
            return
        machine = self._machine
        suggested = self._settings.suggested(
            do.trial_id, suggestion, machine.rules, len(machine.trials), self._directories
        )
        self._next_messages.appendleft(suggested)
        self._pool.prepare_for(suggested.factory)

    @on(events.ReportResult)
    def _report_result(self, do: events.ReportResult) -> None:
        tell(self._search, do)

    @on(events.ReportCompletion)
    def _report_completion(self, do: events.ReportCompletion) -> None:
        tell(self._search, do)

    @on(events.ReserveResources)
    def _reserve(self, do: events.ReserveResources) -> None:
        if self._batches is not None and self._batches.has_room(do.factory):
            self._next_messages.appendleft(events.ResourcesReserved(trial_id=do.trial_id))
            return
        self._reserving = do
        try:
            self._reservations.reserve(do.trial_id, do.factory)
        except ValueError as error:
            self._next_messages.append(
                events.ReservationRefused(
                    trial_id=do.trial_id, error=pack_error(error), text=f"ValueError: {error}"
                )
            )

    @on(events.ReleaseResources)
    def _release(self, do: events.ReleaseResources) -> None:
        self._reserving = None
        self._reservations.release(do.trial_id)

    @on(events.StartTrial)
    def _start(self, do: events.StartTrial) -> None:
        trial = self._trial(do.trial_id)
        factory = trial.placement_group_factory
        is_batched = self._batches is not None and self._pool.may_batch(factory)
        makes_directory = not is_batched or self._short_trials is None
        if makes_directory:
            _make_directory(trial)
        self._discard_unfinished(trial)
        start = messages.Start(
            info=TrialInfo(
                trial_id=trial.trial_id,
                trial_name=trial.name,
                experiment_name=self._settings.experiment_name,
                resources=trial.placement_group_factory,
                storage=trial.storage,
            ),
            config=trial.config,
            checkpoint=do.checkpoint or self._settings.first_checkpoint,
            progress=do.progress,
            in_trial_directory=self._settings.in_trial_directory,
            log_path=self._settings.log_path_of(trial.trial_id)
            if self._settings.log_path_of is not None
            else None,
            log_files=self._settings.log_files,
            makes_directory=makes_directory,
        )
        group = self._reservations.group_of(trial.trial_id)
        if self._batches is not None and is_batched:
            assigned = Assigned(trial_id=trial.trial_id, attempt=do.attempt, start=start)
            if not self._batches.assign(assigned, factory, group):
                self._return(assigned)
            return
        on_outcome = self._on_outcome(trial.trial_id, do.attempt)
        try:
            process = self._pool.take(factory, group)
            process.attempt = do.attempt
            self._processes[trial.trial_id] = process
            self._pool.start(process, start, on_outcome)
        except (TypeError, ValueError) as error:  # the configuration cannot be pickled
            on_outcome(None, error)

    def _discard_unfinished(self, trial: Trial) -> None:
        if trial.trial_id in self._interrupted_saves:
            self._interrupted_saves.discard(trial.trial_id)
            experiment_files.discard_unknown(trial)

    @on(events.RunCommand)
    def _run_command(self, do: events.RunCommand) -> None:
        if do.trial_id in self._awaited:
            self._awaited.discard(do.trial_id)
            self._command(do, messages.Await())
        elif do.trial_id not in self._out_of_process:
            self._command(do, do.command)

    def _command(self, do: events.AttemptInstruction, command: messages.Command) -> None:
        process = self._processes.get(do.trial_id)
        if process is not None:
            self._pool.run(process, command, self._on_outcome(do.trial_id, do.attempt))

    def _on_outcome(self, trial_id: str, attempt: int) -> OnOutcome:
        """Return a callback that queues the outcome of a command as a message."""

        def on_outcome(outcome: Outcome | None, error: BaseException | None) -> None:
            fields: dict[str, Any] = {"trial_id": trial_id, "attempt": attempt}
            if error is not None:
                outcome = _failed(error)
            elif isinstance(outcome, messages.Started):
                fields["now"] = self._wall()
            elif isinstance(outcome, messages.ResetRefused):
                self._pool.stop_reusing()
            assert outcome is not None, "a command has an outcome or an error"
            self._queue.put(_MESSAGE_OF[type(outcome)](**fields, **vars(outcome)))

        return on_outcome

    @on(events.StopTrial)
    def _stop(self, do: events.StopTrial) -> None:
        """End a function's process immediately; let a class clean up, for reuse if configured."""
        if do.trial_id in self._out_of_process:
            self._out_of_process.discard(do.trial_id)
            return
        if self._batches is not None and self._batches.drop(do.trial_id):
            self._interrupted_saves.add(do.trial_id)
            return
        self._awaited.discard(do.trial_id)
        process = self._processes.pop(do.trial_id, None)
        if process is None:  # the engine refused to start one
            self._reservations.release(do.trial_id)
            return
        if do.failed or do.trial_id != self._subject:
            self._interrupted_saves.add(do.trial_id)
        reuse = self._settings.reuse or self._settings.isolated
        if do.failed or (self._machine.rules.is_function and not reuse):
            self._pool.end(process)
            self._reservations.release(do.trial_id)
            return
        process.reservation = f"{do.trial_id} {do.attempt}"
        self._reservations.rename(do.trial_id, process.reservation)
        self._pool.clean_up(process, lambda: self._queue.put(_ProcessStopped(process)))

    # -- batches

    def _on_batch(
        self, process: BatchProcess, outcome: Outcome | None, error: BaseException | None
    ) -> None:
        """Queue the outcome of a batch as a message. Thread-safe."""
        failed: messages.Failed | None = None
        if isinstance(outcome, messages.Failed):
            outcome, failed = None, outcome
        elif error is not None:
            failed = _failed(error)
        assert outcome is None or isinstance(outcome, BatchRan), outcome
        self._queue.put(_BatchRan(process, outcome, failed))

    def _finish_batch(self, message: _BatchRan) -> None:
        """Queue the events of the trials of a batch."""
        assert self._batches is not None, "there is a batch"
        finished = self._batches.finish(message.process, message.outcome, message.failed)
        location = message.outcome.location if message.outcome is not None else ""
        for trial, outcome in finished.ended:
            self._out_of_process.add(trial.trial_id)
            fields = {"trial_id": trial.trial_id, "attempt": trial.attempt, **vars(outcome)}
            if isinstance(outcome, messages.Stepped):
                if self._short_trials is not None:
                    self._short_trials.expect(self._trial(trial.trial_id), outcome)
                self._next_messages.append(
                    events.TrialRan(location=location, now=self._wall(), **fields)
                )
                continue
            if message.outcome is not None:
                self._started(trial, location)
            self._next_messages.append(events.TrialFailed(**fields))
        for trial in reversed(finished.returned):  # the latest one starts first
            self._return(trial)
        trial_on = finished.runs_on
        if trial_on is not None and finished.process is not None:
            finished.process.attempt = trial_on.attempt
            self._processes[trial_on.trial_id] = finished.process
            self._awaited.add(trial_on.trial_id)
            self._started(trial_on, location)
        waits = self._reserving
        if waits is not None and self._batches.has_room(waits.factory):
            self._reserving = None
            self._reservations.release(waits.trial_id)
            self._next_messages.append(events.ResourcesReserved(trial_id=waits.trial_id))

    def _started(self, trial: Assigned, location: str) -> None:
        self._next_messages.append(
            events.TrialStarted(
                trial_id=trial.trial_id, attempt=trial.attempt, location=location, now=self._wall()
            )
        )

    def _return(self, trial: Assigned) -> None:
        """Return a trial that has not begun to the search."""
        self._out_of_process.add(trial.trial_id)
        self._next_messages.append(
            events.TrialReturned(trial_id=trial.trial_id, attempt=trial.attempt)
        )

    def _group_requested(self, message: _GroupRequested) -> None:
        """Release the group with the trial: a trial that is ended cannot release it itself."""
        process = self._processes.get(message.trial_id)
        if process is None or process.attempt != message.attempt:
            ensure_engine().remove_placement_group(message.group.id)
            return
        self._reservations.adopt(message.trial_id, message.group)
        self._pool.run(
            process, messages.Resume(), self._on_outcome(message.trial_id, message.attempt)
        )

    @on(events.LendResources)
    def _lend(self, do: events.LendResources) -> None:
        self._reservations.lend(do.trial_id)
        self._command(do, messages.Resume())

    @on(events.CopyCheckpoint)
    def _copy_checkpoint(self, do: events.CopyCheckpoint) -> None:
        trial = self._trial(do.trial_id)

        def copy() -> None:
            self._queue.put(experiment_files.copied(trial, do))

        threading.Thread(target=copy, name="syncline-checkpoint-copy", daemon=True).start()

    @on(events.ConfirmCheckpoint)
    def _confirm(self, do: events.ConfirmCheckpoint) -> None:
        trial = self._trial(do.trial_id)
        if experiment_files.is_own(trial, do.checkpoint):
            trial.storage.confirm(do.checkpoint)

    @on(events.DeleteCheckpoint)
    def _delete_checkpoint(self, do: events.DeleteCheckpoint) -> None:
        experiment_files.delete(self._trial(do.trial_id), do.checkpoint)

    @on(events.AppendLines)
    def _append_lines(self, do: events.AppendLines) -> None:
        experiment_files.append_lines(self._machine.rules.storage, do.lines)

    @on(events.LogWarning)
    def _log_warning(self, do: events.LogWarning) -> None:
        logger.warning("%s", do.text)

    @on(events.EndSearch)
    def _finish(self, do: events.EndSearch) -> None:
        self._end = do

    # -- callbacks, record and display

    @on(events.NotifyCallbacks)
    def _notify(self, do: events.NotifyCallbacks) -> None:
        trial = self._trial(do.trial_id)
        if do.hook == "result":
            self._record.result(trial, cast("Metrics", do.subject))
        elif do.hook == "complete" and trial.num_failures:  # it recovered
            trial.storage.files.delete(EXPR_ERROR_FILE)
        elif do.hook in ("error", "recover"):
            experiment_files.append_error(trial)
            self._record.failure(trial, restarts=do.hook == "recover")
        if self._short_trials is not None:
            if self._short_trials.take(do, trial):
                return
            if do.hook in ("start", "restore"):
                _make_directory(trial)
        info: dict[str, Any] = {
            "iteration": self._machine.iteration,
            "trials": self._machine.trials,
            "trial": trial,
        }
        subject = {do.hook: do.subject} if do.subject is not None else {}
        first, *others = _CALLS[do.hook]
        self._callbacks.call(first, **info, **subject)
        for hook in others:
            self._callbacks.call(hook, **info)

    def _trial(self, trial_id: str) -> Trial:
        trial = self._machine.get_trial(trial_id)
        assert trial is not None, trial_id
        return trial


def _make_directory(trial: Trial) -> None:
    """Make the directory of a trial, if it is local."""
    if trial.local_path is not None and not os.path.isdir(trial.local_path):
        os.makedirs(trial.local_path, exist_ok=True)


def _failed(error: BaseException) -> messages.Failed:
    """Return the outcome of a command that a process could not carry out."""
    return messages.Failed(error=pack_error(error), text=f"{type(error).__name__}: {error}")
