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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from syncline import faults
from syncline.core import api
from syncline.core.error_frames import pack_error
from syncline.core.lifecycle import ensure_engine
from syncline.core.placement import PlacementGroup
from syncline.core.remote import ActorHandle
from syncline.core.state_machine import Dispatcher, on
from syncline.train.checkpoint import Checkpoint
from syncline.tune.callback import CallbackList
from syncline.tune.console.reporter import ProgressReporter
from syncline.tune.controller import events, experiment_files
from syncline.tune.controller.events import Event, Instruction
from syncline.tune.controller.search_record import SearchRecord
from syncline.tune.controller.search_store import SearchStore, snapshot
from syncline.tune.controller.state import TuneMachine
from syncline.tune.error import TuneError
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import EXPR_ERROR_FILE, Config, Metrics
from syncline.tune.search.search_algorithm import SearchAlgorithm
from syncline.tune.workers import messages
from syncline.tune.workers.messages import Outcome, TrialSpec
from syncline.tune.workers.pool import CLEAN_UP_S, ProcessPool, SerializedTrainable, TrialProcess
from syncline.tune.workers.reservations import TrialReservations

logger = logging.getLogger("syncline")

POLL_S = 0.5
"""Seconds between two looks at the display, the time budget and unsent lines without events."""


@dataclass(frozen=True, kw_only=True)
class TrialSettings:
    """Settings of trials that no decision of the machine depends on."""

    experiment_name: str
    """Name of the search."""
    trainable: SerializedTrainable
    """The serialized trainable class."""
    resources: Callable[[Config], PlacementGroupFactory]
    """Returns the resources of a trial with a configuration."""
    name_of: Callable[[Trial], str] | None = None
    """Returns the display name of a trial."""
    directory_of: Callable[[Trial], str] | None = None
    """Returns the directory name of a trial."""
    reuse: bool = False
    """Run several trials in one process, one after the other."""
    in_trial_directory: bool = False
    """Make the trial's directory the working directory of its process."""
    log_files: tuple[str, str] | None = None
    """Files in the trial's directory for its output and its errors."""
    budget_s: float | None = None
    """Time budget of the search in seconds."""
    first_checkpoint: Checkpoint | None = None
    """Checkpoint from which a trial without one of its own starts."""


@dataclass(frozen=True)
class _ProcessStopped:
    """The process of an attempt cleaned up, or its time for that is over."""

    trial_id: str
    attempt: int


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


_Message: TypeAlias = Event | _ProcessStopped | _GroupReady | _GroupRequested


@dataclass
class _Stopping:
    """A process that cleans up and still holds its trial's resources."""

    process: TrialProcess
    reservation: str
    deadline: float


