"""`TuneMachine`: all decisions of a search. Pure: no clock, files, threads or processes;
`handle(event) -> [instructions]`.

The scheduler is called from here, because its answers are decisions. The searcher gets
instructions. The stopper may read a clock, so `with_stopper_verdict` asks it before the event is
written to the journal. Life of a trial:

    PENDING  --ResourcesReserved-->  RUNNING  --result, error-->  TERMINATED, ERROR
       ^-- failed, exploited, resized --/ \\-- scheduler --> PAUSED --scheduler--> RUNNING

Only one trial at a time waits for its resources: the one that the scheduler chose last. Free
resources go to trials in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

from syncline.core.state_machine import Dispatcher, on
from syncline.train.checkpoint import Checkpoint
from syncline.train.storage.context import StorageContext
from syncline.tune.controller import events
from syncline.tune.controller.events import Event, Instruction, SearchRules
from syncline.tune.controller.result_checks import (
    check_result,
    check_score_attribute,
    full_result,
    stopper_verdict,
)
from syncline.tune.controller.trial_table import Attempt, Exploit, Phase, TrialRecord, TrialTable
from syncline.tune.error import TuneError
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import DONE, EXPERIMENT_TAG, SHOULD_CHECKPOINT, Metrics
from syncline.tune.schedulers.trial_scheduler import FIFOScheduler, TrialScheduler
from syncline.tune.search.search_algorithm import SearchAlgorithm
from syncline.tune.stopper import NoopStopper, Stopper
from syncline.tune.workers.messages import Resume, Step

_Answer = TypeVar("_Answer")

BATCH_S = 0.02
"""Seconds for which the results of a trial are collected if no decision depends on them."""

SEARCHER_POLL_LIMIT = 60
"""Number of polls, one a second, of a searcher that suggests nothing while no trial runs."""


class TuneMachine(Dispatcher[Event, None], handles=Event):
    """State machine of a search, and the `ControllerView` of its scheduler. Picklable as a whole.
    Not thread-safe.
    """

    def __init__(self, rules: SearchRules, scheduler: TrialScheduler, stopper: Stopper) -> None:
        self.rules = rules
        self.scheduler = scheduler
        self.stopper = stopper
        """Part of the state, but called by `with_stopper_verdict` only."""
        self.search_alg: SearchAlgorithm | None = None
        """The searcher, set by the driver; not part of the state."""
        self.total_resources: Mapping[str, float] = {}
        self.trials: list[Trial] = []
        self.iteration = 0
        """Number of results."""
        self.ended = False
        self._table = TrialTable()
        self._searcher: Literal["ready", "asked", "waiting", "finished"] = "ready"
        self._polls = 0  # of a searcher that suggests nothing while no trial runs
        self._capacity = float("inf")
        self.needs_no_results = (
            type(scheduler) is FIFOScheduler
            and type(stopper) is NoopStopper
            and not rules.checkpoint_config.checkpoint_frequency
        )
        """True if no decision about a trial depends on its results before it ends."""
        self._batch_s = BATCH_S if self.needs_no_results else 0.0
        self._warned = False
        self._stopping = False  # no more trials start
        self._end: events.EndSearch | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "search_alg": None}

    def handle(self, event: Event) -> list[Instruction]:
        """Handle an event and return the instructions that follow, in order.

        Raises:
            TuneError: The search cannot continue, for example because a metric is missing.
        """
        self._table.drain_instructions()  # of an event that raised
        if self.is_current(event):
            self.dispatch(event)
        self._advance()
        return self._table.drain_instructions()

    def is_current(self, event: Event) -> bool:
        """Return False for an event of an attempt that has ended."""
        if not isinstance(event, events.AttemptEvent):
            return True
        record = self._table.get(event.trial_id)
        attempt = record.attempt if record is not None else None
        return attempt is not None and attempt.number == event.attempt

    def with_stopper_verdict(self, event: Event) -> Event:
        """Return `event` with the stopper's verdict if it is a result.

        The driver calls this before `handle`, which must not call a stopper: it may read a clock.
        A restore calls it for every event of the journal, to bring the stopper up to date, and
        ignores the new verdict.
        """
        if (
            type(self.stopper) is NoopStopper
            or not isinstance(event, events.TrialStepped)
            or not self.is_current(event)
        ):
            return event
        return stopper_verdict(event, self._table[event.trial_id].trial, self.stopper)

    def drain_changed(self) -> list[Trial]:
        """Return the trials whose status or location was set since the last call."""
        return self._table.drain_changed()

    def set_capacity(self, trials: float) -> None:
        """Limit the running trials to the capacity of the engine, regardless of reservations."""
        self._capacity = trials

    def set_storage(self, storage: StorageContext) -> None:
        """Set the experiment directory after it was moved."""
        self.rules = replace(self.rules, storage=storage)

    @property
    def waits_for_searcher(self) -> bool:
        """True if the searcher suggested nothing and is called again later."""
        return self._searcher == "waiting"

    @property
    def searcher_finished(self) -> bool:
        """True if the searcher will suggest no further trials."""
        return self._searcher == "finished"

    # -- ControllerView

    def get_trials(self) -> Sequence[Trial]:
        return self.trials

    def get_live_trials(self) -> Collection[Trial]:
        return self._table.live

    def pending_trials(self) -> Iterable[Trial]:
        return self._table.pending()

    def paused_trials(self) -> Iterable[Trial]:
        return self._table.paused()

    def get_trial(self, trial_id: str) -> Trial | None:
        record = self._table.get(trial_id)
        return record.trial if record is not None else None

    def stop_trial(self, trial: Trial) -> None:
        record = self._table.get(trial.trial_id)
        if record is None or record.phase is Phase.ENDED:
            return
        if record.attempt is not None:
            self._table.leave(record)
        trial.stopped_by = "scheduler"
        self._complete(record, tell_scheduler=False)

    def pause_trial(self, trial: Trial, should_checkpoint: bool = True) -> None:
        record = self._table.get(trial.trial_id)
        if record is None:
            return
        if record.attempt is not None:
            record.attempt.pause_requested = True
            record.attempt.save_requested = should_checkpoint
        elif record.is_waiting:
            self._table.drop_reservation(record)
            self._table.set_phase(record, Phase.PAUSED, "by the scheduler")

    def save_trial(self, trial: Trial) -> None:
        record = self._table.get(trial.trial_id)
        if record is not None and record.attempt is not None:
            record.attempt.save_requested = True

    def exploit(
        self, trial: Trial, donor: Trial, *, config: Mapping[str, Any], tag: str = ""
    ) -> None:
        latest = donor.checkpoints.latest
        record = self._table[trial.trial_id]
        if latest is None or record.phase is Phase.ENDED:
            return
        if record.attempt is not None:
            self._table.leave(record)
        else:
            self._table.drop_reservation(record)
        exploit = Exploit(
            source=latest.checkpoint,
            donor_metrics=dict(latest.metrics),
            config=dict(config),
            tag=tag,
        )
        self._table.begin_copy(record, exploit)

    def update_resources(self, trial: Trial, factory: PlacementGroupFactory) -> None:
        if trial.placement_group_factory == factory:
            return
        trial.placement_group_factory = factory
        record = self._table[trial.trial_id]
        if record.attempt is not None:
            record.attempt.pause_requested = record.attempt.save_requested = True
            record.attempt.then = "requeue"
        else:
            self._table.drop_reservation(record)

    # -- events

    @on(events.SearchStarted)
    def _search_started(self, event: events.SearchStarted) -> None:
        self.total_resources = dict(event.total_resources)

    @on(events.SearchResumed)
    def _search_resumed(self, event: events.SearchResumed) -> None:
        self.total_resources = dict(event.total_resources)
        self.ended = self._stopping = False
        self._end = self._table.reserving = None
        self._searcher = "ready"  # also if it had finished: it may have been given more samples
        for phase in (Phase.RUNNING, Phase.LENDING, Phase.COPYING):
            for record in list(self._table.of(phase)):
                record.attempt = None
                self._table.end_copy(record)
                self._table.set_phase(record, Phase.INTERRUPTED, "the search was resumed")
        for trial in self.trials:
            record = self._table[trial.trial_id]
            if trial.status == Trial.TERMINATED:
                self._revive(record, event.finished)
            elif trial.status == Trial.ERROR:
                self._revive(record, event.errored)
            elif event.unfinished == "SKIP":
                self._complete(record, tell_scheduler=True)
            elif event.unfinished == "RESTART":
                self._table.reset(record, self.rules.checkpoint_config)
            elif record.phase is Phase.INTERRUPTED:
                self._table.requeue(record, "the search was resumed")

    @on(events.TrialSuggested)
    def _trial_suggested(self, event: events.TrialSuggested) -> None:
        self._searcher = "ready"
        self._polls = 0
        trial = self._table.add(event, self.rules, index=len(self.trials))
        self.trials.append(trial)
        self.scheduler.on_trial_add(self, trial)

    @on(events.NoSuggestion)
    def _no_suggestion(self, event: events.NoSuggestion) -> None:
        self._searcher = "finished" if event.finished else "waiting"

    @on(events.ResourcesReserved)
    def _resources_reserved(self, event: events.ResourcesReserved) -> None:
        if self._table.reserving != event.trial_id:
            return
        self._table.reserving = None
        self._table.start(self._table[event.trial_id])

    @on(events.ReservationRefused)
    def _reservation_refused(self, event: events.ReservationRefused) -> None:
        if self._table.reserving == event.trial_id:
            self._table.reserving = None
            self._fail(self._table[event.trial_id], event.error, event.text)

    @on(events.TrialStarted)
    def _trial_started(self, event: events.TrialStarted) -> None:
        self._begin(event)

    def _begin(self, event: events.TrialStarted | events.TrialRan) -> None:
        record, attempt = self._active(event)
        trial = record.trial
        trial.location = event.location
        self._table.changed[trial.trial_id] = trial
        trial.start_time = trial.start_time or event.now
        self._table.notify("restore" if trial.checkpoints.latest is not None else "start", trial)
        self._next_step(record, attempt)

    @on(events.TrialStepped)
    def _trial_stepped(self, event: events.TrialStepped) -> None:
        record, attempt = self._active(event)
        trial = record.trial
        for earlier in event.earlier:
            tagged = {**earlier, EXPERIMENT_TAG: trial.experiment_tag}
            self._record_result(trial, tagged)
            self._table.notify("result", trial, tagged)
            self._table.emit(events.ReportResult(trial_id=trial.trial_id, result=tagged))
        if event.ended and trial.last_result:
            trial.last_result[DONE] = True
            self._finish(record, attempt)
            return
        result = full_result(trial, event)
        is_last = event.ended or bool(result.get(DONE)) or event.stop_trial
        result[DONE] = is_last
        self._record_result(trial, result)
        self._table.notify("result", trial, trial.last_result)  # its `done` may still be set below
        if event.checkpoint is not None:
            self._register(trial, event.checkpoint)
        decision = TrialScheduler.STOP
        if not is_last:
            decision = self._ask_scheduler(
                lambda: self.scheduler.on_trial_result(self, trial, result)
            )
        if decision == TrialScheduler.STOP:
            trial.last_result[DONE] = True
        if event.stop_all:
            self._stopping = True
        if record.attempt is not attempt:
            return  # the scheduler stopped the trial or gave it another checkpoint
        if decision == TrialScheduler.STOP:
            trial.stopped_by = "" if is_last else "scheduler"
            self._finish(record, attempt, tell_scheduler=is_last)
            return
        self._table.emit(events.ReportResult(trial_id=trial.trial_id, result=result))
        if decision == TrialScheduler.PAUSE:
            attempt.pause_requested = attempt.save_requested = True
        frequency = self.rules.checkpoint_config.checkpoint_frequency
        if result.get(SHOULD_CHECKPOINT) or (frequency and trial.iteration % frequency == 0):
            attempt.save_requested = True
        self._next_step(record, attempt)

    @on(events.TrialRan)
    def _trial_ran(self, event: events.TrialRan) -> None:
        self._begin(event)
        self._trial_stepped(event)

    @on(events.TrialSaved)
    def _trial_saved(self, event: events.TrialSaved) -> None:
        record, attempt = self._active(event)
        if event.checkpoint is not None:
            self._register(record.trial, event.checkpoint)
        if attempt.then == "finish":
            self._table.leave(record)
            self._complete(record, tell_scheduler=False)
        else:
            self._next_step(record, attempt)

    @on(events.TrialFailed)
    def _trial_failed(self, event: events.TrialFailed) -> None:
        record, _ = self._active(event)
        trial = record.trial
        self._table.leave(record, failed=True)
        trial.num_failures += 1
        if self.rules.fail_fast or trial.num_failures > self.rules.max_failures or self._stopping:
            self._fail(record, event.error, event.text)
            return
        trial.error_text = event.text
        self._table.requeue(record, f"failure {trial.num_failures}")
        self._table.notify("recover", trial)

    @on(events.ResetRefused)
    def _reset_refused(self, event: events.ResetRefused) -> None:
        record, _ = self._active(event)
        self._table.leave(record, failed=True)
        self._table.requeue(record, "its process refused a reset")

    @on(events.TrialReturned)
    def _trial_returned(self, event: events.TrialReturned) -> None:
        record, _ = self._active(event)
        self._table.leave(record)
        self._table.requeue(record, "its process did not begin it")

    @on(events.WorkersRequested)
    def _workers_requested(self, event: events.WorkersRequested) -> None:
        self._table.set_phase(self._table[event.trial_id], Phase.LENDING, "requests workers")
        if self._table.reserving is not None:
            self._table.drop_reservation(self._table[self._table.reserving])
        self._table.emit(events.LendResources(trial_id=event.trial_id, attempt=event.attempt))

    @on(events.WorkersReserved)
    def _workers_reserved(self, event: events.WorkersReserved) -> None:
        record, _ = self._active(event)
        self._table.set_phase(record, Phase.RUNNING, "has its workers")
        self._table.run(record, Resume())

    @on(events.CheckpointCopied)
    def _checkpoint_copied(self, event: events.CheckpointCopied) -> None:
        record = self._table[event.trial_id]
        exploit = self._table.end_copy(record)
        trial = record.trial
        if exploit is None or record.phase is Phase.ENDED:
            return
        iteration = trial.iteration
        if event.checkpoint is not None:
            trial.config = exploit.config
            if exploit.tag:
                trial.experiment_tag = f"{trial.index}_{exploit.tag}"
            self._table.register(trial, event.checkpoint, exploit.donor_metrics)
        self._table.requeue(record, "the checkpoint is copied")
        trial.restored_iteration = max(iteration, trial.checkpoint_iteration)

    @on(events.Tick)
    def _tick(self, event: events.Tick) -> None:
        self._wake_searcher()

    @on(events.TimeBudgetExhausted)
    def _time_budget_exhausted(self, event: events.TimeBudgetExhausted) -> None:
        self._stopping = True
        self._end = events.EndSearch(problem="its time budget is used up")

    # -- consequences

    def _advance(self) -> None:
        """Start what can start; end the search if nothing is left to run."""
        if self.ended:
            return
        if self._stopping:
            self._stop_all()
        else:
            self._fill()
        if not self._table.live and (self._stopping or self.searcher_finished):
            self.ended = True
            self._table.emit(self._end or events.EndSearch())

    def _fill(self) -> None:
        """Keep one new trial ready, and reserve resources for the trial that runs next."""
        running = self._table.count(Phase.RUNNING, Phase.LENDING)
        if self._may_ask_searcher(running):
            self._searcher = "asked"
            self._table.emit(
                events.AskSearcher(trial_id=f"{self.rules.trial_prefix}_{len(self.trials):05d}")
            )
            return  # the driver handles the answer before any other event
        if (
            self._searcher == "asked"
            or self._table.reserving is not None
            or self._table.count(Phase.LENDING)
            or running >= min(self.rules.max_concurrent, self._capacity)
        ):
            return
        trial = self._choose_next()
        if trial is not None:
            self._table.reserving = trial.trial_id
            self._table.emit(
                events.ReserveResources(
                    trial_id=trial.trial_id, factory=trial.placement_group_factory
                )
            )
        elif self._may_ask_searcher(self._table.count(Phase.RUNNING, Phase.LENDING)):
            self._fill()  # the scheduler just ended trials, for which the searcher may have waited
        elif not running and not self._table.count(Phase.COPYING) and self.waits_for_searcher:
            self._polls += 1
            if self._polls > SEARCHER_POLL_LIMIT:
                raise TuneError(
                    f"the searcher {type(self.search_alg).__name__} has suggested nothing for "
                    f"{SEARCHER_POLL_LIMIT} s, and no trial runs that it could wait for: return "
                    "a configuration from `suggest`, or `Searcher.FINISHED`."
                )

    def _may_ask_searcher(self, running: int) -> bool:
        """Return True if no new trial waits and one more may run."""
        return (
            self._searcher == "ready"
            and running < self.rules.max_concurrent
            and not self._table.count(Phase.NEW)
        )

    def _choose_next(self) -> Trial | None:
        for record in self._table.of(Phase.RESIZED):
            return record.trial
        chosen = self._ask_scheduler(lambda: self.scheduler.choose_trial_to_run(self))
        if chosen is not None:
            record = self._table[chosen.trial_id]
            if record.phase is Phase.COPYING:
                return None
            if record.attempt is None and record.phase is not Phase.ENDED:
                return chosen
        busy = self._table.count(Phase.RUNNING, Phase.LENDING, Phase.COPYING)
        if busy or self._searcher not in ("finished", "waiting"):
            return None
        # Nothing runs and nothing new comes: trials that the scheduler holds back must run now.
        return next(self._table.pending(), None) or next(self._table.paused(), None)

    def _next_step(self, record: TrialRecord, attempt: Attempt) -> None:
        """Carry out the requested save, then the requested pause; otherwise train on."""
        trial = record.trial
        if attempt.save_requested:
            attempt.save_requested = False
            if not self.rules.is_function:
                self._table.save(record)
                return
        if attempt.pause_requested:
            self._table.leave(record)
            if self.rules.is_function and trial.checkpoint_iteration < trial.iteration:
                self._warn_once(
                    f"the function `{trial.trainable_name}` is paused between two checkpoints and "
                    f"restarts from its last one, at {trial.checkpoint_iteration} of "
                    f"{trial.iteration} iterations: report a checkpoint with every result, "
                    "`tune.report(metrics, checkpoint=…)`, and start from `tune.get_checkpoint()`."
                )
            if attempt.then == "requeue":
                self._table.requeue(record, "other resources", Phase.RESIZED)
            else:
                trial.restored_iteration = trial.checkpoint_iteration
                self._table.set_phase(record, Phase.PAUSED, "by the scheduler")
            return
        self._table.run(
            record, Step(checkpoint_index=trial.next_checkpoint_index, batch_s=self._batch_s)
        )

    def _ask_scheduler(self, ask: Callable[[], _Answer]) -> _Answer:
        """Return the scheduler's answer and append its log lines.

        Raises:
            TuneError: The scheduler cannot continue.
        """
        try:
            answer = ask()
        except RuntimeError as error:
            raise TuneError(str(error)) from error
        drain: Callable[[], list[tuple[str, str]]] | None = getattr(
            self.scheduler, "drain_policy_log", None
        )
        lines = tuple(drain()) if drain is not None else ()
        if lines:
            self._table.emit(events.AppendLines(lines=lines))
        return answer

    def _finish(
        self, record: TrialRecord, attempt: Attempt, *, tell_scheduler: bool = True
    ) -> None:
        """End a trial after its last result, with a final checkpoint if configured."""
        trial = record.trial
        if tell_scheduler:
            self._ask_scheduler(
                lambda: self.scheduler.on_trial_complete(self, trial, trial.last_result)
            )
        is_saved = (
            trial.checkpoints.latest is not None and trial.checkpoint_iteration == trial.iteration
        )
        at_end = self.rules.checkpoint_config.checkpoint_at_end
        if at_end and not self.rules.is_function and not is_saved:
            attempt.then = "finish"
            self._table.save(record)
            return
        self._table.leave(record)
        self._complete(record, tell_scheduler=False)

    def _complete(self, record: TrialRecord, *, tell_scheduler: bool) -> None:
        trial = record.trial
        if tell_scheduler:
            self.scheduler.on_trial_complete(self, trial, trial.last_result)
        self._table.drop_reservation(record)
        self._table.end_copy(record)
        self._end_trial(record, Trial.TERMINATED)
        self._table.report_completion(trial, error=False)
        self._table.notify("complete", trial)

    def _fail(self, record: TrialRecord, error: bytes, text: str) -> None:
        trial = record.trial
        self._table.drop_reservation(record)
        trial.set_error(error, text)
        self._end_trial(record, Trial.ERROR)
        self.scheduler.on_trial_error(self, trial)
        self._table.report_completion(trial, error=True)
        self._table.notify("error", trial)
        if self.rules.fail_fast and not self._stopping:
            self._stopping = True
            self._end = events.EndSearch(
                problem=f"the trial {trial} failed, and `fail_fast` is set", error=error
            )

    def _end_trial(self, record: TrialRecord, status: str) -> None:
        record.trial.status = status
        self._table.set_phase(record, Phase.ENDED, status)
        self._wake_searcher()

    def _stop_all(self) -> None:
        for trial in list(self._table.live):
            record = self._table[trial.trial_id]
            if record.attempt is not None:
                if record.attempt.then == "finish":
                    continue
                self._table.leave(record)
            trial.stopped_by = "search"
            self._complete(record, tell_scheduler=True)

    def _revive(self, record: TrialRecord, how: events.Resumption) -> None:
        """Continue or restart a trial that ended, unless `how` is SKIP."""
        if how == "SKIP":
            return
        if how == "RESTART":
            self._table.reset(record, self.rules.checkpoint_config)
        else:
            record.trial.clear_failures()
            self._table.requeue(record, "continued after its end")
        self.scheduler.on_trial_add(self, record.trial)

    def _active(self, event: events.AttemptEvent) -> tuple[TrialRecord, Attempt]:
        record = self._table[event.trial_id]
        assert record.attempt is not None, event
        return record, record.attempt

    def _wake_searcher(self) -> None:
        if self._searcher == "waiting":
            self._searcher = "ready"

    def _record_result(self, trial: Trial, result: Metrics) -> None:
        """Record the trial's latest result.

        Raises:
            TuneError: A required metric is missing.
        """
        if self.rules.strict_metrics:
            required = {
                "TuneConfig(metric=…)": self.rules.metric,
                "the scheduler": self.scheduler.metric,
            }
            searched = None if self.search_alg is None else self.search_alg.metric
            for metric in [searched] if isinstance(searched, str) else searched or ():
                required[f"the searcher (metric={metric!r})"] = metric
            stopper = self.stopper if self.iteration == 0 else None
            check_result(result, self.rules.trainable_name, required, stopper)
        trial.record_result(result)
        self.iteration += 1

    def _register(self, trial: Trial, checkpoint: Checkpoint) -> None:
        """Register a checkpoint with the trial's latest result.

        Raises:
            TuneError: It is the first checkpoint and cannot be ranked.
        """
        attribute = trial.checkpoints.unused_score_attribute
        if self.rules.strict_metrics and attribute is not None:
            check_score_attribute(trial.last_result, attribute)
        self._table.register(trial, checkpoint)

    def _warn_once(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            self._table.emit(events.LogWarning(text=text))