@dataclass(frozen=True, kw_only=True)
class SearchEnd:
    """End of a search."""

    problem: str | None
    """Reason for an early end; None for a regular one."""
    error: bytes | None
    """Packed exception for `fail_fast="raise"`."""
    interrupted: bool = False
    """True after Ctrl-C."""


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
        self._clock = clock
        self._wall = wall
        machine.search_alg = search
        is_one_machine = (
            len([node for node in api.nodes() if node["Alive"]]) == 1
            and not ensure_engine().may_grow
        )
        self._queue: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._next_messages: deque[_Message] = deque()  # before those of the queue
        self._reservations = TrialReservations(
            on_ready=lambda trial_id, group: self._queue.put(_GroupReady(trial_id, group))
        )
        self._pool = ProcessPool(
            settings.trainable, reuse=settings.reuse, is_one_machine=is_one_machine
        )
        self._processes: dict[str, TrialProcess] = {}
        self._stopping: dict[tuple[str, int], _Stopping] = {}
        self._interrupted_saves: set[str] = set()  # trials that may have an unfinished checkpoint
        self._subject = ""  # trial of the event being handled
        self._in_event = False  # after an error in an event, the journal counts, not the memory
        self._directories = {trial.relative_logdir for trial in machine.trials}
        self._end: SearchEnd | None = None
        self._deadline = clock() + settings.budget_s if settings.budget_s is not None else None
        self._next_report = 0.0

    def run(self, first: Event) -> SearchEnd:
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
            self._await_stopping()
            return self._end
        except KeyboardInterrupt:
            return SearchEnd(problem="it was interrupted", error=None, interrupted=True)
        finally:
            self._close()

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
        for key, stopping in self._stopping.items():
            if now >= stopping.deadline:
                self._next_messages.append(_ProcessStopped(*key))

    def _handle(self, message: _Message) -> None:
        if isinstance(message, _ProcessStopped):
            self._process_stopped(message)
        elif isinstance(message, _GroupRequested):
            self._group_requested(message)
        elif isinstance(message, _GroupReady):
            if message.group == self._reservations.group_of(message.trial_id):
                self._reservations.count_ready(message.trial_id)
                self._handle_event(events.ResourcesReserved(trial_id=message.trial_id))
        else:
            self._handle_event(message)

    def _handle_event(self, event: Event) -> None:
        self._subject = getattr(event, "trial_id", "")
        self._in_event = True
        event = self._machine.with_stopper_verdict(event)
        rest: list[Instruction] = []
        for instruction in self._machine.handle(event):
            if isinstance(instruction, events.NotifyCallbacks):
                self._notify(instruction)
            else:
                rest.append(instruction)
        faults.reach("tune.before_journal")
        self._persist(lambda: self._store.append(event))
        self._record.update(self._machine.drain_changed())
        faults.reach("tune.after_journal")
        for instruction in rest:
            self.dispatch(instruction)
            faults.reach("tune.after_instruction")
        self._in_event = False
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
        stopping = (each.process for each in self._stopping.values())
        for process in (*self._processes.values(), *stopping):
            self._pool.end(process)
        self._processes.clear()
        self._stopping.clear()
        while not self._queue.empty():
            message = self._queue.get()
            if isinstance(message, _GroupRequested):
                self._group_requested(message)
        self._reservations.close()
        self._pool.close()
        for trial_id in sorted(self._interrupted_saves):
            self._discard_unfinished(self._trial(trial_id))
        self._report_progress(done=True)
        self._callbacks.on_experiment_end(trials=self._machine.trials)
        if self._reporter is not None:
            self._reporter.close()
        if not self._in_event:
            self._snapshot()
        self._persist(self._store.close)

    def _await_stopping(self) -> None:
        """Wait for trainables that clean up."""
        while self._stopping:
            message: _Message | None = None
            try:
                message = self._queue.get(timeout=POLL_S)
            except queue.Empty:
                self._report_progress()
                if self._next_messages:
                    message = self._next_messages.popleft()
            if isinstance(message, (_ProcessStopped, _GroupRequested)):
                self._handle(message)

    # -- instructions

    @on(events.AskSearcher)
    def _ask_searcher(self, do: events.AskSearcher) -> None:
        suggestion = None if self._search.is_finished() else self._search.next_trial(do.trial_id)
        if suggestion is None:
            self._next_messages.append(events.NoSuggestion(finished=self._search.is_finished()))
            return
        rules = self._machine.rules
        # The functions of the program that name trials get this draft.
        draft = Trial(
            trial_id=do.trial_id,
            index=len(self._machine.trials),
            trainable_name=rules.trainable_name,
            config=suggestion.config,
            evaluated_params=suggestion.evaluated_params,
            experiment_tag=suggestion.tag,
            placement_group_factory=self._settings.resources(suggestion.config),
            storage=rules.storage,
            checkpoint_config=rules.checkpoint_config,
        )
        if self._settings.name_of is not None:
            draft.custom_trial_name = str(self._settings.name_of(draft))
        self._next_messages.append(
            events.TrialSuggested(
                trial_id=do.trial_id,
                config=suggestion.config,
                evaluated_params=suggestion.evaluated_params,
                tag=suggestion.tag,
                factory=draft.placement_group_factory,
                name=draft.custom_trial_name,
                directory=self._directory_of(draft),
            )
        )
        self._pool.prepare_for(draft.placement_group_factory)

    def _directory_of(self, draft: Trial) -> str:
        name_of = self._settings.directory_of
        wanted = str(name_of(draft)) if name_of is not None else draft.name
        directory = wanted.replace("/", "_").strip() or draft.trial_id
        if directory in self._directories:  # a program may give several trials the same name
            directory = f"{directory}_{draft.trial_id}"
        self._directories.add(directory)
        return directory

    @on(events.ReportResult)
    def _report_result(self, do: events.ReportResult) -> None:
        self._search.on_trial_result(do.trial_id, dict(do.result))

    @on(events.ReportCompletion)
    def _report_completion(self, do: events.ReportCompletion) -> None:
        result = dict(do.result) if do.result is not None else None
        self._search.on_trial_complete(do.trial_id, result, do.error)

    @on(events.ReserveResources)
    def _reserve(self, do: events.ReserveResources) -> None:
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
        self._reservations.release(do.trial_id)

    @on(events.StartTrial)
    def _start(self, do: events.StartTrial) -> None:
        trial = self._trial(do.trial_id)
        if trial.local_path is not None:
            os.makedirs(trial.local_path, exist_ok=True)
        self._discard_unfinished(trial)
        spec = TrialSpec(
            trial_id=trial.trial_id,
            trial_name=trial.name,
            experiment_name=self._settings.experiment_name,
            experiment_tag=trial.experiment_tag,
            config=trial.config,
            storage=trial.storage,
            resources=trial.placement_group_factory,
            checkpoint=do.checkpoint or self._settings.first_checkpoint,
            progress=do.progress,
            in_trial_directory=self._settings.in_trial_directory,
            log_files=self._settings.log_files,
        )
        on_outcome = self._on_outcome(trial.trial_id, do.attempt)
        try:
            process = self._pool.take(
                trial.placement_group_factory, self._reservations.group_of(trial.trial_id)
            )
            process.attempt = do.attempt
            self._processes[trial.trial_id] = process
            self._pool.start(process, spec, on_outcome)
        except (TypeError, ValueError) as error:  # the configuration cannot be pickled
            on_outcome(None, error)

    def _discard_unfinished(self, trial: Trial) -> None:
        if trial.trial_id in self._interrupted_saves:
            self._interrupted_saves.discard(trial.trial_id)
            experiment_files.discard_unknown(trial)

    @on(events.StepTrial)
    def _step(self, do: events.StepTrial) -> None:
        command = messages.Step(checkpoint_index=do.checkpoint_index, batch_s=do.batch_s)
        self._command(do, command)

    @on(events.SaveTrial)
    def _save(self, do: events.SaveTrial) -> None:
        self._command(do, messages.Save(checkpoint_index=do.checkpoint_index))

    @on(events.ResumeTrial)
    def _resume(self, do: events.ResumeTrial) -> None:
        self._command(do, messages.Resume())

    def _command(self, do: events.AttemptInstruction, command: messages.Command) -> None:
        process = self._processes.get(do.trial_id)
        if process is not None:
            self._pool.run(process, command, self._on_outcome(do.trial_id, do.attempt))

    def _on_outcome(
        self, trial_id: str, attempt: int
    ) -> Callable[[Outcome | None, BaseException | None], None]:
        """Return a callback that queues the outcome of a command as an event."""

        def on_outcome(outcome: Outcome | None, error: BaseException | None) -> None:
            self._queue.put(self._message_of(trial_id, attempt, outcome, error))

        return on_outcome

    def _message_of(
        self, trial_id: str, attempt: int, outcome: Outcome | None, error: BaseException | None
    ) -> _Message:
        ids: dict[str, Any] = {"trial_id": trial_id, "attempt": attempt}
        if error is not None:
            text = f"{type(error).__name__}: {error}"
            return events.TrialFailed(**ids, error=pack_error(error), text=text)
        if isinstance(outcome, messages.Stepped):
            return events.TrialStepped(
                **ids,
                result=outcome.result,
                checkpoint=outcome.checkpoint,
                ended=outcome.ended,
                earlier=outcome.earlier,
            )
        if isinstance(outcome, messages.Started):
            return events.TrialStarted(**ids, location=outcome.location, now=self._wall())
        if isinstance(outcome, messages.Saved):
            return events.TrialSaved(**ids, checkpoint=outcome.checkpoint)
        if isinstance(outcome, messages.ReservationStarting):
            return events.WorkersRequested(**ids)
        if isinstance(outcome, messages.ReservationMade):
            return _GroupRequested(**ids, group=outcome.group)
        if isinstance(outcome, messages.ReservationReady):
            return events.WorkersReserved(**ids)
        if isinstance(outcome, messages.ResetRefused):
            self._pool.stop_reusing()
            return events.ResetRefused(**ids)
        assert isinstance(outcome, messages.Failed), outcome
        return events.TrialFailed(**ids, error=outcome.error, text=outcome.text)

    @on(events.StopTrial)
    def _stop(self, do: events.StopTrial) -> None:
        """End a function's process immediately; let a class clean up, for reuse if configured."""
        process = self._processes.pop(do.trial_id, None)
        if process is None:  # the engine refused to start one
            self._reservations.release(do.trial_id)
            return
        if do.failed or do.trial_id != self._subject:
            self._interrupted_saves.add(do.trial_id)
        if do.failed or (self._machine.rules.is_function and not self._settings.reuse):
            self._pool.end(process)
            self._reservations.release(do.trial_id)
            return
        key, reservation = (do.trial_id, do.attempt), f"{do.trial_id} {do.attempt}"
        self._reservations.rename(do.trial_id, reservation)
        self._stopping[key] = _Stopping(process, reservation, self._clock() + CLEAN_UP_S)
        self._pool.run(
            process, messages.Stop(), lambda outcome, error: self._queue.put(_ProcessStopped(*key))
        )

    def _process_stopped(self, message: _ProcessStopped) -> None:
        stopping = self._stopping.pop((message.trial_id, message.attempt), None)
        if stopping is None:
            return
        if self._clock() >= stopping.deadline or not self._pool.keep(stopping.process):
            self._pool.end(stopping.process)
        self._reservations.release(stopping.reservation)

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
            checkpoint, problem = None, ""
            try:
                checkpoint = experiment_files.copy_verified(trial, do.source, do.checkpoint_index)
            except OSError as error:
                logger.warning(
                    "The trial %s keeps its own weights: the checkpoint %s cannot be copied: %s",
                    trial,
                    do.source.path,
                    error,
                )
                problem = str(error)
            self._queue.put(
                events.CheckpointCopied(
                    trial_id=do.trial_id, checkpoint=checkpoint, problem=problem
                )
            )

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

    @on(events.PollSearcher)
    def _poll_searcher(self, do: events.PollSearcher) -> None:
        """Do nothing: `_next` returns a Tick after POLL_S."""

    @on(events.EndSearch)
    def _finish(self, do: events.EndSearch) -> None:
        self._end = SearchEnd(problem=do.problem, error=do.error)

    # -- callbacks, record and display

    @on(events.NotifyCallbacks)
    def _notify(self, do: events.NotifyCallbacks) -> None:
        trial = self._trial(do.trial_id)
        info: dict[str, Any] = {
            "iteration": self._machine.iteration,
            "trials": self._machine.trials,
            "trial": trial,
        }
        if do.hook == "result":
            self._record.result(trial, cast("Metrics", do.subject))
            self._callbacks.call("on_trial_result", **info, result=do.subject)
        elif do.hook == "checkpoint":
            self._callbacks.call("on_checkpoint", **info, checkpoint=do.subject)
            self._callbacks.call("on_trial_save", **info)
        elif do.hook == "start":
            self._callbacks.call("on_trial_start", **info)
        elif do.hook == "restore":
            self._callbacks.call("on_trial_start", **info)
            self._callbacks.call("on_trial_restore", **info)
        elif do.hook == "complete":
            if trial.num_failures:  # it recovered
                trial.storage.files.delete(EXPR_ERROR_FILE)
            self._callbacks.call("on_trial_complete", **info)
        else:
            experiment_files.append_error(trial)
            self._record.failure(trial, restarts=do.hook == "recover")
            self._callbacks.call(f"on_trial_{do.hook}", **info)

    def _trial(self, trial_id: str) -> Trial:
        trial = self._machine.get_trial(trial_id)
        assert trial is not None, trial_id
        return trial
